//! The embedded sandbox: every session is a Python interpreter in namespaces of its own, started through bubblewrap.
//!
//! INVARIANT: a session's processes and files end with [`SandboxBackend::destroy_session`], with the drop of the
//! [`ProcessSandbox`], with the process (`kill -9` included), and at the latest with the next start.

mod capture;
mod census;
mod control;
mod files;
mod freeze;
mod interpreter;
mod launch;
mod pidfd;
mod python;
mod seccomp;
mod session;
mod settings;
mod spawner;
mod startup;
mod tree;
mod watch;
mod workspace;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use tokio::sync::Semaphore;

pub use settings::{ProcessSettings, RunAs, SandboxLimits};
pub use startup::{Probe, StartupRefusal};

use super::{
    Capability, ExecutionRequest, ExecutionResult, FileContent, FileSource, Listing, SandboxBackend, SandboxError,
    SessionId, SessionSpec, WorkspacePath,
};
use crate::ids::IdSource;
use launch::Launcher;
use session::Session;

/// Prefix of session ids.
const SESSION: &str = "otari_sbx_";
/// When to come back if every session is taken: most live for one request.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Runs code in local processes.
#[derive(Debug)]
pub struct ProcessSandbox {
    launcher: Arc<Launcher>,
    tier: Tier,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    slots: Arc<Semaphore>,
    ids: Arc<dyn IdSource>,
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
    pub async fn start(settings: ProcessSettings, ids: Arc<dyn IdSource>) -> Result<Arc<Self>, StartupRefusal> {
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
        let slots = Arc::new(Semaphore::new(launcher.limits.sessions));
        Ok(Arc::new(Self { launcher, tier, sessions: Mutex::default(), slots, ids }))
    }

    fn find(&self, id: &SessionId) -> Result<Arc<Session>, SandboxError> {
        self.sessions().get(id).cloned().ok_or(SandboxError::UnknownSession)
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        // The map is whole between any two operations on it, so a panic elsewhere does not spoil it.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn create(&self) -> Result<SessionId, SandboxError> {
        let slot = Arc::clone(&self.slots)
            .try_acquire_owned()
            .map_err(|_| SandboxError::AtCapacity { retry_after: Some(RETRY_AFTER) })?;
        let id = SessionId(self.ids.mint(SESSION));
        let session = Session::open(Arc::clone(&self.launcher), self.tier, &id.0, slot).await?;
        self.sessions().insert(id.clone(), Arc::new(session));
        Ok(id)
    }

    async fn run(&self, id: &SessionId, request: &ExecutionRequest) -> Result<ExecutionResult, SandboxError> {
        let limit = self.launcher.limits.code_bytes;
        request.input.check(limit).map_err(|reason| SandboxError::Refused { reason })?;
        self.find(id)?.execute(&request.input, request.timeout).await
    }

    async fn destroy(&self, id: &SessionId) -> Result<(), SandboxError> {
        let session = self.sessions().remove(id);
        match session {
            Some(session) => session.close().await,
            None => Ok(()),
        }
    }
}

impl SandboxBackend for ProcessSandbox {
    fn create_session<'a>(&'a self, _spec: &'a SessionSpec) -> BoxFuture<'a, Result<SessionId, SandboxError>> {
        self.create().boxed()
    }

    fn execute<'a>(
        &'a self,
        session: &'a SessionId,
        request: &'a ExecutionRequest,
    ) -> BoxFuture<'a, Result<ExecutionResult, SandboxError>> {
        self.run(session, request).boxed()
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
        async move { self.find(session)?.put_file(path, size, source).await }.boxed()
    }

    fn list_files<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Listing, SandboxError>> {
        async move { self.find(session)?.list_files().await }.boxed()
    }

    fn get_file<'a>(
        &'a self,
        session: &'a SessionId,
        path: &'a WorkspacePath,
        max_bytes: u64,
    ) -> BoxFuture<'a, Result<FileContent, SandboxError>> {
        async move { self.find(session)?.get_file(path, max_bytes).await }.boxed()
    }

    fn capability(&self) -> Capability {
        let python = self.launcher.python.executable.display();
        Capability {
            backend: "embedded",
            isolation: self.tier.name(),
            detail: format!("{python} in namespaces of its own, without network"),
        }
    }
}
