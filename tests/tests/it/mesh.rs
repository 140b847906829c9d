//! The filter and the sidecar in an Envoy that is not ours: `envoy/mesh.yaml` and the configuration in `envoy/README.md`,
//! run with other addresses. The mesh authenticates, routes and adds credentials as before.

use harness::client::{Answer, Call};
use harness::scripted_model::Record;
use harness::stack::{Place, Setup, Stack, eventually};

use crate::code_turn::streamed;
use crate::support::{DATED, ask, events, question, ran_here, seen, start, tag};

/// The mesh's own key of a client.
pub(crate) const KEY: &str = "key-of-ann";
const HOP_SECRET: &str = "change-me-to-32-random-characters";
const ANTHROPIC_KEY: &str = "sk-ant-of-the-mesh";
const LOCAL_TOKEN: &str = "token-of-the-mesh";

/// Puts a mark in each place of an example's text; each must be there.
fn marked(text: &str, places: &[(&str, Place)]) -> String {
    places.iter().fold(text.to_owned(), |text, (literal, place)| {
        assert!(text.contains(literal), "{literal} is not in\n{text}");
        // What stands before the last blank or colon is the key.
        let kept = literal.rfind([' ', ':']).map_or("", |at| &literal[..=at]);
        text.replace(literal, &format!("{kept}{}", place.mark()))
    })
}

async fn mesh() -> Stack {
    mesh_with("", "").await
}

/// With another text in the place of one in the sidecar's configuration.
async fn mesh_with(old: &str, new: &str) -> Stack {
    mesh_of(old, new, include_str!("../../../envoy/mesh.yaml")).await
}

/// And with this Envoy.
pub(crate) async fn mesh_of(old: &str, new: &str, envoy: &str) -> Stack {
    let readme = include_str!("../../../envoy/README.md");
    let config = readme.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(config.contains(old), "{old} is not in {config}");
    let config = if old.is_empty() { config.to_owned() } else { config.replace(old, new) };
    let config = marked(&config, &[("/var/lib/otari", Place::DataDir), ("127.0.0.1:8080", Place::ListenPort)]);
    let envoy = marked(
        envoy,
        &[
            ("/var/lib/otari", Place::DataDir),
            ("port_value: 8080", Place::ListenPort),
            ("port_value: 9000", Place::ModelPort),
            ("/etc/otari/filter.wasm", Place::Filter),
        ],
    );
    // One worker tells all its counters at once.
    let setup = Setup::default().mesh(config, envoy).concurrency(1).env("HOP_SECRET", HOP_SECRET);
    let stack = start(setup.env("ANTHROPIC_API_KEY", ANTHROPIC_KEY).env("LOCAL_TOKEN", LOCAL_TOKEN)).await;
    let polled = eventually(std::time::Duration::from_secs(20), async || {
        let canary = Call::get("/healthz/filter").send(stack.address()).await.unwrap();
        canary.json()["snapshot_version"].is_u64()
    });
    assert!(polled.await, "the filter has no snapshot");
    stack
}

async fn send(stack: &Stack, call: Call) -> Answer {
    call.bearer(KEY).send(stack.address()).await.unwrap()
}

/// What of ours, or of the mesh's clients, reached a provider.
fn strays(record: &Record) -> Vec<&(String, String)> {
    let stray = |name: &str, value: &str| {
        name.contains("otari") || name.starts_with("x-mesh") || value.contains(HOP_SECRET) || value.contains(KEY)
    };
    record.headers.iter().filter(|(name, value)| stray(name, value)).collect()
}

/// The value of a counter of the filter, once it is at least this.
async fn counted(stack: &Stack, name: &str, at_least: u64) -> u64 {
    let value = async || stack.stats(name).await.unwrap().values().sum::<u64>();
    eventually(std::time::Duration::from_secs(20), async || value().await >= at_least).await;
    value().await
}

#[tokio::test]
async fn code_turns_run_here_over_the_meshs_own_routes() {
    let (stack, tag) = (mesh().await, tag());
    let answer = send(&stack, ask(&question("code-once", &tag, &[DATED]))).await;
    assert!(ran_here(&answer.json()), "{}", answer.text());
    let answer = send(&stack, ask(&streamed(question("code-once", &tag, &[DATED])))).await;
    assert_eq!(events(&answer).last().unwrap()["type"], "message_stop", "{}", answer.text());
    // A native model, brought here by the header: called in its own wire, over its own route.
    let call = ask(&question("claude--code-once", &tag, &[DATED])).header("otari-code-execution", "otari");
    let answer = send(&stack, call).await;
    assert!(ran_here(&answer.json()), "{}", answer.text());

    let records = seen(&stack, &tag).await;
    assert_eq!(records.len(), 6);
    for record in &records {
        assert_eq!(strays(record), Vec::<&(String, String)>::new());
        assert_eq!(record.header("authorization"), [""; 0]);
        let (credential, value, model) = match record.path.as_str() {
            "/v1/messages" => ("x-api-key", ANTHROPIC_KEY, "claude--code-once"),
            _ => ("x-local-token", LOCAL_TOKEN, "code-once"),
        };
        assert_eq!(record.header(credential), [value], "{}", record.path);
        assert_eq!(record.json()["model"], model, "nothing is renamed");
    }
    // Every one of these calls met the filter, which let it pass unread: it decided once about the provider, just now.
    let native = send(&stack, ask(&question("claude--native", &tag, &[DATED]))).await;
    assert_eq!(native.status, 200, "{}", native.text());
    assert_eq!(counted(&stack, "otari.decided.provider", 1).await, 1);
    assert_eq!(counted(&stack, "otari.decided.sidecar", 3).await, 3);
    assert_eq!(stack.vm_reloads().await.unwrap(), 0);
}

#[tokio::test]
async fn a_model_that_only_the_mesh_knows_is_called_in_the_callers_own_wire() {
    let (stack, tag) = (mesh_with(r#"- {match: "*", provider: local}"#, "").await, tag());
    let answer = send(&stack, ask(&question("code-once", &tag, &[DATED]))).await;
    assert!(ran_here(&answer.json()), "{}", answer.text());
    let paths: Vec<_> = seen(&stack, &tag).await.into_iter().map(|record| record.path).collect();
    assert_eq!(paths, ["/v1/messages", "/v1/messages"]);
}

#[tokio::test]
async fn what_is_not_for_the_sidecar_takes_the_meshs_way_untouched() {
    let (stack, tag) = (mesh().await, tag());
    let body = format!(
        "{{ \"model\": \"claude--native\",\n\"max_tokens\":9, \"tools\":[{{\"type\":\"{DATED}\"}}], \"messages\":[{{\"role\":\"user\",\"content\":\"{tag}\"}}] }}"
    );
    let path = "/v1/messages?beta=true";
    let call = Call::post_bytes(path, body.clone()).header("anthropic-version", "2023-06-01");
    assert_eq!(send(&stack, call).await.status, 200);
    let plain = question("claude--text", &tag, &[]);
    assert_eq!(send(&stack, ask(&plain)).await.status, 200);
    let records = seen(&stack, &tag).await;
    assert_eq!(records.len(), 2);
    assert_eq!((records[0].path.as_str(), &records[0].sha256), (path, &harness::sha256(body.as_bytes())));
    for record in &records {
        assert_eq!(strays(record), Vec::<&(String, String)>::new());
        assert_eq!(record.header("x-api-key"), [ANTHROPIC_KEY]);
    }
    assert_eq!(counted(&stack, "otari.decided.provider", 2).await, 2);
    let nobody = ask(&plain).send(stack.address()).await.unwrap();
    assert_eq!(nobody.status, 401, "the mesh's own authentication stands before everything");
    let tools = send(&stack, Call::get("/v1/tools")).await;
    assert_eq!(tools.status, 200, "{}", tools.text());
    let unknown = send(&stack, Call::get("/v1/responses/resp_otr0")).await;
    assert_eq!(unknown.json()["error"]["param"], "id", "{} {}", unknown.status, unknown.text());
    assert_eq!(send(&stack, Call::get("/otari/metrics")).await.status, 404);
}

#[tokio::test]
async fn a_forged_mark_opens_nothing_and_reaches_nobody() {
    let (stack, tag) = (mesh().await, tag());
    let guess = "x".repeat(HOP_SECRET.len());
    for mark in ["guess", guess.as_str(), ""] {
        let call = ask(&question("code-once", &tag, &[DATED])).header("x-otari-hop", mark);
        let answer = send(&stack, call).await;
        assert!(ran_here(&answer.json()), "it was inspected all the same: {}", answer.text());
        let native = ask(&question("claude--native", &tag, &[DATED])).header("x-otari-hop", mark);
        assert_eq!(send(&stack, native).await.status, 200);
    }
    // Two marks are none, and the route to the sidecar cannot be taken by name.
    let twice = ask(&question("code-once", &tag, &[DATED])).header("x-otari-hop", "a").header("x-otari-hop", "b");
    assert!(ran_here(&send(&stack, twice).await.json()));
    let routed = ask(&question("claude--native", &tag, &[DATED]))
        .header("x-otari-route", "sidecar")
        .header("x-otari-provider", "local")
        .header("x-mesh-user", "somebody else");
    assert_eq!(send(&stack, routed).await.status, 200);
    let records = seen(&stack, &tag).await;
    assert_eq!(records.len(), 4 * 2 + 4);
    for record in &records {
        assert_eq!(strays(record), Vec::<&(String, String)>::new());
    }
}

#[tokio::test]
async fn the_example_holds_what_the_command_prints() {
    let stack = mesh().await;
    let output = std::process::Command::new(harness::stack::binary("otari-sidecar").unwrap())
        .args(["envoy-config", "--plugin-config", "--config", "otari.yaml"])
        .env("HOP_SECRET", HOP_SECRET)
        .current_dir(stack.folder())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let example = include_str!("../../../envoy/mesh.yaml");
    let pasted = example.lines().map(str::trim).find(|line| line.starts_with('{')).unwrap();
    assert_eq!(printed.trim(), pasted);
}
