//! Kept sessions: whose they are, who has them, and who removes them.

use decision::identity::Identity;
use futures_util::FutureExt as _;

use super::*;

on_both_databases!(
    one_of_many_who_ask_at_once_gets_a_container_and_only_its_owner_may,
    a_container_is_given_back_by_who_has_it_and_by_nobody_else,
    the_one_that_stood_unused_longest_gives_way_and_none_that_is_in_use,
    what_has_expired_is_swept_once_and_what_is_in_use_is_not,
);

/// Farther than any test turns its clock.
const LONG: i64 = 1_000_000_000;

fn owner(user: &str, workspace: &str) -> Identity {
    Identity { user: user.to_owned(), workspace: workspace.to_owned() }
}

fn container(id: &str, used_at_ms: i64, expires_at_ms: i64) -> ContainerRow {
    ContainerRow {
        id: id.to_owned(),
        owner: owner("ann", "team"),
        backend: "here".to_owned(),
        session: format!("session-of-{id}"),
        idle_ms: 600_000,
        created_at_ms: 1,
        used_at_ms,
        expires_at_ms,
        ends_at_ms: LONG,
    }
}

async fn one_of_many_who_ask_at_once_gets_a_container_and_only_its_owner_may(kind: Kind) {
    let Fixture { repository, clock, database: _database } = fixture(kind).await;
    let ann = owner("ann", "team");
    let row = container("c", 5, 2_000_000);
    repository.put_container(&row).await.unwrap();
    assert_eq!(repository.container(&ann, "c").await.unwrap(), Some(row.clone()));
    for other in [owner("bob", "team"), owner("ann", "rivals")] {
        assert_eq!(repository.claim_container(&other, "c", LONG).await.unwrap(), Claimed::Unknown);
        assert_eq!(repository.container(&other, "c").await.unwrap(), None);
    }
    assert_eq!(repository.claim_container(&ann, "d", LONG).await.unwrap(), Claimed::Unknown);
    let asked = (0..8).map(|number| repository.claim_container(&ann, "c", 1_500_000 + number).boxed());
    let mut got: Vec<Claimed> = futures_util::future::try_join_all(asked).await.unwrap();
    got.retain(|claimed| *claimed != Claimed::Busy);
    assert_eq!(got, [Claimed::Row(row.clone())]);
    // Who has it may have been killed: it is not lost for ever.
    clock.set(1_500_008);
    assert_eq!(repository.claim_container(&ann, "c", LONG).await.unwrap(), Claimed::Row(row));
    clock.set(2_000_000);
    assert_eq!(repository.claim_container(&ann, "c", LONG).await.unwrap(), Claimed::Busy, "in use, it does not expire");
    assert!(repository.container(&ann, "c").await.unwrap().is_some());
    assert!(repository.release_container("c", LONG, 2_000_000).await.unwrap());
    assert_eq!(repository.claim_container(&ann, "c", LONG).await.unwrap(), Claimed::Unknown, "it has expired");
    assert_eq!(repository.container(&ann, "c").await.unwrap(), None);
}

async fn a_container_is_given_back_by_who_has_it_and_by_nobody_else(kind: Kind) {
    let Fixture { repository, clock, database: _database } = fixture(kind).await;
    let ann = owner("ann", "team");
    repository.put_container(&container("c", 5, 2_000_000)).await.unwrap();
    repository.claim_container(&ann, "c", 1_100_000).await.unwrap();
    assert!(!repository.remove_idle_container("c").await.unwrap());
    assert!(!repository.release_container("c", 1_100_001, LONG).await.unwrap());
    assert!(!repository.remove_claimed_container("c", 1_100_001).await.unwrap());
    clock.set(1_050_000);
    assert!(!repository.renew_container("c", 1_100_001, 1_200_000).await.unwrap());
    assert!(repository.renew_container("c", 1_100_000, 1_150_000).await.unwrap());
    assert!(!repository.release_container("c", 1_100_000, LONG).await.unwrap(), "until then it was claimed before");
    assert!(repository.renew_container("c", 1_150_000, 1_100_000).await.unwrap());
    assert!(repository.release_container("c", 1_100_000, 3_000_000).await.unwrap());
    let row = repository.container(&ann, "c").await.unwrap().unwrap();
    assert_eq!((row.used_at_ms, row.expires_at_ms), (1_050_000, 3_000_000));
    assert!(!repository.release_container("c", 1_100_000, LONG).await.unwrap(), "given back once");
    assert!(!repository.remove_claimed_container("c", 1_100_000).await.unwrap());
    let claimed = repository.claim_container(&ann, "c", 1_200_000).await.unwrap();
    assert_eq!(claimed, Claimed::Row(row));
    assert!(repository.remove_claimed_container("c", 1_200_000).await.unwrap());
    assert_eq!(repository.container(&ann, "c").await.unwrap(), None);
    repository.put_container(&container("d", 5, 2_000_000)).await.unwrap();
    assert_eq!(repository.known_containers(&["c".to_owned(), "d".to_owned()]).await.unwrap().len(), 1);
    assert!(repository.remove_idle_container("d").await.unwrap());
    assert!(repository.known_containers(&["d".to_owned()]).await.unwrap().is_empty());
}

async fn the_one_that_stood_unused_longest_gives_way_and_none_that_is_in_use(kind: Kind) {
    let Fixture { repository, clock: _clock, database: _database } = fixture(kind).await;
    let ann = owner("ann", "team");
    for (id, used_at_ms) in [("young", 30), ("busy", 10), ("old", 20)] {
        repository.put_container(&container(id, used_at_ms, LONG)).await.unwrap();
    }
    repository.put_container(&ContainerRow { backend: "there".to_owned(), ..container("far", 1, LONG) }).await.unwrap();
    repository.claim_container(&ann, "busy", LONG).await.unwrap();
    let mut gone = Vec::new();
    while let Some(row) = repository.evict_container("here").await.unwrap() {
        gone.push(row.id);
    }
    assert_eq!(gone, ["old", "young"]);
}

async fn what_has_expired_is_swept_once_and_what_is_in_use_is_not(kind: Kind) {
    let Fixture { repository, clock, database: _database } = fixture(kind).await;
    let ann = owner("ann", "team");
    for (id, expires_at_ms) in [("a", 1_000_001), ("b", 1_000_002), ("c", 1_000_003), ("busy", 1_000_001), ("d", LONG)]
    {
        repository.put_container(&container(id, 5, expires_at_ms)).await.unwrap();
    }
    repository.claim_container(&ann, "busy", LONG).await.unwrap();
    assert!(repository.claim_expired_containers(LONG, 10).await.unwrap().is_empty());
    clock.set(1_000_003);
    let (one, other) = tokio::join!(
        repository.claim_expired_containers(2_000_000, 2),
        repository.claim_expired_containers(2_000_000, 2)
    );
    let mut swept: Vec<String> = [one.unwrap(), other.unwrap()].concat().into_iter().map(|row| row.id).collect();
    swept.sort();
    // On PostgreSQL both may have looked at the same rows, of which one then skips those of the other.
    assert!(swept.iter().collect::<std::collections::BTreeSet<_>>().len() == swept.len(), "{swept:?}");
    swept.extend(repository.claim_expired_containers(2_000_000, 2).await.unwrap().into_iter().map(|row| row.id));
    swept.sort();
    assert_eq!(swept, ["a", "b", "c"]);
    assert!(repository.claim_expired_containers(2_000_000, 2).await.unwrap().is_empty());
    clock.set(2_000_000);
    assert_eq!(
        repository.claim_expired_containers(LONG, 10).await.unwrap().len(),
        3,
        "whose sweep died are taken again"
    );
}
