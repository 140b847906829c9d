//! The sweep: removes what is deleted or expired, and what was left half-way.
//!
//! INVARIANT: it takes nothing that a live upload may still need: rows are its own only past their time, and what no row
//! knows in the store only past the grace, in the one store that these rows belong to. Any number of sidecars sweep at
//! once; what one has taken no other takes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::store::{Listed, SHARDS, UnfinishedUpload};
use super::{FileId, Files, FilesError, Inside, StoreError, kill_point};
use crate::repository::{DueFiles, GRACE_MS};
use crate::telemetry::{self, Metrics};

/// Rows taken at once: one transaction, short enough for others to get theirs in between.
const BATCH: u32 = 500;
/// Batches of one sweep; what is due beyond them waits for the next.
const MAX_BATCHES: u32 = 20_000;
/// After each batch the others have half the time that it took, or this at most, for themselves.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// The first sweep after a start comes no later than this.
const FIRST: Duration = Duration::from_mins(1);
/// Failures whose reasons are logged; the others are only counted.
const TOLD_FAILURES: u64 = 3;

/// Sweeps.
#[derive(Debug, Clone)]
pub struct Sweeper {
    inside: Arc<Inside>,
    metrics: Metrics,
}

/// What one sweep did, or would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// Files that had expired.
    pub expired: u64,
    /// Uploads that were given up.
    pub abandoned: u64,
    /// Deleted files whose blob or row was still there.
    pub deleted: u64,
    /// Blobs that no row knows, and what a local store has of unfinished ones.
    pub unknown: u64,
    /// Uploads in parts that were never finished, which stores on servers keep unseen.
    pub unfinished: u64,
    /// Blobs that could not be removed. Their rows stay, and a later sweep tries again.
    pub failed: u64,
}

impl Sweeper {
    /// A sweeper of these files.
    pub fn new(files: &Files, metrics: Metrics) -> Self {
        Self { inside: Arc::clone(&files.inside), metrics }
    }

    /// Sweeps every so often until told to stop, and then stops at once, even half-way.
    pub async fn run(self, every: Duration, stop: CancellationToken) {
        let mut ticks = tokio::time::interval_at(Instant::now() + every.min(FIRST), every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let distance_ms = i64::try_from(every.as_millis() / 2).unwrap_or(i64::MAX);
        let sweeping = async {
            loop {
                ticks.tick().await;
                let began = Instant::now();
                match self.sweep(distance_ms).await {
                    Ok(report) => tracing::info!(%report, elapsed_ms = began.elapsed().as_millis(), "swept files"),
                    Err(error) => tracing::error!(error = telemetry::chain(&error), "files could not be swept"),
                }
            }
        };
        stop.run_until_cancelled(sweeping).await;
    }

    /// One sweep. Blobs that no row knows are looked for if the last look began `distance_ms` ago.
    pub async fn sweep(&self, distance_ms: i64) -> Result<SweepReport, FilesError> {
        let began = Instant::now();
        let mut report = SweepReport::default();
        let swept = self.sweep_all(distance_ms, &mut report).await;
        self.metrics.swept(&report.counts(), swept.is_ok(), began.elapsed());
        swept.map(|()| report)
    }

    async fn sweep_all(&self, distance_ms: i64, report: &mut SweepReport) -> Result<(), FilesError> {
        self.sweep_rows(report).await?;
        self.sweep_places().await?;
        self.sweep_blobs(distance_ms, report).await
    }

    /// What nobody needs to know any more of files that are long gone.
    async fn sweep_places(&self) -> Result<(), FilesError> {
        for _ in 0..MAX_BATCHES {
            if self.inside.repository.forget_file_places(BATCH).await? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// What a sweep would do now.
    pub async fn preview(&self) -> Result<SweepReport, FilesError> {
        let DueFiles { expired, abandoned, deleted } = self.inside.repository.due_files().await?;
        let mut report = SweepReport { expired, abandoned, deleted, ..SweepReport::default() };
        if self.inside.is_our_store().await? {
            for shard in 0..SHARDS {
                let mut pages = self.inside.store.list(shard);
                while let Some(page) = pages.next().await {
                    report.unknown = report.unknown.saturating_add(self.unknown(page?).await?.len() as u64);
                }
            }
            report.unfinished = self.unfinished().await?.len() as u64;
        }
        Ok(report)
    }

    /// Rows that are due, with their blobs.
    async fn sweep_rows(&self, report: &mut SweepReport) -> Result<(), FilesError> {
        for _ in 0..MAX_BATCHES {
            let began = Instant::now();
            let retired = self.inside.repository.retire_due_files(BATCH).await?;
            kill_point::reached("retired");
            let expired = retired.iter().filter(|file| file.was_stored).count() as u64;
            let abandoned = (retired.len() as u64).saturating_sub(expired);
            let ids = retired.into_iter().map(|file| file.id).collect::<Vec<_>>();
            let ended = ids.is_empty();
            report.expired = report.expired.saturating_add(expired);
            report.abandoned = report.abandoned.saturating_add(abandoned);
            self.remove(ids, report).await?;
            if ended {
                break;
            }
            tokio::time::sleep((began.elapsed() / 2).min(LONGEST_PAUSE)).await;
        }
        for _ in 0..MAX_BATCHES {
            let began = Instant::now();
            let ids = self.inside.repository.claim_deleted_files(BATCH).await?;
            kill_point::reached("claimed");
            if ids.is_empty() {
                break;
            }
            let failed_before = report.failed;
            let claimed = ids.len() as u64;
            self.remove(ids, report).await?;
            let failed = report.failed.saturating_sub(failed_before);
            report.deleted = report.deleted.saturating_add(claimed.saturating_sub(failed));
            tokio::time::sleep((began.elapsed() / 2).min(LONGEST_PAUSE)).await;
        }
        Ok(())
    }

    /// Blobs first, then the rows of those that are gone.
    async fn remove(&self, ids: Vec<String>, report: &mut SweepReport) -> Result<(), FilesError> {
        let files: Vec<FileId> = ids.iter().filter_map(|id| FileId::parse(id)).collect();
        let failed = self.inside.store.delete_many(&files).await;
        kill_point::reached("blobs removed");
        for (id, error) in &failed {
            tell(report, id, error);
        }
        let stays = |id: &&str| failed.iter().any(|(failed, _)| failed.as_str() == *id);
        let gone: Vec<&str> = ids.iter().map(String::as_str).filter(|id| failed.is_empty() || !stays(id)).collect();
        Ok(self.inside.repository.forget_files(&gone).await?)
    }

    /// Blobs that no row knows: a writer that was killed late, or a database that was set back.
    async fn sweep_blobs(&self, distance_ms: i64, report: &mut SweepReport) -> Result<(), FilesError> {
        if !self.inside.is_our_store().await? {
            return Ok(());
        }
        for _ in 0..SHARDS {
            let Some(shard) = self.inside.repository.take_shard(SHARDS, distance_ms).await? else { break };
            kill_point::reached("shard taken");
            if shard == 0 {
                self.sweep_unfinished(report).await?;
            }
            let mut pages = self.inside.store.list(shard);
            while let Some(page) = pages.next().await {
                for listed in self.unknown(page?).await? {
                    match self.inside.store.delete_listed(&listed).await {
                        Ok(()) => {
                            kill_point::reached("unknown removed");
                            report.unknown = report.unknown.saturating_add(1);
                        }
                        Err(error) => tell(report, &listed.id, &error),
                    }
                }
            }
        }
        Ok(())
    }

    /// Uploads in parts whose writers are gone.
    async fn sweep_unfinished(&self, report: &mut SweepReport) -> Result<(), FilesError> {
        let unfinished = match self.unfinished().await {
            // Whoever may write and delete may not always list.
            Err(FilesError::Storage(error)) => {
                tracing::warn!(error = telemetry::chain(&error), "unfinished uploads are left in the store");
                return Ok(());
            }
            unfinished => unfinished?,
        };
        for upload in unfinished {
            match self.inside.store.abort_unfinished(&upload).await {
                Ok(()) => {
                    kill_point::reached("unfinished aborted");
                    report.unfinished = report.unfinished.saturating_add(1);
                }
                Err(error) => tell(report, &upload.id, &error),
            }
        }
        Ok(())
    }

    /// Those that began before the grace and that nobody writes any more.
    async fn unfinished(&self) -> Result<Vec<UnfinishedUpload>, FilesError> {
        let settled = self.inside.repository.now_ms().saturating_sub(GRACE_MS);
        let mut unfinished = self.inside.store.unfinished_before(settled).await?;
        let ids: Vec<&str> = unfinished.iter().map(|upload| upload.id.as_str()).collect();
        let known = self.inside.repository.known_files(&ids, true).await?;
        unfinished.retain(|upload| !known.contains(upload.id.as_str()));
        Ok(unfinished)
    }

    /// Those that are older than the grace and that no row accounts for: for a whole blob any row does, for one that is
    /// being written only that of its upload.
    async fn unknown(&self, page: Vec<Listed>) -> Result<Vec<Listed>, FilesError> {
        let settled = self.inside.repository.now_ms().saturating_sub(GRACE_MS);
        let (unfinished, whole): (Vec<_>, Vec<_>) =
            page.into_iter().filter(|listed| listed.modified_ms <= settled).partition(|listed| listed.unfinished);
        let mut unknown = Vec::new();
        for (listed, pending) in [(whole, false), (unfinished, true)] {
            let ids: Vec<&str> = listed.iter().map(|listed| listed.id.as_str()).collect();
            let known = self.inside.repository.known_files(&ids, pending).await?;
            unknown.extend(listed.into_iter().filter(|listed| !known.contains(listed.id.as_str())));
        }
        Ok(unknown)
    }
}

impl Files {
    /// Marks the store as this database's, unless it is another's: no sweep of another then takes these blobs for its own.
    pub async fn mark_store(&self) -> Result<(), FilesError> {
        self.inside.is_our_store().await.map(drop)
    }
}

impl Inside {
    /// Whether the store is the one these rows belong to. One that nobody has marked becomes ours.
    async fn is_our_store(&self) -> Result<bool, FilesError> {
        let ours = self.repository.store_mark(&self.ids.hex128()).await?;
        let mut found = self.store.mark().await?;
        if found.is_none() {
            self.store.put_mark(&ours).await?;
            // Of two that begin at once, one has won.
            found = self.store.mark().await?;
        }
        if found.is_some_and(|mark| mark == ours) {
            return Ok(true);
        }
        tracing::warn!(
            "files.url names a store that belongs to another database: blobs that no row knows are left in it; if it is \
             this database's alone, delete its object `otari-file-store`"
        );
        Ok(false)
    }
}

fn tell(report: &mut SweepReport, id: &FileId, error: &StoreError) {
    report.failed = report.failed.saturating_add(1);
    if report.failed <= TOLD_FAILURES {
        tracing::warn!(file = id.as_str(), error = telemetry::chain(error), "a blob could not be removed");
    }
}

impl SweepReport {
    /// Each number with its name, as the metrics have it.
    fn counts(&self) -> [(&'static str, u64); 6] {
        [
            ("expired", self.expired),
            ("abandoned", self.abandoned),
            ("deleted", self.deleted),
            ("unknown", self.unknown),
            ("unfinished", self.unfinished),
            ("failed", self.failed),
        ]
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expired, abandoned, deleted, unknown, unfinished, failed } = self;
        write!(
            f,
            "{expired} expired, {abandoned} given up, {deleted} deleted before, {unknown} blobs without a row, \
             {unfinished} unfinished uploads; {failed} could not be removed"
        )
    }
}
