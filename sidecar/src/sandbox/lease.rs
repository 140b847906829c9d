//! A session on loan to one request, given back whatever happens to that request.
//!
//! INVARIANT: a session that was created here is destroyed exactly once, by the reaper or by [`Lease::end`], also when the
//! request is dropped; until it is destroyed it counts for its workspace. One that was taken over is destroyed only by
//! [`Lease::end`], and counts where it was created.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;

use super::{
    ExecutionRequest, ExecutionResult, FileContent, FileSource, Listing, SandboxBackend, SandboxError, SessionGrant,
    SessionId, SessionSpec, WorkspacePath,
};
use crate::shares::{Seat, Shares};

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

/// A session on loan. Dropping it hands the session to the [`Reaper`], unless it was taken over.
#[derive(Debug)]
pub struct Lease {
    granted: SessionGrant,
    backend: Arc<dyn SandboxBackend>,
    since: Instant,
    /// Goes with the session to be destroyed; `None` when that is done, or is not this lease's to do.
    held: Mutex<Option<Held>>,
}

/// What a lease owes.
#[derive(Debug)]
struct Held {
    seat: Seat,
    returned: mpsc::UnboundedSender<Used>,
}

/// A session to be destroyed.
#[derive(Debug)]
struct Used {
    session: SessionId,
    seat: Seat,
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
        (Self { returned, backend, shares: Shares::new(max_per_workspace) }, task)
    }

    /// Opens a session and lends it. At capacity when the workspace has its share, or the backend no room.
    pub async fn lease(&self, spec: &SessionSpec) -> Result<Lease, SandboxError> {
        let mut seat = self.shares.seat(&spec.workspace);
        if !seat.grow(1) {
            return Err(SandboxError::AtCapacity { retry_after: Some(RETRY_AFTER) });
        }
        let granted = self.backend.create_session(spec).await?;
        let held = Held { seat, returned: self.returned.clone() };
        Ok(Lease { granted, backend: Arc::clone(&self.backend), since: Instant::now(), held: Mutex::new(Some(held)) })
    }

    /// Whether a workspace has as many sessions as it may.
    pub fn is_full(&self, workspace: &str) -> bool {
        self.shares.is_taken(workspace)
    }

    /// The backend behind the leases.
    pub fn backend(&self) -> &Arc<dyn SandboxBackend> {
        &self.backend
    }
}

impl Lease {
    /// A session that somebody else created, at whichever backend: dropping this leaves it as it is.
    pub fn taken_over(backend: Arc<dyn SandboxBackend>, granted: SessionGrant) -> Self {
        Self { granted, backend, since: Instant::now(), held: Mutex::default() }
    }

    /// Destroys the session, and waits for that. Nothing may use it any more.
    pub async fn end(&self) -> Result<(), SandboxError> {
        // Dropped halfway, the rest of it has nobody to do it but the backend's own idle timeout.
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = self.backend.destroy_session(&self.granted.id).await;
        drop(held);
        ended
    }

    /// Leaves the session as it is: from now on it is its backend's alone.
    pub fn let_go(&self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// How long ago the session was lent.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// The session, and how long it lives if nobody ends it.
    pub fn granted(&self) -> &SessionGrant {
        &self.granted
    }

    /// Runs calls in the leased session that do not need each other: a result for each, in their order.
    pub async fn execute(&self, requests: &[ExecutionRequest]) -> Vec<Result<ExecutionResult, SandboxError>> {
        match requests {
            [request] => vec![self.backend.execute(&self.granted.id, request).await],
            _ => self.backend.execute_together(&self.granted.id, requests).await,
        }
    }

    /// Puts a file of `size` bytes into the leased session.
    pub async fn put_file(&self, path: &WorkspacePath, size: u64, source: FileSource) -> Result<(), SandboxError> {
        self.backend.put_file(&self.granted.id, path, size, source).await
    }

    /// Tells what files the leased session has.
    pub async fn list_files(&self) -> Result<Listing, SandboxError> {
        self.backend.list_files(&self.granted.id).await
    }

    /// Reads a file of the leased session, if it has no more than `max_bytes`.
    pub async fn get_file(&self, path: &WorkspacePath, max_bytes: u64) -> Result<FileContent, SandboxError> {
        self.backend.get_file(&self.granted.id, path, max_bytes).await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Held { seat, returned }) = held {
            // The receiver lives as long as the app; if it is gone the process is ending and the backend clears itself.
            drop(returned.send(Used { session: self.granted.id.clone(), seat }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::{Lease, Reaper};
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
        assert_eq!(reaper.shares.remembered(), 1, "only who has sessions is remembered");
    }

    #[tokio::test]
    async fn a_session_that_was_ended_is_not_ended_again_and_one_taken_over_stays() {
        let backend = Arc::new(Counter::default());
        let (reaper, task) = Reaper::new(Arc::clone(&backend) as Arc<dyn SandboxBackend>, 1);
        let first = reaper.lease(&SessionSpec::default()).await.unwrap();
        assert!(reaper.is_full(""));
        assert!(first.end().await.is_err(), "this backend says no, and is asked once");
        assert!(!reaper.is_full(""));
        let second = reaper.lease(&SessionSpec::default()).await.unwrap();
        drop(Lease::taken_over(Arc::clone(reaper.backend()), second.granted().clone()));
        drop((first, reaper));
        let alive = backend.alive.lock().unwrap().len();
        assert_eq!(alive, 1);
        drop(second);
        task.await;
        assert!(backend.alive.lock().unwrap().is_empty());
    }
}
