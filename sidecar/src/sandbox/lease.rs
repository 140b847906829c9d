//! A session on loan to one request, given back whatever happens to that request.
//!
//! INVARIANT: a session that was created is destroyed exactly once, by the reaper, also when the request is dropped.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{ExecutionRequest, ExecutionResult, SandboxBackend, SandboxError, SessionId, SessionSpec};

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
        let (returned, mut inbox) = mpsc::unbounded_channel();
        let worker = Arc::clone(&backend);
        let task = async move {
            while let Some(session) = inbox.recv().await {
                if let Err(error) = worker.destroy_session(&session).await {
                    tracing::warn!(error = %error, "a sandbox session could not be destroyed");
                }
            }
        };
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
