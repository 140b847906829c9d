//! Sandbox sessions kept between requests: a row in the database that says whose a session is, where it is and until when,
//! and the leases of those that this process opened.
//!
//! INVARIANT: a kept session is worked on by one request at a time, which has claimed its row. Whoever ends a session has
//! removed its row, or claimed it, before. No new session fails for want of room while one that is kept stands unused.

mod claim;
mod hold;
mod parked;
mod room;
mod sweep;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use decision::identity::Identity;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::ids;
use crate::repository::{Claimed, ContainerRow, Repository, RepositoryError};
use crate::sandbox::remote::{HttpSandbox, HttpSettings};
use crate::sandbox::{Lease, Reaper, SandboxBackend, SandboxError, SessionGrant, SessionId};
use crate::telemetry::{Metrics, chain};

use hold::Held;
use parked::ParkedLeases;

pub use claim::Claim;

/// Longest id that is looked up; ours have 43 characters.
const MAX_ID_CHARS: usize = 64;
/// Between two looks whether a container that is in use is free.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Sessions that are ended at the same time.
const AT_ONCE: usize = 16;
/// How the name of a sandbox begins that another replica advertised: all that is called with the token that replicas share.
const PEER: &str = "peer+";
/// Other replicas whose sessions can be reached without a new client.
const MAX_CLIENTS: usize = 256;

/// How many sessions are kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerLimits {
    /// How long one stands unused before it ends; zero keeps none. A sandbox may grant less.
    pub idle: Duration,
    /// How long one lives in all. Likewise.
    pub lifetime: Duration,
    /// How long a request waits for one that is in use.
    pub busy_wait: Duration,
    /// How many this process keeps; the one that stood unused longest gives way.
    pub max_kept: usize,
    /// How many of them are of one workspace.
    pub max_kept_per_workspace: usize,
    /// How long a request that is not heard of any more has one; while it lives that is renewed.
    pub claim: Duration,
}

/// What this process calls its own sandbox, and how it reaches others'.
#[derive(Debug, Clone)]
pub struct Place {
    /// What rows say: [`Self::peer`] of its address if other replicas reach it there, the URL of a server of its own, or a
    /// name that means something to this process alone.
    pub backend: String,
    /// The sessions are not of this process and outlive it.
    pub outlives: bool,
    /// How other replicas' sandboxes are reached, but for the address; `None` if they are not.
    pub others: Option<HttpSettings>,
}

impl Place {
    /// The name of a sandbox that its replica serves to the others at this URL. Whoever reads it in a row brings there the
    /// token that they share.
    pub fn peer(url: &str) -> String {
        format!("{PEER}{url}")
    }
}

/// What containers are made of.
#[derive(Debug)]
pub struct Parts {
    /// The rows.
    pub repository: Repository,
    /// Opens sessions.
    pub reaper: Reaper,
    /// Where they are.
    pub place: Place,
    /// How many are kept.
    pub limits: ContainerLimits,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What must not be broken off runs there.
    pub tasks: TaskTracker,
    /// Counts.
    pub metrics: Metrics,
}

/// The sessions that are kept.
#[derive(Debug, Clone)]
pub struct Containers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    parts: Parts,
    parked: ParkedLeases,
    /// Clients of other replicas' sandboxes, by address.
    others: Mutex<HashMap<String, Arc<dyn SandboxBackend>>>,
    /// The rows that requests have; those that have ended go with the next.
    held: Mutex<Vec<Weak<Held>>>,
    /// Turns of ending a session that a request had.
    ending: Semaphore,
    /// Claims end there, wherever they are dropped.
    runtime: Handle,
}

/// Why a request does not get the container that it asks for.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// There is none of this id, or no longer, or it is another's.
    #[error("there is no such container")]
    Unknown,
    /// Another request has it, for longer than this one waits.
    #[error("the container is in use")]
    Busy {
        /// So long it waited.
        waited: Duration,
    },
    /// Where its session is, nothing answers.
    #[error("the container's sandbox does not answer")]
    Sandbox(#[source] SandboxError),
    /// The database failed.
    #[error("the container's row cannot be read")]
    Repository(#[from] RepositoryError),
}

impl Containers {
    /// Creates it, inside the runtime that its tasks run on.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(Shared {
            parts,
            parked: ParkedLeases::default(),
            others: Mutex::default(),
            held: Mutex::default(),
            ending: Semaphore::new(AT_ONCE),
            runtime: Handle::current(),
        }))
    }

    /// Claims a container of this owner's, waiting for it if it is in use; its session is known to be alive.
    pub async fn resume(&self, owner: &Identity, id: &str) -> Result<Claim, ContainerError> {
        self.claim(owner, id, self.limits().busy_wait).await
    }

    /// The same without a wait.
    pub async fn resume_if_free(&self, owner: &Identity, id: &str) -> Result<Claim, ContainerError> {
        self.claim(owner, id, Duration::ZERO).await
    }

    /// A container of this owner's. One that is in use counts.
    pub async fn find(&self, owner: &Identity, id: &str) -> Result<ContainerRow, ContainerError> {
        if !self.may_exist(id) {
            return Err(ContainerError::Unknown);
        }
        self.repository().container(owner, id).await?.ok_or(ContainerError::Unknown)
    }

    /// Ends a container of this owner's, and its session with it, before this returns. An error says that it may go on.
    pub async fn delete(&self, owner: &Identity, id: &str) -> Result<(), ContainerError> {
        self.resume(owner, id).await?.delete().await?;
        self.0.parts.metrics.container("deleted");
        Ok(())
    }

    /// Until when a session would be kept from now on; `None` if it would not.
    pub fn expiry(&self, owner: &Identity, lease: &Lease) -> Option<Timestamp> {
        // Whoever has no name keeps nothing: others would have the same.
        if owner.workspace.is_empty() {
            return None;
        }
        let (idle, left) = self.times(lease)?;
        self.time_after(idle.min(left))
    }

    /// Keeps a session under this id, which was shown to its owner, until `expires_at`. What fails is logged, and then the
    /// session is not kept: the answer is good without.
    pub async fn keep(&self, owner: &Identity, id: String, lease: Arc<Lease>, expires_at: Timestamp) {
        let (containers, owner) = (self.clone(), owner.clone());
        // Once begun it is done, also if nobody waits for it any more.
        let keeping = async move { containers.keep_now(owner, id, lease, expires_at).await };
        drop(self.0.parts.tasks.spawn(keeping).await);
    }

    async fn keep_now(&self, owner: Identity, id: String, lease: Arc<Lease>, expires_at: Timestamp) {
        let Some((idle, left)) = self.times(&lease) else { return };
        let Some(room) = self.make_room_to_keep(&owner.workspace).await else {
            tracing::info!("a session is not kept: all that are kept are in use");
            return;
        };
        let now = self.now_ms();
        let row = ContainerRow {
            id,
            owner,
            backend: self.0.parts.place.backend.clone(),
            session: lease.granted().id.0.clone(),
            idle_ms: milliseconds(idle),
            created_at_ms: now,
            used_at_ms: now,
            expires_at_ms: expires_at.as_millisecond(),
            ends_at_ms: now.saturating_add(milliseconds(left)),
        };
        if let Err(error) = self.repository().put_container(&row).await {
            tracing::error!(error = %chain(&error), container.id = row.id, "a session was not kept");
            return;
        }
        self.0.parts.metrics.container("kept");
        if !room.park(row.id.clone(), lease) {
            // The process is ending, and so are its sessions.
            self.forget(&row.id).await;
        }
    }

    /// Keeps no session any more, and forgets those that a request has after all: those of this process end, those of a server that outlives it are left to others.
    pub async fn shut(&self) {
        let parked = self.0.parked.close();
        self.forget_held().await;
        if self.0.parts.place.outlives {
            for (_, lease) in &parked {
                lease.let_go();
            }
            return;
        }
        let ending = stream::iter(parked).for_each_concurrent(AT_ONCE, async |(id, lease)| {
            self.forget(&id).await;
            end(&lease).await;
        });
        ending.await;
    }

    async fn claim(&self, owner: &Identity, id: &str, wait: Duration) -> Result<Claim, ContainerError> {
        if !self.may_exist(id) {
            return Err(ContainerError::Unknown);
        }
        let begun = Instant::now();
        loop {
            match self.claim_now(owner, id).await {
                Err(ContainerError::Busy { .. }) => {}
                other => return other,
            }
            let waited = begun.elapsed();
            let Some(left) = wait.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(ContainerError::Busy { waited });
            };
            tokio::time::sleep(left.min(LOOK_AGAIN)).await;
        }
    }

    /// In a task of its own: a row that was claimed must be given back, also if nobody waits for it any more.
    async fn claim_now(&self, owner: &Identity, id: &str) -> Result<Claim, ContainerError> {
        let (told, hears) = oneshot::channel();
        let (containers, owner, id) = (self.clone(), owner.clone(), id.to_owned());
        self.0.parts.tasks.spawn(async move {
            let until_ms = containers.now_ms().saturating_add(milliseconds(containers.limits().claim));
            let claimed = match containers.repository().claim_container(&owner, &id, until_ms).await {
                Ok(Claimed::Row(row)) => containers.take(row, until_ms).await,
                Ok(Claimed::Busy) => Err(ContainerError::Busy { waited: Duration::ZERO }),
                Ok(Claimed::Unknown) => Err(ContainerError::Unknown),
                Err(error) => Err(error.into()),
            };
            drop(told.send(claimed));
        });
        hears.await.unwrap_or(Err(ContainerError::Unknown))
    }

    /// Reaches for the session of a row that was claimed.
    async fn take(&self, row: ContainerRow, until_ms: i64) -> Result<Claim, ContainerError> {
        let Some(lease) = self.lease_of(&row) else {
            // Of a process that is no more, or cannot be reached from here and never could.
            return Err(Claim::give_up(self, &row.id, until_ms).await);
        };
        Claim::begin(self.clone(), row, until_ms, lease).await
    }

    fn lease_of(&self, row: &ContainerRow) -> Option<Arc<Lease>> {
        if let Some(lease) = self.0.parked.get(&row.id) {
            return Some(lease);
        }
        let backend = self.backend(&row.backend)?;
        let granted = SessionGrant { id: SessionId(row.session.clone()), idle_timeout: None, max_lifetime: None };
        Some(Arc::new(Lease::taken_over(backend, granted)))
    }

    /// The sandbox of this name; `None` if it cannot be reached.
    fn backend(&self, name: &str) -> Option<Arc<dyn SandboxBackend>> {
        let Parts { place, reaper, .. } = &self.0.parts;
        if name == place.backend {
            return Some(Arc::clone(reaper.backend()));
        }
        // Whatever else a row names must not get the token.
        let (url, settings) = (name.strip_prefix(PEER)?, place.others.as_ref()?);
        let mut others = self.0.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = others.get(url) {
            return Some(Arc::clone(known));
        }
        let client = match HttpSandbox::new(HttpSettings { url: url.to_owned(), ..settings.clone() }) {
            Ok(client) => Arc::new(client),
            Err(error) => {
                tracing::error!(error = %chain(&error), "the sandbox of another replica cannot be called");
                return None;
            }
        };
        // Replicas come and go, and each has an address of its own.
        if others.len() >= MAX_CLIENTS {
            others.clear();
        }
        others.insert(url.to_owned(), Arc::clone(&client) as _);
        Some(client)
    }

    /// How long a session may stand unused, and how long it still lives; `None` if it cannot be kept.
    fn times(&self, lease: &Lease) -> Option<(Duration, Duration)> {
        let ContainerLimits { idle, lifetime, .. } = *self.limits();
        let granted = lease.granted();
        let idle = granted.idle_timeout?.min(idle);
        let left = granted.max_lifetime.unwrap_or(lifetime).min(lifetime).checked_sub(lease.age())?;
        (!idle.is_zero() && !left.is_zero()).then_some((idle, left))
    }

    fn may_exist(&self, id: &str) -> bool {
        let is_ours = id.strip_prefix(ids::CONTAINER).is_some_and(|rest| {
            !rest.is_empty() && id.len() <= MAX_ID_CHARS && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
        });
        is_ours && !self.limits().idle.is_zero()
    }

    /// Removes a row that nobody has; one that stays is removed when it has expired.
    async fn forget(&self, id: &str) {
        if let Err(error) = self.repository().remove_idle_container(id).await {
            tracing::warn!(error = %chain(&error), container.id = id, "the row of a kept session was not removed");
        }
    }

    fn time_after(&self, wait: Duration) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.now_ms().saturating_add(milliseconds(wait))).ok()
    }

    fn now_ms(&self) -> i64 {
        self.0.parts.clock.now_ms()
    }

    fn limits(&self) -> &ContainerLimits {
        &self.0.parts.limits
    }

    fn repository(&self) -> &Repository {
        &self.0.parts.repository
    }
}

/// Ends a session; one that does not end now does so by its backend's own idle timeout.
async fn end(lease: &Lease) {
    if let Err(error) = lease.end().await {
        tracing::warn!(error = %chain(&error), "a kept sandbox session could not be destroyed");
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
