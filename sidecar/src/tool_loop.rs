//! Runs a request's code here: model and sandbox in turns, one answer to the client.
//!
//! INVARIANT: the rules stand in the machine alone; driver, readers and writers carry out and translate.

mod driver;
mod failure;
mod files;
mod headers;
mod limits;
mod machine;
mod memory;
mod model_side;
mod report;
mod resume;
mod session;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use decision::config::ProviderKind;
use decision::decide::{Dialect, Run};
use decision::format::ApiFormat;
use decision::identity::Identity;
use decision::problem::{Origin, Problem, ProblemKind};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use self::driver::{Driver, Sink};
use self::files::RequestFiles;
use self::memory::Notes;
use self::model_side::{Call, ModelSide, read_error};
use self::session::{Home, Session};
use crate::clock::Clock;
use crate::containers::{Claim, Containers};
use crate::files::{Files, Staged};
use crate::ids::IdSource;
use crate::sandbox::Reaper;
use crate::stored::{Keeping, Named, StoredResponses};
use crate::upstream::{ModelAnswer, ModelClient};
use crate::wire::model_request::Prepared;
use crate::wire::responses;
use crate::wire::served::Wires;
use crate::wire::writer::{ClientWriter, WriterOptions};

pub use headers::tell_dropped;
pub use limits::Limits;
pub use machine::{Input, NextTurn, Output, Settings, ToolLoop};
pub use memory::{Memory, MemoryLimits};
pub use tally::Tally;

/// A request whose code is to be run here.
#[derive(Debug)]
pub struct RunRequest {
    /// The request's id, as its caller sees it.
    pub request_id: String,
    /// Whose request it is.
    pub owner: Identity,
    /// The wire the caller speaks.
    pub caller: ApiFormat,
    /// The wires the model is served in.
    pub model_wires: Vec<ApiFormat>,
    /// The model's provider.
    pub provider: String,
    /// Whose API that is; `None` where only the mesh knows.
    pub provider_kind: Option<ProviderKind>,
    /// The provider's own name for the model, where it differs.
    pub upstream_model: Option<String>,
    /// The client's headers that may go to the provider, and in a mesh the hop's secret.
    pub forward_headers: HeaderMap,
    /// The request's body, with the answers in it that it named.
    pub body: Bytes,
    /// What it said of those.
    pub named: Named,
    /// Files that its code finds in the working directory.
    pub seeds: Vec<Staged>,
    /// The session that it goes on with, from [`Engine::resume`].
    pub container: Option<Claim>,
    /// What was left out of it before it came here, by parameter.
    pub dropped: Vec<String>,
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
    /// Keeps sessions between requests; `None` where none are.
    pub containers: Option<Containers>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Ids for what the gateway adds to answers.
    pub ids: Arc<dyn IdSource>,
    /// Bounds on one request.
    pub limits: Limits,
    /// Answers that callers may go on from by id; `None` where none are kept.
    pub stored: Option<StoredResponses>,
    /// Where files that code writes are kept; `None` where none are.
    pub files: Option<Files>,
    /// What ran beside calls of the caller's and may not come back.
    pub memory: Arc<Memory>,
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
    pub async fn serve(self: &Arc<Self>, mut asked: RunRequest) -> Result<LoopReply, Problem> {
        let wires = Wires::choose(asked.caller, &asked.model_wires)?;
        check_served(&asked.run)?;
        let reaper = self.reaper.clone().ok_or_else(no_sandbox)?;
        // What the model needs of the body is copied; the run may last long, and must not keep the rest.
        let body = std::mem::take(&mut asked.body);
        let Named { previous, input } = std::mem::take(&mut asked.named);
        let past = self.memory.of(&asked.owner.workspace);
        let upstream_model = asked.upstream_model.as_deref();
        let mut prepared = wires.prepare(&body, &asked.run, asked.provider_kind, upstream_model, &past)?;
        if let Some(previous) = previous {
            prepared.caller.members.insert("previous_response_id".to_owned(), previous.into());
        }
        let keeping = self.stored.as_ref().filter(|_| prepared.caller.store).and_then(|stored| {
            let input = input.or_else(|| responses::stored::input(&body))?;
            // The provider's own, if not ours.
            let named = prepared.caller.members.get("previous_response_id").and_then(Value::as_str);
            stored.keeping(&asked.owner, named.map(str::to_owned), input)
        });
        drop(body);
        prepared.dropped.append(&mut asked.dropped);
        let dropped = (!prepared.dropped.is_empty()).then(|| prepared.dropped.join(", "));
        if let Some(dropped) = &dropped {
            tracing::info!(request.id = %asked.request_id, dropped, "not carried over to the model's wire");
        }
        // On the heap: it is large, and every future around it would be too.
        let mut driver = Box::new(self.driver(&mut asked, wires, prepared, reaper, keeping));
        let first = driver.first_answer().await?;
        let mut headers = headers::for_client(&first.headers, wires.caller, &asked.request_id, dropped.as_deref());
        if !first.status.is_success() {
            return self.refused(wires, headers, first).await;
        }
        if !asked.stream {
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

    fn driver(
        &self,
        asked: &mut RunRequest,
        wires: Wires,
        prepared: Prepared,
        reaper: Reaper,
        keeping: Option<Keeping>,
    ) -> Driver {
        let Prepared { request, functions, model, show, dropped: _, caller } = prepared;
        let writer = ClientWriter::new(WriterOptions {
            wire: wires.caller,
            streamed: asked.stream,
            native: asked.run.dialect == Dialect::Native,
            show,
            settings: caller.members,
            kept: keeping.is_some(),
            container: asked.container.as_ref().map(|claim| claim.id().to_owned()),
            model,
            request_id: asked.request_id.clone(),
            ids: Arc::clone(&self.ids),
            clock: Arc::clone(&self.clock),
        });
        let notes = caller
            .place
            .map(|place| Notes::new(Arc::clone(&self.memory), asked.owner.workspace.clone(), place, functions.clone()));
        let settings = Settings {
            functions,
            max_turns: asked.run.max_iterations.max(1),
            max_calls: caller.max_calls.unwrap_or(usize::MAX),
            limits: self.limits,
        };
        let files = RequestFiles::new(
            // Whoever has no name has no files.
            self.files.clone().filter(|_| !asked.owner.workspace.is_empty()),
            asked.owner.clone(),
            std::mem::take(&mut asked.seeds),
            self.limits.file_timeout,
            if writer.shows_images() { self.limits.max_inline_image_bytes } else { 0 },
        );
        let timeout = Duration::from_secs(asked.run.exec_timeout_s.max(1).into());
        Driver {
            model: ModelSide {
                client: self.models.clone(),
                provider: asked.provider.clone(),
                wires,
                headers: headers::for_model(&asked.forward_headers, wires, asked.stream),
                request,
                streamed: asked.stream,
                limits: self.limits,
                ids: Arc::clone(&self.ids),
                call: Call::None,
            },
            session: Session::new(
                Home {
                    reaper,
                    containers: self.containers.clone(),
                    owner: asked.owner.clone(),
                    claim: asked.container.take(),
                },
                self.tasks.clone(),
                timeout,
                asked.request_id.clone(),
                files,
                self.limits.max_concurrent_calls,
            ),
            writer,
            machine: Some(ToolLoop::new(settings)),
            finished: false,
            outputs: Vec::new(),
            deadline: Instant::now() + self.limits.request_timeout,
            limits: self.limits,
            request_id: asked.request_id.clone(),
            tally: Arc::clone(&asked.tally),
            notes,
            keeping,
            kept_until: None,
        }
    }

    /// The model refused the first call: in the caller's own wire its words pass untouched, else they are translated.
    async fn refused(&self, wires: Wires, mut headers: HeaderMap, answer: ModelAnswer) -> Result<LoopReply, Problem> {
        let kind = answer.headers.get(header::CONTENT_TYPE);
        let is_json = kind.and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.contains("json"));
        let (status, upstream) = (answer.status, answer.headers.clone());
        let is_error = status.is_client_error() || status.is_server_error();
        let body = read_error(answer, &self.limits).await;
        if !(wires.are_same() && is_json && is_error) {
            return Err(failure::of_answer(wires.model, status, &upstream, &body));
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
async fn stream_answer(mut driver: Box<Driver>, first: ModelAnswer, sink: Sink) {
    let ended = driver.run(first, &sink).await;
    if let (Err(problem), Sink::Stream(client)) = (ended, &sink) {
        driver.tally.fail(problem.kind);
        let last = driver.writer.take();
        let deadline = driver.deadline;
        tracing::warn!(request.id = %driver.request_id, "a streamed answer ended with an error");
        drop(tokio::time::timeout_at(deadline, client.send(last)).await);
    }
    drop(sink);
    let Driver { mut model, session, finished, limits, .. } = *driver;
    drop(session);
    if finished {
        let patience = limits.drain_timeout;
        model.drain(patience).await;
    }
}

fn no_sandbox() -> Problem {
    let message = "this request needs a sandbox, and none is configured: set `sandbox.backend`";
    Problem::new(ProblemKind::InvalidRequest, Origin::Gateway, message)
}

/// What was decided and is not served yet is refused; nothing a caller or a policy asks for is left out in silence.
fn check_served(run: &Run) -> Result<(), Problem> {
    if run.image.is_some() {
        let message =
            "the workspace's policy asks for a sandbox image, and this build has one for all: have it cleared";
        return Err(Problem::new(ProblemKind::PermissionDenied, Origin::Caller, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
