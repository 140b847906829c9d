//! Kept answers: whose they are, for how long, and how much of them.

use decision::identity::Identity;

use super::*;
use crate::repository::responses::ROW_BYTES;

on_both_databases!(
    a_kept_answer_is_found_by_its_owner_until_it_expires,
    the_id_that_an_answer_goes_on_from_counts,
    the_oldest_answers_of_a_full_workspace_make_room_and_nobody_elses,
    an_answer_is_told_again_and_removed_for_its_owner_alone,
    many_small_answers_are_bounded_as_a_large_one_is,
    answers_that_come_together_are_kept_all_or_none,
    an_answer_of_many_items_is_found_by_each_and_one_of_too_many_is_not_kept,
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
    put(&repository, &ann, response("a", 3, now + 10), i64::MAX).await;
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

async fn the_id_that_an_answer_goes_on_from_counts(kind: Kind) {
    let Fixture { repository, database: _database, .. } = fixture(kind).await;
    let ann = owner("ann", "team");
    let new = NewResponse { previous_id: Some("p".repeat(500)), ..response("a", 3, i64::MAX) };
    assert!(put(&repository, &ann, new, charged(&[503])).await);
    assert_eq!(usage(&repository, "team").await, (charged(&[503]), charged(&[503])));
}

async fn put(repository: &Repository, owner: &Identity, new: NewResponse, share: i64) -> bool {
    repository.put_responses(&[(owner.clone(), new)], share).await.unwrap()
}

/// How many bytes answers of these sizes count for.
fn charged(sizes: &[i64]) -> i64 {
    sizes.iter().map(|size| size + ROW_BYTES).sum()
}

async fn the_oldest_answers_of_a_full_workspace_make_room_and_nobody_elses(kind: Kind) {
    let Fixture { repository, clock, database: _database } = fixture(kind).await;
    let (ann, bob) = (owner("ann", "team"), owner("bob", "rivals"));
    let never = i64::MAX;
    let share = charged(&[50, 50]);
    assert!(put(&repository, &bob, response("theirs", 90, never), share).await);
    for id in ["one", "two", "three"] {
        clock.turn(1);
        assert!(put(&repository, &ann, response(id, 40, never), share).await);
    }
    let kept = async |owner: &Identity, id: &str| repository.response(owner, id).await.unwrap().is_some();
    assert!(!kept(&ann, "one").await && kept(&ann, "two").await && kept(&ann, "three").await);
    assert_eq!(usage(&repository, "team").await, (charged(&[40, 40]), charged(&[40, 40])));
    let huge = usize::try_from(share - ROW_BYTES).unwrap();
    assert!(!put(&repository, &ann, response("beyond", huge + 1, never), share).await);
    assert!(kept(&ann, "two").await && !kept(&ann, "beyond").await, "nothing goes for one that finds no room");
    assert!(put(&repository, &ann, response("huge", huge, never), share).await);
    assert!(!kept(&ann, "three").await && kept(&ann, "huge").await);
    assert!(kept(&bob, "theirs").await);
    assert_eq!(usage(&repository, "team").await, (share, share));
}

async fn many_small_answers_are_bounded_as_a_large_one_is(kind: Kind) {
    let Fixture { repository, database: _database, .. } = fixture(kind).await;
    let ann = owner("ann", "team");
    let share = charged(&[0; 20]);
    for number in 0..50 {
        let small = response(&format!("small{number}"), 0, i64::MAX);
        assert!(put(&repository, &ann, small, share).await);
    }
    assert_eq!(usage(&repository, "team").await, (share, share));
    let large = usize::try_from(share - ROW_BYTES).unwrap();
    assert!(put(&repository, &ann, response("large", large, i64::MAX), share).await);
    assert_eq!(usage(&repository, "team").await, (share, share), "one write removes all that it takes");
}

async fn an_answer_of_many_items_is_found_by_each_and_one_of_too_many_is_not_kept(kind: Kind) {
    let Fixture { repository, database: _database, .. } = fixture(kind).await;
    let ann = owner("ann", "team");
    let of = |id: &str, count: usize| NewResponse {
        item_ids: (0..count).map(|number| format!("item{number}_of_{id}")).collect(),
        ..response(id, 0, i64::MAX)
    };
    assert!(put(&repository, &ann, of("a", 1001), i64::MAX).await);
    for item in ["item0_of_a", "item500_of_a", "item1000_of_a"] {
        assert!(repository.response_of_item(&ann, item).await.unwrap().is_some(), "{item}");
    }
    assert!(!put(&repository, &ann, of("b", 10_001), i64::MAX).await);
    assert!(repository.response(&ann, "b").await.unwrap().is_none());
}

async fn answers_that_come_together_are_kept_all_or_none(kind: Kind) {
    let Fixture { repository, database: _database, .. } = fixture(kind).await;
    let (ann, bob) = (owner("ann", "team"), owner("bob", "rivals"));
    let share = charged(&[0; 70]);
    let many: Vec<_> = (0..70)
        .flat_map(|number| {
            [(&ann, "a"), (&bob, "b")]
                .map(|(owner, of)| (owner.clone(), response(&format!("{of}{number}"), 0, i64::MAX)))
        })
        .collect();
    assert!(repository.put_responses(&many, share).await.unwrap());
    assert_eq!(
        (usage(&repository, "team").await, usage(&repository, "rivals").await),
        ((share, share), (share, share))
    );
    let huge = usize::try_from(share).unwrap();
    let mixed = [(ann.clone(), response("good", 0, i64::MAX)), (bob.clone(), response("huge", huge, i64::MAX))];
    assert!(!repository.put_responses(&mixed, share).await.unwrap());
    assert!(repository.response(&ann, "good").await.unwrap().is_none());
    assert_eq!(
        (usage(&repository, "team").await, usage(&repository, "rivals").await),
        ((share, share), (share, share))
    );
}

async fn an_answer_is_told_again_and_removed_for_its_owner_alone(kind: Kind) {
    let Fixture { repository, clock, database: _database } = fixture(kind).await;
    let ann = owner("ann", "team");
    let expires_at_ms = repository.clock.now_ms() + 10;
    let told = Told { envelope: "{}".to_owned(), shown: Some("{\"0\":1}".to_owned()) };
    for (id, told) in [("a", Some(told.clone())), ("b", Some(Told { shown: None, ..told.clone() })), ("old", None)] {
        let new = NewResponse { told, ..response(id, 3, expires_at_ms) };
        assert!(put(&repository, &ann, new, i64::MAX).await);
    }
    let sizes = charged(&[3 + 2 + 7, 3 + 2, 3]);
    assert_eq!(usage(&repository, "team").await, (sizes, sizes));
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
    let sizes = charged(&[3 + 2, 3]);
    assert_eq!(usage(&repository, "team").await, (sizes, sizes));
    clock.turn(10);
    assert_eq!(seen(&ann, "b").await, None);
    assert!(!repository.forget_response(&ann, "b").await.unwrap(), "expired");
}
