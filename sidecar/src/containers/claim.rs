//! A container that one request has for itself, given back whatever happens to that request.
//!
//! INVARIANT: a claim ends once, in the background, whether its request waits for that or is gone. A session whose last call did not end well is not given back but ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{ContainerError, Containers, end};
use crate::ids;
use crate::repository::ContainerRow;
use crate::sandbox::{Lease, ListedFile, Listing, SandboxError};
use crate::telemetry::chain;

/// How long a call that was cut off may take to end.
const CALL_GRACE: Duration = Duration::from_secs(5);
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
    until_ms: i64,
    lease: Arc<Lease>,
}

/// A claim that ends, whoever waits for it.
pub(super) struct Left {
    taken: Taken,
    ending: Ending,
    /// Hears of it when it is done.
    told: Option<oneshot::Sender<()>>,
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
        let taken = Taken { containers, row, until_ms, lease: Arc::clone(&lease) };
        let mut claim = Self { taken: Some(taken), lease, id, listing: Listing::default() };
        match claim.lease.list_files().await {
            Ok(listing) => claim.listing = listing,
            // Then the first call will tell.
            Err(SandboxError::NotServed) => {}
            Err(SandboxError::UnknownSession) => {
                if let Some(taken) = claim.taken.take() {
                    taken.discard().await;
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
        self.end(Ending::Release(Some(expires_at.as_millisecond()))).await;
    }

    /// Gives it back in the background once `rest` has ended, which says whether the session is good for more.
    pub fn leave(mut self, rest: BoxFuture<'static, bool>) {
        self.send(Ending::After(rest), None);
    }

    /// Ends it with its session.
    pub(super) async fn delete(self) {
        self.counts("deleted");
        self.end(Ending::Discard).await;
    }

    async fn end(mut self, ending: Ending) {
        let (told, hears) = oneshot::channel();
        self.send(ending, Some(told));
        // An error means that the process is ending.
        drop(hears.await);
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

    fn send(&mut self, ending: Ending, told: Option<oneshot::Sender<()>>) {
        let Some(taken) = self.taken.take() else { return };
        let left = taken.containers.0.left.clone();
        // The receiver lives as long as the app; if it is gone the process is ending, and the sandbox clears itself.
        drop(left.send(Left { taken, ending, told }));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.send(Ending::Release(None), None);
    }
}

impl Taken {
    fn expires_at_ms(&self) -> i64 {
        self.containers.now_ms().saturating_add(self.row.idle_ms).min(self.row.ends_at_ms)
    }

    async fn release(self, expires_at_ms: i64) {
        let Self { containers, row, until_ms, lease } = self;
        containers.0.parked.used(&row.id);
        match containers.repository().release_container(&row.id, until_ms, expires_at_ms).await {
            Ok(true) => {}
            // It took longer than a claim lasts, and is another's now.
            Ok(false) => tracing::warn!(container.id = row.id, "a kept session was no longer this request's"),
            Err(error) => {
                tracing::error!(error = %chain(&error), container.id = row.id, "a kept session was not given back");
            }
        }
        drop(lease);
    }

    async fn discard(self) {
        let Self { containers, row, until_ms, lease } = self;
        match containers.repository().remove_claimed_container(&row.id, until_ms).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::error!(error = %chain(&error), container.id = row.id, "the row of a lost session stays");
            }
        }
        containers.0.parked.remove(&row.id);
        end(&lease).await;
    }
}

impl Left {
    /// Ends the claim.
    pub(super) async fn give_back(self) {
        let Self { taken, ending, told } = self;
        let (is_well, expires_at_ms) = match ending {
            Ending::Release(expires_at_ms) => (true, expires_at_ms),
            Ending::Discard => (false, None),
            Ending::After(rest) => (timeout(CALL_GRACE, rest).await.unwrap_or(false), None),
        };
        if is_well {
            let expires_at_ms = expires_at_ms.unwrap_or_else(|| taken.expires_at_ms());
            taken.release(expires_at_ms).await;
        } else {
            taken.discard().await;
        }
        if let Some(told) = told {
            told.send(()).ok();
        }
    }
}
