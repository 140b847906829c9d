//! What a workspace's files add up to, and what it may have.

use std::collections::BTreeMap;

use sqlx::AnyConnection;

use super::super::{Repository, RepositoryError};
use super::signed;

/// What a workspace may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileQuota {
    /// Bytes of all its files together.
    pub max_bytes: u64,
    /// Files.
    pub max_files: u64,
}

/// What a workspace has: files that are stored or on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileUsage {
    /// Bytes of all its files together; of those on their way, what they have taken of the quota.
    pub size_bytes: u64,
    /// Files.
    pub files: u64,
}

/// Whether a change was made that counts against a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// It was.
    Done,
    /// It would have gone past [`FileQuota::max_bytes`]; nothing has changed.
    TooManyBytes,
    /// It would have gone past [`FileQuota::max_files`]; nothing has changed.
    TooManyFiles,
    /// The file is not pending any more: the sweep or a deletion took it.
    Gone,
}

impl Repository {
    /// What a workspace has.
    pub async fn file_usage(&self, workspace_id: &str) -> Result<FileUsage, RepositoryError> {
        let row = sqlx::query_as::<_, (i64, i64)>("SELECT size_bytes, files FROM file_usage WHERE workspace_id = $1")
            .bind(workspace_id)
            .fetch_optional(&self.pool)
            .await?;
        let Some((size_bytes, files)) = row else { return Ok(FileUsage::default()) };
        let corrupt = |column| RepositoryError::Corrupt { table: "file_usage", column, id: workspace_id.to_owned() };
        Ok(FileUsage {
            size_bytes: u64::try_from(size_bytes).map_err(|_| corrupt("size_bytes"))?,
            files: u64::try_from(files).map_err(|_| corrupt("files"))?,
        })
    }
}

/// Counts one file more. `false` if the workspace has reached its quota.
pub(super) async fn add_file(
    change: &mut AnyConnection,
    workspace_id: &str,
    quota: FileQuota,
) -> Result<bool, RepositoryError> {
    let done = sqlx::query(
        "INSERT INTO file_usage (workspace_id, size_bytes, files) VALUES ($1, 0, 1) \
         ON CONFLICT (workspace_id) DO UPDATE SET files = file_usage.files + 1 \
         WHERE file_usage.size_bytes < $2 AND file_usage.files < $3",
    )
    .bind(workspace_id)
    .bind(signed(quota.max_bytes))
    .bind(signed(quota.max_files))
    .execute(&mut *change)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Counts so many bytes more, or less. `false` if that is more than the workspace may have.
pub(super) async fn add_bytes(
    change: &mut AnyConnection,
    workspace_id: &str,
    more: i64,
    quota: FileQuota,
) -> Result<bool, RepositoryError> {
    if more == 0 {
        return Ok(true);
    }
    let done = sqlx::query(
        "UPDATE file_usage SET size_bytes = size_bytes + $2 \
         WHERE workspace_id = $1 AND ($2 < 0 OR size_bytes + $2 <= $3)",
    )
    .bind(workspace_id)
    .bind(more)
    .bind(signed(quota.max_bytes))
    .execute(&mut *change)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Gives back what files had taken, each by workspace and size. Workspaces go in the order of their names, so that no
/// two transactions wait for each other.
pub(super) async fn release(
    change: &mut AnyConnection,
    files: impl IntoIterator<Item = (String, i64)>,
) -> Result<(), RepositoryError> {
    let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for (workspace_id, size_bytes) in files {
        let (bytes, count) = sums.entry(workspace_id).or_default();
        *bytes = bytes.saturating_add(size_bytes);
        *count = count.saturating_add(1);
    }
    for (workspace_id, (bytes, count)) in sums {
        sqlx::query("UPDATE file_usage SET size_bytes = size_bytes - $2, files = files - $3 WHERE workspace_id = $1")
            .bind(workspace_id)
            .bind(bytes)
            .bind(count)
            .execute(&mut *change)
            .await?;
    }
    Ok(())
}
