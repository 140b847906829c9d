//! One HTTP call over a Unix socket; nothing is added that the test did not write but `host`.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// A call in the making.
pub(crate) struct Call {
    socket: PathBuf,
    request: http::request::Builder,
    body: Bytes,
    chunked: bool,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

/// An answer whose body is still coming; dropping it closes the connection.
pub(crate) struct Open {
    pub(crate) status: u16,
    body: Incoming,
    _connection: JoinSet<()>,
}

impl Call {
    pub(crate) fn new(socket: &Path, method: &str, path: &str) -> Self {
        let request = http::Request::builder().method(method).uri(path).header("host", "sidecar");
        Self { socket: socket.to_owned(), request, body: Bytes::new(), chunked: false }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    /// The same without a `content-length`.
    pub(crate) fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    pub(crate) async fn open(self) -> Open {
        let (answer, connection) = self.exchange().await;
        Open { status: answer.status().as_u16(), body: answer.into_body(), _connection: connection }
    }

    pub(crate) async fn send(self) -> Answer {
        let (answer, _connection) = self.exchange().await;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    }

    async fn exchange(self) -> (http::Response<Incoming>, JoinSet<()>) {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(connection.await) });
        let body = Full::new(self.body);
        let body = if self.chunked { body.map_frame(|frame| frame).boxed_unsync() } else { body.boxed_unsync() };
        (sender.send_request(self.request.body(body).unwrap()).await.unwrap(), tasks)
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {:?}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Open {
    /// The next piece of the body; `None` at its end, `Err` when it broke off.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        self.body.frame().await.transpose().map(|frame| frame.and_then(|frame| frame.into_data().ok()))
    }
}
