//! The sweep: what it takes, what it leaves, and with whom it shares.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::repository::GRACE_MS;
use crate::telemetry::Metrics;

/// More than one batch.
const FILES: u64 = 520;

on_both_databases!(
    a_sweep_takes_what_is_deleted_expired_or_given_up_and_leaves_the_rest,
    a_list_goes_on_behind_a_file_that_was_swept_for_a_day,
    a_blob_that_cannot_be_removed_keeps_its_row_and_holds_up_nobody,
    sweeps_at_once_share_the_rows_and_the_shards,
    a_live_upload_is_never_swept_however_long_it_takes,
    blobs_that_no_row_knows_go_when_they_are_old_and_others_stay,
    a_store_that_belongs_to_another_database_is_not_looked_through,
    a_preview_says_what_a_sweep_then_does,
    a_sweeper_stops_at_once,
);

fn sweeper(files: &Files) -> Sweeper {
    Sweeper::new(files, Metrics::new())
}

async fn sweep(files: &Files) -> SweepReport {
    sweeper(files).sweep(0).await.unwrap()
}

impl Fixture {
    pub(super) fn blob(&self, id: &str) -> PathBuf {
        self.folder.path().join("files").join(&id[8..10]).join(&id[8..])
    }

    /// A file in the store that was last written to at this time by the fixture's clock.
    fn write(&self, path: &str, modified_ms: i64) {
        let path = self.folder.path().join("files").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = std::fs::File::create(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_millis(modified_ms.try_into().unwrap())).unwrap();
    }

    /// An upload whose process was killed: row and bytes are there, and nobody cares for them.
    async fn killed_upload(&self) -> String {
        let mut upload = self.files.begin(&ann(), u64::MAX).await.unwrap();
        upload.write(some_bytes(3 << 20).into()).await.unwrap();
        let name = loop {
            match self.blobs().into_iter().find(|name| name.contains('#')) {
                Some(name) => break name,
                None => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        };
        std::mem::forget(upload);
        name
    }

    /// All there is, by the database and by the store.
    async fn rows(&self) -> Vec<(String, String)> {
        let rows = sqlx::query_as("SELECT id, state FROM files ORDER BY id");
        rows.fetch_all(self.files.inside.repository.pool()).await.unwrap()
    }
}

async fn a_sweep_takes_what_is_deleted_expired_or_given_up_and_leaves_the_rest(kind: Kind) {
    let fixture = fixture(kind, FilesLimits { retention: Some(Duration::from_hours(2)), ..limits() }).await;
    fixture.upload(&ann(), b"old").await;
    fixture.killed_upload().await;
    fixture.clock.turn(GRACE_MS);
    let kept = fixture.upload(&owner("bob", "team"), b"kept").await;
    let deleted = fixture.upload(&ann(), b"deleted").await;
    // As if its process had been killed before the blob was removed.
    assert!(fixture.files.inside.repository.delete_file(&ann(), &deleted.id).await.unwrap());
    assert_eq!(fixture.usage(&ann()).await.files, 3);
    fixture.clock.turn(GRACE_MS);
    let swept = sweep(&fixture.files).await;
    assert_eq!(swept, SweepReport { expired: 1, abandoned: 1, deleted: 1, ..SweepReport::default() });
    assert_eq!(fixture.rows().await, [(kept.id.clone(), "stored".to_owned())]);
    assert_eq!(fixture.blobs(), [&kept.id[8..]]);
    assert_eq!(fixture.usage(&ann()).await, FileUsage { size_bytes: 4, files: 1 });
    assert_eq!(sweep(&fixture.files).await, SweepReport::default());
}

async fn a_list_goes_on_behind_a_file_that_was_swept_for_a_day(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    let mut files = Vec::new();
    for _ in 0..3 {
        files.push(fixture.upload(&ann(), b"1").await);
        fixture.clock.turn(1);
    }
    let given_up = format!("file-otr{}", &fixture.killed_upload().await[..32]);
    fixture.files.delete(&ann(), &files[1].id).await.unwrap();
    fixture.clock.turn(GRACE_MS);
    sweep(&fixture.files).await;
    assert_eq!(fixture.rows().await.len(), 2, "its row is gone");
    let behind = async |owner: &Identity, id: &str, order: Order| {
        let cursor = Some(Cursor::After(id.to_owned()));
        let page = fixture.files.list(owner, &ListQuery { order, cursor, limit: 9, purpose: None }).await;
        page.map(|page| page.files.into_iter().map(|file| file.id).collect::<Vec<_>>())
    };
    assert_eq!(behind(&ann(), &files[1].id, Order::Ascending).await.unwrap(), [files[2].id.as_str()]);
    assert_eq!(behind(&ann(), &files[1].id, Order::Descending).await.unwrap(), [files[0].id.as_str()]);
    for stranger in [owner("bob", "team"), owner("ann", "other")] {
        let foreign = behind(&stranger, &files[1].id, Order::Ascending).await;
        assert!(matches!(foreign, Err(FilesError::CursorNotFound)), "{foreign:?}");
    }
    let never_stored = behind(&ann(), &given_up, Order::Ascending).await;
    assert!(matches!(never_stored, Err(FilesError::CursorNotFound)), "{never_stored:?}");
    fixture.clock.turn(24 * GRACE_MS);
    sweep(&fixture.files).await;
    let forgotten = behind(&ann(), &files[1].id, Order::Ascending).await;
    assert!(matches!(forgotten, Err(FilesError::CursorNotFound)), "{forgotten:?}");
}

async fn a_blob_that_cannot_be_removed_keeps_its_row_and_holds_up_nobody(kind: Kind) {
    let fixture = fixture(kind, FilesLimits { retention: Some(Duration::from_hours(1)), ..limits() }).await;
    let mut stuck = Vec::new();
    for number in 0..20 {
        let file = fixture.upload(&ann(), b"1").await;
        if number % 2 == 0 {
            // A folder cannot be removed as a file.
            std::fs::remove_file(fixture.blob(&file.id)).unwrap();
            std::fs::create_dir_all(fixture.blob(&file.id)).unwrap();
            stuck.push(file.id);
        }
    }
    stuck.sort();
    fixture.clock.turn(3_600_000);
    assert_eq!(sweep(&fixture.files).await, SweepReport { expired: 20, failed: 10, ..SweepReport::default() });
    let left: Vec<_> = fixture.rows().await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(left, stuck);
    assert_eq!(fixture.usage(&ann()).await, FileUsage::default(), "they do not count any more");
    for id in &stuck {
        std::fs::remove_dir(fixture.blob(id)).unwrap();
    }
    assert_eq!(sweep(&fixture.files).await, SweepReport::default(), "they are tried again, but not at once");
    fixture.clock.turn(900_000);
    assert_eq!(sweep(&fixture.files).await, SweepReport { deleted: 10, ..SweepReport::default() });
    assert_eq!(fixture.rows().await, []);
}

async fn sweeps_at_once_share_the_rows_and_the_shards(kind: Kind) {
    let fixture = fixture(kind, FilesLimits { retention: Some(Duration::from_hours(1)), ..limits() }).await;
    for _ in 0..FILES {
        fixture.upload(&ann(), b"1").await;
    }
    fixture.clock.turn(3_600_000);
    let mut sidecars = Vec::new();
    for _ in 0..3 {
        let (repository, tasks) = (fixture.database.open(&fixture.clock).await, TaskTracker::new());
        let store =
            FileStore::open(&StoreTarget::Local(fixture.folder.path().join("files")), u64::MAX, tasks.clone()).unwrap();
        sidecars.push(Files::new(repository, store, Arc::new(SystemIds), limits(), tasks));
    }
    let sweeps = sidecars.iter().map(async |files| sweeper(files).sweep(1000).await.unwrap());
    let reports = futures_util::future::join_all(sweeps).await;
    let expired: u64 = reports.iter().map(|report| report.expired).sum();
    assert_eq!(expired, FILES, "each row once: {reports:?}");
    assert!(reports.iter().all(|report| report.failed == 0 && report.deleted == 0), "{reports:?}");
    assert_eq!((fixture.rows().await, fixture.blobs()), (Vec::new(), Vec::new()));
    assert_eq!(fixture.usage(&ann()).await, FileUsage::default());
    // A round was begun not long ago.
    let shard = fixture.files.inside.repository.take_shard(256, 1000).await.unwrap();
    assert_eq!(shard, None);
    fixture.clock.turn(1000);
    let take = async || {
        let mut taken = Vec::new();
        while let Some(shard) = fixture.files.inside.repository.take_shard(256, 1000).await.unwrap() {
            taken.push(shard);
        }
        taken
    };
    let mut taken = futures_util::future::join_all([take(), take(), take()]).await.concat();
    taken.sort_unstable();
    assert_eq!(taken, (0..256).collect::<Vec<_>>());
}

async fn a_live_upload_is_never_swept_however_long_it_takes(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    let mut upload = fixture.files.begin(&ann(), u64::MAX).await.unwrap();
    for _ in 0..3 {
        upload.write(some_bytes(2 << 20).into()).await.unwrap();
        fixture.clock.turn(GRACE_MS - 1000);
        // The upload's own sign of life, which it gives by the time that passes and not by this clock.
        let repository = &fixture.files.inside.repository;
        let pending: Vec<_> = fixture.rows().await;
        let quota = fixture.files.inside.quota();
        assert_eq!(repository.reserve_file(&ann(), &pending[0].0, 0, quota).await.unwrap(), Counted::Done);
        assert_eq!(sweep(&fixture.files).await, SweepReport::default());
    }
    let file = upload.finish(new("long")).await.unwrap();
    assert_eq!(fixture.bytes(&file, 0..u64::MAX).await.unwrap().len(), 6 << 20);
}

async fn blobs_that_no_row_knows_go_when_they_are_old_and_others_stay(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    let file = fixture.upload(&ann(), b"known").await;
    let (old, young) = (NOW - GRACE_MS, NOW - GRACE_MS + 1);
    fixture.write(&format!("{}/{}", &file.id[8..10], &file.id[8..]), old);
    let unfinished = fixture.killed_upload().await;
    fixture.write(&format!("{}/{unfinished}", &unfinished[..2]), old);
    fixture.write("ab/ab000000000000000000000000000001", old);
    fixture.write("ab/ab000000000000000000000000000002#1", old);
    fixture.write("ab/ab000000000000000000000000000003", young);
    fixture.write("ab/not-ours", old);
    fixture.write(&format!("{}/{}#1", &file.id[8..10], &file.id[8..]), old);
    assert_eq!(sweep(&fixture.files).await, SweepReport { unknown: 3, ..SweepReport::default() });
    let mut left = [file.id[8..].to_owned(), unfinished, "ab000000000000000000000000000003".into(), "not-ours".into()];
    left.sort();
    assert_eq!(fixture.blobs(), left);
}

async fn a_store_that_belongs_to_another_database_is_not_looked_through(kind: Kind) {
    let (one, other) = (fixture(kind, limits()).await, TestDatabase::new(kind));
    one.files.mark_store().await.unwrap();
    let (repository, tasks) = (other.open(&one.clock).await, TaskTracker::new());
    let store = FileStore::open(&StoreTarget::Local(one.folder.path().join("files")), u64::MAX, tasks.clone()).unwrap();
    let others = Files::new(repository, store, Arc::new(SystemIds), limits(), tasks);
    let file = one.upload(&ann(), b"of the first").await;
    one.write(&format!("{}/{}", &file.id[8..10], &file.id[8..]), NOW - GRACE_MS);
    others.mark_store().await.unwrap();
    assert_eq!(sweep(&others).await, SweepReport::default());
    assert_eq!(one.blobs(), [&file.id[8..]]);
    // Whoever says so gets it.
    std::fs::remove_file(one.folder.path().join("files/otari-file-store")).unwrap();
    assert_eq!(sweep(&others).await, SweepReport { unknown: 1, ..SweepReport::default() });
}

async fn a_preview_says_what_a_sweep_then_does(kind: Kind) {
    let fixture = fixture(kind, FilesLimits { retention: Some(Duration::from_hours(1)), ..limits() }).await;
    for _ in 0..3 {
        fixture.upload(&ann(), b"1").await;
    }
    fixture.files.delete(&ann(), &fixture.rows().await[0].0).await.unwrap();
    fixture.killed_upload().await;
    fixture.write("ab/ab000000000000000000000000000001", NOW - GRACE_MS);
    fixture.clock.turn(GRACE_MS);
    let blobs = fixture.blobs();
    let preview = sweeper(&fixture.files).preview().await.unwrap();
    assert_eq!(preview, SweepReport { expired: 2, abandoned: 1, deleted: 1, unknown: 1, unfinished: 0, failed: 0 });
    assert_eq!(fixture.blobs(), blobs, "it only says so");
    assert_eq!(sweep(&fixture.files).await, preview);
    assert_eq!((fixture.rows().await, fixture.blobs()), (Vec::new(), Vec::new()));
}

async fn a_sweeper_stops_at_once(kind: Kind) {
    let fixture = fixture(kind, limits()).await;
    let stop = CancellationToken::new();
    let running = TaskTracker::new().spawn(sweeper(&fixture.files).run(Duration::from_hours(1), stop.clone()));
    stop.cancel();
    running.await.unwrap();
}
