//! The embedded sandbox: every session is a Python interpreter in namespaces of its own, started through bubblewrap.
//!
//! INVARIANT: a session's processes and files end with [`SandboxBackend::destroy_session`], with the drop of the
//! [`ProcessSandbox`], with the process (`kill -9` included), and at the latest with the next start.

mod capture;
mod census;
mod control;
mod files;
mod freeze;
mod incoming;
mod interpreter;
mod launch;
mod life;
mod pidfd;
mod pool;
mod printed;
mod python;
mod seccomp;
mod session;
mod settings;
mod spawner;
mod startup;
mod table;
mod tree;
mod watch;
mod work;
mod workspace;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use tokio::task::JoinSet;

pub use files::Existing;
pub use incoming::Incoming;
pub use life::SessionInfo;
pub use settings::{ProcessSettings, RunAs, SandboxLimits};
pub use startup::{Probe, StartupRefusal};

use super::{
    Capability, ExecutionRequest, ExecutionResult, FileContent, FileSource, ListedFile, Listing, SandboxBackend,
    SandboxError, SessionGrant, SessionId, SessionSpec, WorkspacePath,
};
use crate::clock::Clock;
use crate::ids::IdSource;
use launch::Launcher;
use pool::Pool;
use table::Table;
use work::{SHELLS_AT_ONCE, Work};

/// Where code sees its workspace.
pub const WORKSPACE: &str = "/workspace";
/// Another name of it.
pub const OTHER_NAME: &str = "/mnt/data";

/// Runs code in local processes.
#[derive(Debug)]
pub struct ProcessSandbox {
    pool: Arc<Pool>,
    sessions: Arc<Table>,
    ids: Arc<dyn IdSource>,
    /// Ends sessions whose time is over; ends itself when it is dropped.
    _tending: JoinSet<()>,
}

/// How strongly a session is isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Namespaces of every kind, seccomp, no network, a `/proc` of its own.
    Namespaces,
    /// The same with an empty `/proc`, where the host forbids a new one.
    NamespacesNoproc,
}

impl Tier {
    /// Its name in health, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::NamespacesNoproc => "namespaces-noproc",
        }
    }
}

impl ProcessSandbox {
    /// Proves that this host isolates, clears what a dead predecessor left, and opens for sessions.
    ///
    /// Makes the whole process undumpable, so that no other process of its user can read its memory or environment.
    pub async fn start(
        settings: ProcessSettings,
        ids: Arc<dyn IdSource>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, StartupRefusal> {
        let system = |what: &str, error: std::io::Error| {
            StartupRefusal::new(format!("{what}: {error}"), "free memory, processes or disk space for the sidecar")
        };
        let owner = geteuid().is_root().then_some(settings.run_as);
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| system("prctl", error.into()))?;
        startup::check_bwrap(&settings).await?;
        let python = python::Python::probe(&settings, owner).await?;
        let root = Arc::new(workspace::Root::open(&settings.data_dir, owner)?);
        root.furnish(&python.driver).map_err(|error| system("the sessions' files cannot be written", error))?;
        let launcher = Arc::new(Launcher {
            bwrap: settings.bwrap,
            python,
            filters: seccomp::Filters::compile()?,
            root,
            owner,
            spawner: spawner::Spawner::start().map_err(|error| system("no thread can be started", error))?,
            limits: settings.limits,
        });
        let tier = startup::choose_tier(&launcher).await?;
        if tier != Tier::Namespaces {
            tracing::warn!(isolation = tier.name(), "sessions have an empty /proc: this host forbids a new one");
        }
        tracing::info!(isolation = tier.name(), packages = launcher.python.stack(), "the sandbox is open");
        let pool = Pool::new(launcher, tier, Arc::clone(&ids), settings.warm_sessions);
        let sessions = Table::new(clock);
        let mut tending = JoinSet::new();
        tending.spawn(table::tend(Arc::downgrade(&sessions)));
        if settings.warm_sessions > 0 {
            tending.spawn(pool::tend(Arc::downgrade(&pool)));
        }
        Ok(Arc::new(Self { pool, sessions, ids, _tending: tending }))
    }

    /// Tells of a live session.
    pub fn session(&self, id: &SessionId) -> Option<SessionInfo> {
        self.sessions.info(id)
    }

    /// Sessions alive, and how many there may be.
    pub fn occupancy(&self) -> (usize, usize) {
        (self.sessions.len(), self.limits().sessions)
    }

    /// Sessions that stand ready for whoever comes next; not among those that are alive.
    pub fn ready(&self) -> usize {
        self.pool.len()
    }

    /// Opens a file of a workspace as [`SandboxBackend::get_file`] does, and tells how long it is. Until all of it is read
    /// its session is in use.
    pub async fn open_file(
        &self,
        session: &SessionId,
        path: &WorkspacePath,
        max_bytes: u64,
    ) -> Result<(u64, FileContent), SandboxError> {
        let visit = self.sessions.enter(session)?;
        let (size, content) = visit.session.get_file(path, max_bytes).await?;
        let using = visit.using;
        let content = content.map(move |piece| {
            let _in_use = &using;
            piece
        });
        Ok((size, content.boxed()))
    }

    /// Whether a directory stands at a path of a workspace.
    pub async fn is_directory(&self, session: &SessionId, path: &WorkspacePath) -> Result<bool, SandboxError> {
        self.sessions.enter(session)?.session.is_directory(path).await
    }

    /// Begins a file of at most `sandbox.max_file_bytes` that is to go into a session, which is in use until then.
    pub async fn receive_file(&self, session: &SessionId) -> Result<Incoming, SandboxError> {
        let visit = self.sessions.enter(session)?;
        let folder = self.pool.launcher.root.incoming();
        Incoming::begin(visit, &folder, self.ids.hex128(), self.limits().file_bytes).await
    }

    /// When a listed file last changed: seconds since the epoch, and the nanoseconds after them. Code cannot set it back.
    pub fn changed_at(file: &ListedFile) -> (u64, u64) {
        let [_, _, seconds, nanoseconds] = file.stamp.0;
        (seconds, nanoseconds)
    }

    /// Longest execution, and longest text of one.
    pub fn limits(&self) -> &SandboxLimits {
        &self.pool.launcher.limits
    }

    /// Ends every session, and opens none any more.
    pub async fn shut(&self) {
        self.pool.close().await;
        self.sessions.close().await;
    }

    async fn create(&self, spec: &SessionSpec) -> Result<SessionGrant, SandboxError> {
        let (id, session) = self.pool.open().await?;
        let limits = self.limits();
        match self.sessions.add(id.clone(), session, (limits.idle, limits.lifetime), spec) {
            Ok(SessionInfo { idle_timeout, max_lifetime, .. }) => {
                Ok(SessionGrant { id, idle_timeout: Some(idle_timeout), max_lifetime: Some(max_lifetime) })
            }
            Err(session) => {
                session.close().await?;
                Err(pool::full())
            }
        }
    }

    async fn run(&self, id: &SessionId, request: &ExecutionRequest) -> Result<ExecutionResult, SandboxError> {
        self.check(request)?;
        let visit = self.sessions.enter(id)?;
        let results = visit.session.execute(&Work::of(&request.input), request.timeout, &request.stop).await?;
        results.into_iter().next().ok_or(SandboxError::UnknownSession)
    }

    /// Runs commands side by side; what is no command, or one too long, has no part in that.
    async fn run_together(
        &self,
        id: &SessionId,
        requests: &[ExecutionRequest],
    ) -> Vec<Result<ExecutionResult, SandboxError>> {
        let checked: Vec<_> = requests.iter().map(|request| self.check(request)).collect();
        let sound = || requests.iter().zip(&checked).filter(|(_, checked)| checked.is_ok()).map(|(request, _)| request);
        let Some(work) = Work::together(sound().map(|request| &request.input)) else {
            return stream::iter(requests).then(|request| self.run(id, request)).collect().await;
        };
        let timeout = sound().map(|request| request.timeout).max().unwrap_or_default();
        // Whoever runs calls together stops them together.
        let stop = sound().map(|request| request.stop.clone()).next().unwrap_or_default();
        let ran = match self.sessions.enter(id) {
            Ok(visit) => visit.session.execute(&work, timeout, &stop).await,
            Err(error) => Err(error),
        };
        let (mut results, mut error) = match ran {
            Ok(results) => (results.into_iter(), None),
            Err(error) => (Vec::new().into_iter(), Some(error)),
        };
        // What ended one ended all; the first is told the cause.
        let also = match error {
            Some(SandboxError::Busy { limit }) => Some(limit),
            _ => None,
        };
        let also = || also.map_or(SandboxError::UnknownSession, |limit| SandboxError::Busy { limit });
        let mut next = || results.next().ok_or_else(|| error.take().unwrap_or_else(also));
        checked.into_iter().map(|checked| checked.and_then(|()| next())).collect()
    }

    fn check(&self, request: &ExecutionRequest) -> Result<(), SandboxError> {
        let limit = self.limits().code_bytes;
        request.input.check(limit).map_err(|reason| SandboxError::Refused { reason })
    }

    async fn destroy(&self, id: &SessionId) -> Result<(), SandboxError> {
        match self.sessions.remove(id) {
            Some(session) => session.close().await,
            None => Ok(()),
        }
    }
}

impl SandboxBackend for ProcessSandbox {
    fn create_session<'a>(&'a self, spec: &'a SessionSpec) -> BoxFuture<'a, Result<SessionGrant, SandboxError>> {
        self.create(spec).boxed()
    }

    fn execute<'a>(
        &'a self,
        session: &'a SessionId,
        request: &'a ExecutionRequest,
    ) -> BoxFuture<'a, Result<ExecutionResult, SandboxError>> {
        self.run(session, request).boxed()
    }

    fn max_concurrent_calls(&self) -> usize {
        SHELLS_AT_ONCE
    }

    fn execute_together<'a>(
        &'a self,
        session: &'a SessionId,
        requests: &'a [ExecutionRequest],
    ) -> BoxFuture<'a, Vec<Result<ExecutionResult, SandboxError>>> {
        self.run_together(session, requests).boxed()
    }

    fn destroy_session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), SandboxError>> {
        self.destroy(session).boxed()
    }

    fn put_file<'a>(
        &'a self,
        session: &'a SessionId,
        path: &'a WorkspacePath,
        size: u64,
        source: FileSource,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        async move {
            let visit = self.sessions.enter(session)?;
            visit.session.put_file(path, size, source, Existing::Kept).await
        }
        .boxed()
    }

    fn list_files<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Listing, SandboxError>> {
        async move { self.sessions.enter(session)?.session.list_files().await }.boxed()
    }

    fn get_file<'a>(
        &'a self,
        session: &'a SessionId,
        path: &'a WorkspacePath,
        max_bytes: u64,
    ) -> BoxFuture<'a, Result<FileContent, SandboxError>> {
        async move { Ok(self.open_file(session, path, max_bytes).await?.1) }.boxed()
    }

    fn capability(&self) -> Capability {
        Capability {
            backend: "embedded",
            isolation: self.pool.tier.name(),
            detail: format!(
                "Python in namespaces of its own, without network, with {}",
                self.pool.launcher.python.stack()
            ),
        }
    }
}
