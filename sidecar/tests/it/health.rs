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
async fn health_fails_when_the_database_is_not_usable() {
    let sidecar = start().await;
    let file = sidecar.config.data_dir.join("otari.db");
    let url = format!("sqlite://{}", file.display());
    let other = sqlx::any::AnyPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    sqlx::query("DROP TABLE snapshot_state").execute(&other).await.unwrap();
    let answer = sidecar.bare_call("GET", "/healthz").send().await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["database"], "unreachable");
}
