//! A file whose time is over is gone for everybody who asks, swept or not.

use serde_json::Value;

use super::form::Form;
use super::{VENDORS, Vendor, ids};
use crate::support::{Sidecar, start_with_clock};

const HOUR_MS: i64 = 3_600_000;

async fn is_gone(sidecar: &Sidecar, id: &str) -> bool {
    let mut answers = Vec::new();
    for vendor in VENDORS {
        for path in [format!("/v1/files/{id}"), format!("/v1/files/{id}/content")] {
            answers.push(vendor.get(sidecar, &path).await.status == 404);
        }
        answers.push(!ids(&vendor.get(sidecar, "/v1/files").await.json()).contains(&id));
    }
    let looked_up = Vendor::Anthropic.get(sidecar, &format!("/v1/files?ids[]={id}")).await.json();
    answers.push(ids(&looked_up).is_empty());
    let gone = answers[0];
    assert!(answers.iter().all(|answer| *answer == gone), "one place says otherwise: {answers:?}");
    gone
}

#[tokio::test]
async fn an_expired_file_is_gone_before_any_sweep_and_lists_go_on_behind_it() {
    let (sidecar, clock) = start_with_clock("files: {sweep_interval_sec: 0}").await;
    let older = Vendor::OpenAi.store(&sidecar, "older", b"1").await;
    let soon = Form::default().field("expires_in_seconds", "3600").named("soon", b"1");
    let soon = Vendor::Anthropic.upload(&sidecar, soon).await.json()["id"].as_str().unwrap().to_owned();
    let later = Form::default().field("expires_after[anchor]", "created_at").field("expires_after[seconds]", "7200");
    let later =
        Vendor::OpenAi.upload(&sidecar, later.named("later", b"1")).await.json()["id"].as_str().unwrap().to_owned();
    assert!(!is_gone(&sidecar, &soon).await && !is_gone(&sidecar, &later).await);
    clock.forward(HOUR_MS + 1);
    assert!(is_gone(&sidecar, &soon).await && !is_gone(&sidecar, &later).await);
    let delete = sidecar.call("DELETE", &format!("/v1/files/{soon}")).send().await;
    Vendor::OpenAi.refused(&delete, 404, "invalid_request_error");
    let behind = Vendor::OpenAi.get(&sidecar, &format!("/v1/files?after={soon}")).await;
    assert_eq!(ids(&behind.json()), [older["id"].as_str().unwrap()]);
    clock.forward(HOUR_MS);
    assert!(is_gone(&sidecar, &later).await && !is_gone(&sidecar, older["id"].as_str().unwrap()).await);
}

#[tokio::test]
async fn the_operators_retention_goes_for_files_that_say_nothing() {
    let (sidecar, clock) = start_with_clock("files: {retention_hours: 2}").await;
    let file = Vendor::OpenAi.store(&sidecar, "a", b"1").await;
    let life = file["expires_at"].as_i64().unwrap() - file["created_at"].as_i64().unwrap();
    assert_eq!(life, 2 * HOUR_MS / 1000);
    let id = file["id"].as_str().unwrap();
    let seen = Vendor::Anthropic.get(&sidecar, &format!("/v1/files/{id}")).await.json();
    assert_ne!(seen["expires_at"], Value::Null);
    clock.forward(2 * HOUR_MS + 1);
    assert!(is_gone(&sidecar, id).await);
}
