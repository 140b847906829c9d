//! A contract-v1 sandbox that lies about its files: each is listed with one byte, and sends gigabytes without saying so.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::stack::Fallible;

/// What is sent at once.
const PIECE_BYTES: usize = 1 << 16;

/// A running server; it ends with the runtime it was started on.
#[derive(Debug)]
pub struct Flood {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Flood {
    /// After an execution it lists files of these names, each of which sends so many bytes.
    pub async fn start(names: &'static [&'static str], file_bytes: u64) -> Fallible<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, sent) = (listener.local_addr()?, Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&sent);
        tokio::spawn(async move {
            let executions = Arc::new(AtomicU64::new(0));
            while let Ok((stream, _)) = listener.accept().await {
                let (counted, executions) = (Arc::clone(&counted), Arc::clone(&executions));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (counted, executions) = (Arc::clone(&counted), Arc::clone(&executions));
                    async move { Ok::<_, Infallible>(answer(request, names, file_bytes, counted, &executions).await) }
                });
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        Ok(Self { address, sent })
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bytes of files that the other side has taken.
    pub fn sent_bytes(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

async fn answer(
    request: Request<Incoming>,
    names: &[&str],
    file_bytes: u64,
    sent: Arc<AtomicU64>,
    executions: &AtomicU64,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
    match (&head.method, path.as_slice()) {
        (&Method::POST, ["sessions"]) => reply(StatusCode::CREATED, &json!({"session_id": "s1"})),
        (&Method::POST, ["sessions", _, "exec"]) => {
            executions.fetch_add(1, Ordering::SeqCst);
            let call: Value = serde_json::from_slice(&body).unwrap_or_default();
            let id = &call["tool_use_id"];
            let content = json!({"type": "code_execution_result", "stdout": "sum 5050\n", "stderr": "", "return_code": 0,
                "content": []});
            let block = json!({"type": "code_execution_tool_result", "tool_use_id": id, "content": content});
            reply(StatusCode::OK, &json!({"tool_use_id": id, "result_block": block}))
        }
        (&Method::GET, ["sessions", _, "files", "list"]) => {
            let written = if executions.load(Ordering::SeqCst) > 0 { names } else { &[] };
            let files: Value = written.iter().map(|name| json!({"path": name, "size_bytes": 1})).collect();
            reply(StatusCode::OK, &json!({"files": files}))
        }
        (&Method::GET, ["sessions", _, "files"]) => Response::new(flood(file_bytes, sent)),
        (&Method::DELETE, ["sessions", _]) => reply(StatusCode::NO_CONTENT, &Value::Null),
        _ => reply(StatusCode::NOT_FOUND, &json!({"detail": "no such thing"})),
    }
}

/// Without a length: it goes out in chunks for as long as somebody takes them.
fn flood(bytes: u64, sent: Arc<AtomicU64>) -> Body {
    let piece = Bytes::from(vec![b'x'; PIECE_BYTES]);
    let pieces = stream::unfold(bytes, move |left| {
        let (piece, sent) = (piece.clone(), Arc::clone(&sent));
        async move {
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
            sent.fetch_add(length as u64, Ordering::SeqCst);
            (length > 0).then(|| (Ok(Frame::data(piece.slice(..length))), left - length as u64))
        }
    });
    StreamBody::new(pieces).boxed_unsync()
}

fn reply(status: StatusCode, body: &Value) -> Response<Body> {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut response = Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
