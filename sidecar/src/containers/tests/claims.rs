//! How claims last and end, and which sandboxes a row may name.

use std::net::TcpListener;

use futures_util::future::join_all;
use sqlx::{Connection as _, SqliteConnection};
use tokio::sync::Barrier;

use super::*;
use crate::sandbox::remote::HttpLimits;

/// More than are ended at the same time.
const MANY: usize = AT_ONCE + 4;

/// A process whose sandbox ends with it and which reaches other replicas'.
fn replica() -> Place {
    let others = HttpSettings { url: String::new(), token: Some("shared".to_owned()), limits: HttpLimits::default() };
    Place { backend: Place::peer("http://here"), outlives: false, others: Some(others) }
}

/// Lets every statement on containers fail, or none any more.
async fn hide_rows(fixture: &Fixture, is_hidden: bool) {
    let path = fixture.folder.path().join("rows.db");
    let mut database = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    let (from, to) = if is_hidden { ("containers", "hidden") } else { ("hidden", "containers") };
    sqlx::query(sqlx::AssertSqlSafe(format!("ALTER TABLE {from} RENAME TO {to}")))
        .execute(&mut database)
        .await
        .unwrap();
    database.close().await.unwrap();
}

#[tokio::test]
async fn only_what_a_replica_advertised_is_called_with_the_token() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let containers = fixture.process_at(replica(), LIMITS, 4).await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let url = format!("http://{}", elsewhere.local_addr().unwrap());
    for (number, claimed) in [(1, true), (2, false)] {
        let id = format!("{}{number}", ids::CONTAINER);
        let row = ContainerRow {
            id: id.clone(),
            owner: owner("team"),
            // As a sidecar with `backend: http` writes it.
            backend: url.clone(),
            session: "s".to_owned(),
            idle_ms: 10_000,
            created_at_ms: 1_000_000,
            used_at_ms: 1_000_000,
            expires_at_ms: 1_010_000,
            ends_at_ms: 1_100_000,
        };
        containers.repository().put_container(&row).await.unwrap();
        if claimed {
            assert!(matches!(containers.resume(&owner("team"), &id).await, Err(ContainerError::Unknown)));
        } else {
            fixture.clock.turn(10_000);
            assert_eq!(containers.sweep_once().await.unwrap(), 1, "its row goes when it has expired");
        }
        assert!(!is_there(&containers, "team", &id).await);
    }
    assert_eq!(elsewhere.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody called");
    assert!(containers.backend(&Place::peer(&url)).is_some() && containers.backend("peer+http://here").is_some());
    // A sidecar with a server of its own follows rows of that one alone.
    let own = fixture.process(LIMITS, 4).await;
    assert!(own.backend("http://beds").is_some());
    for other in [url.as_str(), "peer+http://beds", "http://beds/", "process-1"] {
        assert!(own.backend(other).is_none(), "{other}");
    }
}

#[tokio::test]
async fn a_claim_lasts_as_long_as_its_request_and_no_longer_than_its_process() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let limits = ContainerLimits { claim: Duration::from_millis(40), ..LIMITS };
    let (containers, other) = (fixture.process(limits, 4).await, fixture.process(LIMITS, 4).await);
    let id = kept(&containers, "team", 1).await;
    let claim = containers.resume(&owner("team"), &id).await.unwrap();
    for _ in 0..3 {
        fixture.clock.turn(39);
        let renewed = containers.now_ms() + 40;
        until(async || containers.repository().renew_container(&id, renewed, renewed).await.unwrap()).await;
        assert!(matches!(other.resume(&owner("team"), &id).await, Err(ContainerError::Busy { .. })));
    }
    let expiry = claim.expiry().unwrap();
    claim.release(expiry).await;
    // One whose process is gone is not renewed.
    let until_ms = containers.now_ms() + 40;
    assert!(matches!(
        containers.repository().claim_container(&owner("team"), &id, until_ms).await.unwrap(),
        Claimed::Row(_)
    ));
    fixture.clock.turn(40);
    let claim = other.resume(&owner("team"), &id).await.unwrap();
    drop(claim);
}

#[tokio::test]
async fn a_process_that_ends_forgets_what_its_requests_still_have() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let (here, there) = (fixture.process_at(replica(), LIMITS, 4).await, fixture.process(LIMITS, 4).await);
    let id = kept(&here, "team", 1).await;
    let claim = here.resume(&owner("team"), &id).await.unwrap();
    here.shut().await;
    assert!(!is_there(&there, "team", &id).await);
    assert!(fixture.beds.alive().is_empty());
    assert!(matches!(claim.delete().await, Err(ContainerError::Busy { .. })));
}

#[tokio::test]
async fn a_row_that_could_not_be_given_back_is_given_back_again() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let containers = fixture.process(LIMITS, 4).await;
    let id = kept(&containers, "team", 1).await;
    let claim = containers.resume(&owner("team"), &id).await.unwrap();
    hide_rows(&fixture, true).await;
    drop(claim);
    // By now the first time has most probably failed; if not, the test says less.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    hide_rows(&fixture, false).await;
    drop(resumed(&containers, "team", &id).await);
}

#[tokio::test]
async fn a_deletion_says_whether_it_was_one() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let containers = fixture.process(LIMITS, 4).await;
    let id = kept(&containers, "team", 1).await;
    let claim = containers.resume(&owner("team"), &id).await.unwrap();
    // The claim ran out unrenewed, and another took the container.
    fixture.clock.turn(50_000);
    let until_ms = containers.now_ms() + 1;
    let row = containers.repository().claim_expired_containers(until_ms, 1).await.unwrap();
    assert_eq!(row.len(), 1);
    assert!(matches!(claim.delete().await, Err(ContainerError::Busy { .. })));
    assert_eq!(fixture.beds.alive(), ["0"], "it is another's");
    let id = kept(&containers, "team", 2).await;
    let claim = containers.resume(&owner("team"), &id).await.unwrap();
    hide_rows(&fixture, true).await;
    assert!(matches!(claim.delete().await, Err(ContainerError::Repository(_))));
    hide_rows(&fixture, false).await;
    let id = kept(&containers, "team", 3).await;
    containers.delete(&owner("team"), &id).await.unwrap();
    assert!(!is_there(&containers, "team", &id).await);
}

#[tokio::test]
async fn a_session_that_replaces_a_lost_one_under_its_id_is_kept() {
    let fixture = Fixture::new(4, Some(Duration::from_mins(1)));
    let containers = fixture.process(LIMITS, 4).await;
    let id = kept(&containers, "team", 1).await;
    let claim = containers.resume(&owner("team"), &id).await.unwrap();
    let lost = Arc::clone(claim.lease());
    claim.leave(std::future::ready(false).boxed()).await;
    assert_eq!(kept(&containers, "team", 1).await, id);
    assert!(!containers.0.parked.remove(&id, &lost), "that one is not there any more");
    let claim = containers.resume(&owner("team"), &id).await.unwrap();
    assert_eq!(claim.lease().granted().id.0, "1");
}

#[tokio::test]
async fn sessions_that_are_kept_at_the_same_time_take_no_more_room_than_there_is() {
    let fixture = Fixture::new(20, Some(Duration::from_mins(1)));
    let limits = ContainerLimits { max_kept: 3, max_kept_per_workspace: 2, ..LIMITS };
    let containers = fixture.process(limits, 20).await;
    join_all((0..12).map(|number| kept(&containers, if number % 2 == 0 { "a" } else { "b" }, number))).await;
    let (all, of_a) = (containers.0.parked.oldest(None).len(), containers.0.parked.oldest(Some("a")).len());
    assert!((1..=3).contains(&all) && of_a <= 2, "{all} {of_a}");
    // Room that was reserved is free again.
    let id = kept(&containers, "c", 12).await;
    assert!(is_there(&containers, "c", &id).await);
}

#[tokio::test]
async fn calls_that_were_cut_off_go_on_and_sessions_that_end_slowly_hold_up_no_other() {
    let fixture = Fixture::new(MANY + 1, Some(Duration::from_mins(1)));
    let containers = fixture.process(LIMITS, MANY + 1).await;
    let all_run = Arc::new(Barrier::new(MANY));
    let mut claims = Vec::new();
    for number in 0..=MANY {
        let id = kept(&containers, "team", number).await;
        claims.push(containers.resume(&owner("team"), &id).await.unwrap());
    }
    let released = claims.pop().unwrap();
    let ids: Vec<String> = claims.iter().map(|claim| claim.id().to_owned()).collect();
    join_all(claims.into_iter().map(|claim| {
        let all_run = Arc::clone(&all_run);
        // Ends only if all of them are polled.
        let rest = async move {
            all_run.wait().await;
            true
        };
        claim.leave(rest.boxed())
    }))
    .await;
    assert_eq!(fixture.beds.alive().len(), MANY + 1);
    let door = fixture.beds.door.lock().await;
    for id in &ids {
        drop(containers.resume(&owner("team"), id).await.unwrap().leave(std::future::ready(false).boxed()));
    }
    let expiry = released.expiry().unwrap();
    let id = released.id().to_owned();
    released.release(expiry).await;
    assert_eq!(fixture.beds.alive().len(), MANY + 1, "none has ended yet");
    drop(door);
    until(async || fixture.beds.alive().len() == 1).await;
    assert!(is_there(&containers, "team", &id).await);
}
