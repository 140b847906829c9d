//! Runs a request's code here: model and sandbox in turns, one answer to the client.
//!
//! INVARIANT: the rules stand in the machine alone; driver, readers and writers carry out and translate.

mod arguments;
mod driver;
mod failure;
mod limits;
mod machine;
mod model_side;
mod report;
mod session;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use decision::decide::{Dialect, Run};
use decision::format::ApiFormat;
use decision::header::{API_KEY, AUTHORIZATION, CONTROL, DROPPED};
use decision::problem::{Origin, Problem, ProblemKind};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use self::driver::{Driver, Sink};
use self::model_side::{Call, ModelSide, read_error};
use self::session::Session;
use crate::clock::Clock;
use crate::ids::IdSource;
use crate::sandbox::Reaper;
use crate::upstream::{ModelAnswer, ModelClient};
use crate::wire::model_request::Prepared;
use crate::wire::writer::{ClientWriter, WriterOptions};
use crate::wire::{chat_completions, messages};

pub use limits::Limits;
pub use machine::{Input, NextTurn, Output, Settings, ToolLoop};
pub use tally::Tally;

/// Longest list of what was dropped that a header tells; the log has all of it.
const MAX_DROPPED_BYTES: usize = 1024;

/// A request whose code is to be run here.
#[derive(Debug)]
pub struct CodeTurn {
    /// The request's id, as its caller sees it.
    pub request_id: String,
    /// Whose request it is.
    pub workspace: String,
    /// The wire the caller speaks.
    pub caller: ApiFormat,
    /// The wire the model is called in.
    pub model_wire: ApiFormat,
    /// The model's provider.
    pub provider: String,
    /// The provider's own name for the model, where it differs.
    pub upstream_model: Option<String>,
    /// The client's headers that may go to the provider, and in a mesh the hop's secret.
    pub forward_headers: HeaderMap,
    /// The request's body.
    pub body: Bytes,
    /// What was decided.
    pub run: Run,
    /// The caller wants a stream.
    pub stream: bool,
    /// Where the loop counts what it does.
    pub tally: Arc<Tally>,
}

/// Everything the loop needs that outlives a request.
#[derive(Debug)]
pub struct Engine {
    /// Calls models.
    pub models: ModelClient,
    /// Lends sandbox sessions; `None` when no sandbox is configured.
    pub reaper: Option<Reaper>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Ids for what the gateway adds to answers.
    pub ids: Arc<dyn IdSource>,
    /// Bounds on one request.
    pub limits: Limits,
    /// Where streamed answers run, so that a drain waits for them.
    pub tasks: TaskTracker,
}

/// The answer to a request.
#[derive(Debug)]
pub struct LoopReply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: ReplyBody,
}

/// The body of an answer.
pub enum ReplyBody {
    /// All of it.
    Whole(Bytes),
    /// As it comes. Dropping it stops everything behind it.
    Stream(BoxStream<'static, Bytes>),
}

impl std::fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(body) => f.debug_tuple("Whole").field(&body.len()).finish(),
            Self::Stream(_) => f.debug_tuple("Stream").finish_non_exhaustive(),
        }
    }
}

impl Engine {
    /// Answers one request. Dropping the future, or a stream it returned, stops model and sandbox.
    pub async fn serve(self: &Arc<Self>, turn: CodeTurn) -> Result<LoopReply, Problem> {
        let prepared = prepare(&turn)?;
        let reaper = self.reaper.clone().ok_or_else(no_sandbox)?;
        let same_wire = turn.caller == turn.model_wire;
        let dropped = (!prepared.dropped.is_empty()).then(|| prepared.dropped.join(", "));
        if let Some(dropped) = &dropped {
            tracing::info!(request.id = %turn.request_id, dropped, "not carried over to the model's wire");
        }
        let mut driver = self.driver(&turn, prepared, reaper)?;
        let first = driver.first_answer().await?;
        let mut headers = reply_headers(&first.headers, &turn, dropped.as_deref());
        if !first.status.is_success() {
            return self.refused(&turn, same_wire, headers, first).await;
        }
        if !turn.stream {
            driver.run(first, &Sink::Whole).await?;
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            return Ok(LoopReply { status: StatusCode::OK, headers, body: ReplyBody::Whole(driver.writer.take()) });
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let (sender, receiver) = mpsc::channel(self.limits.max_queued_chunks);
        self.tasks.spawn(stream_answer(driver, first, Sink::Stream(sender)));
        let body = stream::unfold(receiver, |mut chunks| async { Some((chunks.recv().await?, chunks)) }).boxed();
        Ok(LoopReply { status: StatusCode::OK, headers, body: ReplyBody::Stream(body) })
    }

    fn driver(&self, turn: &CodeTurn, prepared: Prepared, reaper: Reaper) -> Result<Driver, Problem> {
        let Prepared { request, tool_name, model, show_reasoning, dropped: _ } = prepared;
        let writer = ClientWriter::new(WriterOptions {
            wire: turn.caller,
            streamed: turn.stream,
            native: turn.run.dialect == Dialect::Native,
            show_reasoning,
            model,
            request_id: turn.request_id.clone(),
            ids: Arc::clone(&self.ids),
            clock: Arc::clone(&self.clock),
        });
        let settings = Settings { tool_name, max_rounds: turn.run.max_iterations.max(1), limits: self.limits };
        let timeout = Duration::from_secs(turn.run.exec_timeout_s.max(1).into());
        Ok(Driver {
            model: ModelSide {
                client: self.models.clone(),
                provider: turn.provider.clone(),
                wire: turn.model_wire,
                headers: model_headers(turn),
                request,
                same_wire: turn.caller == turn.model_wire,
                streamed: turn.stream,
                limits: self.limits,
                ids: Arc::clone(&self.ids),
                call: Call::None,
            },
            session: Session::open(
                reaper,
                self.tasks.clone(),
                timeout,
                turn.request_id.clone(),
                turn.workspace.clone(),
            ),
            writer: writer.ok_or_else(not_built)?,
            machine: Some(ToolLoop::new(settings)),
            finished: false,
            outputs: Vec::new(),
            deadline: Instant::now() + self.limits.request_timeout,
            request_id: turn.request_id.clone(),
            tally: Arc::clone(&turn.tally),
        })
    }

    /// The model refused the first call: in the caller's own wire its words pass untouched, else they are translated.
    async fn refused(
        &self,
        turn: &CodeTurn,
        same_wire: bool,
        mut headers: HeaderMap,
        answer: ModelAnswer,
    ) -> Result<LoopReply, Problem> {
        let kind = answer.headers.get(header::CONTENT_TYPE);
        let is_json = kind.and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.contains("json"));
        let (status, upstream) = (answer.status, answer.headers.clone());
        let is_error = status.is_client_error() || status.is_server_error();
        let body = read_error(answer, &self.limits).await;
        if !(same_wire && is_json && is_error) {
            return Err(failure::of_answer(turn.model_wire, status, &upstream, &body));
        }
        for name in ["content-type", "content-encoding", "retry-after", "retry-after-ms", "x-should-retry"] {
            if let Some(value) = upstream.get(name) {
                headers.insert(HeaderName::from_static(name), value.clone());
            }
        }
        Ok(LoopReply { status, headers, body: ReplyBody::Whole(body) })
    }
}

/// Runs a streamed answer. What goes wrong was told in the stream, and logged where it happened.
async fn stream_answer(mut driver: Driver, first: ModelAnswer, sink: Sink) {
    let ended = driver.run(first, &sink).await;
    if let (Err(problem), Sink::Stream(client)) = (ended, &sink) {
        driver.tally.fail(problem.kind);
        let last = driver.writer.take();
        let deadline = driver.deadline;
        tracing::warn!(request.id = %driver.request_id, "a streamed answer ended with an error");
        drop(tokio::time::timeout_at(deadline, client.send(last)).await);
    }
    drop(sink);
    let Driver { mut model, session, finished, .. } = driver;
    drop(session);
    if finished {
        let patience = model.limits.drain_timeout;
        model.drain(patience).await;
    }
}

/// The request to the model, in its wire.
fn prepare(turn: &CodeTurn) -> Result<Prepared, Problem> {
    let upstream_model = turn.upstream_model.as_deref();
    match (turn.caller, turn.model_wire) {
        (ApiFormat::Messages, ApiFormat::Messages) => messages::edit(&turn.body, &turn.run, upstream_model),
        (ApiFormat::Messages, ApiFormat::ChatCompletions) => {
            let conversation = messages::parse(&turn.body, &turn.run)?;
            Ok(chat_completions::emit(conversation, &turn.run, upstream_model))
        }
        _ => Err(not_built()),
    }
}

/// The client's headers, as far as they mean something to the model's wire.
fn model_headers(turn: &CodeTurn) -> HeaderMap {
    let mut headers = turn.forward_headers.clone();
    for name in CONTROL {
        headers.remove(*name);
    }
    for name in ["accept", "content-encoding", "content-type", "cookie", "expect", "forwarded", "x-request-id"] {
        headers.remove(name);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let accept = if turn.stream { "text/event-stream" } else { "application/json" };
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if turn.model_wire == ApiFormat::Messages {
        keep_foreign_betas(&mut headers);
        return headers;
    }
    headers.remove("anthropic-version");
    headers.remove("anthropic-beta");
    // The same credential, under the name that this wire's servers read.
    if let Some(key) = headers.remove(API_KEY)
        && !headers.contains_key(AUTHORIZATION)
        && let Ok(mut value) = HeaderValue::from_bytes(&[b"Bearer ", key.as_bytes()].concat())
    {
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    headers
}

/// The betas of hosted code execution mean a tool that the model is not given here.
fn keep_foreign_betas(headers: &mut HeaderMap) {
    const BETA: &str = "anthropic-beta";
    let kept: Vec<String> = headers
        .get_all(BETA)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|beta| !beta.is_empty() && !beta.starts_with("code-execution-"))
        .map(str::to_owned)
        .collect();
    headers.remove(BETA);
    if let Ok(value) = HeaderValue::from_str(&kept.join(","))
        && !kept.is_empty()
    {
        headers.insert(HeaderName::from_static(BETA), value);
    }
}

/// What the client gets to know of the provider's headers: ids and limits.
fn reply_headers(upstream: &HeaderMap, turn: &CodeTurn, dropped: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in upstream {
        let known = name.as_str();
        if known.starts_with("anthropic-")
            || known.starts_with("x-ratelimit-")
            || known.starts_with("openai-")
            || matches!(known, "request-id" | "x-request-id")
        {
            headers.append(name.clone(), value.clone());
        }
    }
    let id_header = match turn.caller {
        ApiFormat::Messages => "request-id",
        ApiFormat::ChatCompletions | ApiFormat::Responses => "x-request-id",
    };
    if let (false, Ok(id)) = (headers.contains_key(id_header), HeaderValue::from_str(&turn.request_id)) {
        headers.insert(HeaderName::from_static(id_header), id);
    }
    if let Some(Ok(dropped)) = dropped.map(|dropped| HeaderValue::from_str(&header_text(dropped))) {
        headers.insert(HeaderName::from_static(DROPPED), dropped);
    }
    headers
}

/// Names from a request's body as a header may say them.
fn header_text(names: &str) -> String {
    let text: String = names.chars().flat_map(char::escape_default).take(MAX_DROPPED_BYTES).collect();
    if text.len() < MAX_DROPPED_BYTES { text } else { format!("{text}...") }
}

fn no_sandbox() -> Problem {
    let message = "this request needs a sandbox, and none is configured: set `sandbox.backend`";
    Problem::new(ProblemKind::InvalidRequest, Origin::Gateway, message)
}

fn not_built() -> Problem {
    let message = "code execution is served on /v1/messages, with models that speak Messages or Chat Completions";
    Problem::new(ProblemKind::InvalidRequest, Origin::Caller, message)
}

#[cfg(test)]
mod tests;
