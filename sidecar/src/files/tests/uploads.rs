//! Uploads, downloads and deletions.

use std::os::unix::fs::PermissionsExt;

use super::*;

on_both_databases!(
    what_was_uploaded_comes_back_byte_for_byte_small_and_in_parts,
    nobody_else_can_read_what_a_local_store_keeps,
    a_deleted_file_is_gone_and_so_is_its_blob_and_its_share_of_the_quota,
    a_file_expires_by_the_clock_before_any_sweep,
    an_upload_that_is_too_long_leaves_nothing,
    an_upload_that_is_dropped_at_any_point_leaves_nothing,
    a_workspace_has_so_many_bytes_and_so_many_files,
    what_has_expired_makes_room_before_the_sweep_does,
    uploads_take_turns_and_those_that_wait_too_long_are_told,
    a_workspace_that_has_its_share_of_uploads_leaves_the_others_theirs,
    a_file_that_is_deleted_while_it_is_written_is_not_stored,
    a_blob_that_is_missing_or_too_short_is_an_error_and_no_short_answer,
);

async fn what_was_uploaded_comes_back_byte_for_byte_small_and_in_parts(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    for length in [0, 1, 100_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 9 << 20] {
        let bytes = some_bytes(length);
        let file = fixture.upload(&ann(), &bytes).await;
        assert_eq!(file.size_bytes, length as u64);
        assert_eq!(file.sha256, decision::identity::key_hash(&bytes));
        assert_eq!((file.created_at_ms, file.expires_at_ms), (NOW, None));
        assert_eq!(fixture.files.get(&ann(), &file.id).await.unwrap(), file);
        assert!(fixture.bytes(&file, 0..u64::MAX).await.unwrap() == bytes, "{length} bytes");
        let (from, to) = (length / 3, length / 2);
        let part = fixture.bytes(&file, from as u64..to as u64).await.unwrap();
        assert!(part == bytes[from..to], "a range of {length} bytes");
    }
    let used = fixture.usage(&ann()).await;
    assert_eq!((used.files, used.size_bytes), (7, 12 * (1 << 20) + 100_001));
}

async fn nobody_else_can_read_what_a_local_store_keeps(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    fixture.upload(&ann(), b"secret").await;
    let folder = fixture.folder.path().join("files");
    let mode = || std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o700);
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    FileStore::open(&StoreTarget::Local(folder.clone()), u64::MAX, TaskTracker::new()).unwrap();
    assert_eq!(mode(), 0o700, "a folder that somebody opened is closed at the next start");
}

async fn a_deleted_file_is_gone_and_so_is_its_blob_and_its_share_of_the_quota(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    let file = fixture.upload(&ann(), b"1,2,3").await;
    for other in [owner("bob", "team"), owner("ann", "other")] {
        assert!(matches!(fixture.files.delete(&other, &file.id).await, Err(FilesError::NotFound)));
        assert!(matches!(fixture.files.get(&other, &file.id).await, Err(FilesError::NotFound)));
    }
    fixture.files.delete(&ann(), &file.id).await.unwrap();
    assert!(matches!(fixture.files.delete(&ann(), &file.id).await, Err(FilesError::NotFound)));
    assert!(matches!(fixture.files.get(&ann(), &file.id).await, Err(FilesError::NotFound)));
    assert_eq!(fixture.blobs(), Vec::<String>::new());
    assert_eq!(fixture.usage(&ann()).await, FileUsage::default());
    // Whoever had looked it up before learns what happened; only a blob that was lost is the store's failure.
    assert!(matches!(fixture.bytes(&file, 0..5).await, Err(FilesError::NotFound)));
    let lost = fixture.upload(&ann(), b"12345").await;
    std::fs::remove_file(fixture.blob(&lost.id)).unwrap();
    assert!(matches!(fixture.bytes(&lost, 0..5).await, Err(FilesError::Storage(StoreError::Missing))));
}

async fn a_file_expires_by_the_clock_before_any_sweep(kind: Kind) {
    let fixture = fixture(kind, FilesLimits { retention: Some(Duration::from_hours(1)), ..limits() }).await;
    let kept = fixture.upload(&ann(), b"kept an hour").await;
    assert_eq!(kept.expires_at_ms, Some(NOW + 3_600_000));
    let mut upload = fixture.files.begin(&ann(), 100).await.unwrap();
    upload.write(Bytes::from_static(b"kept a second")).await.unwrap();
    let short = NewFile { lifetime_ms: Some(1000), ..new("short") };
    let short = upload.finish(short).await.unwrap();
    fixture.clock.set(NOW + 999);
    fixture.files.get(&ann(), &short.id).await.unwrap();
    fixture.clock.set(NOW + 1000);
    assert!(matches!(fixture.files.get(&ann(), &short.id).await, Err(FilesError::NotFound)));
    assert!(matches!(fixture.files.delete(&ann(), &short.id).await, Err(FilesError::NotFound)));
    fixture.files.get(&ann(), &kept.id).await.unwrap();
}

async fn an_upload_that_is_too_long_leaves_nothing(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    let mut upload = fixture.files.begin(&ann(), 3 << 20).await.unwrap();
    upload.write(some_bytes(3 << 20).into()).await.unwrap();
    let error = upload.write(Bytes::from_static(b"x")).await.unwrap_err();
    assert!(matches!(error, FilesError::TooLarge { limit } if limit == 3 << 20), "{error}");
    assert!(matches!(upload.finish(new("x")).await, Err(FilesError::TooLarge { .. })));
    fixture.settle().await;
    assert_eq!((fixture.blobs(), fixture.usage(&ann()).await), (Vec::new(), FileUsage::default()));
    assert_eq!(fixture.files.begin(&ann(), u64::MAX).await.unwrap().max_bytes(), limits().max_bytes);
}

async fn an_upload_that_is_dropped_at_any_point_leaves_nothing(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    for pieces in [0, 1, 15, 40] {
        let mut upload = fixture.files.begin(&ann(), u64::MAX).await.unwrap();
        for _ in 0..pieces {
            upload.write(some_bytes(100_000).into()).await.unwrap();
        }
        drop(upload);
        fixture.settle().await;
        assert_eq!((fixture.blobs(), fixture.usage(&ann()).await), (Vec::new(), FileUsage::default()), "{pieces}");
    }
    // Before it has begun, and while it finishes.
    let ann = owner("ann", "team");
    drop(futures_util::poll!(Box::pin(fixture.files.begin(&ann, 10))));
    let mut upload = fixture.files.begin(&ann, u64::MAX).await.unwrap();
    upload.write(some_bytes(2_500_000).into()).await.unwrap();
    let mut finish = Box::pin(upload.finish(new("x")));
    assert!(futures_util::poll!(&mut finish).is_pending());
    drop(finish);
    fixture.settle().await;
    assert_eq!((fixture.blobs(), fixture.usage(&ann).await), (Vec::new(), FileUsage::default()));
}

async fn a_workspace_has_so_many_bytes_and_so_many_files(kind: Kind) {
    let small = FilesLimits { workspace_max_bytes: 20 << 20, workspace_max_files: 3, ..limits() };
    let fixture = fixture(kind, small).await;
    let first = fixture.upload(&ann(), &some_bytes(15 << 20)).await;
    // Another user of the same workspace shares the quota; another workspace has its own.
    let bob = owner("bob", "team");
    let mut upload = fixture.files.begin(&bob, u64::MAX).await.unwrap();
    let refused = async {
        for _ in 0..9 {
            upload.write(some_bytes(1 << 20).into()).await?;
        }
        upload.finish(new("x")).await
    };
    let error = refused.await.unwrap_err();
    assert!(matches!(error, FilesError::WorkspaceBytes { limit } if limit == 20 << 20), "{error}");
    fixture.settle().await;
    assert_eq!(fixture.usage(&bob).await, FileUsage { size_bytes: 15 << 20, files: 1 });
    // Less than what is taken of the quota without asking is refused too, when it is stored.
    let mut upload = fixture.files.begin(&bob, u64::MAX).await.unwrap();
    upload.write(some_bytes((5 << 20) + 1).into()).await.unwrap();
    assert!(matches!(upload.finish(new("x")).await, Err(FilesError::WorkspaceBytes { .. })));
    fixture.settle().await;
    fixture.upload(&bob, &some_bytes(5 << 20)).await;
    assert!(matches!(fixture.files.begin(&bob, 1).await, Err(FilesError::WorkspaceBytes { .. })));
    fixture.files.delete(&ann(), &first.id).await.unwrap();
    fixture.upload(&bob, b"1").await;
    fixture.upload(&bob, b"2").await;
    let error = fixture.files.begin(&bob, 1).await.unwrap_err();
    assert!(matches!(error, FilesError::WorkspaceFiles { limit: 3 }), "{error}");
    fixture.upload(&owner("bob", "other"), b"3").await;
}

async fn what_has_expired_makes_room_before_the_sweep_does(kind: Kind) {
    let small = FilesLimits { workspace_max_files: 2, retention: Some(Duration::from_hours(1)), ..limits() };
    let fixture = fixture(kind, small).await;
    fixture.upload(&ann(), b"1").await;
    fixture.upload(&ann(), b"2").await;
    assert!(matches!(fixture.files.begin(&ann(), 1).await, Err(FilesError::WorkspaceFiles { .. })));
    fixture.clock.turn(3_600_000);
    fixture.upload(&ann(), b"3").await;
    assert_eq!(fixture.usage(&ann()).await, FileUsage { size_bytes: 1, files: 1 });
}

async fn uploads_take_turns_and_those_that_wait_too_long_are_told(kind: Kind) {
    let fixture = fixture(kind, FilesLimits { max_concurrent_uploads: 1, ..limits() }).await;
    let first = fixture.files.begin(&ann(), 1).await.unwrap();
    // Nothing but the wait for its turn: the clock then runs ahead to its end.
    tokio::time::pause();
    assert!(matches!(fixture.files.begin(&ann(), 1).await, Err(FilesError::Busy)));
    tokio::time::resume();
    drop(first);
    fixture.files.begin(&ann(), 1).await.unwrap();
}

async fn a_workspace_that_has_its_share_of_uploads_leaves_the_others_theirs(kind: Kind) {
    let few = FilesLimits { max_concurrent_uploads: 3, max_concurrent_uploads_per_workspace: 2, ..limits() };
    let fixture = fixture(kind, few).await;
    let mut mine = Vec::new();
    for user in ["ann", "bob"] {
        mine.push(fixture.files.begin(&owner(user, "team"), 1).await.unwrap());
    }
    tokio::time::pause();
    assert!(matches!(fixture.files.begin(&ann(), 1).await, Err(FilesError::Busy)));
    tokio::time::resume();
    let _theirs = fixture.files.begin(&owner("ann", "other"), 1).await.unwrap();
    drop(mine.pop());
    fixture.files.begin(&ann(), 1).await.unwrap();
}

async fn a_file_that_is_deleted_while_it_is_written_is_not_stored(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    let mut upload = fixture.files.begin(&ann(), u64::MAX).await.unwrap();
    upload.write(some_bytes(2_500_000).into()).await.unwrap();
    let repository = &fixture.files.inside.repository;
    repository.create_workspace("team").await.unwrap();
    assert!(repository.delete_workspace("team").await.unwrap());
    assert!(matches!(upload.finish(new("x")).await, Err(FilesError::Deleted)));
    fixture.settle().await;
    assert_eq!((fixture.blobs(), fixture.usage(&ann()).await), (Vec::new(), FileUsage::default()));
}

async fn a_blob_that_is_missing_or_too_short_is_an_error_and_no_short_answer(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    let file = fixture.upload(&ann(), &some_bytes(1_000_000)).await;
    let blob = fixture.folder.path().join("files").join(&file.id[8..10]).join(&file.id[8..]);
    std::fs::OpenOptions::new().write(true).open(&blob).unwrap().set_len(600_000).unwrap();
    let error = fixture.bytes(&file, 0..1_000_000).await.unwrap_err();
    assert!(matches!(error, FilesError::Storage(StoreError::Short)), "{error}");
    std::fs::remove_file(&blob).unwrap();
    assert!(matches!(fixture.files.read(&file, 0..1).await, Err(FilesError::Storage(StoreError::Missing))));
}
