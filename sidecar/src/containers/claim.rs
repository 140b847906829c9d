//! A container that one request has for itself, given back whatever happens to that request.
//!
//! INVARIANT: a claim ends once, in a task of its own, whether its request waits for that or is gone. A session whose last
//! call did not end well is not given back but ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::hold::Hold;
use super::{ContainerError, Containers};
use crate::ids;
use crate::repository::ContainerRow;
use crate::sandbox::{Lease, ListedFile, Listing, SandboxError};
use crate::telemetry::chain;

/// How long a call that was cut off may take to end.
const CALL_GRACE: Duration = Duration::from_secs(5);
/// Until a row is given back again whose first time failed.
const RELEASE_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long it may take to read a file that may be the one that is to go in.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(30);

/// A container that a request works with.
#[derive(Debug)]
pub struct Claim {
    /// `None` once it has ended.
    taken: Option<Taken>,
    lease: Arc<Lease>,
    id: String,
    listing: Listing,
}

#[derive(Debug)]
struct Taken {
    containers: Containers,
    row: ContainerRow,
    hold: Hold,
    lease: Arc<Lease>,
}

/// How a claim ends.
enum Ending {
    /// The container is kept until then, in milliseconds since the epoch; without, for as long as it may be.
    Release(Option<i64>),
    /// The session ends.
    Discard,
    /// Whichever the last of the request's work says: whether the session is good for more.
    After(BoxFuture<'static, bool>),
}

impl Claim {
    /// Makes sure that the session is alive. If it is not, the container is gone.
    pub(super) async fn begin(
        containers: Containers,
        row: ContainerRow,
        until_ms: i64,
        lease: Arc<Lease>,
    ) -> Result<Self, ContainerError> {
        let id = row.id.clone();
        let hold = Hold::new(&containers, &id, until_ms);
        let taken = Taken { containers, row, hold, lease: Arc::clone(&lease) };
        let mut claim = Self { taken: Some(taken), lease, id, listing: Listing::default() };
        match claim.lease.list_files().await {
            Ok(listing) => claim.listing = listing,
            // Then the first call will tell.
            Err(SandboxError::NotServed) => {}
            Err(SandboxError::UnknownSession) => {
                if let Some(taken) = claim.taken.take() {
                    // What fails is logged.
                    taken.discard().await.ok();
                }
                return Err(ContainerError::Unknown);
            }
            Err(error) => {
                if let Some(taken) = claim.taken.take() {
                    let expires_at_ms = taken.row.expires_at_ms;
                    taken.release(expires_at_ms).await;
                }
                return Err(ContainerError::Sandbox(error));
            }
        }
        claim.counts("resumed");
        Ok(claim)
    }

    /// The end of a claim whose session cannot be reached.
    pub(super) async fn give_up(containers: &Containers, id: &str, until_ms: i64) -> ContainerError {
        match containers.repository().remove_claimed_container(id, until_ms).await {
            Ok(_) => ContainerError::Unknown,
            Err(error) => error.into(),
        }
    }

    /// The container's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its session.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Until when it is kept if it is given back now.
    pub fn expiry(&self) -> Option<Timestamp> {
        let taken = self.taken.as_ref()?;
        Timestamp::from_millisecond(taken.expires_at_ms()).ok()
    }

    /// Gives it back, to be kept until `expires_at`. It is given back, too, if this is dropped.
    pub async fn release(self, expires_at: Timestamp) {
        // What fails is logged.
        self.end(Ending::Release(Some(expires_at.as_millisecond()))).await.ok();
    }

    /// Gives it back in the background once `rest` has ended, which says whether the session is good for more. `rest` goes
    /// on from now on. Whoever awaits what this returns waits for the end of it.
    pub fn leave(mut self, rest: BoxFuture<'static, bool>) -> BoxFuture<'static, ()> {
        let ending = self.send(Ending::After(rest));
        async {
            if let Some(ending) = ending {
                drop(ending.await);
            }
        }
        .boxed()
    }

    /// Ends it with its session: busy if it was not this claim's any more.
    pub(super) async fn delete(self) -> Result<(), ContainerError> {
        self.end(Ending::Discard).await
    }

    async fn end(mut self, ending: Ending) -> Result<(), ContainerError> {
        // Without an outcome the process is ending, and the row stays claimed for a while.
        let unsure = Err(ContainerError::Busy { waited: Duration::ZERO });
        match self.send(ending) {
            Some(ending) => ending.await.unwrap_or(unsure),
            None => unsure,
        }
    }

    /// Whether something stands at the top of the workspace under this name.
    pub fn has(&self, name: &str) -> bool {
        let first = |file: &ListedFile| file.path.names().next() == Some(name.as_bytes());
        self.listing.files.iter().any(first)
    }

    /// Whether a file of just this content stands there.
    pub async fn holds(&self, name: &str, size_bytes: u64, sha256: &str) -> bool {
        let is_it = |file: &&ListedFile| file.path.as_bytes() == name.as_bytes() && file.size_bytes == size_bytes;
        let Some(file) = self.listing.files.iter().find(is_it) else { return false };
        let read = async {
            let mut content = self.lease.get_file(&file.path, size_bytes).await.ok()?;
            let mut hash = Sha256::new();
            while let Some(piece) = content.next().await {
                hash.update(&piece.ok()?);
            }
            Some(ids::hex(&hash.finalize()))
        };
        timeout(COMPARE_TIMEOUT, read).await.ok().flatten().is_some_and(|found| found == sha256)
    }

    fn counts(&self, event: &'static str) {
        if let Some(taken) = &self.taken {
            taken.containers.0.parts.metrics.container(event);
        }
    }

    fn send(&mut self, ending: Ending) -> Option<JoinHandle<Result<(), ContainerError>>> {
        let taken = self.taken.take()?;
        let containers = taken.containers.clone();
        Some(containers.0.parts.tasks.spawn_on(taken.end(ending), &containers.0.runtime))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.send(Ending::Release(None));
    }
}

impl Taken {
    fn expires_at_ms(&self) -> i64 {
        self.containers.now_ms().saturating_add(self.row.idle_ms).min(self.row.ends_at_ms)
    }

    async fn end(self, ending: Ending) -> Result<(), ContainerError> {
        let (is_well, expires_at_ms) = match ending {
            Ending::Release(expires_at_ms) => (true, expires_at_ms),
            Ending::Discard => (false, None),
            Ending::After(rest) => (timeout(CALL_GRACE, rest).await.unwrap_or(false), None),
        };
        if !is_well {
            return self.discard().await;
        }
        let expires_at_ms = expires_at_ms.unwrap_or_else(|| self.expires_at_ms());
        self.release(expires_at_ms).await;
        Ok(())
    }

    async fn release(self, expires_at_ms: i64) {
        let Self { containers, row, hold, lease } = self;
        containers.0.parked.used(&row.id);
        let release =
            async |until_ms| containers.repository().release_container(&row.id, until_ms, expires_at_ms).await;
        let released = match hold.end().await {
            None => Ok(false),
            Some(until_ms) => match release(until_ms).await {
                Err(error) => {
                    tracing::warn!(error = %chain(&error), container.id = row.id, "a kept session is given back again");
                    tokio::time::sleep(RELEASE_AGAIN_AFTER).await;
                    release(until_ms).await
                }
                released => released,
            },
        };
        match released {
            Ok(true) => {}
            // Its claim ran out, and it is another's now.
            Ok(false) => tracing::warn!(container.id = row.id, "a kept session was no longer this request's"),
            Err(error) => {
                tracing::error!(error = %chain(&error), container.id = row.id, "a kept session was not given back");
            }
        }
        drop(lease);
    }

    /// Ends the session, also if its row stays. It is logged what fails.
    async fn discard(self) -> Result<(), ContainerError> {
        let Self { containers, row, hold, lease } = self;
        let removed = match hold.end().await {
            None => Ok(false),
            Some(until_ms) => containers.repository().remove_claimed_container(&row.id, until_ms).await,
        };
        match &removed {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(container.id = row.id, "a session to be ended was no longer this request's");
                return Err(ContainerError::Busy { waited: Duration::ZERO });
            }
            Err(error) => {
                tracing::error!(error = %chain(error), container.id = row.id, "the row of a lost session stays");
            }
        }
        containers.0.parked.remove(&row.id, &lease);
        // An error would mean that the semaphore was closed, which nothing does.
        let _turn = containers.0.ending.acquire().await;
        let ended = lease.end().await;
        if let Err(error) = &ended {
            tracing::warn!(error = %chain(error), "a kept sandbox session could not be destroyed");
        }
        removed?;
        match ended {
            Ok(()) | Err(SandboxError::UnknownSession) => Ok(()),
            Err(error) => Err(ContainerError::Sandbox(error)),
        }
    }
}
