//! The process is killed between any two writes of upload, deletion and sweep; after a restart, the grace and a sweep, rows
//! and blobs match exactly, and whatever a caller was told is so.
//!
//! A child of this very test program does the work and kills itself at a point, at each of them in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::{TryStreamExt as _, stream};
use services::s3::{self, S3};

use super::*;
use crate::clock::{Clock, SystemClock};
use crate::files::store::SHARDS;
use crate::files::target::StoreOptions;
use crate::repository::{Database, GRACE_MS};
use crate::telemetry::Metrics;

/// The child's orders: at which point to end, when it is there for which time, and where everything is.
const KILL_AT: &str = "OTARI_TEST_KILL_AT";
const KILL_TIME: &str = "OTARI_TEST_KILL_TIME";
const DATABASE: &str = "OTARI_TEST_DATABASE";
const STORE: &str = "OTARI_TEST_STORE";
/// More than one part, on both stores.
const LONG: usize = (11 << 20) + 17;
/// A point that is reached again and again kills at these times: each would take all day.
const TIMES: [u32; 2] = [1, 3];

/// Every point that there is.
const POINTS: [&str; 16] = [
    "aborted",
    "abandoned",
    "begun",
    "blob deleted",
    "blobs removed",
    "claimed",
    "committed",
    "deleted",
    "in parts",
    "part sent",
    "reserved",
    "retired",
    "shard taken",
    "stored",
    "unfinished aborted",
    "unknown removed",
];

/// What the product calls at each point.
pub(in crate::files) fn reached(name: &'static str) {
    static TIMES: AtomicU32 = AtomicU32::new(0);
    if variable(KILL_AT).is_none_or(|at| at != name) {
        return;
    }
    let time = TIMES.fetch_add(1, Ordering::SeqCst) + 1;
    if variable(KILL_TIME).unwrap() == time.to_string() {
        say(&format!("killed {name}"));
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        std::thread::park();
    }
}

#[expect(clippy::disallowed_methods, reason = "how the parent talks to the child")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What a caller was told, for the parent.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nchild: {line}").unwrap();
    out.flush().unwrap();
}

async fn open(database: &str, store: &str, clock: &Arc<TurnedClock>) -> Files {
    let clock: Arc<dyn Clock> = Arc::<TurnedClock>::clone(clock);
    let data_dir = std::path::Path::new(store);
    let repository = Repository::open(&Database::parse(database, data_dir).unwrap(), clock).await.unwrap();
    let (mut target, tasks) = (target(store), TaskTracker::new());
    if let StoreTarget::Remote(remote) = &mut target {
        let mut options = StoreOptions::default();
        let endpoint = store.split_once('#').unwrap().1;
        for (name, value) in [
            ("endpoint", endpoint),
            ("region", "us-east-1"),
            ("allow_http", "true"),
            ("access_key_id", s3::ACCESS_KEY),
            ("secret_access_key", s3::SECRET_KEY),
        ] {
            options.set(name, value);
        }
        remote.options = options;
    }
    let limits = FilesLimits { workspace_max_bytes: 1 << 40, ..limits() };
    let store = FileStore::open(&target, limits.max_bytes, tasks.clone()).unwrap();
    Files::new(repository, store, Arc::new(SystemIds), limits, tasks)
}

/// A folder, or `s3://BUCKET/PREFIX#ENDPOINT`.
fn target(store: &str) -> StoreTarget {
    match store.split_once('#') {
        Some((url, _)) => StoreTarget::parse(url, std::path::Path::new("/nowhere")).unwrap(),
        None => StoreTarget::Local(std::path::Path::new(store).join("files")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is not a test: the tests of this module start it"]
async fn child() {
    let clock = TurnedClock::at(SystemClock.now_ms());
    let files = open(&variable(DATABASE).unwrap(), &variable(STORE).unwrap(), &clock).await;
    files.mark_store().await.unwrap();
    let fixture = |length: usize, lifetime_ms| upload(&files, length, lifetime_ms);
    let soon = Some(1000);
    fixture(10, None).await;
    fixture(LONG, None).await;
    let doomed = fixture(LONG, None).await;
    fixture(10, soon).await;
    fixture(LONG, soon).await;
    // One that its caller gives up, and one whose caller is gone when it is stored.
    let mut given_up = files.begin(&ann(), u64::MAX).await.unwrap();
    given_up.write(some_bytes(LONG).into()).await.unwrap();
    drop(given_up);
    say(&format!("deleting {doomed}"));
    files.delete(&ann(), &doomed).await.unwrap();
    say(&format!("deleted {doomed}"));
    // What a process that was killed before has left behind.
    let orphan = FileId::mint(&SystemIds);
    let mut writer = files.inside.store.write(&orphan);
    writer.write(some_bytes(10).into()).await.unwrap();
    writer.commit().await.unwrap();
    let mut unfinished = files.inside.store.write(&FileId::mint(&SystemIds));
    unfinished.write(some_bytes(LONG).into()).await.unwrap();
    std::mem::forget(unfinished);
    files.inside.tasks.close();
    files.inside.tasks.wait().await;
    clock.turn(2 * GRACE_MS);
    Sweeper::new(&files, Metrics::new()).sweep(0).await.unwrap();
    say("done");
}

async fn upload(files: &Files, length: usize, lifetime_ms: Option<i64>) -> String {
    let mut upload = files.begin(&ann(), u64::MAX).await.unwrap();
    for piece in some_bytes(length).chunks(1 << 20) {
        upload.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    let file = upload.finish(NewFile { lifetime_ms, ..new("x") }).await.unwrap();
    say(&format!("{} {} {}", if lifetime_ms.is_some() { "expiring" } else { "stored" }, file.id, file.sha256));
    file.id
}

#[tokio::test]
async fn whenever_it_is_killed_rows_and_blobs_match_after_the_sweep_on_sqlite_and_a_folder() {
    // A folder lists what is unfinished among its blobs.
    for point in POINTS.into_iter().filter(|name| *name != "unfinished aborted") {
        for time in TIMES {
            let folder = tempfile::tempdir().unwrap();
            if !kill_and_look("sqlite", folder.path().to_str().unwrap(), point, time).await {
                break;
            }
        }
    }
}

#[tokio::test]
async fn whenever_it_is_killed_rows_and_blobs_match_after_the_sweep_on_postgresql_and_s3() {
    let (postgres, s3) = (services::postgres::Postgres::shared().unwrap(), S3::shared().unwrap());
    for point in POINTS {
        for time in TIMES {
            let store = format!("s3://{}#{}", s3.place().unwrap(), s3.endpoint());
            if !kill_and_look(&postgres.database().unwrap(), &store, point, time).await {
                break;
            }
        }
    }
}

/// Whether the child was killed; the first time at each point it is.
async fn kill_and_look(database: &str, store: &str, point: &str, time: u32) -> bool {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "files::tests::kills::child", "--ignored", "--nocapture"])
        .envs([(KILL_AT, point), (KILL_TIME, &time.to_string()), (DATABASE, database), (STORE, store)])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said: Vec<Vec<&str>> =
        text.lines().filter_map(|line| line.strip_prefix("child: ")).map(|line| line.split(' ').collect()).collect();
    let clock = TurnedClock::at(SystemClock.now_ms() + 2 * GRACE_MS);
    let files = open(database, store, &clock).await;
    // Once with a look through the whole store.
    for distance_ms in [0, i64::MAX] {
        let report = Sweeper::new(&files, Metrics::new()).sweep(distance_ms).await.unwrap();
        assert_eq!(report.failed, 0, "{report}");
        // What the killed process had taken is taken again when its time is over.
        clock.turn(900_000);
    }
    let hashes = rows_and_blobs_match(&files).await;
    let mut expected = BTreeMap::new();
    for line in &said {
        match line[..] {
            ["stored", id, sha256] => drop(expected.insert(id.to_owned(), sha256.to_owned())),
            // From then on it may be gone.
            ["deleting", id] => drop(expected.remove(id)),
            ["deleted", id] => assert!(!hashes.contains_key(id), "{id} is still there: {text}"),
            _ => {}
        }
    }
    for (id, sha256) in expected {
        assert_eq!(hashes.get(&id), Some(&sha256), "{id}, which a caller was told is stored: {text}");
    }
    let killed = text.contains(&format!("child: killed {point}"));
    let ended = text.contains("child: done") && time > 1;
    assert!(killed || ended, "{point}: {text}{}", String::from_utf8_lossy(&output.stderr));
    killed
}

/// Every row is of a stored file with its blob, every blob of such a row, the quota has counted just these, and nothing is
/// unfinished. The answer has the hash of each.
async fn rows_and_blobs_match(files: &Files) -> BTreeMap<String, String> {
    let (repository, store) = (&files.inside.repository, &files.inside.store);
    let rows: Vec<(String, String, i64)> =
        sqlx::query_as("SELECT id, state, size_bytes FROM files").fetch_all(repository.pool()).await.unwrap();
    let shards = stream::iter(0..SHARDS).map(|shard| store.list(shard).try_concat()).buffered(16);
    let listed: Vec<_> = shards.try_concat().await.unwrap();
    assert!(listed.iter().all(|listed| !listed.unfinished), "{listed:?}");
    let blobs: BTreeSet<_> = listed.into_iter().map(|listed| listed.id.as_str().to_owned()).collect();
    assert_eq!(rows.iter().map(|(id, _, _)| id.clone()).collect::<BTreeSet<_>>(), blobs);
    assert!(rows.iter().all(|(_, state, _)| state == "stored"), "{rows:?}");
    assert_eq!(store.unfinished_before(i64::MAX).await.unwrap(), []);
    let usage = repository.file_usage("team").await.unwrap();
    let bytes = rows.iter().map(|(_, _, size)| u64::try_from(*size).unwrap()).sum();
    assert_eq!(usage, FileUsage { size_bytes: bytes, files: rows.len() as u64 });
    let mut hashes = BTreeMap::new();
    for (id, _, _) in rows {
        let file = files.get(&ann(), &id).await.unwrap();
        let pieces: Vec<Bytes> = files.read(&file, 0..u64::MAX).await.unwrap().try_collect().await.unwrap();
        assert_eq!(decision::identity::key_hash(&pieces.concat()), file.sha256);
        hashes.insert(id, file.sha256);
    }
    hashes
}
