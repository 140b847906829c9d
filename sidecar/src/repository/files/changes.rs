//! The life of a file's row: pending, stored, deleted, gone.
//!
//! INVARIANT: the first statement of each transaction writes, so that none upgrades from reading to writing; and a file's
//! row is locked before its workspace's usage, so that no two transactions wait for each other.

use decision::identity::Identity;
use sqlx::{AnyConnection, AssertSqlSafe};

use super::super::{Repository, RepositoryError};
use super::usage::{self, Counted, FileQuota};
use super::{BY_ID, IDS_PER_STATEMENT, NEVER, placeholders, signed};

/// How long nobody may hear of a pending file before it counts as given up. Whoever writes one says so in time.
pub const GRACE_MS: i64 = 3_600_000;
/// How long whoever marked a file deleted has to remove its blob before the sweep does.
const REMOVAL_MS: i64 = 60_000;
/// How long the place of a file that is gone is known, for cursors that name it.
const PLACE_MS: i64 = 86_400_000;
/// Expired files of a workspace that one who needs room puts out of sight at most.
const MAKE_ROOM: i64 = 1000;

/// What is known of a file when its blob is whole.
#[derive(Debug, Clone)]
pub struct StoredFile<'a> {
    /// What its owner calls it.
    pub filename: &'a str,
    /// Its media type.
    pub mime_type: &'a str,
    /// What it is for, as the wire says it.
    pub purpose: &'a str,
    /// Bytes of its content.
    pub size_bytes: u64,
    /// SHA-256 of its content, lower-case hex.
    pub sha256: &'a str,
    /// How many milliseconds after it was stored it stops being visible; `None`: never.
    pub lifetime_ms: Option<i64>,
}

impl Repository {
    /// Makes the row of a file whose bytes are yet to come.
    pub async fn begin_file(&self, owner: &Identity, id: &str, quota: FileQuota) -> Result<Counted, RepositoryError> {
        match self.try_begin_file(owner, id, quota).await? {
            Counted::TooManyBytes | Counted::TooManyFiles if self.make_room(&owner.workspace).await? => {
                self.try_begin_file(owner, id, quota).await
            }
            counted => Ok(counted),
        }
    }

    async fn try_begin_file(&self, owner: &Identity, id: &str, quota: FileQuota) -> Result<Counted, RepositoryError> {
        let now = self.clock.now_ms();
        let mut change = self.begin_write().await?;
        if !usage::add_file(&mut change, &owner.workspace, quota).await? {
            change.rollback().await?;
            let used = self.file_usage(&owner.workspace).await?;
            let full = used.files >= quota.max_files;
            return Ok(if full { Counted::TooManyFiles } else { Counted::TooManyBytes });
        }
        sqlx::query(
            "INSERT INTO files (id, user_id, workspace_id, state, filename, mime_type, purpose, size_bytes, sha256, \
             created_at_ms, sweep_at_ms) VALUES ($1, $2, $3, 'pending', '', '', '', 0, '', $4, $5)",
        )
        .bind(id)
        .bind(&owner.user)
        .bind(&owner.workspace)
        .bind(now)
        .bind(now.saturating_add(GRACE_MS))
        .execute(&mut *change)
        .await?;
        change.commit().await?;
        Ok(Counted::Done)
    }

    /// Takes so many bytes more of the quota for a pending file, and says that it is still being written. With 0 only that.
    pub async fn reserve_file(
        &self,
        owner: &Identity,
        id: &str,
        more: u64,
        quota: FileQuota,
    ) -> Result<Counted, RepositoryError> {
        match self.try_reserve_file(owner, id, more, quota).await? {
            Counted::TooManyBytes if self.make_room(&owner.workspace).await? => {
                self.try_reserve_file(owner, id, more, quota).await
            }
            counted => Ok(counted),
        }
    }

    async fn try_reserve_file(
        &self,
        owner: &Identity,
        id: &str,
        more: u64,
        quota: FileQuota,
    ) -> Result<Counted, RepositoryError> {
        let more = signed(more);
        let mut change = self.begin_write().await?;
        let done = sqlx::query(
            "UPDATE files SET size_bytes = size_bytes + $2, sweep_at_ms = $3 WHERE id = $1 AND state = 'pending'",
        )
        .bind(id)
        .bind(more)
        .bind(self.clock.now_ms().saturating_add(GRACE_MS))
        .execute(&mut *change)
        .await?;
        if done.rows_affected() == 0 {
            change.rollback().await?;
            return Ok(Counted::Gone);
        }
        if !usage::add_bytes(&mut change, &owner.workspace, more, quota).await? {
            change.rollback().await?;
            return Ok(Counted::TooManyBytes);
        }
        change.commit().await?;
        Ok(Counted::Done)
    }

    /// Makes a pending file visible, now that its blob is whole. `reserved`: what it has taken of the quota. Answers with
    /// the time it was stored at.
    pub async fn store_file(
        &self,
        owner: &Identity,
        id: &str,
        file: &StoredFile<'_>,
        reserved: u64,
        quota: FileQuota,
    ) -> Result<(Counted, i64), RepositoryError> {
        match self.try_store_file(owner, id, file, reserved, quota).await? {
            (Counted::TooManyBytes, _) if self.make_room(&owner.workspace).await? => {
                self.try_store_file(owner, id, file, reserved, quota).await
            }
            counted => Ok(counted),
        }
    }

    async fn try_store_file(
        &self,
        owner: &Identity,
        id: &str,
        file: &StoredFile<'_>,
        reserved: u64,
        quota: FileQuota,
    ) -> Result<(Counted, i64), RepositoryError> {
        let now = self.clock.now_ms();
        let mut change = self.begin_write().await?;
        let done = sqlx::query(
            "UPDATE files SET state = 'stored', filename = $2, mime_type = $3, purpose = $4, size_bytes = $5, \
             sha256 = $6, created_at_ms = $7, sweep_at_ms = $8 WHERE id = $1 AND state = 'pending'",
        )
        .bind(id)
        .bind(file.filename)
        .bind(file.mime_type)
        .bind(file.purpose)
        .bind(signed(file.size_bytes))
        .bind(file.sha256)
        .bind(now)
        .bind(file.lifetime_ms.map_or(NEVER, |time| now.saturating_add(time)))
        .execute(&mut *change)
        .await?;
        if done.rows_affected() == 0 {
            change.rollback().await?;
            return Ok((Counted::Gone, now));
        }
        let more = signed(file.size_bytes).saturating_sub(signed(reserved));
        if !usage::add_bytes(&mut change, &owner.workspace, more, quota).await? {
            change.rollback().await?;
            return Ok((Counted::TooManyBytes, now));
        }
        change.commit().await?;
        Ok((Counted::Done, now))
    }

    /// Takes a visible file out of sight; its blob is the caller's to remove. `false` if there is no such file.
    pub async fn delete_file(&self, owner: &Identity, id: &str) -> Result<bool, RepositoryError> {
        let now = self.clock.now_ms();
        let mut change = self.begin_write().await?;
        let sql = format!(
            "UPDATE files SET state = 'deleted', sweep_at_ms = $5 \
             WHERE {BY_ID} AND state = 'stored' AND sweep_at_ms > $3 AND id = $4 RETURNING workspace_id, size_bytes"
        );
        let taken = sqlx::query_as::<_, (String, i64)>(AssertSqlSafe(sql))
            .bind(&owner.user)
            .bind(&owner.workspace)
            .bind(now)
            .bind(id)
            .bind(now.saturating_add(REMOVAL_MS))
            .fetch_optional(&mut *change)
            .await?;
        let deleted = taken.is_some();
        usage::release(&mut change, taken).await?;
        change.commit().await?;
        Ok(deleted)
    }

    /// Takes a file back that its writer could not finish, or nobody waited for; its blob is the caller's to remove, and
    /// then its row. One that is deleted already is fine.
    pub async fn abandon_file(&self, id: &str) -> Result<(), RepositoryError> {
        let mut change = self.begin_write().await?;
        let taken = sqlx::query_as::<_, (String, i64)>(
            "UPDATE files SET state = 'deleted', sweep_at_ms = $2 WHERE id = $1 AND state <> 'deleted' \
             RETURNING workspace_id, size_bytes",
        )
        .bind(id)
        .bind(self.clock.now_ms().saturating_add(REMOVAL_MS))
        .fetch_optional(&mut *change)
        .await?;
        usage::release(&mut change, taken).await?;
        change.commit().await
    }

    /// Removes the rows of deleted files whose blobs are gone. Where they stood in lists is known for [`PLACE_MS`] more.
    pub async fn forget_files(&self, ids: &[&str]) -> Result<(), RepositoryError> {
        let forget_at_ms = self.clock.now_ms().saturating_add(PLACE_MS);
        for some in ids.chunks(IDS_PER_STATEMENT) {
            let mut change = self.begin_write().await?;
            let gone = format!("state || '' = 'deleted' AND id IN ({})", placeholders(1, some.len()));
            // What was never stored, and so has no hash, stood nowhere.
            let keep = format!(
                "INSERT INTO file_places (id, user_id, workspace_id, created_at_ms, forget_at_ms) \
                 SELECT id, user_id, workspace_id, created_at_ms, {forget_at_ms} FROM files WHERE {gone} AND sha256 <> '' \
                 ON CONFLICT (id) DO NOTHING"
            );
            for sql in [keep, format!("DELETE FROM files WHERE {gone}")] {
                let query = some.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, id| query.bind(*id));
                query.execute(&mut *change).await?;
            }
            change.commit().await?;
        }
        Ok(())
    }

    /// Forgets up to `limit` places in lists whose time is over; how many there were.
    pub async fn forget_file_places(&self, limit: u32) -> Result<u64, RepositoryError> {
        let sql = format!(
            "DELETE FROM file_places WHERE id IN (SELECT id FROM file_places WHERE forget_at_ms <= $1 LIMIT {limit})"
        );
        let mut change = self.begin_write().await?;
        let done = sqlx::query(AssertSqlSafe(sql)).bind(self.clock.now_ms()).execute(&mut *change).await?;
        change.commit().await?;
        Ok(done.rows_affected())
    }

    /// Takes all files of a workspace out of sight; their blobs are the sweep's to remove.
    pub(in crate::repository) async fn delete_files_of_workspace(
        &self,
        change: &mut AnyConnection,
        workspace_id: &str,
    ) -> Result<(), RepositoryError> {
        // The usage first: who begins a file counts it there before there is a row of it.
        sqlx::query("DELETE FROM file_usage WHERE workspace_id = $1").bind(workspace_id).execute(&mut *change).await?;
        sqlx::query(
            "UPDATE files SET state = 'deleted', sweep_at_ms = $2 WHERE workspace_id = $1 AND state <> 'deleted'",
        )
        .bind(workspace_id)
        .bind(self.clock.now_ms())
        .execute(&mut *change)
        .await?;
        Ok(())
    }

    /// Takes out of sight what has expired in a workspace, which until then counts against its quota. `false` if nothing
    /// has.
    async fn make_room(&self, workspace_id: &str) -> Result<bool, RepositoryError> {
        let now = self.clock.now_ms();
        let mut change = self.begin_write().await?;
        let sql = format!(
            "UPDATE files SET state = 'deleted', sweep_at_ms = $2 \
             WHERE state || '' <> 'deleted' AND sweep_at_ms + 0 <= $2 AND id IN (SELECT id FROM files WHERE workspace_id = $1 AND state <> 'deleted' \
             AND sweep_at_ms < {NEVER} AND sweep_at_ms <= $2 ORDER BY sweep_at_ms LIMIT {MAKE_ROOM} {}) \
             RETURNING workspace_id, size_bytes",
            self.skip_taken()
        );
        let taken = sqlx::query_as::<_, (String, i64)>(AssertSqlSafe(sql))
            .bind(workspace_id)
            .bind(now)
            .fetch_all(&mut *change)
            .await?;
        let any = !taken.is_empty();
        usage::release(&mut change, taken).await?;
        change.commit().await?;
        Ok(any)
    }
}
