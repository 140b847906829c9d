//! The policy snapshot as the filter gets it.

use decision::identity::key_hash;
use serde_json::json;

use crate::support::{KEY, POLICY, Sidecar, start, start_in};

const PATH: &str = "/otari/internal/snapshot";

async fn version(sidecar: &Sidecar) -> u64 {
    sidecar.call("GET", PATH).send().await.json()["version"].as_u64().unwrap()
}

#[tokio::test]
async fn it_names_key_owners_and_pins_and_nothing_more() {
    let sidecar = start().await;
    let policy = json!({"enabled": false, "executor": "otari", "max_iterations": 4, "default_purpose_hint": "sums"});
    assert_eq!(sidecar.admin("PUT", POLICY).json(&policy).send().await.status, 200);
    let snapshot = sidecar.call("GET", PATH).send().await.json();
    let owner = json!({"user": "default", "workspace": "default"});
    assert_eq!(snapshot["keys"][key_hash(KEY.as_bytes())], owner);
    assert_eq!(snapshot["workspaces"]["default"], json!({"pin": "otari", "enabled": false}));
    assert_eq!(snapshot["sandbox_available"], false);
    assert!(!snapshot.to_string().contains(KEY));
}

#[tokio::test]
async fn the_version_is_the_entity_tag_and_changes_with_the_content_alone() {
    let sidecar = start().await;
    let first = sidecar.call("GET", PATH).send().await;
    let etag = first.header("etag").unwrap().to_owned();
    assert_eq!(etag, format!("\"{}\"", first.json()["version"]));
    for known in [etag.as_str(), etag.trim_matches('"'), &format!("\"1\", W/{etag}")] {
        let again = sidecar.call("GET", PATH).header("if-none-match", known).send().await;
        assert_eq!((again.status, again.body.len()), (304, 0), "{known}");
    }
    let before = version(&sidecar).await;
    // A limit is not in the published snapshot.
    sidecar.admin("PUT", POLICY).json(&json!({"enabled": true, "max_iterations": 3})).send().await;
    let with_row = version(&sidecar).await;
    sidecar.admin("PUT", POLICY).json(&json!({"enabled": true, "max_iterations": 4})).send().await;
    assert_eq!(version(&sidecar).await, with_row);
    sidecar.admin("PUT", POLICY).json(&json!({"enabled": true, "executor": "otari"})).send().await;
    let pinned = version(&sidecar).await;
    assert!(before < with_row && with_row < pinned, "{before} {with_row} {pinned}");
    let changed = sidecar.call("GET", PATH).header("if-none-match", &etag).send().await;
    assert_eq!(changed.status, 200);
}

#[tokio::test]
async fn a_restart_keeps_the_version() {
    let sidecar = start().await;
    sidecar.admin("PUT", POLICY).json(&json!({"enabled": false})).send().await;
    let before = version(&sidecar).await;
    let folder = sidecar.stopped().await;
    let again = start_in(folder, "").await;
    assert_eq!(version(&again).await, before);
    let other = start_in(again.stopped().await, "code_execution_executor: otari").await;
    assert_eq!(version(&other).await, before + 1);
}
