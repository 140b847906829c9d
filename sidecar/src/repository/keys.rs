//! Otari keys: only their SHA-256 is kept.

use sqlx::Any;
use sqlx::any::AnyArguments;
use sqlx::query::Query;

use super::{Repository, RepositoryError};

const COLUMNS: &str = "id, name, user_id, workspace_id, created_at_ms, expires_at_ms, revoked_at_ms";

/// A key to be stored.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Its public id.
    pub id: String,
    /// What a person calls it.
    pub name: String,
    /// Whom it names; must exist.
    pub user_id: String,
    /// Where it belongs; must exist.
    pub workspace_id: String,
    /// SHA-256 of the key text, lower-case hex.
    pub sha256: String,
    /// When it stops working, milliseconds since the epoch.
    pub expires_at_ms: Option<i64>,
}

/// A key as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its public id.
    pub id: String,
    /// What a person calls it.
    pub name: String,
    /// Whom it names.
    pub user_id: String,
    /// Where it belongs.
    pub workspace_id: String,
    /// When it was made, milliseconds since the epoch.
    pub created_at_ms: i64,
    /// When it stops working.
    pub expires_at_ms: Option<i64>,
    /// When it was revoked.
    pub revoked_at_ms: Option<i64>,
}

/// A key that works, as the snapshot needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOwnerRow {
    /// SHA-256 of the key text, lower-case hex.
    pub sha256: String,
    /// Whom it names.
    pub user_id: String,
    /// Where it belongs.
    pub workspace_id: String,
    /// When it stops working.
    pub expires_at_ms: Option<i64>,
}

type KeyRow = (String, String, String, String, i64, Option<i64>, Option<i64>);

impl Repository {
    /// Stores a new key.
    pub async fn insert_key(&self, key: &NewKey) -> Result<(), RepositoryError> {
        let mut change = self.begin_change().await?;
        self.insertion(key, "").execute(&mut *change).await?;
        change.commit().await
    }

    /// Stores a key under a fixed id, in the place of another text there. A text that is known already, under whatever
    /// id, changes nothing: so a revoked key stays revoked.
    pub async fn put_key(&self, key: &NewKey) -> Result<(), RepositoryError> {
        let mut change = self.begin_change().await?;
        sqlx::query("DELETE FROM api_keys WHERE id = $1 AND sha256 <> $2")
            .bind(&key.id)
            .bind(&key.sha256)
            .execute(&mut *change)
            .await?;
        self.insertion(key, "ON CONFLICT DO NOTHING").execute(&mut *change).await?;
        change.commit().await
    }

    /// Stores a key under a fixed id unless there is one, of whatever text. `false` if there is.
    pub async fn offer_key(&self, key: &NewKey) -> Result<bool, RepositoryError> {
        let mut change = self.begin_change().await?;
        let done = self.insertion(key, "ON CONFLICT DO NOTHING").execute(&mut *change).await?;
        change.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// All keys, oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyRecord>, RepositoryError> {
        let rows = sqlx::query_as::<_, KeyRow>(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM api_keys ORDER BY created_at_ms, id"
        )))
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(KeyRecord::from).collect())
    }

    /// Keys that are neither revoked nor expired.
    pub async fn working_keys(&self) -> Result<Vec<KeyOwnerRow>, RepositoryError> {
        let rows = sqlx::query_as::<_, (String, String, String, Option<i64>)>(
            "SELECT sha256, user_id, workspace_id, expires_at_ms FROM api_keys \
             WHERE revoked_at_ms IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > $1)",
        )
        .bind(self.clock.now_ms())
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|(sha256, user_id, workspace_id, expires_at_ms)| KeyOwnerRow {
                sha256,
                user_id,
                workspace_id,
                expires_at_ms,
            })
            .collect())
    }

    /// Revokes a key for good. `false` if there is no such key; one revoked before stays as it is.
    pub async fn revoke_key(&self, id: &str) -> Result<bool, RepositoryError> {
        let mut change = self.begin_change().await?;
        let done = sqlx::query("UPDATE api_keys SET revoked_at_ms = COALESCE(revoked_at_ms, $2) WHERE id = $1")
            .bind(id)
            .bind(self.clock.now_ms())
            .execute(&mut *change)
            .await?;
        change.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    fn insertion<'k>(&self, key: &'k NewKey, on_conflict: &str) -> Query<'k, Any, AnyArguments> {
        sqlx::query(sqlx::AssertSqlSafe(format!(
            "INSERT INTO api_keys (id, name, user_id, workspace_id, sha256, created_at_ms, expires_at_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) {on_conflict}"
        )))
        .bind(&key.id)
        .bind(&key.name)
        .bind(&key.user_id)
        .bind(&key.workspace_id)
        .bind(&key.sha256)
        .bind(self.clock.now_ms())
        .bind(key.expires_at_ms)
    }
}

impl From<KeyRow> for KeyRecord {
    fn from(row: KeyRow) -> Self {
        let (id, name, user_id, workspace_id, created_at_ms, expires_at_ms, revoked_at_ms) = row;
        Self { id, name, user_id, workspace_id, created_at_ms, expires_at_ms, revoked_at_ms }
    }
}
