//! Freshness and expiry, on real databases, with clocks that the test turns.

use super::*;
use crate::clock::TurnedClock;
use crate::repository::NewKey;
use crate::repository::testing::{Kind, TestDatabase, on_both_databases};

const MAX_AGE: Duration = Duration::from_secs(10);

on_both_databases!(
    an_unconfirmed_snapshot_grows_stale_and_a_look_makes_it_fresh,
    a_key_that_expires_leaves_the_snapshot_though_nobody_wrote_anything,
    one_look_serves_all_who_wait_and_strangers_looks_keep_their_distance,
    a_look_that_fails_fails_for_all_who_wait,
    looking_at_the_same_thing_twice_changes_nothing,
    replicas_see_each_others_changes_and_one_version_is_one_content_for_all,
);

async fn holder(database: &TestDatabase, clock: &Arc<TurnedClock>) -> PolicyHolder {
    let repository = database.open(clock).await;
    let clock: Arc<dyn Clock> = Arc::<TurnedClock>::clone(clock);
    let basis = PolicyBasis {
        default_executor: Preference::Auto,
        sandbox_available: true,
        allowed_images: vec!["small".to_owned()],
        withheld: BTreeSet::new(),
        max_age: MAX_AGE,
    };
    PolicyHolder::start(repository, clock, basis).await.unwrap()
}

async fn an_unconfirmed_snapshot_grows_stale_and_a_look_makes_it_fresh(kind: Kind) {
    let database = TestDatabase::new(kind);
    let holder = holder(&database, &TurnedClock::at(1_000)).await;
    assert!(matches!(holder.current().view(), PolicyView::Fresh(snapshot) if snapshot.allowed_images == ["small"]));
    tokio::time::pause();
    tokio::time::advance(MAX_AGE + Duration::from_millis(1)).await;
    assert!(matches!(holder.current().view(), PolicyView::Stale(_)));
    tokio::time::resume();
    holder.refresh().await.unwrap();
    assert!(holder.current().is_fresh());
}

async fn a_key_that_expires_leaves_the_snapshot_though_nobody_wrote_anything(kind: Kind) {
    let database = TestDatabase::new(kind);
    let clock = TurnedClock::at(1_000);
    let holder = holder(&database, &clock).await;
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
    clock.set(2_000);
    holder.refresh().await.unwrap();
    assert!(holder.current().owner("aa").is_none());
    assert_eq!(holder.current().version(), with_key.version() + 1);
}

async fn one_look_serves_all_who_wait_and_strangers_looks_keep_their_distance(kind: Kind) {
    let database = TestDatabase::new(kind);
    let holder = holder(&database, &TurnedClock::at(1_000)).await;
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

async fn a_look_that_fails_fails_for_all_who_wait(kind: Kind) {
    let database = TestDatabase::new(kind);
    let holder = holder(&database, &TurnedClock::at(1_000)).await;
    holder.repository.clone().close().await;
    let looks = (0..5).map(|_| holder.refresh_soon());
    assert!(futures_util::future::join_all(looks).await.iter().all(Result::is_err));
}

async fn looking_at_the_same_thing_twice_changes_nothing(kind: Kind) {
    let database = TestDatabase::new(kind);
    let holder = holder(&database, &TurnedClock::at(1_000)).await;
    let before = holder.current();
    // A write that leaves the content as it was.
    holder.repository.ensure_user("ann").await.unwrap();
    holder.refresh().await.unwrap();
    assert_eq!((holder.current().version(), holder.current().published()), (before.version(), before.published()));
}

async fn replicas_see_each_others_changes_and_one_version_is_one_content_for_all(kind: Kind) {
    let (database, clock) = (TestDatabase::new(kind), TurnedClock::at(1_000));
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(holder(&database, &clock).await);
    }
    let version = replicas[0].current().version();
    assert!(replicas.iter().all(|replica| replica.current().version() == version), "equal from the start");
    replicas[0].repository.ensure_user("ann").await.unwrap();
    replicas[0].repository.create_workspace("team").await.unwrap();
    // Every replica writes and looks while the others do.
    let work = async |replica: &PolicyHolder, name: usize| {
        let mut seen = Vec::new();
        for number in 0..10 {
            let key = NewKey {
                id: format!("k-{name}-{number}"),
                name: String::new(),
                user_id: "ann".to_owned(),
                workspace_id: "team".to_owned(),
                sha256: format!("{name}{number}"),
                expires_at_ms: None,
            };
            replica.repository.insert_key(&key).await.unwrap();
            replica.refresh().await.unwrap();
            let current = replica.current();
            assert!(current.owner(&key.sha256).is_some(), "one's own change is there when its answer leaves");
            seen.push((current.version(), current.published()));
        }
        seen
    };
    let works = replicas.iter().enumerate().map(|(name, replica)| work(replica, name));
    let seen = futures_util::future::join_all(works).await.concat();
    let mut contents = BTreeMap::new();
    for (version, published) in seen {
        let first = contents.entry(version).or_insert_with(|| published.clone());
        assert_eq!(*first, published, "version {version}");
    }
    for replica in &replicas {
        replica.refresh().await.unwrap();
    }
    let last = replicas[0].current();
    assert_eq!(last.edition.whole.keys.len(), 30);
    assert!(replicas.iter().all(|replica| replica.current().published() == last.published()));
}
