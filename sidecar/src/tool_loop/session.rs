//! The sandbox side of one request: a session opened while the model writes its first code, and its calls one at a time.
//! A request that runs no code takes none, however long its model is silent.
//!
//! INVARIANT: dropping this stops the code and gives the session back, also one that is only now being opened.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::sandbox::{ExecutionRequest, ExecutionResult, Lease, Reaper, SandboxError, SessionSpec, ToolInput};

/// One request's sandbox.
pub(super) struct Session {
    reaper: Reaper,
    tasks: TaskTracker,
    timeout: Duration,
    request_id: String,
    spec: SessionSpec,
    state: State,
    /// Calls that wait for the one before them: they share an interpreter.
    waiting: VecDeque<(usize, String)>,
    has_run: bool,
    /// No session was to be had, for all are taken.
    full: bool,
    running: Option<BoxFuture<'static, (usize, Result<ExecutionResult, SandboxError>)>>,
}

enum State {
    Opening(oneshot::Receiver<Result<Lease, SandboxError>>),
    Open(Arc<Lease>),
    /// Not opened yet, or lost.
    None,
}

/// Something that happened in the sandbox.
pub(super) enum Happened {
    /// No session could be opened. Told once.
    NotOpened(SandboxError),
    /// A call is over.
    Finished(usize, Result<ExecutionResult, SandboxError>),
}

impl Session {
    pub(super) fn new(
        reaper: Reaper,
        tasks: TaskTracker,
        timeout: Duration,
        request_id: String,
        workspace: String,
    ) -> Self {
        Self {
            reaper,
            tasks,
            timeout,
            request_id,
            spec: SessionSpec { workspace, ..SessionSpec::default() },
            state: State::None,
            waiting: VecDeque::new(),
            has_run: false,
            full: false,
            running: None,
        }
    }

    /// There will be a call: opens a session unless there is one. One lost meanwhile is replaced by a fresh one.
    pub(super) fn prepare(&mut self) {
        if matches!(self.state, State::None) {
            self.state = State::Opening(lease(&self.reaper, &self.tasks, &self.spec));
        }
    }

    /// Takes a call.
    pub(super) fn start(&mut self, call: usize, code: String) {
        self.waiting.push_back((call, code));
        self.prepare();
    }

    /// Whether any code was handed to a sandbox.
    pub(super) fn has_run(&self) -> bool {
        self.has_run
    }

    /// Stops what runs, forgets what waits.
    pub(super) fn cancel(&mut self) {
        self.waiting.clear();
        self.running = None;
        self.state = State::None;
    }

    /// Waits for the next thing to happen; for ever when nothing is going on. Safe to drop and call again.
    pub(super) async fn happened(&mut self) -> Happened {
        loop {
            if let State::Opening(opening) = &mut self.state {
                let opened = opening.await.unwrap_or(Err(SandboxError::UnknownSession));
                match opened {
                    Ok(lease) => self.state = State::Open(Arc::new(lease)),
                    Err(error) => {
                        self.state = State::None;
                        self.full = matches!(error, SandboxError::AtCapacity { .. });
                        return Happened::NotOpened(error);
                    }
                }
            }
            if let Some(running) = &mut self.running {
                let (call, result) = running.await;
                self.running = None;
                if let Err(SandboxError::UnknownSession | SandboxError::TimedOut | SandboxError::Unreachable { .. }) =
                    &result
                {
                    self.state = State::None;
                    if !self.waiting.is_empty() {
                        self.prepare();
                    }
                }
                return Happened::Finished(call, result);
            }
            let next = match &self.state {
                State::Open(lease) => self.waiting.pop_front().map(|next| (Arc::clone(lease), next)),
                State::Opening(_) => continue,
                State::None => None,
            };
            match next {
                Some((lease, (call, code))) => {
                    self.has_run = true;
                    self.running = Some(self.execution(lease, call, code));
                }
                None => match self.waiting.pop_front() {
                    Some((call, _)) if self.full => {
                        return Happened::Finished(call, Err(SandboxError::AtCapacity { retry_after: None }));
                    }
                    Some((call, _)) => return Happened::Finished(call, Err(SandboxError::UnknownSession)),
                    None => std::future::pending().await,
                },
            }
        }
    }

    fn execution(
        &self,
        lease: Arc<Lease>,
        call: usize,
        code: String,
    ) -> BoxFuture<'static, (usize, Result<ExecutionResult, SandboxError>)> {
        let request = ExecutionRequest {
            input: ToolInput::Python { code },
            timeout: self.timeout,
            call_id: format!("{}-{call}", self.request_id),
        };
        async move { (call, lease.execute(&request).await) }.boxed()
    }
}

/// Opens a session in a task of its own: half-made sessions must not be dropped, only finished ones are given back.
fn lease(reaper: &Reaper, tasks: &TaskTracker, spec: &SessionSpec) -> oneshot::Receiver<Result<Lease, SandboxError>> {
    let (opened, receiver) = oneshot::channel();
    let (reaper, spec) = (reaper.clone(), spec.clone());
    tasks.spawn(async move {
        // Nobody waits any more: the lease in the refused message is dropped, which gives the session back.
        drop(opened.send(reaper.lease(&spec).await));
    });
    receiver
}
