//! A model that answers from a script over real HTTP, requests to it, and what came of them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use decision::decide::{Dialect, Run};
use decision::format::ApiFormat;
use decision::identity::Identity;
use decision::problem::Problem;
use decision::request::{CodeTool, Keyword, ToolDeclaration};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::canned::Canned;
pub(super) use super::chat_script::{chat_call, chat_code, chat_stream, chat_text};
use crate::clock::Clock;
use crate::ids::IdSource;
use crate::sandbox::Reaper;
use crate::stored::Named;
use crate::tool_loop::{Engine, Limits, LoopReply, Memory, ReplyBody, RunRequest};
use crate::upstream::{ModelClient, ModelLimits, ModelTarget};

/// One answer of the model.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) body: Vec<u8>,
    /// How the body is cut.
    pub(super) piece: usize,
    /// The body never ends, and the model notes when nobody reads it any more.
    pub(super) hangs: bool,
}

impl Answer {
    pub(super) fn stream(body: &str) -> Self {
        let headers = vec![("content-type", "text/event-stream"), ("request-id", "req_model")];
        Self { status: 200, headers, body: body.as_bytes().to_vec(), piece: usize::MAX, hangs: false }
    }

    pub(super) fn json(body: &str) -> Self {
        Self { headers: vec![("content-type", "application/json")], ..Self::stream(body) }
    }

    pub(super) fn error(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Self {
        Self { status, headers: headers.to_vec(), ..Self::stream(body) }
    }
}

/// What the model received.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The scripted model.
#[derive(Clone)]
pub(super) struct Model {
    script: Arc<Mutex<VecDeque<Answer>>>,
    received: Arc<Mutex<Vec<Received>>>,
    /// Told when a hanging answer is dropped.
    pub(super) dropped: Arc<Notify>,
    /// Told when a request arrived.
    pub(super) arrived: Arc<Notify>,
}

impl Model {
    /// Serves the script on a port of the system's choice.
    pub(super) async fn serve(script: Vec<Answer>) -> (Self, ModelClient) {
        let model = Self {
            script: Arc::new(Mutex::new(script.into())),
            received: Arc::default(),
            dropped: Arc::default(),
            arrived: Arc::default(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = model.clone();
        TaskTracker::new().spawn(async move {
            let connections = TaskTracker::new();
            while let Ok((stream, _)) = listener.accept().await {
                let model = serving.clone();
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request| model.clone().answer(request));
                    drop(
                        hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .await,
                    );
                });
            }
        });
        let client = ModelClient::new(ModelTarget::Url(format!("http://{address}")), ModelLimits::default());
        (model, client.expect("a client"))
    }

    pub(super) fn received(&self) -> Vec<Received> {
        lock(&self.received).clone()
    }

    async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        lock(&self.received).push(Received { path: parts.uri.to_string(), headers: parts.headers, body });
        self.arrived.notify_one();
        let unscripted = || Answer::error(500, &[("content-type", "text/plain")], "no answer left in the script");
        let answer = lock(&self.script).pop_front().unwrap_or_else(unscripted);
        let pieces: Vec<Bytes> = answer.body.chunks(answer.piece.max(1)).map(Bytes::copy_from_slice).collect();
        let pieces = stream::iter(pieces).map(|piece| Ok(Frame::data(piece)));
        let body = if answer.hangs {
            let guard = Dropped(self.dropped.clone());
            let forever = stream::once(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
                Ok(Frame::data(Bytes::new()))
            });
            pieces.chain(forever).boxed()
        } else {
            pieces.boxed()
        };
        let mut response = Response::new(StreamBody::new(body));
        *response.status_mut() = StatusCode::from_u16(answer.status).expect("a status");
        for (name, value) in answer.headers {
            response.headers_mut().append(name, HeaderValue::from_static(value));
        }
        Ok(response)
    }
}

struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Ids that count.
#[derive(Debug, Default)]
pub(super) struct CountingIds(AtomicU64);

impl IdSource for CountingIds {
    fn hex128(&self) -> String {
        format!("{:032x}", self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A clock that stands.
#[derive(Debug)]
pub(super) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_800_000_000).expect("a time")
    }
}

/// Everything around one request.
pub(super) struct Bench {
    pub(super) model: Model,
    pub(super) sandbox: Arc<Canned>,
    pub(super) engine: Arc<Engine>,
}

impl Bench {
    pub(super) async fn new(script: Vec<Answer>, limits: Limits) -> Self {
        let (model, models) = Model::serve(script).await;
        let sandbox = Arc::new(Canned::default());
        let (reaper, reaping) = Reaper::new(sandbox.clone(), usize::MAX);
        let tasks = TaskTracker::new();
        tasks.spawn(reaping);
        let engine = Engine {
            models,
            reaper: Some(reaper),
            containers: None,
            clock: Arc::new(FixedClock),
            ids: Arc::new(CountingIds::default()),
            limits,
            stored: None,
            files: None,
            memory: Arc::new(Memory::new(limits.memory)),
            tasks,
        };
        Self { model, sandbox, engine: Arc::new(engine) }
    }

    /// Serves one request and collects its bytes.
    pub(super) async fn ask(&self, mut asked: RunRequest) -> Result<Reply, Problem> {
        if let Some(stored) = &self.engine.stored {
            (asked.body, asked.named) = stored.resolve(&asked.owner, asked.body, &mut |_| Ok(())).await?;
        }
        Ok(collect(patient(self.engine.serve(asked)).await?).await)
    }
}

/// An answer, collected.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

pub(super) async fn collect(reply: LoopReply) -> Reply {
    let body = match reply.body {
        ReplyBody::Whole(body) => body.to_vec(),
        ReplyBody::Stream(chunks) => patient(chunks.collect::<Vec<Bytes>>()).await.concat(),
    };
    Reply { status: reply.status, headers: reply.headers, body: String::from_utf8(body).expect("text") }
}

/// A test that waits for ever is a test that fails.
pub(super) async fn patient<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it happens")
}

/// Waits for something that happens elsewhere.
pub(super) async fn until(mut holds: impl FnMut() -> bool) {
    patient(async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A request from a caller that speaks Chat Completions; the code tool stands last in `tools`.
pub(super) fn chat_request(model_wire: ApiFormat, body: &serde_json::Value) -> RunRequest {
    let mut asked = run_request(model_wire, body);
    asked.caller = ApiFormat::ChatCompletions;
    asked.run.dialect = Dialect::Plain;
    asked.forward_headers = HeaderMap::from_iter([
        (HeaderName::from_static("authorization"), HeaderValue::from_static("Bearer the-clients-own")),
        (HeaderName::from_static("openai-organization"), HeaderValue::from_static("org-1")),
    ]);
    asked
}

/// A request from a caller that speaks Messages; the code tool stands last in `tools`.
pub(super) fn run_request(model_wire: ApiFormat, body: &serde_json::Value) -> RunRequest {
    let tools = body["tools"].as_array().map_or(0, Vec::len);
    let declaration = ToolDeclaration {
        index: u32::try_from(tools.saturating_sub(1)).expect("few tools"),
        keyword: Keyword::Dated("20250522".to_owned()),
        name: Some("code_execution".to_owned()),
        purpose_hint: None,
    };
    RunRequest {
        request_id: "req_otr1".to_owned(),
        owner: Identity { user: "ann".to_owned(), workspace: "team".to_owned() },
        caller: ApiFormat::Messages,
        model_wires: vec![model_wire],
        provider: "local".to_owned(),
        provider_kind: None,
        upstream_model: None,
        forward_headers: HeaderMap::from_iter([
            (HeaderName::from_static("anthropic-beta"), HeaderValue::from_static("code-execution-2025-05-22, other-1")),
            (HeaderName::from_static("x-api-key"), HeaderValue::from_static("the-clients-own")),
        ]),
        body: body.to_string().into(),
        named: Named::default(),
        seeds: Vec::new(),
        container: None,
        dropped: Vec::new(),
        run: Run {
            dialect: Dialect::Native,
            claimed: vec![declaration],
            tools: vec![CodeTool::Python],
            max_iterations: 10,
            exec_timeout_s: 60,
            purpose_hint: None,
            image: None,
            container: None,
        },
        stream: body["stream"] == true,
        tally: Arc::default(),
    }
}

/// The usual request.
pub(super) fn request(stream: bool) -> serde_json::Value {
    serde_json::json!({
        "model": "demo",
        "max_tokens": 100,
        "stream": stream,
        "messages": [{"role": "user", "content": "What is 6*7?"}],
        "tools": [{"type": "code_execution_20250522", "name": "code_execution"}],
    })
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics while it holds this")
}
