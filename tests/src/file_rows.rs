//! Very many files at once, as rows alone: nobody uploads a million.

use std::path::Path;
use std::process::Command;

use services::postgres::Postgres;

use crate::stack::Fallible;

/// Rows as uploads would have left them, a millisecond apart, of user and workspace `default`. `data`: the folder of a SQLite
/// database; `url`: `sqlite`, or where PostgreSQL is.
pub fn fill(data: &Path, url: &str, rows: u32) -> Fallible<()> {
    let select = |id: &str, from: &str| {
        format!(
            "INSERT INTO files (id, user_id, workspace_id, state, filename, mime_type, purpose, size_bytes, sha256, \
             created_at_ms, sweep_at_ms) SELECT {id}, 'default', 'default', 'stored', 'name.csv', 'text/csv', \
             'user_data', 10, 'x', 1000 + n, 9223372036854775807 FROM {from};"
        )
    };
    let usage =
        format!("INSERT INTO file_usage (workspace_id, size_bytes, files) VALUES ('default', {rows}0, {rows});");
    if url == "sqlite" {
        let all = format!(
            "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {rows}) SELECT n FROM c)"
        );
        let insert = select("printf('file-otr%032x', n)", &all);
        return sqlite(data, &format!("{insert} {usage}"));
    }
    let insert = select("'file-otr' || lpad(to_hex(n), 32, '0')", &format!("generate_series(1, {rows}) AS n"));
    for statement in [insert.as_str(), &usage, "VACUUM ANALYZE files"] {
        Postgres::shared()?.tell_database(url, statement)?;
    }
    Ok(())
}

/// Runs statements in a SQLite database as one transaction.
pub fn sqlite(data: &Path, statements: &str) -> Fallible<()> {
    let script = "import sqlite3, sys\nd = sqlite3.connect(sys.argv[1])\nd.executescript(sys.argv[2])\nd.close()";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(data.join("otari.db")).arg(format!("BEGIN; {statements} COMMIT; ANALYZE;"));
    python.status()?.success().then_some(()).ok_or_else(|| "the rows cannot be made".into())
}
