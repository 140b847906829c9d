//! A model behind the sidecar's model socket: records what it gets, answers what the test says, piece by piece.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

/// A listening model. The pieces of every answer come through one channel; dropping its end ends the answer.
pub(crate) struct Upstream {
    recorded: Arc<Mutex<Vec<Recorded>>>,
    _tasks: JoinSet<()>,
}

/// Pieces of the next answer's body; `Err` breaks it off.
pub(crate) type Pieces = mpsc::Receiver<Result<Frame<Bytes>, std::io::Error>>;

impl Upstream {
    /// Answers every request with this status, these headers and this body.
    pub(crate) fn answering(socket: &Path, status: u16, headers: &[(&str, &str)], body: &'static [u8]) -> Self {
        let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self::start(socket, move || {
            let (sender, pieces) = mpsc::channel(1);
            sender.try_send(Ok(Frame::data(Bytes::from_static(body)))).unwrap();
            (status, headers.clone(), pieces)
        })
    }

    /// Answers each request with the next of these bodies.
    pub(crate) fn answering_each(socket: &Path, bodies: &'static [&'static str]) -> Self {
        let left = Mutex::new(bodies.iter());
        Self::start(socket, move || {
            let (sender, pieces) = mpsc::channel(1);
            let body = left.lock().unwrap().next().expect("one request more than answers");
            sender.try_send(Ok(Frame::data(Bytes::from_static(body.as_bytes())))).unwrap();
            (200, vec![("content-type".to_owned(), "application/json".to_owned())], pieces)
        })
    }

    /// Answers the first request with a stream that the test feeds.
    pub(crate) fn streaming(socket: &Path) -> (Self, mpsc::Sender<Result<Frame<Bytes>, std::io::Error>>) {
        let (sender, pieces) = mpsc::channel(1);
        let pieces = Mutex::new(Some(pieces));
        let upstream = Self::start(socket, move || {
            let pieces = pieces.lock().unwrap().take().expect("one request only");
            (200, vec![("content-type".to_owned(), "text/event-stream".to_owned())], pieces)
        });
        (upstream, sender)
    }

    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        self.recorded.lock().unwrap().clone()
    }

    fn start(socket: &Path, answer: impl Fn() -> (u16, Vec<(String, String)>, Pieces) + Send + Sync + 'static) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let (record, answer) = (Arc::clone(&recorded), Arc::new(answer));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (record, answer) = (Arc::clone(&record), Arc::clone(&answer));
                connections.spawn(async move {
                    let service = service_fn(move |request: http::Request<Incoming>| {
                        let (record, answer) = (Arc::clone(&record), Arc::clone(&answer));
                        async move { Ok::<_, Infallible>(respond(request, &record, &*answer).await) }
                    });
                    drop(
                        hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .await,
                    );
                });
            }
        });
        Self { recorded, _tasks: tasks }
    }
}

async fn respond(
    request: http::Request<Incoming>,
    record: &Mutex<Vec<Recorded>>,
    answer: &(dyn Fn() -> (u16, Vec<(String, String)>, Pieces) + Send + Sync),
) -> http::Response<StreamBody<BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    record.lock().unwrap().push(Recorded {
        method: head.method.to_string(),
        path: head.uri.to_string(),
        headers: head.headers,
        body,
    });
    let (status, headers, pieces) = answer();
    let stream = futures_util::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((piece, pieces))
    });
    let mut response = http::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(StreamBody::new(stream.boxed())).unwrap()
}
