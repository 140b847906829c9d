//! Who may ask at all, and that the sidecar listens to nobody but Envoy.

use harness::client::{Call, Target};
use http::Method;

use crate::support::{DATED, ask, question, ran_here, refused, seen, shared, tag};

#[tokio::test]
async fn an_unknown_or_missing_key_is_a_401_and_reaches_no_model() {
    let (stack, tag) = (shared().await, tag());
    let send = async |call: Call| call.send(stack.address()).await.unwrap();
    for model in ["code-once", "claude--native", "text"] {
        for tools in [&[][..], &[DATED]] {
            let body = question(model, &tag, tools);
            refused(&send(ask(&body)).await, 401, "authentication_error");
            refused(&send(ask(&body).bearer("gw-nobodys-key")).await, 401, "authentication_error");
            refused(&send(ask(&body).header("x-api-key", "sk-ant-somebody")).await, 401, "authentication_error");
        }
    }
    assert!(seen(&stack, &tag).await.is_empty());
}

#[tokio::test]
async fn the_key_may_come_in_three_headers() {
    let stack = shared().await;
    for (name, value) in [
        ("authorization", format!("Bearer {}", stack.key())),
        ("x-api-key", stack.key().to_owned()),
        ("otari-key", stack.key().to_owned()),
        ("otari-key", format!("Bearer {}", stack.key())),
    ] {
        let call = ask(&question("code-once", &tag(), &[DATED])).header(name, value);
        let answer = call.send(stack.address()).await.unwrap();
        assert!(ran_here(&answer.json()), "{name}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_credential_sent_twice_is_refused() {
    let (stack, tag) = (shared().await, tag());
    let call = ask(&question("code-once", &tag, &[DATED])).header("otari-key", stack.key());
    let twice = call.header("otari-key", "gw-nobodys-key").send(stack.address()).await.unwrap();
    refused(&twice, 400, "invalid_request_error");
    assert!(seen(&stack, &tag).await.is_empty());
}

#[tokio::test]
async fn the_sidecar_answers_only_calls_that_came_through_envoy() {
    let (stack, tag) = (shared().await, tag());
    let socket = || Target::Unix(stack.data_dir().join("sidecar.sock"));
    let secret = std::fs::read_to_string(stack.data_dir().join("hop-secret")).unwrap();
    let call = || ask(&question("code-once", &tag, &[DATED])).bearer(stack.key());
    for refused in [call(), call().header("x-otari-hop", "wrong"), call().header("x-otari-hop", "")] {
        let answer = refused.send(socket()).await.unwrap();
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
    for path in ["/otari/internal/snapshot", "/v1/tools", "/v1/workspaces/default/code-execution-policy"] {
        let answer = Call::new(Method::GET, path).bearer(stack.master_key()).send(socket()).await.unwrap();
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
    }
    assert!(seen(&stack, &tag).await.is_empty());
    let known = call().header("x-otari-hop", secret.trim()).send(socket()).await.unwrap();
    assert!(ran_here(&known.json()), "{}", known.text());
    assert_eq!(Call::get("/healthz").send(socket()).await.unwrap().status, 200);
}

#[tokio::test]
async fn the_snapshot_is_not_served_to_the_outside() {
    let stack = shared().await;
    let answer = stack.send(Call::get("/otari/internal/snapshot")).await;
    assert!(matches!(answer.status, 401 | 403 | 404), "{} {}", answer.status, answer.text());
    assert!(!answer.text().contains("keys"), "{}", answer.text());
}

#[tokio::test]
async fn admin_routes_want_the_master_key() {
    let stack = shared().await;
    let path = "/v1/workspaces/default/code-execution-policy";
    for key in [stack.key(), "wrong"] {
        let answer = Call::get(path).bearer(key).send(stack.address()).await.unwrap();
        assert_eq!(answer.status, 401, "{}", answer.text());
    }
    let answer = Call::get(path).bearer(stack.master_key()).send(stack.address()).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["configured"], false);
}

#[tokio::test]
async fn secrets_stay_out_of_logs_and_errors() {
    let (stack, tag) = (shared().await, tag());
    let body = question("code-fails", &tag, &[DATED]);
    stack.send(ask(&body)).await;
    let mut answers = String::new();
    for path in ["/v1/messages?canary-in-query", "/v1/nothing"] {
        answers +=
            &Call::post_bytes(path, "{canary").bearer("gw-canary-key").send(stack.address()).await.unwrap().text();
    }
    let logs = stack.sidecar().log() + &stack.envoy().log() + &answers;
    let hop = std::fs::read_to_string(stack.data_dir().join("hop-secret")).unwrap();
    for secret in ["canary", "operator-canary", stack.key(), stack.master_key(), hop.trim(), &tag, "print(1 / 0)"] {
        assert!(!logs.contains(secret), "{secret} is in the logs or answers");
    }
}
