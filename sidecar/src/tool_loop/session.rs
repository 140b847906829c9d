//! The sandbox side of one request: a session opened while the model writes its first call, and its calls in their order.
//! A request that runs no code takes none, however long its model is silent.
//!
//! INVARIANT: a call begins when all before it are over, but for neighbours that may overlap, of which so many begin
//! together as the sandbox and the limit allow. Dropping this stops the code and gives the session back, also one that is
//! only now being opened.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::files::{Furnished, RequestFiles, SeedError};
use crate::sandbox::{
    EditorCommand, EditorReport, ExecutionRequest, ExecutionResult, Lease, Reaper, SandboxError, SessionSpec,
    ToolInput, ViewRange,
};
use crate::wire::code_tool::CodeInput;
use crate::wire::event::CodeFiles;

/// One request's sandbox.
pub(super) struct Session {
    reaper: Reaper,
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
        reaper: Reaper,
        tasks: TaskTracker,
        timeout: Duration,
        request_id: String,
        workspace: String,
        files: RequestFiles,
        max_together: usize,
    ) -> Self {
        Self {
            max_together: max_together.min(reaper.backend().max_concurrent_calls()),
            reaper,
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
        }
    }

    /// There will be a call: opens a session unless there is one. One lost meanwhile is replaced by a fresh one.
    pub(super) fn prepare(&mut self) {
        if matches!(self.state, State::None) {
            self.state = State::Opening(lease(&self.reaper, &self.tasks, &self.spec));
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

    /// Stops what runs, forgets what waits.
    pub(super) fn cancel(&mut self) {
        self.waiting.clear();
        self.finished.clear();
        self.running = None;
        self.state = State::None;
    }

    /// Waits for the next thing to happen; for ever when nothing is going on. Safe to drop and call again.
    pub(super) async fn happened(&mut self) -> Happened {
        loop {
            if let State::Opening(opening) = &mut self.state {
                let opened = opening.await.unwrap_or(Err(SandboxError::UnknownSession));
                match opened {
                    Ok(lease) => self.state = State::Furnishing(self.files.clone().furnish(lease).boxed()),
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
            (call, ExecutionRequest { input, timeout: self.timeout, call_id })
        };
        let (calls, requests): (Vec<usize>, Vec<ExecutionRequest>) = calls.into_iter().map(request).unzip();
        async move {
            let results = session.execute(&requests).await;
            let mut finished = Vec::with_capacity(requests.len());
            for ((call, request), result) in calls.into_iter().zip(requests).zip(results) {
                let files = match &result {
                    // What several wrote while they ran together is told with the first of them.
                    Ok(result) if may_have_written(&request.input, result) => session.collect(&result.files).await,
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
fn lease(reaper: &Reaper, tasks: &TaskTracker, spec: &SessionSpec) -> oneshot::Receiver<Result<Lease, SandboxError>> {
    let (opened, receiver) = oneshot::channel();
    let (reaper, spec) = (reaper.clone(), spec.clone());
    tasks.spawn(async move {
        // Nobody waits any more: the lease in the refused message is dropped, which gives the session back.
        drop(opened.send(reaper.lease(&spec).await));
    });
    receiver
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn an_input() -> impl Strategy<Value = ToolInput> {
        let edit = |command| Just(ToolInput::TextEditor(command));
        prop_oneof![
            1 => Just(ToolInput::Python { code: "1".to_owned() }),
            4 => Just(ToolInput::Bash { command: "true".to_owned() }),
            1 => edit(EditorCommand::View { path: "a".to_owned(), range: None }),
            1 => edit(EditorCommand::Create { path: "a".to_owned(), text: String::new() }),
        ]
    }

    proptest! {
        #[test]
        fn neighbouring_commands_begin_together_and_everything_else_waits_for_its_turn(
            inputs in prop::collection::vec(an_input(), 0..12), max_together in 1usize..5,
        ) {
            let mut waiting: VecDeque<_> = inputs.iter().cloned().enumerate().collect();
            let mut begun: Vec<Vec<(usize, ToolInput)>> = Vec::new();
            while !waiting.is_empty() {
                begun.push(next_calls(&mut waiting, max_together));
            }
            let order: Vec<usize> = begun.iter().flatten().map(|(call, _)| *call).collect();
            prop_assert_eq!(order, (0..inputs.len()).collect::<Vec<_>>(), "each once, in order");
            let is_bash = |(_, input): &(usize, ToolInput)| matches!(input, ToolInput::Bash { .. });
            for calls in &begun {
                prop_assert!((1..=max_together).contains(&calls.len()));
                prop_assert!(calls.len() == 1 || calls.iter().all(is_bash));
            }
            for pair in begun.windows(2) {
                let joins = pair[0].len() < max_together && is_bash(&pair[0][0]) && is_bash(&pair[1][0]);
                prop_assert!(!joins, "nothing waits that need not");
            }
        }
    }
}
