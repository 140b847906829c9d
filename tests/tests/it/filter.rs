//! The filter as an operator meets it: its configuration, its canary, its counters, and what Envoy does around it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::client::Call;
use harness::stack::{Setup, Stack, binary, envoy, eventually, filter_wasm};

use crate::support::{DATED, ask, question, ran_here, refused, seen, shared, start, tag};

/// Counters are told to Envoy with the filter's next tick.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// Every kind of provider URL.
const CONFIG: &str = r#"
listen: 127.0.0.1:0
data_dir: data
providers:
  anthropic: {type: anthropic, base_url: "https://api.anthropic.com", api_key_env: SOME_KEY}
  openai: {type: openai, base_url: "https://[::1]:8443/prefix", api_key_env: SOME_KEY}
  local: {type: openai_compatible, base_url: "http://localhost:11434/v1"}
models: [{match: "*", provider: anthropic}]
"#;

/// Envoy's configuration for such a config file.
fn rendered(config: &str, dir: &Path) -> String {
    std::fs::write(dir.join("otari.yaml"), config).unwrap();
    let mut command = Command::new(binary("otari-sidecar").unwrap());
    command.current_dir(dir).args(["envoy-config", "--config", "otari.yaml", "--filter"]).arg(filter_wasm().unwrap());
    let output = command.env("SOME_KEY", "x").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Envoy's own check, which compiles the filter and lets it read its configuration.
fn validate(yaml: &str, dir: &Path) -> Result<(), String> {
    let file = dir.join("envoy.yaml");
    std::fs::write(&file, yaml).unwrap();
    let mut command = Command::new(envoy().unwrap());
    command.arg("--config-path").arg(&file).args([
        "--mode",
        "validate",
        "--disable-hot-restart",
        "--log-level",
        "warn",
    ]);
    let output = command.output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

async fn wait_for_snapshot(stack: &Stack) {
    let canary = async || Call::get("/healthz/filter").send(stack.address()).await.unwrap();
    let known = eventually(TOLD_WITHIN, async || canary().await.json()["snapshot_version"].is_u64());
    assert!(known.await, "{}", canary().await.text());
}

#[test]
fn envoy_accepts_what_is_rendered() {
    let dir = tempfile::tempdir().unwrap();
    for more in ["", "sidecar_listen: 127.0.0.1:9\n", "explain: true\nidentity: {mode: none}\n"] {
        validate(&rendered(&format!("{CONFIG}{more}"), dir.path()), dir.path()).unwrap();
    }
}

#[test]
fn a_filter_configuration_that_is_none_stops_the_start_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = rendered(CONFIG, dir.path());
    let secret = std::fs::read_to_string(dir.path().join("data/hop-secret")).unwrap();
    for (good, bad) in [("poll_ms", "poll_seconds"), ("otari_key", "somehow"), ("providers_routed", "routed")] {
        let broken = yaml.replace(good, bad);
        assert_ne!(broken, yaml, "{good}");
        let problem = validate(&broken, dir.path()).unwrap_err();
        assert!(problem.contains("plugin configuration refused") && problem.contains(bad), "{bad}: {problem}");
        assert!(!problem.contains(secret.trim()), "{problem}");
    }
}

#[tokio::test]
async fn the_canary_knows_the_snapshot() {
    // One worker: each has its own VM, and each learns of the snapshot by itself.
    let stack = start(Setup::default().concurrency(1)).await;
    wait_for_snapshot(&stack).await;
    let answer = Call::get("/healthz/filter").send(stack.address()).await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["status"], "ok");
    assert!(answer.json()["snapshot_age_ms"].as_u64().unwrap() < 30_000, "{}", answer.text());
}

#[tokio::test]
async fn envoy_counts_what_was_decided() {
    let stack = start(Setup::default().concurrency(1)).await;
    wait_for_snapshot(&stack).await;
    let told = async |name: &str| stack.stats(name).await.unwrap().values().sum::<u64>();
    let plain = question("claude--text", &tag(), &[]).to_string();
    assert_eq!(stack.send(Call::post_bytes("/v1/messages", plain.clone())).await.status, 200);
    assert!(ran_here(&stack.send(ask(&question("messages--code-once", &tag(), &[DATED]))).await.json()));
    refused(&stack.send(Call::post_bytes("/v1/messages", "{}")).await, 400, "invalid_request_error");
    refused(&stack.send(Call::post_bytes("/v1/messages", "{")).await, 400, "invalid_request_error");
    let all = eventually(TOLD_WITHIN, async || {
        told("wasmcustom.otari.decided.provider").await == 1
            && told("wasmcustom.otari.decided.sidecar").await == 1
            && told("wasmcustom.otari.decided.refused").await == 2
            && told("wasmcustom.otari.refused.model_missing").await == 1
            && told("wasmcustom.otari.refused.body_invalid").await == 1
            && told("wasmcustom.otari.scanned_bytes").await > u64::try_from(plain.len()).unwrap()
            && told("wasmcustom.otari.policy.snapshot_version").await > 0
    });
    assert!(all.await, "{:#?}", stack.stats("wasmcustom").await.unwrap());
    assert_eq!(told("wasmcustom.otari.host_errors").await, 0);
    let labelled = stack.admin("/stats/prometheus?filter=otari.decided").await.unwrap().text();
    assert!(labelled.contains(r#"otari_outcome="provider""#), "{labelled}");
}

#[tokio::test]
async fn no_spelling_leads_to_the_sidecars_internal_paths() {
    let stack = shared().await;
    for path in [
        "/otari/internal/snapshot",
        "/otari/internal",
        "/otari//internal/snapshot",
        "/otari/./internal/snapshot",
        "/otari/x/../internal/snapshot",
        "/otari/%69nternal/snapshot",
        "/otari/internal%2fsnapshot",
        "//otari/internal/snapshot",
        "/v1/../otari/internal/snapshot",
        "/v1/tools/../../otari/internal/snapshot",
        "/%6ftari/internal/snapshot",
        "/OTARI/internal/snapshot",
    ] {
        let answer = stack.send(Call::get(path)).await;
        assert!(!answer.text().contains("default_executor") && answer.status >= 400, "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn headers_that_steer_envoy_are_not_the_clients_to_send() {
    let (stack, tag) = (shared().await, tag());
    let call = ask(&question("claude--text", &tag, &[]))
        .header("x-envoy-retry-on", "5xx,connect-failure")
        .header("x-envoy-max-retries", "9")
        .header("x-envoy-upstream-rq-timeout-ms", "1");
    assert_eq!(stack.send(call).await.status, 200);
    let records = seen(&stack, &tag).await;
    assert_eq!(records.len(), 1);
    assert!(!records[0].headers.iter().any(|(name, _)| name.starts_with("x-envoy")), "{:?}", records[0].headers);
}

#[tokio::test]
async fn answers_that_are_envoys_own_speak_the_callers_words() {
    let stack = shared().await;
    let hidden = || Call::get("/otari/internal/nothing");
    let openai = stack.send(hidden()).await;
    assert_eq!(openai.status, 404, "{}", openai.text());
    assert!(openai.json()["error"]["message"].is_string() && openai.header("x-request-id").is_some());
    refused(&stack.send(hidden().header("anthropic-version", "2023-06-01")).await, 404, "not_found_error");
}
