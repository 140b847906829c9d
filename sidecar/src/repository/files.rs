//! Files: what callers uploaded and what code made, always looked up by owner.
//!
//! INVARIANT: a file is visible to the user in the workspace it belongs to, while it is stored and not expired by this
//! repository's clock, and to nobody else. `file_usage` changes in the transactions that change what it counts.

mod changes;
mod sweep;
mod usage;

use decision::identity::Identity;
use sqlx::any::AnyArguments;
use sqlx::query::QueryAs;
use sqlx::{Any, AssertSqlSafe};

use super::{Repository, RepositoryError};

pub use changes::{GRACE_MS, StoredFile};
pub use sweep::{DueFiles, RetiredFile};
pub use usage::{Counted, FileQuota, FileUsage};

const TABLE: &str = "files";
const COLUMNS: &str = "id, user_id, workspace_id, filename, mime_type, purpose, size_bytes, sha256, created_at_ms, \
                       sweep_at_ms";
/// `sweep_at_ms` of a file that never expires.
const NEVER: i64 = i64::MAX;
/// Whose files, where they are looked up by their owner.
const BY_OWNER: &str = "user_id = $1 AND workspace_id = $2";
/// The same where they are looked up by their ids: written so that no database takes the owner's index for it, and reads all
/// that the owner has.
const BY_ID: &str = "user_id || '' = $1 AND workspace_id || '' = $2";
/// Ids asked for in one statement; SQLite takes no more than 32,766 parameters.
const IDS_PER_STATEMENT: usize = 500;

/// A visible file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    /// Its public id.
    pub id: String,
    /// Whose it is.
    pub owner: Identity,
    /// What its owner calls it.
    pub filename: String,
    /// Its media type.
    pub mime_type: String,
    /// What it is for, as the wire says it.
    pub purpose: String,
    /// Bytes of its content.
    pub size_bytes: u64,
    /// SHA-256 of its content, lower-case hex.
    pub sha256: String,
    /// When it was stored, milliseconds since the epoch.
    pub created_at_ms: i64,
    /// When it stops being visible; `None`: never.
    pub expires_at_ms: Option<i64>,
}

/// A place in a list: the file that stands there, and when it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePosition {
    /// When that file was stored, milliseconds since the epoch.
    pub created_at_ms: i64,
    /// Its id.
    pub id: String,
}

/// Which visible files of an owner, in the order of their `(created_at_ms, id)`.
#[derive(Debug, Clone)]
pub struct FilePageQuery<'a> {
    /// Newest first.
    pub descending: bool,
    /// Beyond this place, which itself is left out.
    pub beyond: Option<&'a FilePosition>,
    /// With this purpose only.
    pub purpose: Option<&'a str>,
    /// At most so many.
    pub limit: u32,
}

type Row = (String, String, String, String, String, String, i64, String, i64, i64);

impl Repository {
    /// A visible file.
    pub async fn file(&self, owner: &Identity, id: &str) -> Result<Option<FileRow>, RepositoryError> {
        let sql = format!("{} AND id = $4", visible(BY_ID));
        let row = self.visible_to(owner, &sql).bind(id).fetch_optional(&self.pool).await?;
        row.map(FileRow::try_from).transpose()
    }

    /// The visible ones among these ids, in no particular order.
    pub async fn files(&self, owner: &Identity, ids: &[&str]) -> Result<Vec<FileRow>, RepositoryError> {
        let mut found = Vec::new();
        for some in ids.chunks(IDS_PER_STATEMENT) {
            let sql = format!("{} AND id IN ({})", visible(BY_ID), placeholders(4, some.len()));
            let mut query = self.visible_to(owner, &sql);
            for id in some {
                query = query.bind(*id);
            }
            for row in query.fetch_all(&self.pool).await? {
                found.push(row.try_into()?);
            }
        }
        Ok(found)
    }

    /// One page of an owner's visible files. Reads its rows from an index, in order, and no others.
    pub async fn file_page(
        &self,
        owner: &Identity,
        query: &FilePageQuery<'_>,
    ) -> Result<Vec<FileRow>, RepositoryError> {
        let sql = page_sql(query);
        let mut page = self.visible_to(owner, &sql);
        if let Some(purpose) = query.purpose {
            page = page.bind(purpose);
        }
        if let Some(position) = query.beyond {
            page = page.bind(position.created_at_ms).bind(&position.id);
        }
        let rows = page.bind(i64::from(query.limit)).fetch_all(&self.pool).await?;
        rows.into_iter().map(FileRow::try_from).collect()
    }

    /// Where a file of this owner stands in a list, be it deleted or expired; for a day longer than there is a row of it.
    pub async fn file_position(&self, owner: &Identity, id: &str) -> Result<Option<FilePosition>, RepositoryError> {
        let created_at_ms = sqlx::query_scalar(
            "SELECT created_at_ms FROM files WHERE id = $1 AND user_id || '' = $2 AND workspace_id || '' = $3 \
             AND state <> 'pending' UNION ALL \
             SELECT created_at_ms FROM file_places WHERE id = $1 AND user_id = $2 AND workspace_id = $3 LIMIT 1",
        )
        .bind(id)
        .bind(&owner.user)
        .bind(&owner.workspace)
        .fetch_optional(&self.pool)
        .await?;
        Ok(created_at_ms.map(|created_at_ms| FilePosition { created_at_ms, id: id.to_owned() }))
    }

    fn visible_to<'q>(&self, owner: &'q Identity, sql: &str) -> QueryAs<'q, Any, Row, AnyArguments> {
        sqlx::query_as(AssertSqlSafe(sql.to_owned())).bind(&owner.user).bind(&owner.workspace).bind(self.clock.now_ms())
    }
}

/// The only condition there is for seeing a file; its parameters are 1 to 3, `owner` is [`BY_OWNER`] or [`BY_ID`].
fn visible(owner: &str) -> String {
    format!("SELECT {COLUMNS} FROM files WHERE {owner} AND state = 'stored' AND sweep_at_ms > $3")
}

fn page_sql(query: &FilePageQuery<'_>) -> String {
    let (order, beyond) = if query.descending { ("DESC", "<") } else { ("ASC", ">") };
    let mut numbers = 4..;
    let mut number = || numbers.next().unwrap_or_default();
    let mut conditions = visible(BY_OWNER);
    if query.purpose.is_some() {
        conditions = format!("{conditions} AND purpose = ${}", number());
    }
    if query.beyond.is_some() {
        conditions = format!("{conditions} AND (created_at_ms, id) {beyond} (${}, ${})", number(), number());
    }
    format!("{conditions} ORDER BY created_at_ms {order}, id {order} LIMIT ${}", number())
}

/// `$first, $first+1, …`
fn placeholders(first: usize, count: usize) -> String {
    let names: Vec<_> = (first..first + count).map(|number| format!("${number}")).collect();
    names.join(", ")
}

/// Numbers of the file system's size in the database's; what does not fit is as good as no limit.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl TryFrom<Row> for FileRow {
    type Error = RepositoryError;

    fn try_from(row: Row) -> Result<Self, Self::Error> {
        let (id, user, workspace, filename, mime_type, purpose, size, sha256, created_at_ms, sweep_at_ms) = row;
        let Ok(size_bytes) = u64::try_from(size) else {
            return Err(RepositoryError::Corrupt { table: TABLE, column: "size_bytes", id });
        };
        let expires_at_ms = (sweep_at_ms != NEVER).then_some(sweep_at_ms);
        let owner = Identity { user, workspace };
        Ok(Self { id, owner, filename, mime_type, purpose, size_bytes, sha256, created_at_ms, expires_at_ms })
    }
}

#[cfg(test)]
mod tests;
