//! Sandbox sessions that are kept between requests, each a row.
//!
//! INVARIANT: whose a row is decides who finds it; what one request, sweep or eviction has claimed no other gets. Nothing here
//! is part of the snapshot, so nothing raises its revision.

use std::collections::BTreeSet;

use decision::identity::Identity;
use sqlx::AssertSqlSafe;

use super::{Repository, RepositoryError};

/// Ids that one statement asks for.
const IDS_PER_STATEMENT: usize = 500;
const COLUMNS: &str = "id, user_id, workspace_id, backend, session_id, idle_ms, created_at_ms, used_at_ms, \
                       expires_at_ms, ends_at_ms";

/// A session that is kept for its owner. Times are in milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRow {
    /// Its public id.
    pub id: String,
    /// Whose it is.
    pub owner: Identity,
    /// Where the session is.
    pub backend: String,
    /// The session's name there.
    pub session: String,
    /// How long it may stand unused, in milliseconds.
    pub idle_ms: i64,
    /// When the session was first kept.
    pub created_at_ms: i64,
    /// When a request last ended with it.
    pub used_at_ms: i64,
    /// When it ends if nobody goes on with it.
    pub expires_at_ms: i64,
    /// When it ends in any case.
    pub ends_at_ms: i64,
}

/// What became of a wish to have a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It is the caller's alone until the time it gave.
    Row(ContainerRow),
    /// Another has it, or had it just now.
    Busy,
    /// This owner has no such container, or no longer.
    Unknown,
}

type Row = (String, String, String, String, String, i64, i64, i64, i64, i64);

impl From<Row> for ContainerRow {
    fn from(row: Row) -> Self {
        let (id, user, workspace, backend, session, idle_ms, created_at_ms, used_at_ms, expires_at_ms, ends_at_ms) =
            row;
        let owner = Identity { user, workspace };
        Self { id, owner, backend, session, idle_ms, created_at_ms, used_at_ms, expires_at_ms, ends_at_ms }
    }
}

impl Repository {
    /// Keeps a container, which nobody has claimed.
    pub async fn put_container(&self, new: &ContainerRow) -> Result<(), RepositoryError> {
        let mut change = self.begin_write().await?;
        sqlx::query(AssertSqlSafe(format!(
            "INSERT INTO containers ({COLUMNS}, claimed_until_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0)"
        )))
        .bind(&new.id)
        .bind(&new.owner.user)
        .bind(&new.owner.workspace)
        .bind(&new.backend)
        .bind(&new.session)
        .bind(new.idle_ms)
        .bind(new.created_at_ms)
        .bind(new.used_at_ms)
        .bind(new.expires_at_ms)
        .bind(new.ends_at_ms)
        .execute(&mut *change)
        .await?;
        change.commit().await
    }

    /// Takes a container of this owner until `until_ms`, which is also what it is given back by.
    pub async fn claim_container(&self, owner: &Identity, id: &str, until_ms: i64) -> Result<Claimed, RepositoryError> {
        let now = self.clock.now_ms();
        let mut change = self.begin_write().await?;
        let row = sqlx::query_as::<_, Row>(AssertSqlSafe(format!(
            "UPDATE containers SET claimed_until_ms = $5 WHERE id = $1 AND user_id = $2 AND workspace_id = $3 \
             AND expires_at_ms > $4 AND claimed_until_ms <= $4 RETURNING {COLUMNS}"
        )))
        .bind(id)
        .bind(&owner.user)
        .bind(&owner.workspace)
        .bind(now)
        .bind(until_ms)
        .fetch_optional(&mut *change)
        .await?;
        change.commit().await?;
        match row {
            Some(row) => Ok(Claimed::Row(row.into())),
            // Given back since then, or not: there is something to wait for.
            None if self.container(owner, id).await?.is_some() => Ok(Claimed::Busy),
            None => Ok(Claimed::Unknown),
        }
    }

    /// Has a container until `to_ms` instead. `false` as in [`Self::release_container`].
    pub async fn renew_container(&self, id: &str, from_ms: i64, to_ms: i64) -> Result<bool, RepositoryError> {
        let mut change = self.begin_write().await?;
        let done = sqlx::query("UPDATE containers SET claimed_until_ms = $3 WHERE id = $1 AND claimed_until_ms = $2")
            .bind(id)
            .bind(from_ms)
            .bind(to_ms)
            .execute(&mut *change)
            .await?;
        change.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// Gives a container back to its owner. `false` if it was not claimed until just then: it has become another's, or is
    /// gone.
    pub async fn release_container(
        &self,
        id: &str,
        claimed_until_ms: i64,
        expires_at_ms: i64,
    ) -> Result<bool, RepositoryError> {
        let mut change = self.begin_write().await?;
        let done = sqlx::query(
            "UPDATE containers SET claimed_until_ms = 0, used_at_ms = $3, expires_at_ms = $4 \
             WHERE id = $1 AND claimed_until_ms = $2",
        )
        .bind(id)
        .bind(claimed_until_ms)
        .bind(self.clock.now_ms())
        .bind(expires_at_ms)
        .execute(&mut *change)
        .await?;
        change.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// Removes a container by who claimed it. `false` as in [`Self::release_container`].
    pub async fn remove_claimed_container(&self, id: &str, claimed_until_ms: i64) -> Result<bool, RepositoryError> {
        let mut change = self.begin_write().await?;
        let done = sqlx::query("DELETE FROM containers WHERE id = $1 AND claimed_until_ms = $2")
            .bind(id)
            .bind(claimed_until_ms)
            .execute(&mut *change)
            .await?;
        change.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// Removes a container that nobody has claimed. `false` if somebody has, or it is gone.
    pub async fn remove_idle_container(&self, id: &str) -> Result<bool, RepositoryError> {
        let mut change = self.begin_write().await?;
        let done = sqlx::query("DELETE FROM containers WHERE id = $1 AND claimed_until_ms <= $2")
            .bind(id)
            .bind(self.clock.now_ms())
            .execute(&mut *change)
            .await?;
        change.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// Removes that container of a backend which was not used for longest and which nobody has claimed.
    pub async fn evict_container(&self, backend: &str) -> Result<Option<ContainerRow>, RepositoryError> {
        let sql = format!(
            "DELETE FROM containers WHERE claimed_until_ms <= $2 AND id = (SELECT id FROM containers \
             WHERE backend = $1 AND claimed_until_ms <= $2 ORDER BY used_at_ms, id LIMIT 1 {}) RETURNING {COLUMNS}",
            self.skip_taken()
        );
        let mut change = self.begin_write().await?;
        let row = sqlx::query_as::<_, Row>(AssertSqlSafe(sql))
            .bind(backend)
            .bind(self.clock.now_ms())
            .fetch_optional(&mut *change)
            .await?;
        change.commit().await?;
        Ok(row.map(ContainerRow::from))
    }

    /// Takes up to `limit` containers until `until_ms` that have expired and that nobody has claimed.
    pub async fn claim_expired_containers(
        &self,
        until_ms: i64,
        limit: u32,
    ) -> Result<Vec<ContainerRow>, RepositoryError> {
        let sql = format!(
            "UPDATE containers SET claimed_until_ms = $2 WHERE claimed_until_ms <= $1 AND id IN (SELECT id \
             FROM containers WHERE expires_at_ms <= $1 AND claimed_until_ms <= $1 ORDER BY expires_at_ms, id \
             LIMIT {limit} {}) RETURNING {COLUMNS}",
            self.skip_taken()
        );
        let mut change = self.begin_write().await?;
        let rows = sqlx::query_as::<_, Row>(AssertSqlSafe(sql))
            .bind(self.clock.now_ms())
            .bind(until_ms)
            .fetch_all(&mut *change)
            .await?;
        change.commit().await?;
        Ok(rows.into_iter().map(ContainerRow::from).collect())
    }

    /// A container of this owner that has not expired, or that a request has.
    pub async fn container(&self, owner: &Identity, id: &str) -> Result<Option<ContainerRow>, RepositoryError> {
        let row = sqlx::query_as::<_, Row>(AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM containers WHERE id = $1 AND user_id = $2 AND workspace_id = $3 \
             AND (expires_at_ms > $4 OR claimed_until_ms > $4)"
        )))
        .bind(id)
        .bind(&owner.user)
        .bind(&owner.workspace)
        .bind(self.clock.now_ms())
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(ContainerRow::from))
    }

    /// Those of these ids that have a row.
    pub async fn known_containers(&self, ids: &[String]) -> Result<BTreeSet<String>, RepositoryError> {
        let mut known = BTreeSet::new();
        for some in ids.chunks(IDS_PER_STATEMENT) {
            let places: Vec<String> = (1..=some.len()).map(|number| format!("${number}")).collect();
            let sql = format!("SELECT id FROM containers WHERE id IN ({})", places.join(", "));
            let mut query = sqlx::query_scalar::<_, String>(AssertSqlSafe(sql));
            for id in some {
                query = query.bind(id);
            }
            known.extend(query.fetch_all(&self.pool).await?);
        }
        Ok(known)
    }
}
