//! Measures files at scale: `cargo run --release --example files_bench [files]`. Lists and look-ups at a thousand files and
//! at as many as were asked for (a million), and the sweep of all of them beside uploads, on SQLite and on PostgreSQL.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use decision::identity::Identity;
use futures_util::future;
use sidecar::clock::{Clock, SystemClock};
use sidecar::files::{Cursor, FileStore, Files, FilesLimits, ListQuery, NewFile, Order, Purpose, StoreTarget, Sweeper};
use sidecar::ids::SystemIds;
use sidecar::repository::{Database, Repository};
use sidecar::telemetry::Metrics;
use sqlx::AnyPool;
use tokio_util::task::TaskTracker;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Files to compare with.
const FEW: u32 = 1000;
/// Runs of each look.
const LOOKS: usize = 400;
/// Uploads at once, and the bytes of each.
const UPLOADERS: usize = 4;
const UPLOAD_BYTES: usize = 64 << 10;
/// How long uploads are measured by themselves.
const ALONE: Duration = Duration::from_secs(5);

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a bench talks to a person")]
async fn main() -> Fallible<()> {
    let many: u32 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    for (name, url) in [("SQLite", None), ("PostgreSQL", Some(services::postgres::Postgres::shared()?.database()?))] {
        let place = Place::new(url.as_deref()).await?;
        place.fill(0, FEW).await?;
        let few = place.look(FEW).await?;
        place.fill(FEW, many).await?;
        let much = place.look(many).await?;
        for ((shape, few), (_, much)) in few.iter().zip(&much) {
            let ratio = much / few;
            println!("{name:<10} {shape:<28} {FEW:>8}: {few:>7.3} ms  {many:>8}: {much:>7.3} ms  ratio {ratio:.2}");
        }
        let (rate, alone, beside) = place.sweep(many).await?;
        let kept = beside / alone;
        println!(
            "{name:<10} sweep {rate:>7.0} rows/s  uploads alone {alone:>6.0}/s  beside it {beside:>6.0}/s  kept {kept:.2}"
        );
        std::fs::remove_dir_all(&place.folder)?;
    }
    Ok(())
}

struct Place {
    files: Files,
    pool: AnyPool,
    postgres: bool,
    folder: PathBuf,
    owner: Identity,
}

impl Place {
    async fn new(url: Option<&str>) -> Fallible<Self> {
        let folder = std::env::temp_dir().join(format!("otari-files-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let database = Database::parse(url.unwrap_or("sqlite"), &folder)?;
        let repository = Repository::open(&database, Arc::new(SystemClock)).await?;
        let limits = FilesLimits {
            max_bytes: 1 << 30,
            output_max_files: 0,
            output_max_bytes: 0,
            retention: None,
            workspace_max_bytes: 1 << 50,
            workspace_max_files: 1 << 40,
            max_concurrent_uploads: 64,
        };
        let tasks = TaskTracker::new();
        let store = FileStore::open(&StoreTarget::Local(folder.join("files")), limits.max_bytes, tasks.clone())?;
        let files = Files::new(repository, store, Arc::new(SystemIds), limits, tasks);
        let url = url.map_or_else(|| format!("sqlite://{}", folder.join("otari.db").display()), str::to_owned);
        let owner = Identity { user: "ann".to_owned(), workspace: "team".to_owned() };
        let postgres = url.starts_with("postgres");
        Ok(Self { files, pool: AnyPool::connect(&url).await?, postgres, folder, owner })
    }

    /// Rows from one number to another, ten within each millisecond, one in a hundred of another purpose.
    async fn fill(&self, from: u32, to: u32) -> Fallible<()> {
        let id = if self.postgres { "lpad(to_hex(n), 32, '0')" } else { "printf('%032x', n)" };
        let sql = format!(
            "WITH RECURSIVE numbers (n) AS (SELECT {from} UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {to}) \
             INSERT INTO files (id, user_id, workspace_id, state, filename, mime_type, purpose, size_bytes, sha256, \
             created_at_ms, sweep_at_ms) SELECT 'file-otr' || {id}, 'ann', 'team', 'stored', 'data.csv', 'text/csv', \
             CASE WHEN n % 100 = 0 THEN 'batch' ELSE 'user_data' END, 1, 'x', 1700000000000 + n / 10, \
             9223372036854775807 FROM numbers"
        );
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&self.pool).await?;
        sqlx::query("DELETE FROM file_usage").execute(&self.pool).await?;
        sqlx::query("INSERT INTO file_usage (workspace_id, size_bytes, files) VALUES ('team', $1, $1)")
            .bind(i64::from(to))
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The median of each kind of look, milliseconds.
    async fn look(&self, files: u32) -> Fallible<Vec<(&'static str, f64)>> {
        let id = |number: u32| format!("file-otr{number:032x}");
        let middle = id(files / 2);
        let list = |order, cursor, purpose| ListQuery { order, cursor, limit: 100, purpose };
        let (after, before) = (Some(Cursor::After(middle.clone())), Some(Cursor::Before(middle.clone())));
        let mut looks = Vec::new();
        for (shape, query) in [
            ("list, newest first", list(Order::Descending, None, None)),
            ("list, after a cursor", list(Order::Descending, after.clone(), None)),
            ("list, before a cursor", list(Order::Descending, before, None)),
            ("list, oldest first", list(Order::Ascending, after.clone(), None)),
            ("list, by a rare purpose", ListQuery { limit: 5, ..list(Order::Descending, None, Some(Purpose::Batch)) }),
            ("list, by a common purpose", list(Order::Descending, after, Some(Purpose::UserData))),
        ] {
            looks.push((shape, median(async || Ok(drop(self.files.list(&self.owner, &query).await?))).await?));
        }
        looks.push(("metadata", median(async || Ok(drop(self.files.get(&self.owner, &middle).await?))).await?));
        let ids: Vec<_> = (0..100).map(|number| id(files / 100 * number)).collect();
        looks.push(("look-up of 100", median(async || Ok(drop(self.files.get_many(&self.owner, &ids).await?))).await?));
        Ok(looks)
    }

    /// Rows swept a second, and uploads a second before and meanwhile.
    async fn sweep(&self, files: u32) -> Fallible<(f64, f64, f64)> {
        for number in 0..files {
            let digits = format!("{number:032x}");
            let shard = self.folder.join("files").join(&digits[..2]);
            if number == 0 {
                std::fs::create_dir_all(&shard)?;
            }
            std::fs::write(shard.join(&digits), b"1")?;
        }
        let alone = self.uploads(tokio::time::sleep(ALONE)).await?;
        let due = SystemClock.now_ms().saturating_sub(1);
        sqlx::query("UPDATE files SET sweep_at_ms = $1 WHERE sha256 = 'x'").bind(due).execute(&self.pool).await?;
        let sweeper = Sweeper::new(&self.files, Metrics::new());
        let began = Instant::now();
        let (mut took, mut swept) = (Duration::ZERO, None);
        let beside = self.uploads(async {
            swept = Some(sweeper.sweep(i64::MAX).await);
            took = began.elapsed();
        });
        let beside = beside.await?;
        let report = swept.ok_or("nothing was swept")??;
        if report.expired != u64::from(files) {
            return Err(format!("not all were swept: {report}").into());
        }
        Ok((f64::from(files) / took.as_secs_f64(), alone, beside))
    }

    /// Uploads a second until something else is over.
    async fn uploads(&self, until: impl Future<Output = ()>) -> Fallible<f64> {
        let (done, began) = (AtomicU64::new(0), Instant::now());
        let uploader = async || -> Fallible<()> {
            loop {
                let mut upload = self.files.begin(&self.owner, u64::MAX).await?;
                upload.write(Bytes::from(vec![7; UPLOAD_BYTES])).await?;
                let new = NewFile {
                    filename: "new".to_owned(),
                    mime_type: "text/plain".to_owned(),
                    purpose: Purpose::Vision,
                    expires_at_ms: None,
                };
                upload.finish(new).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        tokio::select! {
            failed = future::try_join_all((0..UPLOADERS).map(|_| uploader())) => drop(failed?),
            () = until => {}
        }
        Ok(f64::from(u32::try_from(done.into_inner())?) / began.elapsed().as_secs_f64())
    }
}

async fn median(look: impl AsyncFn() -> Fallible<()>) -> Fallible<f64> {
    let mut times = Vec::with_capacity(LOOKS);
    for _ in 0..LOOKS {
        let began = Instant::now();
        look().await?;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    times.get(LOOKS / 2).copied().ok_or_else(|| Path::new("none").display().to_string().into())
}
