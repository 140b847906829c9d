//! A sandbox that knows what a few programs print and write, and for its editor a workspace of one file.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::{Barrier, Notify};

use super::support::lock;
use super::workspaces::{WRITE, Workspaces};
use crate::sandbox::{
    Capability, EditorCommand, EditorFault, EditorReport, ExecutionRequest, ExecutionResult, FileContent, FileSource,
    Listing, SandboxBackend, SandboxError, SessionGrant, SessionId, SessionSpec, ToolInput, WorkspacePath,
};

/// Knows a few programs by their text.
#[derive(Debug, Default)]
pub(super) struct Canned {
    /// Why no session is to be had.
    pub(super) closed: Mutex<Option<SandboxError>>,
    pub(super) created: AtomicU64,
    /// Told when a session is destroyed.
    pub(super) destroyed: Notify,
    /// Told when `hang` runs.
    pub(super) hanging: Notify,
    /// Lets `wait` end.
    pub(super) go_on: Notify,
    pub(super) ran: Mutex<Vec<String>>,
    /// Calls that may run together; one if zero.
    pub(super) max_together: AtomicUsize,
    /// Lets all that `meet` go on as soon as two do.
    pub(super) meeting: Mutex<Option<Arc<Barrier>>>,
    pub(super) workspaces: Workspaces,
}

impl SandboxBackend for Canned {
    fn create_session<'a>(&'a self, _spec: &'a SessionSpec) -> BoxFuture<'a, Result<SessionGrant, SandboxError>> {
        async move {
            if let Some(error) = lock(&self.closed).take() {
                return Err(error);
            }
            let id = SessionId(self.created.fetch_add(1, Ordering::Relaxed).to_string());
            Ok(SessionGrant { id, idle_timeout: None, max_lifetime: None })
        }
        .boxed()
    }

    fn execute<'a>(
        &'a self,
        session: &'a SessionId,
        request: &'a ExecutionRequest,
    ) -> BoxFuture<'a, Result<ExecutionResult, SandboxError>> {
        async move {
            let code = match &request.input {
                ToolInput::Python { code } => code,
                ToolInput::Bash { command } => command,
                ToolInput::TextEditor(command) => {
                    lock(&self.ran).push(format!("{command:?}"));
                    if let EditorCommand::Create { path, text } = command {
                        self.workspaces.set(session, path, Bytes::copy_from_slice(text.as_bytes()));
                    }
                    return Ok(edited(command));
                }
            };
            lock(&self.ran).push(code.clone());
            let (stdout, stderr, return_code) = match code.as_str() {
                "print(6*7)" => ("42\n", "", 0),
                "ls; false" => ("a.txt\n", "", 1),
                "1/0" => ("", "ZeroDivisionError: division by zero\n", 1),
                "warn()" => ("", "DeprecationWarning\n", 0),
                "lost()" => return Err(SandboxError::UnknownSession),
                "slow()" => return Err(SandboxError::TimedOut),
                write if write.starts_with(WRITE) => return Ok(self.workspaces.write(session, write)),
                "hang()" => {
                    self.hanging.notify_one();
                    std::future::pending().await
                }
                meet if meet.starts_with("meet ") => {
                    let meeting = lock(&self.meeting).clone();
                    if let Some(meeting) = meeting {
                        meeting.wait().await;
                    }
                    return Ok(self.workspaces.write(session, meet.trim_start_matches("meet ")));
                }
                "wait()" => {
                    self.go_on.notified().await;
                    ("waited\n", "", 0)
                }
                _ => ("ok\n", "", 0),
            };
            Ok(ExecutionResult {
                stdout: stdout.into(),
                stderr: stderr.into(),
                return_code,
                ..ExecutionResult::default()
            })
        }
        .boxed()
    }

    fn max_concurrent_calls(&self) -> usize {
        self.max_together.load(Ordering::Relaxed).max(1)
    }

    fn execute_together<'a>(
        &'a self,
        session: &'a SessionId,
        requests: &'a [ExecutionRequest],
    ) -> BoxFuture<'a, Vec<Result<ExecutionResult, SandboxError>>> {
        join_all(requests.iter().map(|request| self.execute(session, request))).boxed()
    }

    fn put_file<'a>(
        &'a self,
        session: &'a SessionId,
        path: &'a WorkspacePath,
        _size: u64,
        source: FileSource,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        async move {
            lock(&self.ran).push(format!("put {path}"));
            self.workspaces.put(session, path, source).await
        }
        .boxed()
    }

    fn list_files<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Listing, SandboxError>> {
        async move { self.workspaces.list(session) }.boxed()
    }

    fn get_file<'a>(
        &'a self,
        session: &'a SessionId,
        path: &'a WorkspacePath,
        max_bytes: u64,
    ) -> BoxFuture<'a, Result<FileContent, SandboxError>> {
        async move { self.workspaces.get(session, path, max_bytes) }.boxed()
    }

    fn destroy_session<'a>(&'a self, _session: &'a SessionId) -> BoxFuture<'a, Result<(), SandboxError>> {
        async move {
            self.destroyed.notify_one();
            Ok(())
        }
        .boxed()
    }

    fn capability(&self) -> Capability {
        Capability { backend: "canned", isolation: "none", detail: "tests".to_owned() }
    }
}

/// A file of three lines at `a.txt`, and no other.
fn edited(command: &EditorCommand) -> ExecutionResult {
    let result = |stdout: &str, stderr: &str, return_code, report| ExecutionResult {
        stdout: stdout.to_owned(),
        stderr: stderr.to_owned(),
        return_code,
        editor: Some(report),
        ..ExecutionResult::default()
    };
    match command {
        EditorCommand::View { path, .. } if path == "." => {
            result("a.txt\n", "", 0, EditorReport::Listed { entries: 1 })
        }
        // What a contract-v1 server says.
        EditorCommand::View { path, .. } if path == "no report" => {
            ExecutionResult { stdout: "seen\n".to_owned(), ..ExecutionResult::default() }
        }
        EditorCommand::View { path, .. } if path == "a.txt" => {
            let lines = EditorReport::Viewed { start_line: 2, num_lines: 1, total_lines: 3 };
            result("two\n", "", 0, lines)
        }
        EditorCommand::Create { .. } => {
            result("The file was created.", "", 0, EditorReport::Created { is_file_update: false })
        }
        EditorCommand::StrReplace { path, old, new } if path == "a.txt" => {
            let lines = Some(vec![format!("-{old}"), format!("+{new}")]);
            let hunk = EditorReport::Edited { old_start: 2, old_lines: 1, new_start: 2, new_lines: 1, lines };
            result("The file was edited.", "", 0, hunk)
        }
        _ => result("", "there is no such file", 1, EditorReport::Failed(EditorFault::FileNotFound)),
    }
}
