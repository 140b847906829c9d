//! A contract-v1 sandbox that holds executions until a given number of them wait at once; each then prints its own code.
//!
//! INVARIANT: an execution is answered in the session that asked, and a session is known until it is deleted, once.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Barrier;

use crate::stack::Fallible;

/// A running stand-in; it ends with the runtime it was started on.
#[derive(Debug, Clone)]
pub struct Gathering {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    together: Barrier,
    sessions: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    minted: u64,
    live: BTreeSet<String>,
    /// Requests that named a session nobody has, or had no sense.
    wrong: u64,
}

impl Gathering {
    /// Answers executions in groups of this many.
    pub async fn start(together: usize) -> Fallible<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let shared = Arc::new(Shared { together: Barrier::new(together), sessions: Mutex::default() });
        let gathering = Self { address: listener.local_addr()?, shared: Arc::clone(&shared) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream.set_nodelay(true));
                let shared = Arc::clone(&shared);
                let service = service_fn(move |request| {
                    let shared = Arc::clone(&shared);
                    async move { Ok::<_, Infallible>(shared.answer(request).await) }
                });
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        Ok(gathering)
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sessions that were opened and not deleted, and requests that made no sense.
    pub fn left(&self) -> (usize, u64) {
        let sessions = self.shared.sessions();
        (sessions.live.len(), sessions.wrong)
    }
}

impl Shared {
    fn sessions(&self) -> std::sync::MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let path: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
        match (&head.method, path.as_slice()) {
            (&Method::POST, ["sessions"]) => {
                let mut sessions = self.sessions();
                sessions.minted += 1;
                let id = format!("s{}", sessions.minted);
                sessions.live.insert(id.clone());
                reply(StatusCode::CREATED, &json!({"session_id": id}))
            }
            (&Method::POST, ["sessions", id, "exec"]) if self.sessions().live.contains(*id) => {
                let call: Value = serde_json::from_slice(&body).unwrap_or_default();
                self.together.wait().await;
                reply(StatusCode::OK, &result(&call))
            }
            (&Method::DELETE, ["sessions", id]) if self.sessions().live.remove(*id) => {
                reply(StatusCode::NO_CONTENT, &Value::Null)
            }
            // The contract leaves files open.
            (&Method::GET, ["sessions", id, "files", "list"]) if self.sessions().live.contains(*id) => {
                reply(StatusCode::NOT_IMPLEMENTED, &json!({"detail": "no files here"}))
            }
            _ => {
                self.sessions().wrong += 1;
                reply(StatusCode::NOT_FOUND, &json!({"detail": "no such session"}))
            }
        }
    }
}

fn result(call: &Value) -> Value {
    let id = &call["tool_use_id"];
    json!({
        "tool_use_id": id,
        "result_block": {"type": "code_execution_tool_result", "tool_use_id": id, "content": {
            "type": "code_execution_result", "stdout": call["input"]["code"], "stderr": "", "return_code": 0, "content": [],
        }},
    })
}

fn reply(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
