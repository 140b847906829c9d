//! A contract-v1 sandbox that answers at once and runs nothing: what is left of a turn's time is the gateway's own.
//! Only benches use it; tests run code in the real sandbox.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// A running stand-in. Dropping it stops it.
#[derive(Debug)]
pub struct SandboxStandIn {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl SandboxStandIn {
    /// Starts it; every program prints `stdout`.
    pub async fn start(stdout: &'static str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((socket, _)) = listener.accept().await else { continue };
                drop(socket.set_nodelay(true));
                let service = service_fn(move |request| answer(request, stdout));
                let http = hyper::server::conn::http1::Builder::new();
                connections.spawn(http.serve_connection(TokioIo::new(socket), service));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, server })
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for SandboxStandIn {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(request: Request<Incoming>, stdout: &str) -> Result<Response<Full<Bytes>>, Infallible> {
    static SESSIONS: AtomicU64 = AtomicU64::new(0);
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let (status, body) = match (&head.method, head.uri.path()) {
        (&Method::POST, "/sessions") => {
            let id = format!("sbx_{:024x}", SESSIONS.fetch_add(1, Ordering::Relaxed));
            (StatusCode::CREATED, json!({"session_id": id}))
        }
        (&Method::POST, path) if path.ends_with("/exec") => {
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let id = request.get("tool_use_id").cloned().unwrap_or_default();
            let content = json!({"type": "code_execution_result", "stdout": stdout, "stderr": "", "return_code": 0,
                "content": []});
            let block = json!({"type": "code_execution_tool_result", "tool_use_id": id, "content": content});
            (StatusCode::OK, json!({"tool_use_id": id, "result_block": block}))
        }
        (&Method::DELETE, _) => (StatusCode::NO_CONTENT, Value::Null),
        _ => (StatusCode::NOT_FOUND, json!({"error": "not served"})),
    };
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    Ok(response)
}
