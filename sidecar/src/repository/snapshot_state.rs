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
        // One statement: between two, another process might give another content the next version.
        let version: i64 = sqlx::query_scalar(
            "UPDATE snapshot_state SET version = version + CASE WHEN content_sha256 = $1 THEN 0 ELSE 1 END, \
             content_sha256 = $1 WHERE id = 1 RETURNING version",
        )
        .bind(content_sha256)
        .fetch_one(&self.pool)
        .await?;
        u64::try_from(version).map_err(|_| RepositoryError::Corrupt {
            table: "snapshot_state",
            column: "version",
            id: "1".to_owned(),
        })
    }
}
