//! Accepting connections on a Unix socket or a TCP address, and ending them in good order.
//!
//! INVARIANT: no more than `http.max_connections` and a small reserve at once; a connection of the reserve answers one
//! request, and only one that must be answered when everything else is full. A drain waits for every connection until its
//! deadline.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::linger::Lingering;
use super::stall::Stalling;
use crate::config::ListenAddress;
use crate::private;

/// Most bytes of a request's head.
const HEAD_MAX_BYTES: usize = 128 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 200;
/// Pause after a failed accept, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections beside `http.max_connections`: for health and the policy snapshot, and to tell the rest to come back.
const RESERVED_CONNECTIONS: usize = 32;

/// Limits of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ListenerLimits {
    /// Connections at once.
    pub max_connections: usize,
    /// Longest time for a request's head.
    pub header_timeout: Duration,
    /// Longest wait for the other end to read.
    pub stall_timeout: Duration,
}

/// When connections end. `stop` lets open requests finish; `abandon` does not.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    /// No new requests.
    pub stop: CancellationToken,
    /// Every connection ends now.
    pub abandon: CancellationToken,
}

/// An extension of requests on a connection of the reserve.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reserved;

/// A bound listener.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: ListenAddress,
}

#[derive(Debug)]
enum Socket {
    /// The path is removed when the listener is dropped.
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    /// Binds. A socket left behind by a dead process is replaced, one of a live process is an error.
    pub async fn bind(address: &ListenAddress) -> io::Result<Self> {
        match address {
            ListenAddress::Unix(path) => {
                clear_dead_socket(path).await?;
                let listener = UnixListener::from_std(private::listen(path)?)?;
                Ok(Self { socket: Socket::Unix(listener, path.clone()), address: address.clone() })
            }
            ListenAddress::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted).await?;
                let address = ListenAddress::Tcp(listener.local_addr()?);
                Ok(Self { socket: Socket::Tcp(listener), address })
            }
        }
    }

    /// Where it listens; with a port chosen by the system, that port.
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Serves until told to stop. Connections are tasks of `tasks`; this returns when no new one is accepted.
    pub async fn serve(self, router: Router, limits: ListenerLimits, ending: Ending, tasks: TaskTracker) {
        let room = Room::new(limits.max_connections);
        let connection = Connection { router, limits, ending: ending.clone(), tasks };
        loop {
            let accepted = tokio::select! {
                () = ending.stop.cancelled() => return,
                accepted = self.accept(&room) => accepted,
            };
            match accepted {
                Ok((Stream::Unix(stream), place)) => connection.spawn(stream, place),
                Ok((Stream::Tcp(stream), place)) => connection.spawn(stream, place),
                Err(error) => {
                    tracing::warn!(error = %error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn accept(&self, room: &Room) -> io::Result<(Stream, Place)> {
        let stream = match &self.socket {
            Socket::Unix(listener, _) => Stream::Unix(listener.accept().await?.0),
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        };
        // Only now, when it is known who is free: the one connection without a place waits here.
        Ok((stream, room.place().await?))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix(_, path) = &self.socket {
            // Gone already is as good.
            std::fs::remove_file(path).ok();
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(tokio::net::TcpStream),
}

/// Where connections find their places.
struct Room {
    ordinary: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
}

/// A connection's place; given back when it is dropped.
struct Place {
    reserved: bool,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    fn new(max_connections: usize) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { ordinary: places(max_connections), reserve: places(RESERVED_CONNECTIONS) }
    }

    async fn place(&self) -> io::Result<Place> {
        let (permit, reserved) = tokio::select! {
            biased;
            permit = Arc::clone(&self.ordinary).acquire_owned() => (permit, false),
            permit = Arc::clone(&self.reserve).acquire_owned() => (permit, true),
        };
        Ok(Place { reserved, _permit: permit.map_err(io::Error::other)? })
    }
}

#[derive(Clone)]
struct Connection {
    router: Router,
    limits: ListenerLimits,
    ending: Ending,
    tasks: TaskTracker,
}

impl Connection {
    /// Serves it in a task.
    fn spawn<S>(&self, stream: S, place: Place)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let this = self.clone();
        self.tasks.spawn(this.serve(Stalling::new(stream, self.limits.stall_timeout), place));
    }

    async fn serve<S>(self, stream: S, place: Place)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let reserved = place.reserved;
        let tasks = self.tasks;
        let router = self.router.map_request(move |mut request: http::Request<Incoming>| {
            if reserved {
                request.extensions_mut().insert(Reserved);
            }
            request.map(|body| Body::new(Lingering::new(body, tasks.clone())))
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .keep_alive(!reserved)
            .header_read_timeout(self.limits.header_timeout)
            .max_buf_size(HEAD_MAX_BYTES)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        let mut connection = std::pin::pin!(connection);
        let mut stopping = false;
        loop {
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(error = %error, "a connection ended early");
                    }
                    return;
                }
                () = self.ending.stop.cancelled(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = self.ending.abandon.cancelled() => return,
            }
        }
    }
}

async fn clear_dead_socket(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is not a socket stands there"));
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another sidecar serves this data_dir")),
        Err(_) => std::fs::remove_file(path),
    }
}
