//! Nobody but Envoy is served.

use crate::support::{MASTER, start, start_with};

#[tokio::test]
async fn a_call_without_the_right_secret_is_refused_in_the_callers_words() {
    let sidecar = start().await;
    for path in ["/v1/messages", "/v1/tools", "/otari/metrics", "/otari/internal/snapshot", "/nowhere"] {
        let absent = sidecar.bare_call("GET", path).send().await;
        assert_eq!(absent.status, 403, "{path}");
        let wrong = sidecar.bare_call("GET", path).header("x-otari-hop", "guess").send().await;
        assert_eq!(wrong.status, 403, "{path}");
        let twice = sidecar
            .bare_call("GET", path)
            .header("x-otari-hop", &sidecar.hop_secret)
            .header("x-otari-hop", &sidecar.hop_secret)
            .send()
            .await;
        assert_eq!(twice.status, 403, "{path}");
    }
    let anthropic = sidecar.bare_call("POST", "/v1/messages").header("x-request-id", "abc-1").send().await;
    assert_eq!(anthropic.json()["error"]["type"], "permission_error");
    assert_eq!(anthropic.json()["request_id"], "abc-1");
    assert_eq!(anthropic.header("request-id"), Some("abc-1"));
    let openai = sidecar.bare_call("POST", "/v1/responses").send().await;
    assert_eq!(openai.json()["error"]["param"], serde_json::Value::Null);
}

#[tokio::test]
async fn wrong_paths_and_methods_are_answered_in_the_callers_words() {
    let sidecar = start().await;
    let path = sidecar.call("GET", "/nowhere").header("anthropic-version", "2023-06-01").send().await;
    assert_eq!((path.status, path.json()["error"]["type"].as_str()), (404, Some("not_found_error")));
    let method = sidecar.call("DELETE", "/v1/tools").send().await;
    assert_eq!((method.status, method.json()["error"]["type"].as_str()), (405, Some("invalid_request_error")));
    let containers = sidecar.call("GET", "/v1/containers").send().await;
    assert_eq!(containers.status, 404);
    assert!(containers.json()["error"]["message"].as_str().unwrap().contains("the files that answers cite"));
}

#[tokio::test]
async fn the_secret_from_the_environment_needs_no_file() {
    use sidecar::config::{Config, Environment};
    let env: Environment = [("HOP".to_owned(), "from-the-environment".to_owned())].into_iter().collect();
    let config = Config::parse("hop_secret_env: HOP", &env).unwrap();
    assert_eq!(config.hop_secret.unwrap().expose(), "from-the-environment");
    assert!(Config::parse("hop_secret_env: HOP", &Environment::default()).is_err());
}

const CASE: &[u8] =
    br#"{"request": {"method": "POST", "path": "/v1/messages", "headers": [], "body": {"model": "m"}}}"#;

#[tokio::test]
async fn explanations_are_the_decision_crates_own_and_for_whoever_has_a_key() {
    let sidecar = start().await;
    let answer = sidecar.call("POST", "/otari/explain").body(CASE).send().await;
    assert_eq!((answer.status, answer.body.to_vec()), (200, decision::explain::explain(CASE)));
    assert!(!answer.body.is_empty());
    let through_envoy = || sidecar.bare_call("POST", "/otari/explain").header("x-otari-hop", &sidecar.hop_secret);
    assert_eq!(through_envoy().body(CASE).send().await.status, 401);
    assert_eq!(through_envoy().header("otari-key", "otk_unknown").body(CASE).send().await.status, 401);
}

#[tokio::test]
async fn where_nobody_has_a_key_explanations_have_a_switch() {
    for (switch, status) in [("", 403), ("explain: true", 200)] {
        let sidecar = start_with(&format!("identity: {{mode: none}}\n{switch}")).await;
        let answer = sidecar.call("POST", "/otari/explain").body(CASE).send().await;
        assert_eq!(answer.status, status, "{switch:?}");
    }
}

#[tokio::test]
async fn metrics_are_for_the_admin() {
    let sidecar = start().await;
    assert_eq!(sidecar.call("GET", "/otari/metrics").send().await.status, 401);
    let scraper = sidecar.bare_call("GET", "/otari/metrics").header("x-otari-hop", &sidecar.hop_secret);
    let answer = scraper.header("authorization", &format!("Bearer {MASTER}")).send().await;
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
}
