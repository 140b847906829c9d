//! Databases for tests: real SQLite in a temporary folder, real PostgreSQL with a database of the test's own.

use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::clock::TurnedClock;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// A new, empty database, gone with the test.
#[derive(Debug)]
pub(crate) struct TestDatabase {
    pub(crate) database: Database,
    _folder: TempDir,
}

impl TestDatabase {
    pub(crate) fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = match kind {
            Kind::Sqlite => "sqlite".to_owned(),
            Kind::Postgres => services::postgres::Postgres::shared().unwrap().database().unwrap(),
        };
        // A name that would mean something else in a URL.
        let data_dir = folder.path().join("a?b#c%20d");
        std::fs::create_dir(&data_dir).unwrap();
        Self { database: Database::parse(&url, Path::new(&data_dir)).unwrap(), _folder: folder }
    }

    /// One more process that works with it.
    pub(crate) async fn open(&self, clock: &Arc<TurnedClock>) -> Repository {
        let clock: Arc<dyn Clock> = Arc::<TurnedClock>::clone(clock);
        Repository::open(&self.database, clock).await.unwrap()
    }
}

/// Makes two tests of each function of this name: on SQLite and on PostgreSQL.
macro_rules! on_both_databases {
    ($($name:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::repository::testing::Kind::Sqlite).await;
            })*
        }
        mod on_postgresql {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::repository::testing::Kind::Postgres).await;
            })*
        }
    };
}
pub(crate) use on_both_databases;
