//! A small HTTP client for tests: chunk boundaries, early leaving and raw bytes are in the test's hand.
//!
//! INVARIANT: no retry, no redirect, no pool; a connection closes when its value is dropped, whatever it is doing.

mod http2;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;

/// Longest wait for any single read; a hang becomes a failed test, not a stuck one.
const READ_TIMEOUT: Duration = Duration::from_secs(90);

/// Where a request goes.
#[derive(Debug, Clone)]
pub enum Target {
    /// A TCP socket.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// A request in the making.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: CallBody,
    patience: Duration,
}

/// How the body goes out.
#[derive(Debug, Clone)]
enum CallBody {
    /// With a content-length.
    Whole(Bytes),
    /// Chunked, at these boundaries.
    Chunks(Vec<Bytes>),
}

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Header pairs in order, names lower-case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// An answer whose body is still coming. Dropping it leaves: the connection closes.
#[derive(Debug)]
pub struct Streaming {
    /// HTTP status.
    pub status: u16,
    /// Header pairs in order, names lower-case.
    pub headers: Vec<(String, String)>,
    body: Incoming,
    seen: Vec<u8>,
    _connection: Connection,
}

/// A connection for one request after another. Dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<SentBody>,
    host: String,
    driver: JoinHandle<()>,
}

type SentBody = UnsyncBoxBody<Bytes, Infallible>;

impl Call {
    /// A request without a body.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            headers: Vec::new(),
            body: CallBody::Whole(Bytes::new()),
            patience: READ_TIMEOUT,
        }
    }

    /// A GET.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// A POST of JSON.
    pub fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::new(Method::POST, path).json(body)
    }

    /// A POST of these bytes, said to be JSON.
    pub fn post_bytes(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new(Method::POST, path).header("content-type", "application/json").bytes(body)
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// `authorization: Bearer <key>`.
    #[must_use]
    pub fn bearer(self, key: &str) -> Self {
        self.header("authorization", format!("Bearer {key}"))
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").bytes(body.to_string())
    }

    /// Sets the body.
    #[must_use]
    pub fn bytes(mut self, body: impl Into<Bytes>) -> Self {
        self.body = CallBody::Whole(body.into());
        self
    }

    /// Sends the body chunked, at these boundaries.
    #[must_use]
    pub fn chunks(mut self, chunks: Vec<Bytes>) -> Self {
        self.body = CallBody::Chunks(chunks);
        self
    }

    /// Waits so long for the answer's head: before it comes, all of the body has to go out.
    #[must_use]
    pub fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends the request and reads the whole answer.
    pub async fn send(self, target: impl Into<Target>) -> io::Result<Answer> {
        let streaming = self.open(target).await?;
        streaming.finish().await
    }

    /// Sends the request and returns as soon as the answer's head is there.
    pub async fn open(self, target: impl Into<Target>) -> io::Result<Streaming> {
        let mut connection = Connection::open(target).await?;
        let (status, headers, body) = connection.exchange(self).await?;
        Ok(Streaming { status, headers, body, seen: Vec::new(), _connection: connection })
    }

    fn request(self, host: &str) -> io::Result<Request<SentBody>> {
        let mut builder = Request::builder().method(self.method).uri(self.path).header("host", host);
        for (name, value) in self.headers {
            builder = builder.header(name, value);
        }
        let body = match self.body {
            CallBody::Whole(bytes) => Full::new(bytes).boxed_unsync(),
            CallBody::Chunks(chunks) => {
                let frames = chunks.into_iter().map(|chunk| Ok(Frame::data(chunk)));
                StreamBody::new(stream::iter(frames)).boxed_unsync()
            }
        };
        builder.body(body).map_err(io::Error::other)
    }
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl Streaming {
    /// The next bytes of the body; `None` at its end, an error when it breaks off.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            match timed(self.body.frame()).await? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                        self.seen.extend_from_slice(&data);
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Reads the rest and keeps none of it: how many bytes there were.
    pub async fn discard(self) -> io::Result<u64> {
        let mut bytes: u64 = 0;
        self.each(|piece| bytes = bytes.saturating_add(piece.len() as u64)).await?;
        Ok(bytes)
    }

    /// Shows the rest piece by piece and keeps none of it.
    pub async fn each(mut self, mut see: impl FnMut(&[u8])) -> io::Result<()> {
        while let Some(frame) = timed(self.body.frame()).await? {
            if let Ok(piece) = frame.map_err(io::Error::other)?.into_data() {
                see(&piece);
            }
        }
        Ok(())
    }

    /// Reads until the text so far contains this; an error when the body ends first.
    pub async fn read_until(&mut self, wanted: &str) -> io::Result<()> {
        while !self.seen_text().contains(wanted) {
            if self.next().await?.is_none() {
                return Err(io::Error::other(format!("the answer ended without {wanted:?}: {}", self.seen_text())));
            }
        }
        Ok(())
    }

    /// What has been read so far.
    pub fn seen_text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Reads the rest. An answer that breaks off is an error of kind `Other`.
    pub async fn finish(mut self) -> io::Result<Answer> {
        while self.next().await?.is_some() {}
        let body = std::mem::take(&mut self.seen).into();
        Ok(Answer { status: self.status, headers: std::mem::take(&mut self.headers), body })
    }
}

impl Connection {
    /// Connects.
    pub async fn open(target: impl Into<Target>) -> io::Result<Self> {
        match target.into() {
            Target::Tcp(address) => {
                let socket = TcpStream::connect(address).await?;
                socket.set_nodelay(true)?;
                Self::over(socket, address.to_string()).await
            }
            Target::Unix(path) => Self::over(UnixStream::connect(path).await?, "localhost".to_owned()).await,
        }
    }

    async fn over<S>(socket: S, host: String) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, driver) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.map_err(io::Error::other)?;
        let driver = tokio::spawn(async move { drop(driver.await) });
        Ok(Self { sender, host, driver })
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(&mut self, call: Call) -> io::Result<Answer> {
        let (status, headers, body) = self.exchange(call).await?;
        let body = timed(body.collect()).await?.map_err(io::Error::other)?.to_bytes();
        Ok(Answer { status, headers, body })
    }

    async fn exchange(&mut self, call: Call) -> io::Result<(u16, Vec<(String, String)>, Incoming)> {
        timed(self.sender.ready()).await?.map_err(io::Error::other)?;
        let patience = call.patience;
        let response = self.sender.send_request(call.request(&self.host)?);
        let response = within(patience, response).await?.map_err(io::Error::other)?;
        let (head, body) = response.into_parts();
        Ok((head.status.as_u16(), header_pairs(&head.headers), body))
    }
}

fn header_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Sends raw bytes and reads one answer; for requests that no client library would send.
pub async fn raw(address: SocketAddr, request: &[u8]) -> io::Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    let (mut reading, mut writing) = socket.split();
    let mut answer = Vec::new();
    let read = async {
        while !is_complete(&answer, request.starts_with(b"HEAD ")) {
            match timed(reading.read_buf(&mut answer)).await? {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if answer.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    };
    // A peer that refuses early answers before it has read all, and may then close: its answer counts, ours need not.
    let write = async {
        drop(writing.write_all(request).await);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        done = read => done?,
        () = write => {}
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Whether these bytes hold a whole final answer; otherwise only the end of the connection tells.
fn is_complete(answer: &[u8], to_head: bool) -> bool {
    let answer = String::from_utf8_lossy(answer);
    let mut rest = answer.as_ref();
    while let Some((head, body)) = rest.split_once("\r\n\r\n") {
        if head.starts_with("HTTP/1.1 1") {
            rest = body;
            continue;
        }
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        return match header("content-length:").and_then(|length| length.parse::<usize>().ok()) {
            _ if to_head => true,
            Some(length) => body.len() >= length,
            None => header("transfer-encoding:") == Some("chunked") && body.ends_with("0\r\n\r\n"),
        };
    }
    false
}

async fn timed<T>(future: impl Future<Output = T>) -> io::Result<T> {
    within(READ_TIMEOUT, future).await
}

async fn within<T>(patience: Duration, future: impl Future<Output = T>) -> io::Result<T> {
    tokio::time::timeout(patience, future).await.map_err(|_| io::ErrorKind::TimedOut.into())
}
