//! The one row that tells every process when something changed, and gives each content of the snapshot its version.

use super::{Repository, RepositoryError};

impl Repository {
    /// Makes the row. The first version is the clock's: it is then above every version of a database that stood in this
    /// place before, which a running filter may still know.
    pub(super) async fn ensure_snapshot_state(&self) -> Result<(), RepositoryError> {
        sqlx::query(
            "INSERT INTO snapshot_state (id, revision, version, content_sha256) VALUES (1, 0, $1, '') \
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(self.clock.now_ms())
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Rises with every write, in whichever process.
    pub async fn revision(&self) -> Result<i64, RepositoryError> {
        Ok(sqlx::query_scalar("SELECT revision FROM snapshot_state WHERE id = 1").fetch_one(&self.pool).await?)
    }

    /// The version of this content: the last one if the content is the last one's, else one more.
    pub async fn version_of(&self, content_sha256: &str) -> Result<u64, RepositoryError> {
        let mut change = self.pool.begin().await?;
        sqlx::query(
            "UPDATE snapshot_state SET version = version + 1, content_sha256 = $1 WHERE id = 1 AND content_sha256 <> $1",
        )
        .bind(content_sha256)
        .execute(&mut *change)
        .await?;
        let version: i64 =
            sqlx::query_scalar("SELECT version FROM snapshot_state WHERE id = 1").fetch_one(&mut *change).await?;
        change.commit().await?;
        u64::try_from(version).map_err(|_| RepositoryError::Corrupt {
            table: "snapshot_state",
            column: "version",
            id: "1".to_owned(),
        })
    }
}
