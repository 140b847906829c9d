//! Readiness.

use crate::support::start;

#[tokio::test]
async fn health_needs_no_secret_and_names_what_there_is() {
    let sidecar = start().await;
    let answer = sidecar.bare_call("GET", "/healthz").send().await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["sandbox"], "none");
    let posted = sidecar.bare_call("POST", "/healthz").send().await;
    assert_eq!(posted.status, 403);
}

#[tokio::test]
async fn health_fails_when_the_database_is_gone() {
    let sidecar = start().await;
    let file = sidecar.config.data_dir.join("otari.db");
    // Truncated under its feet: what SQLite reads next is no database.
    std::fs::write(&file, vec![b'x'; 8192]).unwrap();
    let wal = sidecar.config.data_dir.join("otari.db-wal");
    std::fs::write(wal, b"").unwrap();
    let answer = sidecar.bare_call("GET", "/healthz").send().await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["database"], "unreachable");
}
