//! Kept answers: whose they are, for how long, and how much of them.

use decision::identity::Identity;

use super::*;

on_both_databases!(
    a_kept_answer_is_found_by_its_owner_until_it_expires,
    the_oldest_answers_of_a_full_workspace_make_room_and_nobody_elses,
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
