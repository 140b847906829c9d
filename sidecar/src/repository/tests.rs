//! On real SQLite and real PostgreSQL, with a clock that the test turns.

use decision::policy::Preference;

use super::testing::{Kind, TestDatabase, on_both_databases};
use super::*;
use crate::clock::TurnedClock;

on_both_databases!(
    keys_work_until_they_expire_or_are_revoked,
    a_key_needs_an_owner_that_exists_and_a_hash_of_its_own,
    a_fixed_key_stays_revoked_until_its_text_changes,
    a_policy_is_replaced_whole_and_goes_with_its_workspace,
    a_row_this_version_never_wrote_is_named,
    each_content_has_one_version_and_reopening_changes_none,
    twenty_writers_at_once_all_succeed_and_are_all_counted,
    no_two_contents_ever_get_one_version,
);

struct Fixture {
    repository: Repository,
    clock: Arc<TurnedClock>,
    database: TestDatabase,
}

async fn fixture(kind: Kind) -> Fixture {
    let (database, clock) = (TestDatabase::new(kind), TurnedClock::at(1_000_000));
    let repository = database.open(&clock).await;
    Fixture { repository, clock, database }
}

fn key(id: &str, sha256: &str) -> NewKey {
    NewKey {
        id: id.to_owned(),
        name: "test".to_owned(),
        user_id: "ann".to_owned(),
        workspace_id: "team".to_owned(),
        sha256: sha256.to_owned(),
        expires_at_ms: None,
    }
}

fn full_policy() -> PolicyFields {
    PolicyFields {
        enabled: false,
        executor: Some(Preference::Otari),
        max_iterations: Some(3),
        exec_timeout_s: Some(9),
        default_purpose_hint: Some("sums".to_owned()),
        image: Some("small".to_owned()),
        tools: Some(vec!["code_execution".to_owned()]),
    }
}

async fn keys_work_until_they_expire_or_are_revoked(kind: Kind) {
    let Fixture { repository, clock, database: _database } = fixture(kind).await;
    repository.ensure_user("ann").await.unwrap();
    assert!(repository.create_workspace("team").await.unwrap());
    assert!(!repository.create_workspace("team").await.unwrap());
    repository.insert_key(&NewKey { expires_at_ms: Some(1_000_500), ..key("k1", "aa") }).await.unwrap();
    repository.insert_key(&key("k2", "bb")).await.unwrap();
    let hashes = async || {
        let mut hashes: Vec<_> = repository.working_keys().await.unwrap().into_iter().map(|key| key.sha256).collect();
        hashes.sort();
        hashes
    };
    assert_eq!(hashes().await, ["aa", "bb"]);
    clock.set(1_000_500);
    assert_eq!(hashes().await, ["bb"]);
    assert!(repository.revoke_key("k2").await.unwrap());
    assert!(!repository.revoke_key("unknown").await.unwrap());
    assert!(hashes().await.is_empty());
    clock.set(1_000_900);
    repository.revoke_key("k2").await.unwrap();
    let keys = repository.keys().await.unwrap();
    assert_eq!(keys[1].revoked_at_ms, Some(1_000_500), "the first revocation stands");
}

async fn a_key_needs_an_owner_that_exists_and_a_hash_of_its_own(kind: Kind) {
    let Fixture { repository, clock: _clock, database: _database } = fixture(kind).await;
    assert!(repository.insert_key(&key("k1", "aa")).await.is_err(), "foreign keys are on");
    repository.ensure_user("ann").await.unwrap();
    repository.create_workspace("team").await.unwrap();
    repository.insert_key(&key("k1", "aa")).await.unwrap();
    assert!(repository.insert_key(&key("k2", "aa")).await.is_err());
}

async fn a_fixed_key_stays_revoked_until_its_text_changes(kind: Kind) {
    let Fixture { repository, clock: _clock, database: _database } = fixture(kind).await;
    repository.ensure_user("ann").await.unwrap();
    repository.create_workspace("team").await.unwrap();
    repository.put_key(&key("first", "aa")).await.unwrap();
    repository.revoke_key("first").await.unwrap();
    repository.put_key(&key("first", "aa")).await.unwrap();
    assert!(repository.working_keys().await.unwrap().is_empty());
    repository.put_key(&key("first", "bb")).await.unwrap();
    assert_eq!(repository.working_keys().await.unwrap()[0].sha256, "bb");
    // A text that stands under another id already is that key, working or revoked.
    repository.put_key(&key("second", "cc")).await.unwrap();
    repository.put_key(&key("second", "bb")).await.unwrap();
    let keys = repository.keys().await.unwrap();
    assert_eq!(keys.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(), ["first"]);
}

async fn a_policy_is_replaced_whole_and_goes_with_its_workspace(kind: Kind) {
    let Fixture { repository, clock, database: _database } = fixture(kind).await;
    assert!(!repository.put_policy("team", &full_policy()).await.unwrap(), "no such workspace");
    repository.create_workspace("team").await.unwrap();
    assert!(repository.put_policy("team", &full_policy()).await.unwrap());
    let first = repository.policy("team").await.unwrap().unwrap();
    assert_eq!(first.fields, full_policy());
    clock.set(2_000_000);
    let bare = PolicyFields {
        enabled: true,
        executor: None,
        max_iterations: None,
        exec_timeout_s: None,
        default_purpose_hint: None,
        image: None,
        tools: None,
    };
    repository.put_policy("team", &bare).await.unwrap();
    let second = repository.policy("team").await.unwrap().unwrap();
    assert_eq!((second.fields, second.created_at_ms, second.updated_at_ms), (bare, 1_000_000, 2_000_000));
    assert!(repository.delete_workspace("team").await.unwrap());
    assert_eq!(repository.policies().await.unwrap(), []);
}

async fn a_row_this_version_never_wrote_is_named(kind: Kind) {
    let Fixture { repository, clock: _clock, database: _database } = fixture(kind).await;
    repository.create_workspace("team").await.unwrap();
    repository.put_policy("team", &full_policy()).await.unwrap();
    sqlx::query("UPDATE code_execution_policies SET executor = 'both'").execute(&repository.pool).await.unwrap();
    let error = repository.policies().await.unwrap_err();
    assert_eq!(error.to_string(), "row `team` of code_execution_policies has a bad executor");
}

async fn each_content_has_one_version_and_reopening_changes_none(kind: Kind) {
    let Fixture { repository, clock, database } = fixture(kind).await;
    let first = repository.version_of("x").await.unwrap();
    assert_eq!(first, 1_000_001, "above whatever an older database in this place reached");
    assert_eq!(repository.version_of("x").await.unwrap(), first);
    repository.close().await;
    let again = database.open(&clock).await;
    assert_eq!(again.version_of("x").await.unwrap(), first);
    assert_eq!(again.version_of("y").await.unwrap(), first + 1);
}

async fn twenty_writers_at_once_all_succeed_and_are_all_counted(kind: Kind) {
    let Fixture { repository, clock: _clock, database: _database } = fixture(kind).await;
    let before = repository.revision().await.unwrap();
    let names: Vec<_> = (0..20).map(|number| format!("w{number:02}")).collect();
    let made = futures_util::future::join_all(names.iter().map(|name| repository.create_workspace(name))).await;
    assert!(made.into_iter().all(|made| made.unwrap()));
    assert_eq!(repository.revision().await.unwrap(), before + 20);
    let page = repository.workspaces("w04", 3).await.unwrap();
    assert_eq!(page.iter().map(|workspace| workspace.id.as_str()).collect::<Vec<_>>(), ["w05", "w06", "w07"]);
}

async fn no_two_contents_ever_get_one_version(kind: Kind) {
    let Fixture { repository, clock, database } = fixture(kind).await;
    let other = database.open(&clock).await;
    let contents = (0..60).map(|number| format!("content {}", number % 3));
    let versions = contents.enumerate().map(|(number, content)| {
        let repository = if number % 2 == 0 { &repository } else { &other };
        async move { (repository.version_of(&content).await.unwrap(), content) }
    });
    let mut seen = std::collections::BTreeMap::new();
    for (version, content) in futures_util::future::join_all(versions).await {
        let first = seen.entry(version).or_insert_with(|| content.clone());
        assert_eq!(*first, content, "version {version}");
    }
}

mod containers;
mod responses;
