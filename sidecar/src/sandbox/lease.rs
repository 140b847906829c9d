//! A session on loan to one request, given back whatever happens to that request.
//!
//! INVARIANT: a session that was created is destroyed exactly once, by the reaper, also when the request is dropped; until
//! it is destroyed it counts for its workspace.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;

use super::{
    ExecutionRequest, ExecutionResult, FileContent, FileSource, Listing, SandboxBackend, SandboxError, SessionGrant,
    SessionId, SessionSpec, WorkspacePath,
};

/// Sessions that are being destroyed at the same time.
const AT_ONCE: usize = 16;

/// When to come back if the workspace's share is taken: most sessions live for one request.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Destroys sessions in the background, because `Drop` cannot wait.
#[derive(Debug, Clone)]
pub struct Reaper {
    returned: mpsc::UnboundedSender<Used>,
    backend: Arc<dyn SandboxBackend>,
    shares: Shares,
}

/// A session on loan. Dropping it hands the session to the [`Reaper`].
#[derive(Debug)]
pub struct Lease {
    granted: SessionGrant,
    /// Goes with the session to be destroyed.
    seat: Option<Seat>,
    reaper: Reaper,
}

/// A session to be destroyed.
#[derive(Debug)]
struct Used {
    session: SessionId,
    seat: Option<Seat>,
}

/// How many sessions each workspace has, of those it may have.
#[derive(Debug, Clone)]
struct Shares {
    taken: Arc<Mutex<HashMap<String, usize>>>,
    max_per_workspace: usize,
}

/// One session of a workspace's share; given back when it is dropped.
#[derive(Debug)]
struct Seat {
    workspace: String,
    shares: Shares,
}

impl Reaper {
    /// Creates the reaper and the task that does its work; the task ends when the last clone and lease are gone.
    /// No workspace gets more than `max_per_workspace` sessions at once.
    pub fn new(
        backend: Arc<dyn SandboxBackend>,
        max_per_workspace: usize,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        // Unbounded, yet bounded by the number of sessions that are granted.
        let (returned, inbox) = mpsc::unbounded_channel();
        let worker = Arc::clone(&backend);
        let sessions = stream::unfold(inbox, async |mut inbox| Some((inbox.recv().await?, inbox)));
        // Side by side: one session with a hundred thousand files must not hold up the others.
        let task = sessions.for_each_concurrent(AT_ONCE, move |used: Used| {
            let worker = Arc::clone(&worker);
            async move {
                if let Err(error) = worker.destroy_session(&used.session).await {
                    tracing::warn!(error = %error, "a sandbox session could not be destroyed");
                }
                drop(used.seat);
            }
        });
        let shares = Shares { taken: Arc::default(), max_per_workspace };
        (Self { returned, backend, shares }, task)
    }

    /// Opens a session and lends it. At capacity when the workspace has its share, or the backend no room.
    pub async fn lease(&self, spec: &SessionSpec) -> Result<Lease, SandboxError> {
        let seat = self.shares.seat(&spec.workspace)?;
        let granted = self.backend.create_session(spec).await?;
        Ok(Lease { granted, seat: Some(seat), reaper: self.clone() })
    }

    /// The backend behind the leases.
    pub fn backend(&self) -> &Arc<dyn SandboxBackend> {
        &self.backend
    }
}

impl Lease {
    /// The session, and how long it lives if nobody ends it.
    pub fn granted(&self) -> &SessionGrant {
        &self.granted
    }

    /// Runs calls in the leased session that do not need each other: a result for each, in their order.
    pub async fn execute(&self, requests: &[ExecutionRequest]) -> Vec<Result<ExecutionResult, SandboxError>> {
        match requests {
            [request] => vec![self.reaper.backend.execute(&self.granted.id, request).await],
            _ => self.reaper.backend.execute_together(&self.granted.id, requests).await,
        }
    }

    /// Puts a file of `size` bytes into the leased session.
    pub async fn put_file(&self, path: &WorkspacePath, size: u64, source: FileSource) -> Result<(), SandboxError> {
        self.reaper.backend.put_file(&self.granted.id, path, size, source).await
    }

    /// Tells what files the leased session has.
    pub async fn list_files(&self) -> Result<Listing, SandboxError> {
        self.reaper.backend.list_files(&self.granted.id).await
    }

    /// Reads a file of the leased session, if it has no more than `max_bytes`.
    pub async fn get_file(&self, path: &WorkspacePath, max_bytes: u64) -> Result<FileContent, SandboxError> {
        self.reaper.backend.get_file(&self.granted.id, path, max_bytes).await
    }
}

impl Shares {
    fn seat(&self, workspace: &str) -> Result<Seat, SandboxError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let has = taken.entry(workspace.to_owned()).or_default();
        if *has >= self.max_per_workspace {
            return Err(SandboxError::AtCapacity { retry_after: Some(RETRY_AFTER) });
        }
        *has += 1;
        Ok(Seat { workspace: workspace.to_owned(), shares: self.clone() })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // The map holds workspaces that have sessions, no others.
        if let Some(has) = taken.get_mut(&self.workspace) {
            *has = has.saturating_sub(1);
            if *has == 0 {
                taken.remove(&self.workspace);
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The receiver lives as long as the app; if it is gone the process is ending and the backend clears itself.
        drop(self.reaper.returned.send(Used { session: self.granted.id.clone(), seat: self.seat.take() }));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::Reaper;
    use crate::sandbox::{
        Capability, ExecutionRequest, ExecutionResult, SandboxBackend, SandboxError, SessionGrant, SessionId,
        SessionSpec,
    };

    /// Keeps count of its sessions and runs nothing.
    #[derive(Debug, Default)]
    struct Counter {
        made: Mutex<u32>,
        alive: Mutex<BTreeSet<SessionId>>,
    }

    impl SandboxBackend for Counter {
        fn create_session<'a>(&'a self, _: &'a SessionSpec) -> BoxFuture<'a, Result<SessionGrant, SandboxError>> {
            let mut made = self.made.lock().unwrap();
            *made += 1;
            let id = SessionId(made.to_string());
            self.alive.lock().unwrap().insert(id.clone());
            async move { Ok(SessionGrant { id, idle_timeout: None, max_lifetime: None }) }.boxed()
        }

        fn execute<'a>(
            &'a self,
            _: &'a SessionId,
            _: &'a ExecutionRequest,
        ) -> BoxFuture<'a, Result<ExecutionResult, SandboxError>> {
            async { Ok(ExecutionResult::default()) }.boxed()
        }

        fn destroy_session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), SandboxError>> {
            assert!(self.alive.lock().unwrap().remove(session), "destroyed twice");
            async { Err(SandboxError::TimedOut) }.boxed()
        }

        fn capability(&self) -> Capability {
            Capability { backend: "counter", isolation: "none", detail: String::new() }
        }
    }

    #[tokio::test]
    async fn every_lease_ends_in_one_destruction_and_then_the_task_ends() {
        let backend = Arc::new(Counter::default());
        let (reaper, task) = Reaper::new(Arc::clone(&backend) as Arc<dyn SandboxBackend>, 40);
        let lives = async move {
            let mut leases = Vec::new();
            for _ in 0..40 {
                leases.push(reaper.lease(&SessionSpec::default()).await.unwrap());
            }
            drop(leases);
        };
        tokio::join!(lives, task);
        assert_eq!(*backend.made.lock().unwrap(), 40);
        assert!(backend.alive.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_workspace_gets_no_more_than_its_share_and_has_it_back_when_a_session_is_destroyed() {
        let backend = Arc::new(Counter::default());
        let (reaper, task) = Reaper::new(Arc::clone(&backend) as Arc<dyn SandboxBackend>, 2);
        let mut task = Box::pin(task);
        let of = |workspace: &str| SessionSpec { workspace: workspace.to_owned(), ..SessionSpec::default() };
        let (one, team) = (of("one"), of("team"));
        let first = reaper.lease(&one).await.unwrap();
        let _second = reaper.lease(&one).await.unwrap();
        let full = async |reaper: &Reaper| match reaper.lease(&one).await {
            Err(SandboxError::AtCapacity { retry_after }) => assert!(retry_after.is_some()),
            other => panic!("{other:?}"),
        };
        full(&reaper).await;
        let others = reaper.lease(&team).await.unwrap();
        drop(first);
        // Its process may still be alive: it counts until it is destroyed.
        full(&reaper).await;
        assert!((&mut task).now_or_never().is_none());
        let third = reaper.lease(&one).await.unwrap();
        full(&reaper).await;
        drop((others, third));
        assert!((&mut task).now_or_never().is_none());
        assert_eq!(reaper.shares.taken.lock().unwrap().len(), 1, "only who has sessions is remembered");
    }
}
