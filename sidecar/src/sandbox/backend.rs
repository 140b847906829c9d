//! The seam every sandbox implements; operations are named after contract v1.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{EditorReport, FileContent, FileSource, Listing, SandboxError, ToolInput, WorkspacePath};

/// A place that runs code in sessions. A session keeps its interpreter and its files until it is destroyed.
pub trait SandboxBackend: Send + Sync + Debug {
    /// Opens a fresh session, and tells how long it will live. One that is not used, or lives, for longer is gone:
    /// [`SandboxError::UnknownSession`].
    fn create_session<'a>(&'a self, spec: &'a SessionSpec) -> BoxFuture<'a, Result<SessionGrant, SandboxError>>;

    /// Runs one piece of code and waits for it. A program that fails is an `Ok` with a non-zero return code.
    /// Dropping the future stops the code; the session is then good for nothing but [`Self::destroy_session`].
    fn execute<'a>(
        &'a self,
        session: &'a SessionId,
        request: &'a ExecutionRequest,
    ) -> BoxFuture<'a, Result<ExecutionResult, SandboxError>>;

    /// Calls of one session that run at the same time, at most. The others of a session wait for their turn.
    fn max_concurrent_calls(&self) -> usize {
        1
    }

    /// Runs calls none of which needs what another does: side by side where the sandbox can, no more than
    /// [`Self::max_concurrent_calls`] of them, else one after the other. A result for each, in their order. Side by side
    /// their time is the longest of their budgets, and what ends one by a limit of the session ends all. Dropping the
    /// future is as with [`Self::execute`].
    fn execute_together<'a>(
        &'a self,
        session: &'a SessionId,
        requests: &'a [ExecutionRequest],
    ) -> BoxFuture<'a, Vec<Result<ExecutionResult, SandboxError>>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(requests.len());
            for request in requests {
                results.push(self.execute(session, request).await);
            }
            results
        })
    }

    /// Ends a session: every process gone, every file removed. A session already gone is a success.
    fn destroy_session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), SandboxError>>;

    /// Puts a file of exactly `size` bytes into the workspace, and the directories above it. One that is there already
    /// is never written over. Dropping the future leaves nothing behind.
    ///
    /// Errors beside those of every operation: [`SandboxError::FileTooLarge`], [`SandboxError::BadPath`],
    /// [`SandboxError::Unreadable`], and [`SandboxError::NotServed`], as without an implementation.
    fn put_file<'a>(
        &'a self,
        _session: &'a SessionId,
        _path: &'a WorkspacePath,
        _size: u64,
        _source: FileSource,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        Box::pin(async { Err(SandboxError::NotServed) })
    }

    /// Tells what files there are in the workspace, in no order. [`SandboxError::NotServed`] without an implementation.
    fn list_files<'a>(&'a self, _session: &'a SessionId) -> BoxFuture<'a, Result<Listing, SandboxError>> {
        Box::pin(async { Err(SandboxError::NotServed) })
    }

    /// Reads a file of the workspace. One of more than `max_bytes` is [`SandboxError::FileTooLarge`], before anything of
    /// it is read where the backend knows its size, else in the stream. One that changes while it is read is an error in
    /// the stream where the backend sees that.
    ///
    /// Errors beside those of every operation: [`SandboxError::UnknownFile`], and [`SandboxError::NotServed`], as
    /// without an implementation.
    fn get_file<'a>(
        &'a self,
        _session: &'a SessionId,
        _path: &'a WorkspacePath,
        _max_bytes: u64,
    ) -> BoxFuture<'a, Result<FileContent, SandboxError>> {
        Box::pin(async { Err(SandboxError::NotServed) })
    }

    /// What this sandbox gives, for health, metrics and logs.
    fn capability(&self) -> Capability;
}

/// Name of a live session; opaque, never shown to a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub String);

/// What a new session is asked to be.
#[derive(Debug, Clone, Default)]
pub struct SessionSpec {
    /// Whose code it runs; a share of the sessions is all that one workspace gets. Not told to the backend.
    pub workspace: String,
    /// How long the session may stand unused, a hint the backend may only lower.
    pub idle_timeout: Option<Duration>,
    /// How long the session may live in all, a hint the backend may only lower.
    pub max_lifetime: Option<Duration>,
}

/// A session that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionGrant {
    /// Its name.
    pub id: SessionId,
    /// How long it may stand unused; `None` if the backend does not say.
    pub idle_timeout: Option<Duration>,
    /// How long it may live in all, likewise. A call that runs then is not broken off.
    pub max_lifetime: Option<Duration>,
}

/// One execution.
#[derive(Debug, Clone)]
pub struct ExecutionRequest {
    /// What is to be run. Each text of it is at most `sandbox.max_code_bytes` long.
    pub input: ToolInput,
    /// Wall-clock budget of the work itself; the call may take a little longer.
    pub timeout: Duration,
    /// Id of the call, for the backend's own records.
    pub call_id: String,
    /// Ends the call as its deadline would, for a session that is to go on. Backends that cannot heed it let it run.
    pub stop: CancellationToken,
}

/// What an execution did. A failing program is one of these too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecutionResult {
    /// Standard output, UTF-8 with replacements, cut to the backend's limit with a marker.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// 0 is success; 124 timed out with state kept; 137 killed with state lost; of an edit that failed 1.
    pub return_code: i32,
    /// Files the backend itself named as output of this call.
    pub files: Vec<ProducedFile>,
    /// What an edit came to. `None` for other tools, for an edit that was stopped, and from a contract-v1 server other than
    /// ours, whose answer is text alone.
    pub editor: Option<EditorReport>,
}

/// A file a call produced, as the backend names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedFile {
    /// Path within the workspace, or the backend's own name.
    pub name: String,
}

/// What a sandbox gives.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Capability {
    /// `embedded` or `http`.
    pub backend: &'static str,
    /// Isolation in force: `namespaces`, `namespaces-noproc`, or `remote`.
    pub isolation: &'static str,
    /// One sentence for anybody: health shows it, so no path and no address.
    pub detail: String,
}
