//! How the databases read: every look at files goes through an index, and reads no more rows than it answers with.

use sqlx::{AnyConnection, Row as _};

use super::*;
use crate::clock::TurnedClock;
use crate::repository::testing::{Kind, TestDatabase, on_both_databases};

on_both_databases!(each_page_is_read_from_an_index_in_order, the_sweep_reads_what_is_due_and_nothing_else);

/// The database's plan for a statement, its parameters written out.
async fn plan(connection: &mut AnyConnection, sql: &str) -> String {
    let explain = if connection.backend_name() == "SQLite" { "EXPLAIN QUERY PLAN" } else { "EXPLAIN" };
    let mut sql = format!("{explain} {sql}");
    for (name, value) in
        [("$1", "'1'"), ("$2", "'2'"), ("$3", "3"), ("$4", "'4'"), ("$5", "'5'"), ("$6", "'6'"), ("$7", "7")]
    {
        sql = sql.replace(name, value);
    }
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut *connection).await.unwrap();
    let column = if connection.backend_name() == "SQLite" { 3 } else { 0 };
    let lines: Vec<String> = rows.iter().map(|row| row.get::<String, _>(column)).collect();
    lines.join("\n")
}

/// PostgreSQL prefers to read a small table whole: it is told to do so only if there is no other way.
async fn connection(repository: &Repository) -> sqlx::pool::PoolConnection<Any> {
    let mut connection = repository.pool.acquire().await.unwrap();
    if repository.is_shared() {
        for way in ["seqscan", "bitmapscan", "sort", "incremental_sort"] {
            let sql = format!("SET enable_{way} = off");
            sqlx::query(AssertSqlSafe(sql)).execute(&mut *connection).await.unwrap();
        }
    }
    connection
}

async fn each_page_is_read_from_an_index_in_order(kind: Kind) {
    let (database, clock) = (TestDatabase::new(kind), TurnedClock::at(1));
    let repository = database.open(&clock).await;
    let mut connection = connection(&repository).await;
    let position = FilePosition { created_at_ms: 1, id: String::new() };
    for descending in [false, true] {
        for beyond in [None, Some(&position)] {
            for purpose in [None, Some("vision")] {
                let query = FilePageQuery { descending, beyond, purpose, limit: 1 };
                // The numbers of the parameters depend on what is asked for.
                let sql = page_sql(&query).replace("LIMIT $4", "LIMIT 1").replace("LIMIT $5", "LIMIT 1");
                let sql = sql.replace("($4,", "(4,").replace("($5,", "(5,");
                let plan = plan(&mut connection, &sql).await;
                let index = if purpose.is_some() { "files_by_purpose" } else { "files_by_owner" };
                assert!(plan.contains(index), "{sql}\n{plan}");
                assert!(
                    !plan.contains("Sort") && !plan.contains("TEMP B-TREE") && !plan.contains("Seq"),
                    "{sql}\n{plan}"
                );
            }
        }
    }
}

async fn the_sweep_reads_what_is_due_and_nothing_else(kind: Kind) {
    let (database, clock) = (TestDatabase::new(kind), TurnedClock::at(1));
    let repository = database.open(&clock).await;
    let mut connection = connection(&repository).await;
    for (condition, order, index) in [
        (
            "state <> 'deleted' AND sweep_at_ms < 9223372036854775807 AND sweep_at_ms <= $3",
            "sweep_at_ms, id",
            "files_to_retire",
        ),
        ("state = 'deleted' AND sweep_at_ms <= $3", "sweep_at_ms, id", "files_to_remove"),
        (
            "workspace_id = $1 AND state <> 'deleted' AND sweep_at_ms < 9223372036854775807 AND sweep_at_ms <= $3",
            "sweep_at_ms",
            "files_of_workspace_to_retire",
        ),
    ] {
        let sql = format!("SELECT id FROM files WHERE {condition} ORDER BY {order} LIMIT 500");
        let plan = plan(&mut connection, &sql).await;
        assert!(plan.contains(index), "{sql}\n{plan}");
        assert!(!plan.contains("Sort") && !plan.contains("TEMP B-TREE") && !plan.contains("Seq"), "{sql}\n{plan}");
    }
}
