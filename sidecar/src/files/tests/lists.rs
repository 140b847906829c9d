//! Lists, look-ups and whose they are.

use super::*;

on_both_databases!(
    pages_have_each_file_once_in_both_orders_and_from_both_ends,
    a_cursor_may_name_a_deleted_or_expired_file_but_nobody_elses,
    a_purpose_narrows_a_list_without_empty_pages,
    a_look_up_of_many_leaves_out_what_is_not_visible,
);

fn query(order: Order, cursor: Option<Cursor>, limit: u32) -> ListQuery {
    ListQuery { order, cursor, limit, purpose: None }
}

async fn ids(fixture: &Fixture, owner: &Identity, query: &ListQuery) -> (Vec<String>, bool) {
    let page = fixture.files.list(owner, query).await.unwrap();
    (page.files.into_iter().map(|file| file.id).collect(), page.has_more)
}

/// Seven files, the middle five of them stored within one millisecond; in the order of a list.
async fn seven(fixture: &Fixture) -> Vec<String> {
    let mut files = Vec::new();
    for number in 0..7 {
        if matches!(number, 1 | 6) {
            fixture.clock.turn(1);
        }
        files.push(fixture.upload(&ann(), b"1").await);
    }
    files.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
    files.into_iter().map(|file| file.id).collect()
}

async fn pages_have_each_file_once_in_both_orders_and_from_both_ends(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    let ascending = seven(&fixture).await;
    fixture.upload(&owner("bob", "team"), b"not ann's").await;
    let descending: Vec<_> = ascending.iter().rev().cloned().collect();
    for (order, all) in [(Order::Ascending, &ascending), (Order::Descending, &descending)] {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let (page, has_more) = ids(&fixture, &ann(), &query(order, cursor, 3)).await;
            seen.extend(page);
            assert_eq!(has_more, seen.len() < 7);
            if !has_more {
                break;
            }
            cursor = seen.last().cloned().map(Cursor::After);
        }
        assert_eq!(&seen, all);
        let before = |at: usize| query(order, Some(Cursor::Before(all[at].clone())), 3);
        assert_eq!(ids(&fixture, &ann(), &before(5)).await, (all[2..5].to_vec(), true));
        assert_eq!(ids(&fixture, &ann(), &before(3)).await, (all[..3].to_vec(), false));
        assert_eq!(ids(&fixture, &ann(), &before(0)).await, (Vec::new(), false));
        assert_eq!(ids(&fixture, &ann(), &query(order, None, 7)).await, (all.clone(), false));
    }
}

async fn a_cursor_may_name_a_deleted_or_expired_file_but_nobody_elses(kind: Kind) {
    let fixture = fixture(kind, FilesLimits { retention: Some(Duration::from_hours(1)), ..limits() }).await;
    let all = seven(&fixture).await;
    fixture.files.delete(&ann(), &all[3]).await.unwrap();
    let after = |id: &str| query(Order::Ascending, Some(Cursor::After(id.to_owned())), 2);
    assert_eq!(ids(&fixture, &ann(), &after(&all[3])).await, (all[4..6].to_vec(), true));
    assert_eq!(ids(&fixture, &ann(), &after(&all[1])).await, (vec![all[2].clone(), all[4].clone()], true));
    let foreign = fixture.upload(&owner("ann", "other"), b"1").await;
    for unknown in [foreign.id.as_str(), "file-otr00000000000000000000000000000000", "file-otr\0", ""] {
        for cursor in [Cursor::After(unknown.to_owned()), Cursor::Before(unknown.to_owned())] {
            let page = fixture.files.list(&ann(), &query(Order::Descending, Some(cursor), 2)).await;
            assert!(matches!(page, Err(FilesError::CursorNotFound)), "{unknown:?}");
        }
    }
    fixture.clock.turn(3_600_000);
    assert_eq!(ids(&fixture, &ann(), &after(&all[1])).await, (Vec::new(), false));
}

async fn a_purpose_narrows_a_list_without_empty_pages(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    let mut wanted = Vec::new();
    for number in 0..40 {
        fixture.clock.turn(1);
        let mut upload = fixture.files.begin(&ann(), 1).await.unwrap();
        upload.write(Bytes::from_static(b"1")).await.unwrap();
        let purpose = if number % 10 == 0 { Purpose::Batch } else { Purpose::Vision };
        let file = upload.finish(NewFile { purpose, ..new("x") }).await.unwrap();
        if purpose == Purpose::Batch {
            wanted.push(file.id);
        }
    }
    let batch = |cursor| ListQuery { purpose: Some(Purpose::Batch), ..query(Order::Ascending, cursor, 3) };
    assert_eq!(ids(&fixture, &ann(), &batch(None)).await, (wanted[..3].to_vec(), true));
    let cursor = Some(Cursor::After(wanted[2].clone()));
    assert_eq!(ids(&fixture, &ann(), &batch(cursor)).await, (wanted[3..].to_vec(), false));
}

async fn a_look_up_of_many_leaves_out_what_is_not_visible(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    let all = seven(&fixture).await;
    let foreign = fixture.upload(&owner("bob", "team"), b"1").await;
    fixture.files.delete(&ann(), &all[1]).await.unwrap();
    let asked = [&all[4], &foreign.id, &all[1], &all[0], &all[4], &"x\0".to_owned()].map(Clone::clone);
    let found = fixture.files.get_many(&ann(), &asked).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|file| file.id).collect();
    assert_eq!(found, [all[4].clone(), all[0].clone()]);
    assert_eq!(fixture.files.get_many(&ann(), &[]).await.unwrap(), []);
}
