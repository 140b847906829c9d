//! The sandbox side of one request: a session opened while the model writes its first call, and its calls in their order.
//! A request that runs no code takes none, however long its model is silent.
//!
//! INVARIANT: a call begins when all before it are over, but for neighbours that may overlap, of which so many begin
//! together as the sandbox and the limit allow. Dropping this stops the code and gives the session back, also one that is
//! only now being opened. One that an earlier request left, and that is still good, is given back to be gone on with; any
//! other is destroyed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use decision::identity::Identity;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::files::{Furnished, RequestFiles, SeedError};
use super::report::KILLED;
use crate::containers::{Claim, Containers};
use crate::sandbox::{
    EditorCommand, EditorReport, ExecutionRequest, ExecutionResult, Lease, Reaper, SandboxError, SessionSpec,
    ToolInput, ViewRange,
};
use crate::wire::code_tool::CodeInput;
use crate::wire::event::CodeFiles;

/// How long an answer waits until its session is kept.
const KEEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a request's session comes from, and where it goes.
pub(super) struct Home {
    pub(super) reaper: Reaper,
    /// Keeps sessions between requests.
    pub(super) containers: Option<Containers>,
    /// Whose request it is.
    pub(super) owner: Identity,
    /// The session that the request goes on with.
    pub(super) claim: Option<Claim>,
}

/// One request's sandbox.
pub(super) struct Session {
    home: Home,
    tasks: TaskTracker,
    timeout: Duration,
    request_id: String,
    spec: SessionSpec,
    files: RequestFiles,
    state: State,
    /// Calls that run at the same time, at most.
    max_together: usize,
    /// Calls that wait for those before them: they share a workspace, and may build on what those did.
    waiting: VecDeque<(usize, ToolInput)>,
    has_run: bool,
    /// No session was to be had, for all are taken.
    full: bool,
    running: Option<BoxFuture<'static, Vec<Finished>>>,
    /// Calls that are over and were not told yet.
    finished: VecDeque<Finished>,
    /// Ends the calls that run, for a session that is to go on.
    stop: CancellationToken,
    /// The end of a lost session that an earlier request left: its container's id is taken until then.
    discarding: Option<BoxFuture<'static, ()>>,
}

/// A call that is over.
pub(super) struct Finished {
    pub(super) call: usize,
    pub(super) input: ToolInput,
    pub(super) result: Result<ExecutionResult, SandboxError>,
    /// What it wrote, stored by now.
    pub(super) files: CodeFiles,
}

enum State {
    Opening(oneshot::Receiver<Result<Lease, SandboxError>>),
    /// Opened, and its files are on their way in.
    Furnishing(BoxFuture<'static, Result<Furnished, SeedError>>),
    Open(Arc<Furnished>),
    /// Not opened yet, or lost.
    None,
}

/// Something that happened in the sandbox.
pub(super) enum Happened {
    /// No session could be opened. Told once.
    NotOpened(SandboxError),
    /// A session has not the files that it was to have, so nothing may run in it. Told once.
    NotSeeded(SeedError),
    /// A call is over.
    Finished(Finished),
}

impl Session {
    pub(super) fn new(
        home: Home,
        tasks: TaskTracker,
        timeout: Duration,
        request_id: String,
        files: RequestFiles,
        max_together: usize,
    ) -> Self {
        let workspace = home.owner.workspace.clone();
        Self {
            max_together: max_together.min(home.reaper.backend().max_concurrent_calls()),
            home,
            tasks,
            timeout,
            request_id,
            spec: SessionSpec { workspace, ..SessionSpec::default() },
            files,
            state: State::None,
            waiting: VecDeque::new(),
            has_run: false,
            full: false,
            running: None,
            finished: VecDeque::new(),
            stop: CancellationToken::new(),
            discarding: None,
        }
    }

    /// There will be a call: opens a session unless there is one. One lost meanwhile is replaced by a fresh one.
    pub(super) fn prepare(&mut self) {
        if matches!(self.state, State::None) {
            self.state = match &self.home.claim {
                Some(claim) => State::Furnishing(self.files.clone().furnish(Arc::clone(claim.lease())).boxed()),
                None => State::Opening(lease(&self.home, &self.tasks, &self.spec)),
            };
        }
    }

    /// Takes a call.
    pub(super) fn start(&mut self, call: usize, input: CodeInput) {
        self.waiting.push_back((call, tool_input(input)));
        self.prepare();
    }

    /// Whether any code was handed to a sandbox.
    pub(super) fn has_run(&self) -> bool {
        self.has_run
    }

    /// Until when the session will be kept if the request ends now; `None` if it will not be. `is_shown`: its owner knows
    /// what to call it.
    pub(super) fn kept_until(&self, is_shown: bool) -> Option<Timestamp> {
        if let Some(claim) = &self.home.claim {
            return claim.expiry();
        }
        let containers = self.home.containers.as_ref().filter(|_| is_shown && self.has_run)?;
        match &self.state {
            State::Open(session) => containers.expiry(&self.home.owner, session.lease()),
            State::Opening(_) | State::Furnishing(_) | State::None => None,
        }
    }

    /// Keeps the session at the regular end of the request, as [`Self::kept_until`] said. Returns in bounded time; what has
    /// begun by then goes on.
    pub(super) async fn keep(&mut self, id: String, until: Timestamp) {
        if timeout(KEEP_TIMEOUT, self.keep_now(id, until)).await.is_err() {
            tracing::warn!("the answer does not wait any longer until its session is kept");
        }
    }

    async fn keep_now(&mut self, id: String, until: Timestamp) {
        if let Some(discarding) = self.discarding.take() {
            discarding.await;
        }
        if let Some(claim) = self.home.claim.take() {
            claim.release(until).await;
        } else if let (Some(containers), State::Open(session)) = (&self.home.containers, &self.state) {
            containers.keep(&self.home.owner, id, Arc::clone(session.lease()), until).await;
        }
    }

    /// Stops what runs, forgets what waits. No call comes after that.
    pub(super) fn cancel(&mut self) {
        self.waiting.clear();
        self.finished.clear();
        let running = self.running.take();
        if let Some(claim) = self.home.claim.take() {
            self.stop.cancel();
            let rest = async {
                match running {
                    Some(running) => running.await.iter().all(Finished::is_survived),
                    None => true,
                }
            };
            drop(claim.leave(rest.boxed()));
        }
        self.state = State::None;
    }

    /// Waits for the next thing to happen; for ever when nothing is going on. Safe to drop and call again.
    pub(super) async fn happened(&mut self) -> Happened {
        loop {
            if let State::Opening(opening) = &mut self.state {
                let opened = opening.await.unwrap_or(Err(SandboxError::UnknownSession));
                match opened {
                    Ok(lease) => {
                        let furnishing = self.files.clone().furnish(Arc::new(lease));
                        self.state = State::Furnishing(furnishing.boxed());
                    }
                    Err(error) => {
                        self.state = State::None;
                        self.full = matches!(error, SandboxError::AtCapacity { .. });
                        return Happened::NotOpened(error);
                    }
                }
            }
            if let State::Furnishing(furnishing) = &mut self.state {
                match furnishing.await {
                    Ok(furnished) => self.state = State::Open(Arc::new(furnished)),
                    Err(error) => {
                        self.state = State::None;
                        return Happened::NotSeeded(error);
                    }
                }
            }
            if let Some(finished) = self.finished.pop_front() {
                return Happened::Finished(finished);
            }
            if let Some(running) = &mut self.running {
                self.finished = running.await.into();
                self.running = None;
                if self.finished.iter().any(|finished| loses_session(&finished.result)) {
                    self.state = State::None;
                    if let Some(claim) = self.home.claim.take() {
                        self.discarding = Some(claim.leave(std::future::ready(false).boxed()));
                    }
                    if !self.waiting.is_empty() {
                        self.prepare();
                    }
                }
                continue;
            }
            let session = match &self.state {
                State::Open(session) => Some(Arc::clone(session)),
                State::Opening(_) | State::Furnishing(_) => continue,
                State::None => None,
            };
            match session.filter(|_| !self.waiting.is_empty()) {
                Some(session) => {
                    self.has_run = true;
                    let calls = next_calls(&mut self.waiting, self.max_together);
                    self.running = Some(self.execution(session, calls));
                }
                None => match self.waiting.pop_front() {
                    Some((call, input)) => {
                        let full = SandboxError::AtCapacity { retry_after: None };
                        let result = Err(if self.full { full } else { SandboxError::UnknownSession });
                        return Happened::Finished(Finished { call, input, result, files: CodeFiles::default() });
                    }
                    None => std::future::pending().await,
                },
            }
        }
    }

    fn execution(&self, session: Arc<Furnished>, calls: Vec<(usize, ToolInput)>) -> BoxFuture<'static, Vec<Finished>> {
        let request = |(call, input)| {
            let call_id = format!("{}-{call}", self.request_id);
            (call, ExecutionRequest { input, timeout: self.timeout, call_id, stop: self.stop.clone() })
        };
        let (calls, requests): (Vec<usize>, Vec<ExecutionRequest>) = calls.into_iter().map(request).unzip();
        async move {
            let results = session.execute(&requests).await;
            let mut finished = Vec::with_capacity(requests.len());
            for ((call, request), result) in calls.into_iter().zip(requests).zip(results) {
                let files = match &result {
                    // What several wrote while they ran together is told with the first of them. A request that is cut off
                    // is told of no files.
                    Ok(result) if may_have_written(&request.input, result) => {
                        let collected = request.stop.run_until_cancelled(session.collect(&result.files)).await;
                        collected.unwrap_or_default()
                    }
                    // Whatever is there by now, the next call that can tell of it will find it.
                    _ => CodeFiles::default(),
                };
                finished.push(Finished { call, input: request.input, result, files });
            }
            finished
        }
        .boxed()
    }
}

impl Finished {
    /// Whether the session has what it had before, and what the call made of it.
    fn is_survived(&self) -> bool {
        self.result.as_ref().is_ok_and(|result| result.return_code != KILLED)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Takes the calls that begin now: the first, and those behind it that may overlap with all of them.
fn next_calls(waiting: &mut VecDeque<(usize, ToolInput)>, max_together: usize) -> Vec<(usize, ToolInput)> {
    let mut calls: Vec<(usize, ToolInput)> = Vec::new();
    while let Some(next) = waiting.pop_front_if(|(_, next)| {
        let joins = || calls.len() < max_together && calls.iter().all(|(_, input)| input.may_overlap(next));
        calls.is_empty() || joins()
    }) {
        calls.push(next);
    }
    calls
}

/// Whether nothing can run in the session any more.
fn loses_session(result: &Result<ExecutionResult, SandboxError>) -> bool {
    matches!(result, Err(SandboxError::UnknownSession | SandboxError::TimedOut | SandboxError::Unreachable { .. }))
}

/// Whether a call has an outcome that can tell of files, and can have written some.
fn may_have_written(input: &ToolInput, result: &ExecutionResult) -> bool {
    match input {
        ToolInput::Python { .. } | ToolInput::Bash { .. } => true,
        ToolInput::TextEditor(EditorCommand::View { .. }) => false,
        ToolInput::TextEditor(_) => result.return_code == 0 && !matches!(result.editor, Some(EditorReport::Failed(_))),
    }
}

/// What the model asks for, in the sandbox's words.
fn tool_input(input: CodeInput) -> ToolInput {
    ToolInput::TextEditor(match input {
        CodeInput::Python(code) => return ToolInput::Python { code },
        CodeInput::Bash(command) => return ToolInput::Bash { command },
        CodeInput::View { path, lines } => {
            EditorCommand::View { path, range: lines.map(|(first, last)| ViewRange { first, last }) }
        }
        CodeInput::Create { path, text } => EditorCommand::Create { path, text },
        CodeInput::StrReplace { path, old, new } => EditorCommand::StrReplace { path, old, new },
    })
}

/// Opens a session in a task of its own: half-made sessions must not be dropped, only finished ones are given back.
fn lease(home: &Home, tasks: &TaskTracker, spec: &SessionSpec) -> oneshot::Receiver<Result<Lease, SandboxError>> {
    let (opened, receiver) = oneshot::channel();
    let (reaper, containers, spec) = (home.reaper.clone(), home.containers.clone(), spec.clone());
    tasks.spawn(async move {
        let lease = match &containers {
            // Those that are kept give way.
            Some(containers) => containers.lease(&spec).await,
            None => reaper.lease(&spec).await,
        };
        // Nobody waits any more: the lease in the refused message is dropped, which gives the session back.
        drop(opened.send(lease));
    });
    receiver
}

#[cfg(test)]
mod tests;
