//! What the sweep takes: rows that are due, and turns at looking through the store.
//!
//! INVARIANT: what one process has taken no other takes, until the time it was given is over. What is to be taken is found in
//! an index, and then only looked at by its id: the conditions are said again, for another process may have been quicker, but so
//! that no database takes an index for them once more, and reads all that is due for each batch.

use std::collections::BTreeSet;

use sqlx::AssertSqlSafe;

use super::super::{Repository, RepositoryError};
use super::{IDS_PER_STATEMENT, NEVER, placeholders, usage};

/// How long who takes a deleted file has to remove its blob and its row, before another may try.
const CLAIM_MS: i64 = 900_000;

/// A file that was taken out of sight because its time had come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetiredFile {
    /// Its id.
    pub id: String,
    /// It had been stored, and expired; else its upload was given up.
    pub was_stored: bool,
}

/// How many rows are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DueFiles {
    /// Stored files that have expired.
    pub expired: u64,
    /// Uploads that nobody has heard of for a grace.
    pub abandoned: u64,
    /// Deleted files whose blob or row is still there.
    pub deleted: u64,
}

impl Repository {
    /// Takes up to `limit` files out of sight that have expired or were given up. The blobs and rows are the caller's to
    /// remove, and nobody else's for a while.
    pub async fn retire_due_files(&self, limit: u32) -> Result<Vec<RetiredFile>, RepositoryError> {
        let now = self.clock.now_ms();
        let sql = format!(
            "UPDATE files SET state = 'deleted', sweep_at_ms = $2 \
             WHERE state || '' <> 'deleted' AND sweep_at_ms + 0 <= $1 AND id IN (SELECT id FROM files WHERE state <> 'deleted' AND sweep_at_ms < {NEVER} AND sweep_at_ms <= $1 \
             ORDER BY sweep_at_ms, id LIMIT {limit} {}) RETURNING id, workspace_id, size_bytes, sha256",
            self.skip_taken()
        );
        let mut change = self.begin_write().await?;
        let taken = sqlx::query_as::<_, (String, String, i64, String)>(AssertSqlSafe(sql))
            .bind(now)
            .bind(now.saturating_add(CLAIM_MS))
            .fetch_all(&mut *change)
            .await?;
        usage::release(&mut change, taken.iter().map(|(_, workspace, size, _)| (workspace.clone(), *size))).await?;
        change.commit().await?;
        // A pending file has no hash yet.
        Ok(taken.into_iter().map(|(id, _, _, sha256)| RetiredFile { id, was_stored: !sha256.is_empty() }).collect())
    }

    /// Takes up to `limit` deleted files whose blob and row are still there, those first that have waited longest.
    pub async fn claim_deleted_files(&self, limit: u32) -> Result<Vec<String>, RepositoryError> {
        let now = self.clock.now_ms();
        let sql = format!(
            "UPDATE files SET sweep_at_ms = $2 \
             WHERE state || '' = 'deleted' AND sweep_at_ms + 0 <= $1 AND id IN (SELECT id FROM files WHERE state = 'deleted' AND sweep_at_ms <= $1 \
             ORDER BY sweep_at_ms, id LIMIT {limit} {}) RETURNING id",
            self.skip_taken()
        );
        let mut change = self.begin_write().await?;
        let ids = sqlx::query_scalar(AssertSqlSafe(sql)).bind(now).bind(now.saturating_add(CLAIM_MS));
        let ids = ids.fetch_all(&mut *change).await?;
        change.commit().await?;
        Ok(ids)
    }

    /// What the sweep would take now.
    pub async fn due_files(&self) -> Result<DueFiles, RepositoryError> {
        let rows = sqlx::query_as::<_, (String, i64)>(
            "SELECT state, COUNT(*) FROM files WHERE sweep_at_ms <= $1 GROUP BY state",
        )
        .bind(self.clock.now_ms())
        .fetch_all(&self.pool)
        .await?;
        let mut due = DueFiles::default();
        for (state, count) in rows {
            let count = u64::try_from(count).unwrap_or_default();
            match state.as_str() {
                "stored" => due.expired = count,
                "pending" => due.abandoned = count,
                _ => due.deleted = count,
            }
        }
        Ok(due)
    }

    /// Those of these ids that have a row, of whatever state; `pending`: only those that are being written.
    pub async fn known_files(&self, ids: &[&str], pending: bool) -> Result<BTreeSet<String>, RepositoryError> {
        let mut known = BTreeSet::new();
        for some in ids.chunks(IDS_PER_STATEMENT) {
            let state = if pending { "AND state = 'pending'" } else { "" };
            let sql = format!("SELECT id FROM files WHERE id IN ({}) {state}", placeholders(1, some.len()));
            let mut query = sqlx::query_scalar::<_, String>(AssertSqlSafe(sql));
            for id in some {
                query = query.bind(*id);
            }
            known.extend(query.fetch_all(&self.pool).await?);
        }
        Ok(known)
    }

    /// The mark of the store that these files are in; `new` if they have none yet.
    pub async fn store_mark(&self, new: &str) -> Result<String, RepositoryError> {
        sqlx::query(
            // As after a round of long ago: the first one too has to be begun, which notes its time.
            "INSERT INTO file_store (id, mark, round_at_ms, next_shard) VALUES (1, $1, 0, 1000000) \
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(new)
        .execute(&self.pool)
        .await?;
        Ok(sqlx::query_scalar("SELECT mark FROM file_store WHERE id = 1").fetch_one(&self.pool).await?)
    }

    /// The next of `shards` shards to look through. `None` when the round is over; another one begins when the last began
    /// `distance_ms` ago.
    pub async fn take_shard(&self, shards: u32, distance_ms: i64) -> Result<Option<u32>, RepositoryError> {
        let next = sqlx::query_scalar::<_, i64>(
            "UPDATE file_store SET next_shard = next_shard + 1 WHERE id = 1 AND next_shard < $1 RETURNING next_shard",
        )
        .bind(i64::from(shards))
        .fetch_optional(&self.pool)
        .await?;
        let now = self.clock.now_ms();
        let next = match next {
            Some(next) => Some(next),
            None => {
                sqlx::query_scalar(
                    "UPDATE file_store SET next_shard = 1, round_at_ms = $2 \
                     WHERE id = 1 AND next_shard >= $1 AND round_at_ms <= $3 RETURNING next_shard",
                )
                .bind(i64::from(shards))
                .bind(now)
                .bind(now.saturating_sub(distance_ms))
                .fetch_optional(&self.pool)
                .await?
            }
        };
        Ok(next.and_then(|next| u32::try_from(next.saturating_sub(1)).ok()))
    }

    /// The time by which rows are due.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }
}
