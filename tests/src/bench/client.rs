//! One kept connection that sends one request after the other and times each.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::HOP_SECRET;
use crate::stack::Fallible;

/// One client with one connection.
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    pub(super) async fn unix(path: &Path) -> Fallible<Self> {
        Self::over(UnixStream::connect(path).await?).await
    }

    pub(super) async fn tcp(address: SocketAddr) -> Fallible<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Self::over(stream).await
    }

    async fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Fallible<Self> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends with the sender, that is with the client.
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    pub(super) async fn get(&mut self, path: &str) -> Fallible<()> {
        let request = hyper::Request::get(path).header("host", "bench").body(Full::default())?;
        let answer = self.sender.send_request(request).await?;
        if answer.status().is_success() { Ok(()) } else { Err(answer.status().to_string().into()) }
    }

    /// Sends `body` and reads the answer to its end; `right` says whether it is the one expected.
    pub(super) async fn post(&mut self, path: &str, body: &Bytes, right: fn(&[u8]) -> bool) -> Fallible<Duration> {
        let request = hyper::Request::post(path)
            .header("host", "bench")
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .header("x-otari-hop", HOP_SECRET)
            .body(Full::new(body.clone()))?;
        let begun = Instant::now();
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let answer = answer.into_body().collect().await?.to_bytes();
        let time = begun.elapsed();
        if status.is_success() && right(&answer) {
            Ok(time)
        } else {
            Err(format!("a wrong answer, {status}: {}", String::from_utf8_lossy(&answer)).into())
        }
    }
}
