//! Freshness and expiry, on real SQLite, with clocks that the test turns.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

use super::*;
use crate::repository::{Database, NewKey};

const MAX_AGE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct TurnedClock(AtomicI64);

impl Clock for TurnedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.0.load(Ordering::SeqCst)).unwrap()
    }
}

async fn holder(folder: &tempfile::TempDir, clock: &Arc<TurnedClock>) -> PolicyHolder {
    let clock: Arc<dyn Clock> = Arc::<TurnedClock>::clone(clock);
    let database = Database::Sqlite(folder.path().join("otari.db"));
    let repository = Repository::open(&database, Arc::clone(&clock)).await.unwrap();
    let basis = PolicyBasis {
        default_executor: Preference::Auto,
        sandbox_available: true,
        allowed_images: vec!["small".to_owned()],
        withheld: BTreeSet::new(),
        max_age: MAX_AGE,
    };
    PolicyHolder::start(repository, clock, basis).await.unwrap()
}

#[tokio::test]
async fn an_unconfirmed_snapshot_grows_stale_and_a_look_makes_it_fresh() {
    let folder = tempfile::tempdir().unwrap();
    let holder = holder(&folder, &Arc::new(TurnedClock(AtomicI64::new(1_000)))).await;
    assert!(matches!(holder.current().view(), PolicyView::Fresh(snapshot) if snapshot.allowed_images == ["small"]));
    tokio::time::pause();
    tokio::time::advance(MAX_AGE + Duration::from_millis(1)).await;
    assert!(matches!(holder.current().view(), PolicyView::Stale(_)));
    tokio::time::resume();
    holder.refresh().await.unwrap();
    assert!(holder.current().is_fresh());
}

#[tokio::test]
async fn a_key_that_expires_leaves_the_snapshot_though_nobody_wrote_anything() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(TurnedClock(AtomicI64::new(1_000)));
    let holder = holder(&folder, &clock).await;
    holder.repository.ensure_user("ann").await.unwrap();
    holder.repository.create_workspace("team").await.unwrap();
    let key = NewKey {
        id: "k".to_owned(),
        name: String::new(),
        user_id: "ann".to_owned(),
        workspace_id: "team".to_owned(),
        sha256: "aa".to_owned(),
        expires_at_ms: Some(2_000),
    };
    holder.repository.insert_key(&key).await.unwrap();
    assert!(holder.current().owner("aa").is_none());
    holder.refresh().await.unwrap();
    let with_key = holder.current();
    assert_eq!(with_key.owner("aa").unwrap().workspace, "team");
    clock.0.store(2_000, Ordering::SeqCst);
    holder.refresh().await.unwrap();
    assert!(holder.current().owner("aa").is_none());
    assert_eq!(holder.current().version(), with_key.version() + 1);
}

#[tokio::test]
async fn one_look_serves_all_who_wait_and_strangers_looks_keep_their_distance() {
    let folder = tempfile::tempdir().unwrap();
    let holder = holder(&folder, &Arc::new(TurnedClock(AtomicI64::new(1_000)))).await;
    let first = holder.state.borrow().confirmed;
    let look = async || {
        holder.refresh_soon().await.unwrap();
        holder.state.borrow().confirmed
    };
    let seen = futures_util::future::join_all((0..50).map(|_| look())).await;
    assert!(seen.iter().all(|confirmed| *confirmed == seen[0]), "{seen:?}");
    assert!(seen[0] >= first + LOOK_DISTANCE);
    assert!(look().await >= seen[0] + LOOK_DISTANCE, "who asks later is not told of an earlier look");
}

#[tokio::test]
async fn a_look_that_fails_fails_for_all_who_wait() {
    let folder = tempfile::tempdir().unwrap();
    let holder = holder(&folder, &Arc::new(TurnedClock(AtomicI64::new(1_000)))).await;
    holder.repository.clone().close().await;
    let looks = (0..5).map(|_| holder.refresh_soon());
    assert!(futures_util::future::join_all(looks).await.iter().all(Result::is_err));
}

#[tokio::test]
async fn looking_at_the_same_thing_twice_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let holder = holder(&folder, &Arc::new(TurnedClock(AtomicI64::new(1_000)))).await;
    let before = holder.current();
    // A write that leaves the content as it was.
    holder.repository.ensure_user("ann").await.unwrap();
    holder.refresh().await.unwrap();
    assert_eq!((holder.current().version(), holder.current().published()), (before.version(), before.published()));
}
