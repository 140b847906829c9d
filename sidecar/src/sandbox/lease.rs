//! A session on loan to one request, given back whatever happens to that request.
//!
//! INVARIANT: a session that was created is destroyed exactly once, by the reaper, also when the request is dropped.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;

use super::{ExecutionRequest, ExecutionResult, SandboxBackend, SandboxError, SessionId, SessionSpec};

/// Sessions that are being destroyed at the same time.
const AT_ONCE: usize = 16;

/// Destroys sessions in the background, because `Drop` cannot wait.
#[derive(Debug, Clone)]
pub struct Reaper {
    returned: mpsc::UnboundedSender<SessionId>,
    backend: Arc<dyn SandboxBackend>,
}

/// A session on loan. Dropping it hands the session to the [`Reaper`].
#[derive(Debug)]
pub struct Lease {
    session: SessionId,
    reaper: Reaper,
}

impl Reaper {
    /// Creates the reaper and the task that does its work; the task ends when the last clone and lease are gone.
    pub fn new(backend: Arc<dyn SandboxBackend>) -> (Self, impl Future<Output = ()> + Send + 'static) {
        // Unbounded, yet bounded by the number of sessions the backend grants.
        let (returned, inbox) = mpsc::unbounded_channel();
        let worker = Arc::clone(&backend);
        let sessions = stream::unfold(inbox, async |mut inbox| Some((inbox.recv().await?, inbox)));
        // Side by side: one session with a hundred thousand files must not hold up the others.
        let task = sessions.for_each_concurrent(AT_ONCE, move |session| {
            let worker = Arc::clone(&worker);
            async move {
                if let Err(error) = worker.destroy_session(&session).await {
                    tracing::warn!(error = %error, "a sandbox session could not be destroyed");
                }
            }
        });
        (Self { returned, backend }, task)
    }

    /// Opens a session and lends it.
    pub async fn lease(&self, spec: &SessionSpec) -> Result<Lease, SandboxError> {
        let session = self.backend.create_session(spec).await?;
        Ok(Lease { session, reaper: self.clone() })
    }

    /// The backend behind the leases.
    pub fn backend(&self) -> &Arc<dyn SandboxBackend> {
        &self.backend
    }
}

impl Lease {
    /// Runs code in the leased session.
    pub async fn execute(&self, request: &ExecutionRequest) -> Result<ExecutionResult, SandboxError> {
        self.reaper.backend.execute(&self.session, request).await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The receiver lives as long as the app; if it is gone the process is ending and the backend clears itself.
        drop(self.reaper.returned.send(self.session.clone()));
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
        Capability, ExecutionRequest, ExecutionResult, SandboxBackend, SandboxError, SessionId, SessionSpec,
    };

    /// Keeps count of its sessions and runs nothing.
    #[derive(Debug, Default)]
    struct Counter {
        made: Mutex<u32>,
        alive: Mutex<BTreeSet<SessionId>>,
    }

    impl SandboxBackend for Counter {
        fn create_session<'a>(&'a self, _: &'a SessionSpec) -> BoxFuture<'a, Result<SessionId, SandboxError>> {
            let mut made = self.made.lock().unwrap();
            *made += 1;
            let id = SessionId(made.to_string());
            self.alive.lock().unwrap().insert(id.clone());
            async move { Ok(id) }.boxed()
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
        let (reaper, task) = Reaper::new(Arc::clone(&backend) as Arc<dyn SandboxBackend>);
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
}
