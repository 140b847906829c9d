//! Kept sessions over a real database, with a sandbox that counts beds and a clock that the test turns.

mod claims;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tempfile::TempDir;

use super::*;
use crate::clock::TurnedClock;
use crate::repository::Database;
use crate::sandbox::{Capability, ExecutionRequest, ExecutionResult, Listing, SessionSpec};

/// A sandbox of so many beds that runs nothing.
#[derive(Debug)]
struct Beds {
    count: usize,
    idle: Option<Duration>,
    made: AtomicU64,
    alive: Mutex<BTreeSet<SessionId>>,
    unreachable: AtomicBool,
    /// Held by a test so long as no session is to end.
    door: tokio::sync::Mutex<()>,
}

impl Beds {
    fn alive(&self) -> Vec<String> {
        self.alive.lock().unwrap().iter().map(|id| id.0.clone()).collect()
    }
}

impl SandboxBackend for Beds {
    fn create_session<'a>(&'a self, _: &'a SessionSpec) -> BoxFuture<'a, Result<SessionGrant, SandboxError>> {
        async {
            let mut alive = self.alive.lock().unwrap();
            if alive.len() >= self.count {
                return Err(SandboxError::AtCapacity { retry_after: None });
            }
            let id = SessionId(self.made.fetch_add(1, Ordering::SeqCst).to_string());
            alive.insert(id.clone());
            Ok(SessionGrant { id, idle_timeout: self.idle, max_lifetime: Some(Duration::from_secs(1000)) })
        }
        .boxed()
    }

    fn execute<'a>(
        &'a self,
        _: &'a SessionId,
        _: &'a ExecutionRequest,
    ) -> BoxFuture<'a, Result<ExecutionResult, SandboxError>> {
        async { Ok(ExecutionResult::default()) }.boxed()
    }

    fn destroy_session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), SandboxError>> {
        async {
            let _open = self.door.lock().await;
            self.alive.lock().unwrap().remove(session);
            Ok(())
        }
        .boxed()
    }

    fn list_files<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Listing, SandboxError>> {
        async {
            if self.unreachable.load(Ordering::SeqCst) {
                return Err(SandboxError::TimedOut);
            }
            let is_alive = self.alive.lock().unwrap().contains(session);
            is_alive.then(Listing::default).ok_or(SandboxError::UnknownSession)
        }
        .boxed()
    }

    fn capability(&self) -> Capability {
        Capability { backend: "beds", isolation: "none", detail: String::new() }
    }
}

const LIMITS: ContainerLimits = ContainerLimits {
    idle: Duration::from_secs(10),
    lifetime: Duration::from_secs(100),
    busy_wait: Duration::ZERO,
    max_kept: 100,
    max_kept_per_workspace: 100,
    claim: Duration::from_secs(50),
};

struct Fixture {
    clock: Arc<TurnedClock>,
    beds: Arc<Beds>,
    database: Database,
    tasks: TaskTracker,
    folder: TempDir,
}

impl Fixture {
    fn new(count: usize, idle: Option<Duration>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let beds = Beds {
            count,
            idle,
            made: AtomicU64::new(0),
            alive: Mutex::default(),
            unreachable: AtomicBool::new(false),
            door: tokio::sync::Mutex::default(),
        };
        let database = Database::Sqlite(folder.path().join("rows.db"));
        let (clock, tasks) = (TurnedClock::at(1_000_000), TaskTracker::new());
        Self { clock, beds: Arc::new(beds), database, tasks, folder }
    }

    /// A process that keeps sessions. All reach the same beds, as replicas do one server of their own.
    async fn process(&self, limits: ContainerLimits, share: usize) -> Containers {
        let place = Place { backend: "http://beds".to_owned(), outlives: true, others: None };
        self.process_at(place, limits, share).await
    }

    async fn process_at(&self, place: Place, limits: ContainerLimits, share: usize) -> Containers {
        let clock: Arc<dyn Clock> = Arc::<TurnedClock>::clone(&self.clock);
        let repository = Repository::open(&self.database, Arc::clone(&clock)).await.unwrap();
        let (reaper, work) = Reaper::new(Arc::clone(&self.beds) as _, share);
        self.tasks.spawn(work);
        let (tasks, metrics) = (self.tasks.clone(), Metrics::new());
        Containers::new(Parts { repository, reaper, place, limits, clock, tasks, metrics })
    }
}

fn owner(workspace: &str) -> Identity {
    Identity { user: "ann".to_owned(), workspace: workspace.to_owned() }
}

/// A fresh session of a workspace, kept under an id of this number; gives the id.
async fn kept(containers: &Containers, workspace: &str, number: usize) -> String {
    let spec = SessionSpec { workspace: workspace.to_owned(), ..SessionSpec::default() };
    let lease = Arc::new(containers.lease(&spec).await.unwrap());
    let id = format!("{}{number}", ids::CONTAINER);
    let until = containers.expiry(&owner(workspace), &lease).expect("it can be kept");
    containers.keep(&owner(workspace), id.clone(), lease, until).await;
    id
}

async fn is_there(containers: &Containers, workspace: &str, id: &str) -> bool {
    containers.find(&owner(workspace), id).await.is_ok()
}

/// The container, as soon as it is given back.
async fn resumed(containers: &Containers, workspace: &str, id: &str) -> Claim {
    let limits = *containers.limits();
    assert!(limits.busy_wait.is_zero(), "looks again itself");
    let waiting = async {
        loop {
            match containers.resume(&owner(workspace), id).await {
                Err(ContainerError::Busy { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
                other => return other.unwrap(),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it is given back")
}

/// Waits for something that happens in the background.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it happens");
}

#[tokio::test]
async fn a_kept_session_is_gone_on_with_by_one_at_a_time_and_its_time_begins_anew() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let containers = fixture.process(LIMITS, 4).await;
    let id = kept(&containers, "team", 1).await;
    assert!(matches!(containers.resume(&owner("rivals"), &id).await, Err(ContainerError::Unknown)));
    fixture.clock.turn(9_000);
    let claim = containers.resume(&owner("team"), &id).await.unwrap();
    assert_eq!(claim.lease().granted().id.0, "0");
    assert!(matches!(containers.resume(&owner("team"), &id).await, Err(ContainerError::Busy { .. })));
    // In use it does not expire, whatever the clock says.
    fixture.clock.turn(9_000);
    assert_eq!(containers.sweep_once().await.unwrap(), 0);
    let expiry = claim.expiry().unwrap();
    assert_eq!(expiry.as_millisecond(), 1_000_000 + 18_000 + 10_000);
    claim.release(expiry).await;
    fixture.clock.turn(9_999);
    drop(containers.resume(&owner("team"), &id).await.unwrap());
    // Given back in the background, it has another ten seconds.
    let claim = resumed(&containers, "team", &id).await;
    let expiry = claim.expiry().unwrap();
    claim.release(expiry).await;
    fixture.clock.turn(10_000);
    assert!(matches!(containers.resume(&owner("team"), &id).await, Err(ContainerError::Unknown)));
    assert_eq!(containers.sweep_once().await.unwrap(), 1);
    assert!(fixture.beds.alive().is_empty());
}

#[tokio::test]
async fn no_session_outlives_its_whole_time_however_often_it_is_used() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let limits = ContainerLimits { lifetime: Duration::from_secs(15), ..LIMITS };
    let containers = fixture.process(limits, 4).await;
    let id = kept(&containers, "team", 1).await;
    fixture.clock.turn(8_000);
    let claim = containers.resume(&owner("team"), &id).await.unwrap();
    let expiry = claim.expiry().unwrap();
    assert!(expiry.as_millisecond() <= 1_000_000 + 15_000, "{expiry}");
    claim.release(expiry).await;
    fixture.clock.turn(7_000);
    assert!(matches!(containers.resume(&owner("team"), &id).await, Err(ContainerError::Unknown)));
}

#[tokio::test]
async fn what_cannot_be_kept_is_not() {
    let spec = SessionSpec::default();
    // A server that tells no idle timeout may end it at any time, or never.
    let fixture = Fixture::new(4, None);
    let containers = fixture.process(LIMITS, 4).await;
    let lease = containers.lease(&spec).await.unwrap();
    assert_eq!(containers.expiry(&owner("team"), &lease), None);
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let off = fixture.process(ContainerLimits { idle: Duration::ZERO, ..LIMITS }, 4).await;
    let lease = off.lease(&spec).await.unwrap();
    assert_eq!(off.expiry(&owner("team"), &lease), None);
    let on = fixture.process(LIMITS, 4).await;
    assert_eq!(on.expiry(&owner(""), &lease), None, "who has no name keeps nothing");
    assert!(on.expiry(&owner("team"), &lease).is_some());
    let id = kept(&on, "team", 1).await;
    assert!(matches!(off.resume(&owner("team"), &id).await, Err(ContainerError::Unknown)));
    for wrong in ["", "otari_cntr_", "otari_cntr_é", "container_011", "otari_cntr_1'", &"otari_cntr_1".repeat(8)] {
        assert!(matches!(on.resume(&owner("team"), wrong).await, Err(ContainerError::Unknown)), "{wrong}");
    }
}

#[tokio::test]
async fn the_oldest_unused_session_gives_way_to_a_new_one_and_none_in_use_does() {
    let fixture = Fixture::new(3, Some(Duration::from_mins(1)));
    let containers = fixture.process(LIMITS, 3).await;
    let ids = [kept(&containers, "a", 1).await, kept(&containers, "b", 2).await, kept(&containers, "c", 3).await];
    // Used again, the first is the youngest.
    let claim = containers.resume(&owner("a"), &ids[0]).await.unwrap();
    let expiry = claim.expiry().unwrap();
    claim.release(expiry).await;
    let held = containers.resume(&owner("b"), &ids[1]).await.unwrap();
    let spec = SessionSpec { workspace: "d".to_owned(), ..SessionSpec::default() };
    let _new = containers.lease(&spec).await.unwrap();
    assert!(!is_there(&containers, "c", &ids[2]).await && is_there(&containers, "a", &ids[0]).await);
    let _other = containers.lease(&spec).await.unwrap();
    assert!(!is_there(&containers, "a", &ids[0]).await);
    let full = containers.lease(&spec).await;
    assert!(matches!(full, Err(SandboxError::AtCapacity { .. })), "{full:?}");
    assert!(fixture.beds.alive().contains(&held.lease().granted().id.0), "in use");
}

#[tokio::test]
async fn a_workspace_at_its_share_pushes_out_its_own_and_nobody_elses() {
    let fixture = Fixture::new(10, Some(Duration::from_mins(1)));
    let containers = fixture.process(LIMITS, 2).await;
    let theirs = kept(&containers, "rivals", 1).await;
    let (first, second) = (kept(&containers, "team", 2).await, kept(&containers, "team", 3).await);
    let spec = SessionSpec { workspace: "team".to_owned(), ..SessionSpec::default() };
    let _new = containers.lease(&spec).await.unwrap();
    assert!(!is_there(&containers, "team", &first).await && is_there(&containers, "team", &second).await);
    assert!(is_there(&containers, "rivals", &theirs).await);
}

#[tokio::test]
async fn no_more_are_kept_than_may_be() {
    let fixture = Fixture::new(10, Some(Duration::from_mins(1)));
    let limits = ContainerLimits { max_kept: 3, max_kept_per_workspace: 2, ..LIMITS };
    let containers = fixture.process(limits, 10).await;
    let mut ids = Vec::new();
    for (number, workspace) in ["a", "a", "b", "a", "c"].into_iter().enumerate() {
        ids.push((workspace, kept(&containers, workspace, number).await));
    }
    let mut left = Vec::new();
    for (number, (workspace, id)) in ids.iter().enumerate() {
        if is_there(&containers, workspace, id).await {
            left.push(number);
        }
    }
    assert_eq!(left, [2, 3, 4], "the second of `a` gave way to a third of `a`, the first to one of `c`");
    assert_eq!(fixture.beds.alive().len(), 3);
}

#[tokio::test]
async fn another_process_goes_on_with_it_and_what_it_ends_is_ended_here() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let (here, there) = (fixture.process(LIMITS, 1).await, fixture.process(LIMITS, 1).await);
    let id = kept(&here, "team", 1).await;
    let claim = there.resume(&owner("team"), &id).await.unwrap();
    assert!(matches!(here.resume(&owner("team"), &id).await, Err(ContainerError::Busy { .. })));
    let expiry = claim.expiry().unwrap();
    claim.release(expiry).await;
    drop(here.resume(&owner("team"), &id).await.unwrap());
    resumed(&there, "team", &id).await.delete().await.unwrap();
    assert!(fixture.beds.alive().is_empty());
    // This process still counts it for its workspace, until it looks, which it does when it needs the room.
    let spec = SessionSpec { workspace: "team".to_owned(), ..SessionSpec::default() };
    here.lease(&spec).await.unwrap();
}

#[tokio::test]
async fn a_process_that_ends_leaves_a_servers_sessions_to_the_others_and_takes_no_other() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let (here, there) = (fixture.process(LIMITS, 4).await, fixture.process(LIMITS, 4).await);
    let id = kept(&here, "team", 1).await;
    here.shut().await;
    assert_eq!(fixture.beds.alive(), ["0"]);
    drop(there.resume(&owner("team"), &id).await.unwrap());
    let late = kept(&here, "team", 2).await;
    assert!(!is_there(&there, "team", &late).await);
    until(async || fixture.beds.alive() == ["0"]).await;
}

#[tokio::test]
async fn a_lost_session_takes_its_row_with_it_and_one_that_does_not_answer_stays() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let containers = fixture.process(LIMITS, 4).await;
    let id = kept(&containers, "team", 1).await;
    fixture.beds.unreachable.store(true, Ordering::SeqCst);
    assert!(matches!(containers.resume(&owner("team"), &id).await, Err(ContainerError::Sandbox(_))));
    fixture.beds.unreachable.store(false, Ordering::SeqCst);
    let claim = containers.resume(&owner("team"), &id).await.unwrap();
    // Its last call ended badly.
    claim.leave(std::future::ready(false).boxed()).await;
    assert!(fixture.beds.alive().is_empty());
    assert!(!is_there(&containers, "team", &id).await);
    let id = kept(&containers, "team", 2).await;
    fixture.beds.alive.lock().unwrap().clear();
    assert!(matches!(containers.resume(&owner("team"), &id).await, Err(ContainerError::Unknown)));
    assert!(!is_there(&containers, "team", &id).await);
}

#[tokio::test]
async fn whoever_stops_waiting_for_a_container_does_not_keep_it() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let containers = fixture.process(LIMITS, 4).await;
    let id = kept(&containers, "team", 1).await;
    let owner = owner("team");
    for steps in 0..40 {
        let mut asking = Box::pin(containers.resume(&owner, &id));
        for _ in 0..steps {
            if (&mut asking).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(asking);
        drop(resumed(&containers, "team", &id).await);
    }
}
