//! Answers on the Responses wire that a later request may go on from.
//!
//! INVARIANT: found by who was answered alone; a workspace that fills its share pushes out its own oldest. Nothing here is
//! part of the snapshot, so nothing raises its revision.

use std::collections::BTreeMap;

use decision::identity::Identity;
use sqlx::AnyConnection;

use super::{Repository, RepositoryError};

/// Rows that one write may remove to make room for its own.
const MAX_REMOVED: i64 = 1024;
/// What an answer counts for beside its texts. So a share bounds rows too, and [`MAX_REMOVED`] of them make room for the
/// largest answer at the defaults.
pub(super) const ROW_BYTES: i64 = 8192;
/// Items of an answer that are found by their ids; one with more is not kept.
const MAX_ITEMS: usize = 10_000;
/// Items that one statement writes; databases bound the parameters of one.
const ITEMS_AT_ONCE: usize = 500;
/// Answers that one statement writes.
const ROWS_AT_ONCE: usize = 64;
/// Workspaces that are looked at in one sweep, and rows of each.
const MAX_SWEPT: i64 = 1000;

/// An answer to be kept.
#[derive(Debug, Clone)]
pub struct NewResponse {
    /// Its public id.
    pub id: String,
    /// The answer it went on from.
    pub previous_id: Option<String>,
    /// The request's `input`, as JSON.
    pub input: String,
    /// The answer's items, as a JSON array.
    pub output: String,
    /// Ids of those items that no other answer can have.
    pub item_ids: Vec<String>,
    /// How its caller saw it; `None` where nobody is told that again.
    pub told: Option<Told>,
    /// When it is forgotten, milliseconds since the epoch.
    pub expires_at_ms: i64,
}

impl NewResponse {
    /// What it counts for of its workspace's share.
    fn size_bytes(&self) -> i64 {
        let told = self.told.as_ref().map_or(0, Told::size);
        let previous = self.previous_id.as_ref().map_or(0, String::len);
        let texts = [self.input.len(), self.output.len(), previous, told];
        let size = texts.into_iter().fold(0, usize::saturating_add);
        i64::try_from(size).unwrap_or(i64::MAX).saturating_add(ROW_BYTES)
    }
}

/// How a caller saw an answer, where that is not in its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The response object without its items, as JSON.
    pub envelope: String,
    /// Items that were shown in another form than they are kept in, by their place: a JSON object.
    pub shown: Option<String>,
}

impl Told {
    /// What it takes, in bytes.
    pub fn size(&self) -> usize {
        self.envelope.len().saturating_add(self.shown.as_ref().map_or(0, String::len))
    }
}

/// A kept answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// Its public id.
    pub id: String,
    /// The answer it went on from.
    pub previous_id: Option<String>,
    /// The request's `input`, as JSON.
    pub input: String,
    /// The answer's items, as a JSON array.
    pub output: String,
}

type Row = (String, Option<String>, String, String);

impl From<Row> for StoredResponse {
    fn from((id, previous_id, input, output): Row) -> Self {
        Self { id, previous_id, input, output }
    }
}

impl Repository {
    /// Keeps answers, all or none, and forgets the oldest of their workspaces that then have more than `workspace_bytes`
    /// each. `false` if they are not kept: they have too many items, or what one write may remove does not make enough
    /// room.
    pub async fn put_responses(
        &self,
        answers: &[(Identity, NewResponse)],
        workspace_bytes: i64,
    ) -> Result<bool, RepositoryError> {
        if answers.iter().any(|(_, new)| new.item_ids.len() > MAX_ITEMS) {
            return Ok(false);
        }
        // In the order of their names, so that no two transactions wait for each other.
        let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
        for (owner, new) in answers {
            let sum = sums.entry(&owner.workspace).or_default();
            *sum = sum.saturating_add(new.size_bytes());
        }
        let mut change = self.begin_write().await?;
        let mut excesses = Vec::with_capacity(sums.len());
        for (workspace, size) in sums {
            let used = add_usage(&mut change, workspace, size).await?;
            excesses.push((workspace, used.saturating_sub(workspace_bytes)));
        }
        put_rows(&mut change, answers, self.clock.now_ms()).await?;
        put_items(&mut change, answers).await?;
        for (workspace, excess) in excesses {
            if forget(&mut change, workspace, excess, answers).await? < excess {
                change.rollback().await?;
                return Ok(false);
            }
        }
        change.commit().await?;
        Ok(true)
    }

    /// An answer that this owner was given, and that has not expired.
    pub async fn response(&self, owner: &Identity, id: &str) -> Result<Option<StoredResponse>, RepositoryError> {
        self.find_response("r.id = $1", owner, id).await
    }

    /// The answer that an item is part of.
    pub async fn response_of_item(
        &self,
        owner: &Identity,
        item: &str,
    ) -> Result<Option<StoredResponse>, RepositoryError> {
        self.find_response("r.id = (SELECT response_id FROM stored_items WHERE id = $1)", owner, item).await
    }

    /// How an answer was told, and its items as they are kept. `None` where that is not known, or not to this owner.
    pub async fn told_response(&self, owner: &Identity, id: &str) -> Result<Option<(Told, String)>, RepositoryError> {
        let row = sqlx::query_as::<_, (Option<String>, Option<String>, String)>(
            "SELECT envelope, shown, output FROM stored_responses \
             WHERE id = $1 AND user_id = $2 AND workspace_id = $3 AND expires_at_ms > $4",
        )
        .bind(id)
        .bind(&owner.user)
        .bind(&owner.workspace)
        .bind(self.clock.now_ms())
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.and_then(|(envelope, shown, output)| Some((Told { envelope: envelope?, shown }, output))))
    }

    /// Removes an answer that this owner was given; false if there is none.
    pub async fn forget_response(&self, owner: &Identity, id: &str) -> Result<bool, RepositoryError> {
        let mut change = self.begin_write().await?;
        lock_usage(&mut change, &owner.workspace).await?;
        let size = sqlx::query_scalar::<_, i64>(
            "SELECT size_bytes FROM stored_responses \
             WHERE id = $1 AND user_id = $2 AND workspace_id = $3 AND expires_at_ms > $4",
        )
        .bind(id)
        .bind(&owner.user)
        .bind(&owner.workspace)
        .bind(self.clock.now_ms())
        .fetch_optional(&mut *change)
        .await?;
        if let Some(size) = size {
            remove(&mut change, &owner.workspace, id, size).await?;
        }
        change.commit().await?;
        Ok(size.is_some())
    }

    /// Removes answers that nobody can find any more: how many. What is left over goes the next time.
    ///
    /// A workspace's usage is locked before its rows, as in [`Self::put_responses`], so that two never wait for each other.
    pub async fn forget_expired_responses(&self) -> Result<u64, RepositoryError> {
        let now = self.clock.now_ms();
        let workspaces = sqlx::query_scalar::<_, String>(
            "SELECT DISTINCT workspace_id FROM stored_responses WHERE expires_at_ms <= $1 LIMIT $2",
        )
        .bind(now)
        .bind(MAX_SWEPT)
        .fetch_all(&self.pool)
        .await?;
        let mut count: u64 = 0;
        for workspace in workspaces {
            let mut change = self.begin_write().await?;
            lock_usage(&mut change, &workspace).await?;
            let expired = sqlx::query_as::<_, (String, i64)>(
                "SELECT id, size_bytes FROM stored_responses WHERE workspace_id = $1 AND expires_at_ms <= $2 LIMIT $3",
            )
            .bind(&workspace)
            .bind(now)
            .bind(MAX_SWEPT)
            .fetch_all(&mut *change)
            .await?;
            for (id, size) in expired {
                remove(&mut change, &workspace, &id, size).await?;
                count = count.saturating_add(1);
            }
            change.commit().await?;
        }
        Ok(count)
    }

    async fn find_response(
        &self,
        which: &str,
        owner: &Identity,
        id: &str,
    ) -> Result<Option<StoredResponse>, RepositoryError> {
        let row = sqlx::query_as::<_, Row>(sqlx::AssertSqlSafe(format!(
            "SELECT r.id, r.previous_id, r.input, r.output FROM stored_responses r \
             WHERE {which} AND r.user_id = $2 AND r.workspace_id = $3 AND r.expires_at_ms > $4"
        )))
        .bind(id)
        .bind(&owner.user)
        .bind(&owner.workspace)
        .bind(self.clock.now_ms())
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(StoredResponse::from))
    }
}

/// Counts so many bytes more: how many it are then.
async fn add_usage(change: &mut AnyConnection, workspace: &str, size: i64) -> Result<i64, RepositoryError> {
    let used = sqlx::query_scalar::<_, i64>(
        "INSERT INTO stored_response_usage (workspace_id, size_bytes) VALUES ($1, $2) ON CONFLICT (workspace_id) \
         DO UPDATE SET size_bytes = stored_response_usage.size_bytes + excluded.size_bytes RETURNING size_bytes",
    );
    Ok(used.bind(workspace).bind(size).fetch_one(change).await?)
}

async fn put_rows(
    change: &mut AnyConnection,
    answers: &[(Identity, NewResponse)],
    now_ms: i64,
) -> Result<(), RepositoryError> {
    for some in answers.chunks(ROWS_AT_ONCE) {
        let insert = format!(
            "INSERT INTO stored_responses (id, user_id, workspace_id, previous_id, input, output, size_bytes, \
             created_at_ms, expires_at_ms, envelope, shown) VALUES {}",
            rows(some.len(), 11)
        );
        let mut query = sqlx::query(sqlx::AssertSqlSafe(insert));
        for (owner, new) in some {
            query = query
                .bind(&new.id)
                .bind(&owner.user)
                .bind(&owner.workspace)
                .bind(new.previous_id.as_deref())
                .bind(&new.input)
                .bind(&new.output)
                .bind(new.size_bytes())
                .bind(now_ms)
                .bind(new.expires_at_ms)
                .bind(new.told.as_ref().map(|told| told.envelope.as_str()))
                .bind(new.told.as_ref().and_then(|told| told.shown.as_deref()));
        }
        query.execute(&mut *change).await?;
    }
    Ok(())
}

async fn put_items(change: &mut AnyConnection, answers: &[(Identity, NewResponse)]) -> Result<(), RepositoryError> {
    let items: Vec<_> = answers.iter().flat_map(|(_, new)| new.item_ids.iter().map(|item| (item, &new.id))).collect();
    for some in items.chunks(ITEMS_AT_ONCE) {
        let insert = format!("INSERT INTO stored_items (id, response_id) VALUES {}", rows(some.len(), 2));
        let mut query = sqlx::query(sqlx::AssertSqlSafe(insert));
        for (item, response) in some {
            query = query.bind(*item).bind(*response);
        }
        query.execute(&mut *change).await?;
    }
    Ok(())
}

/// The places of so many rows: `($1, $2), ($3, $4)`.
fn rows(count: usize, columns: usize) -> String {
    let row = |row: usize| {
        let places: Vec<_> = (1..=columns).map(|column| format!("${}", row * columns + column)).collect();
        format!("({})", places.join(", "))
    };
    (0..count).map(row).collect::<Vec<_>>().join(", ")
}

/// Removes the oldest of a workspace, none of the `newest`, until `excess` bytes are gone, or [`MAX_REMOVED`] rows: how many
/// bytes it were.
async fn forget(
    change: &mut AnyConnection,
    workspace: &str,
    excess: i64,
    newest: &[(Identity, NewResponse)],
) -> Result<i64, RepositoryError> {
    let mut freed: i64 = 0;
    if excess <= 0 {
        return Ok(freed);
    }
    let oldest = sqlx::query_as::<_, (String, i64)>(
        "SELECT id, size_bytes FROM stored_responses WHERE workspace_id = $1 ORDER BY created_at_ms, id LIMIT $2",
    )
    .bind(workspace)
    .bind(MAX_REMOVED)
    .fetch_all(&mut *change)
    .await?;
    for (id, size) in oldest.into_iter().filter(|(id, _)| newest.iter().all(|(_, new)| new.id != *id)) {
        if freed >= excess {
            break;
        }
        remove(change, workspace, &id, size).await?;
        freed = freed.saturating_add(size);
    }
    Ok(freed)
}

/// Before any of a workspace's rows is touched.
async fn lock_usage(change: &mut AnyConnection, workspace: &str) -> Result<(), RepositoryError> {
    sqlx::query("UPDATE stored_response_usage SET size_bytes = size_bytes WHERE workspace_id = $1")
        .bind(workspace)
        .execute(&mut *change)
        .await?;
    Ok(())
}

async fn remove(change: &mut AnyConnection, workspace: &str, id: &str, size: i64) -> Result<(), RepositoryError> {
    let gone = sqlx::query("DELETE FROM stored_responses WHERE id = $1").bind(id).execute(&mut *change).await?;
    if gone.rows_affected() == 1 {
        sqlx::query("UPDATE stored_response_usage SET size_bytes = size_bytes - $2 WHERE workspace_id = $1")
            .bind(workspace)
            .bind(size)
            .execute(&mut *change)
            .await?;
    }
    Ok(())
}
