//! Kept answers: whose they are, for how long, and how much of them.

use decision::identity::Identity;

use super::*;

on_both_databases!(
    a_kept_answer_is_found_by_its_owner_until_it_expires,
    the_oldest_answers_of_a_full_workspace_make_room_and_nobody_elses,
    an_answer_is_told_again_and_removed_for_its_owner_alone,
);

fn owner(user: &str, workspace: &str) -> Identity {
    Identity { user: user.to_owned(), workspace: workspace.to_owned() }
}

fn response(id: &str, size: usize, expires_at_ms: i64) -> NewResponse {
    NewResponse {
        id: id.to_owned(),
        previous_id: None,
        input: String::new(),
        output: "x".repeat(size),
        item_ids: vec![format!("item_of_{id}")],
        told: None,
        expires_at_ms,
    }
}

async fn usage(repository: &Repository, workspace: &str) -> (i64, i64) {
    let told = sqlx::query_scalar::<_, i64>("SELECT size_bytes FROM stored_response_usage WHERE workspace_id = $1")
        .bind(workspace)
        .fetch_one(&repository.pool)
        .await;
    let true_sum = sqlx::query_scalar::<_, i64>(
        "SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM stored_responses WHERE workspace_id = $1",
    )
    .bind(workspace)
    .fetch_one(&repository.pool)
    .await;
    (told.unwrap(), true_sum.unwrap())
}

async fn a_kept_answer_is_found_by_its_owner_until_it_expires(kind: Kind) {
    let Fixture { repository, clock, database: _database } = fixture(kind).await;
    let ann = owner("ann", "team");
    let now = repository.clock.now_ms();
    repository.put_response(&ann, &response("a", 3, now + 10), 1000).await.unwrap();
    let found = repository.response(&ann, "a").await.unwrap().unwrap();
    assert_eq!(repository.response_of_item(&ann, "item_of_a").await.unwrap(), Some(found));
    for other in [owner("bob", "team"), owner("ann", "rivals")] {
        assert_eq!(repository.response(&other, "a").await.unwrap(), None);
        assert_eq!(repository.response_of_item(&other, "item_of_a").await.unwrap(), None);
    }
    assert_eq!(repository.forget_expired_responses().await.unwrap(), 0);
    clock.turn(10);
    assert_eq!(repository.response(&ann, "a").await.unwrap(), None);
    assert_eq!(repository.forget_expired_responses().await.unwrap(), 1);
    assert_eq!(usage(&repository, "team").await, (0, 0));
    let items = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM stored_items").fetch_one(&repository.pool).await;
    assert_eq!(items.unwrap(), 0, "items go with their answer");
}

async fn the_oldest_answers_of_a_full_workspace_make_room_and_nobody_elses(kind: Kind) {
    let Fixture { repository, clock, database: _database } = fixture(kind).await;
    let (ann, bob) = (owner("ann", "team"), owner("bob", "rivals"));
    let never = i64::MAX;
    repository.put_response(&bob, &response("theirs", 90, never), 100).await.unwrap();
    for id in ["one", "two", "three"] {
        clock.turn(1);
        repository.put_response(&ann, &response(id, 40, never), 100).await.unwrap();
    }
    let kept = async |owner: &Identity, id: &str| repository.response(owner, id).await.unwrap().is_some();
    assert!(!kept(&ann, "one").await && kept(&ann, "two").await && kept(&ann, "three").await);
    assert_eq!(usage(&repository, "team").await, (80, 80));
    repository.put_response(&ann, &response("huge", 500, never), 100).await.unwrap();
    assert!(!kept(&ann, "three").await && kept(&ann, "huge").await, "the newest stays whatever it takes");
    assert!(kept(&bob, "theirs").await);
    assert_eq!(usage(&repository, "team").await, (500, 500));
}

async fn an_answer_is_told_again_and_removed_for_its_owner_alone(kind: Kind) {
    let Fixture { repository, clock, database: _database } = fixture(kind).await;
    let ann = owner("ann", "team");
    let expires_at_ms = repository.clock.now_ms() + 10;
    let told = Told { envelope: "{}".to_owned(), shown: Some("{\"0\":1}".to_owned()) };
    for (id, told) in [("a", Some(told.clone())), ("b", Some(Told { shown: None, ..told.clone() })), ("old", None)] {
        let new = NewResponse { told, ..response(id, 3, expires_at_ms) };
        repository.put_response(&ann, &new, 1000).await.unwrap();
    }
    assert_eq!(usage(&repository, "team").await, (3 + 2 + 7 + 3 + 2 + 3, 20));
    let seen = async |owner: &Identity, id: &str| repository.told_response(owner, id).await.unwrap();
    assert_eq!(seen(&ann, "a").await, Some((told.clone(), "xxx".to_owned())));
    assert_eq!(seen(&ann, "b").await, Some((Told { shown: None, ..told }, "xxx".to_owned())));
    assert_eq!(seen(&ann, "old").await, None);
    for other in [owner("bob", "team"), owner("ann", "rivals")] {
        assert_eq!(seen(&other, "a").await, None);
        assert!(!repository.forget_response(&other, "a").await.unwrap());
    }
    assert!(repository.forget_response(&ann, "a").await.unwrap());
    assert!(!repository.forget_response(&ann, "a").await.unwrap(), "only once");
    assert_eq!((seen(&ann, "a").await, repository.response(&ann, "a").await.unwrap()), (None, None));
    assert_eq!(repository.response_of_item(&ann, "item_of_a").await.unwrap(), None);
    assert_eq!(usage(&repository, "team").await, (8, 8));
    clock.turn(10);
    assert_eq!(seen(&ann, "b").await, None);
    assert!(!repository.forget_response(&ann, "b").await.unwrap(), "expired");
}
