//! Users, workspaces, keys, policies and files in the database: SQLite or PostgreSQL, the same SQL on both.
//!
//! INVARIANT: every write to what the policy snapshot is made of, which is all but files and their usage, raises
//! `snapshot_state.revision` in its own transaction, first thing: that is how every process sees the change. The first
//! statement of any transaction writes: none upgrades from reading to writing, which SQLite would refuse.

mod change;
mod database;
mod error;
mod files;
mod identity;
mod keys;
mod policies;
mod responses;
mod snapshot_state;

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AnyConnection, AnyPool, ConnectOptions, SqlSafeStr};

use crate::clock::Clock;
use crate::private;

use change::{Change, Turns};

pub use database::{Database, PostgresUrl};
pub use error::RepositoryError;
pub use files::{
    Counted, DueFiles, Expiry, FilePageQuery, FilePosition, FileQuota, FileRow, FileUsage, GRACE_MS, RetiredFile,
    StoredFile,
};
pub use identity::Workspace;
pub use keys::{KeyOwnerRow, KeyRecord, NewKey};
pub use policies::{PolicyFields, StoredPolicy};
pub use responses::{NewResponse, StoredResponse, Told};

/// Connections to the database at once.
const MAX_CONNECTIONS: u32 = 8;
/// Longest wait for a connection, and for SQLite's write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const SQLITE_SETTINGS: &[&str] = &[
    "PRAGMA busy_timeout = 5000",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA foreign_keys = ON",
];

/// A process that hangs in a transaction must not hold the others up for ever.
const POSTGRES_SETTINGS: &[&str] =
    &["SET lock_timeout = 5000", "SET statement_timeout = 60000", "SET idle_in_transaction_session_timeout = 60000"];

const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "identity and policy", include_str!("../migrations/0001_identity_and_policy.sql")),
    (2, "files", include_str!("../migrations/0002_files.sql")),
    (3, "stored responses", include_str!("../migrations/0003_stored_responses.sql")),
    (5, "told responses", include_str!("../migrations/0005_told_responses.sql")),
];

/// The database behind everything the control plane knows.
#[derive(Clone)]
pub struct Repository {
    pool: AnyPool,
    clock: Arc<dyn Clock>,
    shared: bool,
    turns: Turns,
}

impl Repository {
    /// Connects, and brings the schema up to date.
    pub async fn open(database: &Database, clock: Arc<dyn Clock>) -> Result<Self, RepositoryError> {
        sqlx::any::install_default_drivers();
        let url = match database {
            Database::Sqlite(path) => {
                make_private(path).map_err(RepositoryError::File)?;
                sqlite_url(path)
            }
            Database::Postgres(url) => url.expose().to_owned(),
        };
        let options = AnyConnectOptions::from_str(&url)?.disable_statement_logging();
        let pool = AnyPoolOptions::new()
            .max_connections(MAX_CONNECTIONS)
            .acquire_timeout(BUSY_TIMEOUT)
            .after_connect(|connection, _| Box::pin(prepare_connection(connection)))
            .connect_with(options)
            .await?;
        migrator().run(&pool).await.map_err(RepositoryError::Migration)?;
        let shared = matches!(database, Database::Postgres(_));
        let repository = Self { pool, clock, shared, turns: Turns::new(!shared) };
        repository.ensure_snapshot_state().await?;
        Ok(repository)
    }

    /// Whether processes on other hosts may work with this database too.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// What ends a look for rows to take, so that several who look take different ones. SQLite has one writer at a time.
    fn skip_taken(&self) -> &'static str {
        if self.shared { "FOR UPDATE SKIP LOCKED" } else { "" }
    }

    /// Whether the database answers, and is ours.
    pub async fn ping(&self) -> Result<(), RepositoryError> {
        self.revision().await.map(drop)
    }

    /// Waits for the connections to close.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// For tests that look behind it.
    #[cfg(test)]
    pub(crate) fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// A transaction whose first statement has to write.
    async fn begin_write(&self) -> Result<Change, RepositoryError> {
        self.turns.begin(&self.pool).await
    }

    /// A transaction that already holds the write lock and has raised the revision.
    async fn begin_change(&self) -> Result<Change, RepositoryError> {
        let mut change = self.begin_write().await?;
        sqlx::query("UPDATE snapshot_state SET revision = revision + 1 WHERE id = 1").execute(&mut *change).await?;
        Ok(change)
    }
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repository").finish_non_exhaustive()
    }
}

fn migrator() -> Migrator {
    let migrations = MIGRATIONS.iter().map(|(version, name, sql)| {
        Migration::new(*version, (*name).into(), MigrationType::Simple, (*sql).into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.collect())
}

/// SQLite gives its two files beside the database the mode of the database; those of an older run may have another.
fn make_private(path: &Path) -> io::Result<()> {
    match private::create(path, b"") {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for beside in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(beside);
        private::close(Path::new(&name))?;
    }
    Ok(())
}

fn sqlite_url(path: &Path) -> String {
    // Percent and the characters that end a path would change its meaning in a URL.
    let path = path.to_string_lossy().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    format!("sqlite://{path}?mode=rwc")
}

async fn prepare_connection(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let settings = if connection.backend_name() == "SQLite" { SQLITE_SETTINGS } else { POSTGRES_SETTINGS };
    for setting in settings {
        sqlx::query(*setting).execute(&mut *connection).await?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
