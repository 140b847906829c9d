//! Workspace policies set over HTTP: in force on every worker, at once and without a restart.

use std::time::Duration;

use harness::client::{Answer, Call};
use harness::stack::{Setup, Stack, eventually};
use http::Method;
use serde_json::{Value, json};

use crate::support::{DATED, ask, question, ran_here, refused, seen, start, tag};

const PATH: &str = "/v1/workspaces/default/code-execution-policy";
/// New connections that must all see a change: with two workers, no chance that one of them is never asked.
const CONNECTIONS: usize = 24;
/// Far beyond the two poll periods of 100 ms that a change takes.
const LIMIT: Duration = Duration::from_secs(20);

/// Sets the policy of workspace `default`.
pub(crate) async fn put(stack: &Stack, policy: &Value) -> Answer {
    let call = Call::new(Method::PUT, PATH).json(policy).bearer(stack.master_key());
    call.send(stack.address()).await.unwrap()
}

/// Waits until `CONNECTIONS` new connections in a row get an answer that fits.
pub(crate) async fn in_force(stack: &Stack, call: Call, fits: impl Fn(&Answer) -> bool) {
    let mut last = None;
    let done = eventually(LIMIT, async || {
        for _ in 0..CONNECTIONS {
            let answer = stack.send(call.clone()).await;
            if !fits(&answer) {
                last = Some(answer);
                return false;
            }
        }
        true
    });
    assert!(done.await, "the change is not in force everywhere: {last:?}");
}

fn native(answer: &Answer) -> bool {
    answer.status == 200 && !ran_here(&answer.json())
}

fn here(answer: &Answer) -> bool {
    answer.status == 200 && ran_here(&answer.json())
}

#[tokio::test]
async fn a_pin_set_and_taken_away_is_followed_by_all_workers() {
    let stack = start(Setup::default().concurrency(2)).await;
    let call = || ask(&question("claude--code-once", &tag(), &[DATED]));
    in_force(&stack, call(), native).await;
    let answer = put(&stack, &json!({"enabled": true, "executor": "otari"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((&answer.json()["configured"], &answer.json()["executor"]), (&json!(true), &json!("otari")));
    in_force(&stack, call(), here).await;
    let conflict = stack.send(call().header("otari-code-execution", "provider")).await;
    refused(&conflict, 403, "permission_error");
    assert!(here(&stack.send(call().header("otari-code-execution", "otari")).await));
    let deleted = Call::new(Method::DELETE, PATH).bearer(stack.master_key()).send(stack.address()).await.unwrap();
    assert_eq!((deleted.status, &deleted.json()["configured"]), (200, &json!(false)));
    in_force(&stack, call(), native).await;
    assert_eq!(stack.vm_reloads().await.unwrap(), 0);
}

#[tokio::test]
async fn a_pin_also_governs_what_only_the_provider_can_look_into() {
    let stack = start(Setup::default()).await;
    let tag = tag();
    let batch = json!({"model": "claude--text", "requests": [{"custom_id": tag, "params": question("claude--text", &tag, &[DATED])}]});
    let call = || Call::post("/v1/messages/batches", &batch).header("anthropic-version", "2023-06-01");
    in_force(&stack, call(), |answer| answer.status != 403).await;
    let passed = seen(&stack, &tag).await.len();
    assert_ne!(passed, 0, "without a pin it reaches the provider");
    let answer = put(&stack, &json!({"enabled": true, "executor": "otari"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    in_force(&stack, call(), |answer| answer.status == 403).await;
    let passed = seen(&stack, &tag).await.len();
    let message = refused(&stack.send(call()).await, 403, "permission_error");
    assert!(message.contains("pinned"), "{message}");
    assert_eq!(seen(&stack, &tag).await.len(), passed, "nobody was asked");
}

#[tokio::test]
async fn a_pin_to_the_provider_holds_even_where_code_is_switched_off() {
    let stack = start(Setup::default()).await;
    let tag = tag();
    let call = || ask(&question("messages--native", &tag, &[DATED]));
    put(&stack, &json!({"enabled": false, "executor": "provider"})).await;
    in_force(&stack, call(), native).await;
    let sent = seen(&stack, &tag).await;
    assert!(sent.last().unwrap().body.as_ref().unwrap().contains(DATED));
    refused(&stack.send(call().header("otari-code-execution", "otari")).await, 403, "permission_error");

    put(&stack, &json!({"enabled": false})).await;
    in_force(&stack, call(), |answer| answer.status == 403).await;
    let message = refused(&stack.send(call()).await, 403, "permission_error");
    assert!(message.contains("workspace"), "{message}");
    let text = stack.send(ask(&question("text", &tag, &[]))).await;
    assert_eq!(text.status, 200, "requests without a code tool are not concerned: {}", text.text());
}

#[tokio::test]
async fn the_workspaces_limits_are_kept() {
    let stack = start(Setup::default()).await;
    let tag = tag();
    let answer = put(&stack, &json!({"enabled": true, "max_iterations": 2, "exec_timeout_s": 1})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    in_force(&stack, ask(&question("code-endless", &tag, &[DATED])), |answer| answer.status == 200).await;
    // Two rounds with the tool, one without.
    let rounds = seen(&stack, &tag).await.len();
    assert_eq!(rounds % 3, 0, "{rounds}");
    let slow = stack.send(ask(&question("code-slow", &tag, &[DATED]))).await.json();
    let result = &slow["content"][2]["content"];
    assert_eq!((&result["return_code"], &result["stdout"]), (&json!(124), &json!("started\n")), "{slow}");
}

#[tokio::test]
async fn a_policy_that_could_never_hold_is_refused() {
    let stack = crate::support::shared().await;
    for policy in [
        json!({}),
        json!({"enabled": "yes"}),
        json!({"enabled": true, "executor": "both"}),
        json!({"enabled": true, "max_iterations": 26}),
        json!({"enabled": true, "exec_timeout_s": 0}),
        json!({"enabled": true, "tools": []}),
        json!({"enabled": true, "no_such_field": 1}),
    ] {
        let answer = put(&stack, &policy).await;
        assert_eq!(answer.status, 422, "{policy}: {}", answer.text());
    }
    let answer = Call::get(PATH).bearer(stack.master_key()).send(stack.address()).await.unwrap();
    assert_eq!(answer.json()["configured"], false);
}
