//! Users and workspaces.

use super::{Repository, RepositoryError};

/// A workspace: what keys belong to and policies apply to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Workspace {
    /// Its name, chosen by whoever made it.
    pub id: String,
    /// When it was made, milliseconds since the epoch.
    pub created_at_ms: i64,
}

impl Repository {
    /// Makes a user unless there is one of this name.
    pub async fn ensure_user(&self, id: &str) -> Result<(), RepositoryError> {
        let mut change = self.begin_change().await?;
        sqlx::query("INSERT INTO users (id, created_at_ms) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING")
            .bind(id)
            .bind(self.clock.now_ms())
            .execute(&mut *change)
            .await?;
        change.commit().await
    }

    /// Makes a workspace. `false` if there is one of this name already.
    pub async fn create_workspace(&self, id: &str) -> Result<bool, RepositoryError> {
        let mut change = self.begin_change().await?;
        let done =
            sqlx::query("INSERT INTO workspaces (id, created_at_ms) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING")
                .bind(id)
                .bind(self.clock.now_ms())
                .execute(&mut *change)
                .await?;
        change.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// A workspace by name.
    pub async fn workspace(&self, id: &str) -> Result<Option<Workspace>, RepositoryError> {
        let row = sqlx::query_as::<_, (String, i64)>("SELECT id, created_at_ms FROM workspaces WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(Workspace::from))
    }

    /// Up to `limit` workspaces in order of their names, those after `after`.
    pub async fn workspaces(&self, after: &str, limit: u32) -> Result<Vec<Workspace>, RepositoryError> {
        let rows = sqlx::query_as::<_, (String, i64)>(
            "SELECT id, created_at_ms FROM workspaces WHERE id > $1 ORDER BY id LIMIT $2",
        )
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(Workspace::from).collect())
    }

    /// Removes a workspace with its keys and its policy, and takes its files and containers out of sight. `false` if there
    /// was none.
    pub async fn delete_workspace(&self, id: &str) -> Result<bool, RepositoryError> {
        let mut change = self.begin_change().await?;
        self.delete_files_of_workspace(&mut change, id).await?;
        // The sweep finds them, and ends their sessions.
        sqlx::query("UPDATE containers SET expires_at_ms = 0, ends_at_ms = 0 WHERE workspace_id = $1")
            .bind(id)
            .execute(&mut *change)
            .await?;
        let done = sqlx::query("DELETE FROM workspaces WHERE id = $1").bind(id).execute(&mut *change).await?;
        change.commit().await?;
        Ok(done.rows_affected() == 1)
    }
}

impl From<(String, i64)> for Workspace {
    fn from((id, created_at_ms): (String, i64)) -> Self {
        Self { id, created_at_ms }
    }
}
