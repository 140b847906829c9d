//! The policy snapshot: what the database and the config say, held in memory and published to the filters.
//!
//! INVARIANT: one version is one content. A change made by this process is in the snapshot before its answer leaves;
//! one made by another process is in it one poll later; unconfirmed for `policy.max_age_ms`, it no longer counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use decision::identity::key_hash;
use decision::policy::{KeyOwner, PolicyView, Preference, Snapshot, WorkspacePolicy};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::repository::{Repository, RepositoryError};

/// Between looks at the database that strangers cause: what a new key may have to wait, and what guessed keys may cost.
const LOOK_DISTANCE: Duration = Duration::from_millis(100);

/// What the config adds to the database's share of the snapshot.
#[derive(Debug, Clone)]
pub struct PolicyBasis {
    /// `code_execution_executor`.
    pub default_executor: Preference,
    /// Whether a sandbox is configured.
    pub sandbox_available: bool,
    /// Images a policy may name.
    pub allowed_images: Vec<String>,
    /// SHA-256 of credentials that are no keys and must not travel to a provider.
    pub withheld: BTreeSet<String>,
    /// `policy.max_age_ms`.
    pub max_age: Duration,
}

/// Holds the snapshot and keeps it true.
#[derive(Debug)]
pub struct PolicyHolder {
    repository: Repository,
    clock: Arc<dyn Clock>,
    basis: PolicyBasis,
    state: watch::Sender<State>,
    /// One look at a time; one that begins while others wait is theirs too.
    looking: Mutex<LastLook>,
}

/// The snapshot at one moment.
#[derive(Debug, Clone)]
pub struct CurrentPolicy {
    edition: Arc<Edition>,
    fresh: bool,
}

#[derive(Debug, Clone)]
struct State {
    edition: Arc<Edition>,
    confirmed: Instant,
}

/// When the last look at the database began, and how it ended.
#[derive(Debug)]
struct LastLook {
    began: Instant,
    ended: Result<(), Arc<RepositoryError>>,
}

#[derive(Debug)]
struct Edition {
    /// With everything the sidecar itself needs.
    whole: Snapshot,
    /// What filters get.
    published: Bytes,
    /// The database's revision it was read at.
    revision: i64,
    /// When the first of its keys expires, and so when it stops being true.
    expires_at_ms: Option<i64>,
}

impl PolicyHolder {
    /// Reads the first snapshot.
    pub async fn start(
        repository: Repository,
        clock: Arc<dyn Clock>,
        basis: PolicyBasis,
    ) -> Result<Self, RepositoryError> {
        let confirmed = Instant::now();
        let edition = Arc::new(read(&repository, &basis).await?);
        let state = watch::Sender::new(State { edition, confirmed });
        let looking = Mutex::new(LastLook { began: confirmed, ended: Ok(()) });
        Ok(Self { repository, clock, basis, state, looking })
    }

    /// The snapshot as it stands.
    pub fn current(&self) -> CurrentPolicy {
        let state = self.state.borrow();
        CurrentPolicy { edition: Arc::clone(&state.edition), fresh: state.confirmed.elapsed() <= self.basis.max_age }
    }

    /// Looks whether anything changed, and if so reads it anew. Costs one row when nothing did.
    pub async fn refresh(&self) -> Result<(), Arc<RepositoryError>> {
        self.look(Duration::ZERO).await
    }

    /// The same for whoever names a key that nobody knows, or comes while the snapshot is stale: anybody can do that, so
    /// such looks keep a distance of [`LOOK_DISTANCE`], however many ask.
    pub async fn refresh_soon(&self) -> Result<(), Arc<RepositoryError>> {
        self.look(LOOK_DISTANCE).await
    }

    async fn look(&self, distance: Duration) -> Result<(), Arc<RepositoryError>> {
        let asked = Instant::now();
        let mut last = self.looking.lock().await;
        if last.began > asked {
            return last.ended.clone();
        }
        tokio::time::sleep_until(last.began + distance).await;
        let began = Instant::now();
        let ended = self.read_again().await.map_err(Arc::new);
        *last = LastLook { began, ended: ended.clone() };
        ended
    }

    async fn read_again(&self) -> Result<(), RepositoryError> {
        let held = Arc::clone(&self.state.borrow().edition);
        let confirmed = Instant::now();
        let expired = held.expires_at_ms.is_some_and(|at| at <= self.clock.now_ms());
        let unchanged = !expired && self.repository.revision().await? == held.revision;
        let edition = if unchanged { held } else { Arc::new(read(&self.repository, &self.basis).await?) };
        self.state.send_replace(State { edition, confirmed });
        Ok(())
    }

    /// Refreshes at every tick until told to stop.
    pub async fn keep_fresh(self: Arc<Self>, every: Duration, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if let Err(error) = self.refresh().await {
                tracing::warn!(error = %crate::telemetry::chain(&error), "the policy snapshot could not be refreshed");
            }
        }
    }

    /// Images a policy may name.
    pub fn allowed_images(&self) -> &[String] {
        &self.basis.allowed_images
    }

    /// Whether a sandbox is configured.
    pub fn sandbox_available(&self) -> bool {
        self.basis.sandbox_available
    }

    /// Who runs declared code by default.
    pub fn default_executor(&self) -> Preference {
        self.basis.default_executor
    }
}

impl CurrentPolicy {
    /// As a decision wants it.
    pub fn view(&self) -> PolicyView<'_> {
        let snapshot = &self.edition.whole;
        if self.fresh { PolicyView::Fresh(snapshot) } else { PolicyView::Stale(snapshot) }
    }

    /// Whether it may be decided on.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Its version.
    pub fn version(&self) -> u64 {
        self.edition.whole.version
    }

    /// Whom a key names, by the SHA-256 of its text.
    pub fn owner(&self, sha256_hex: &str) -> Option<&KeyOwner> {
        self.edition.whole.keys.get(sha256_hex)
    }

    /// What filters get: keys, pins and `enabled`.
    pub fn published(&self) -> Bytes {
        self.edition.published.clone()
    }

    /// The version as an entity tag.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.version())
    }
}

async fn read(repository: &Repository, basis: &PolicyBasis) -> Result<Edition, RepositoryError> {
    // First the revision: a change that falls between the reads is then seen by the next look.
    let revision = repository.revision().await?;
    let rows = repository.working_keys().await?;
    let expires_at_ms = rows.iter().filter_map(|row| row.expires_at_ms).min();
    let keys =
        rows.into_iter().map(|row| (row.sha256, KeyOwner { user: row.user_id, workspace: row.workspace_id })).collect();
    let policies = repository.policies().await?;
    let workspaces: BTreeMap<_, _> =
        policies.iter().map(|policy| (policy.workspace_id.clone(), WorkspacePolicy::from(&policy.fields))).collect();
    let mut published = Snapshot {
        version: 0,
        default_executor: basis.default_executor,
        sandbox_available: basis.sandbox_available,
        allowed_images: Vec::new(),
        keys,
        withheld: basis.withheld.clone(),
        workspaces: workspaces.iter().map(|(id, policy)| (id.clone(), narrowed(policy))).collect(),
    };
    published.version = repository.version_of(&key_hash(&json(&published))).await?;
    let bytes = json(&published).into();
    let whole = Snapshot { allowed_images: basis.allowed_images.clone(), workspaces, ..published };
    Ok(Edition { whole, published: bytes, revision, expires_at_ms })
}

fn narrowed(policy: &WorkspacePolicy) -> WorkspacePolicy {
    WorkspacePolicy { pin: policy.pin, enabled: policy.enabled, ..WorkspacePolicy::default() }
}

fn json(snapshot: &Snapshot) -> Vec<u8> {
    // Maps with text keys and plain values: this cannot fail, and an empty answer would be refused by every filter.
    serde_json::to_vec(snapshot).unwrap_or_default()
}

#[cfg(test)]
mod tests;
