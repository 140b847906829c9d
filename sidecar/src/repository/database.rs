//! Where the rows are.
//!
//! INVARIANT: the password in a database's URL shows in no log, no error and no `Debug`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use sqlx::postgres::PgConnectOptions;

/// Name of the SQLite file in the data folder.
const SQLITE_FILE: &str = "otari.db";
const WANTED: &str = "write sqlite, or the URL of a PostgreSQL database, as in postgres://user:password@host:5432/name";

/// Where the rows are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    /// A SQLite file, made if it is missing.
    Sqlite(PathBuf),
    /// A database of a PostgreSQL server, which other sidecars may use as well.
    Postgres(PostgresUrl),
}

/// The URL of a PostgreSQL database.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl Database {
    /// Reads `database_url`. The error says what to write instead.
    pub fn parse(url: &str, data_dir: &Path) -> Result<Self, &'static str> {
        match url.split_once("://") {
            None if url == "sqlite" => Ok(Self::Sqlite(data_dir.join(SQLITE_FILE))),
            Some(("postgres" | "postgresql", _)) => match PgConnectOptions::from_str(url) {
                Ok(_) => Ok(Self::Postgres(PostgresUrl(url.to_owned()))),
                Err(_) => Err(WANTED),
            },
            _ => Err(WANTED),
        }
    }
}

impl PostgresUrl {
    /// The URL, password and all; the caller must not log it.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
