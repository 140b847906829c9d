//! Parts that die in mid-stream, and clients that leave.

use std::collections::BTreeSet;
use std::time::Duration;

use harness::client::{Answer, Call, Streaming};
use harness::scripted_model::End;
use harness::stack::{Process, Setup, Stack, eventually};
use serde_json::{Value, json};

use crate::support::{DATED, ask, question, refused, seen, start, tag};

/// The promise is two seconds; a loaded machine gets more before the test fails.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Shorter than the sidecar's own patience with open requests, which is 30 s: a client that left is not waited for.
const DRAINED_WITHIN: Duration = Duration::from_secs(20);

async fn open(stack: &Stack, model: &str, tag: &str) -> Streaming {
    let mut request = question(model, tag, &[DATED]);
    request["stream"] = json!(true);
    ask(&request).bearer(stack.key()).open(stack.address()).await.unwrap()
}

/// The paths of the wires besides Messages.
const OPENAI: [&str; 2] = ["/v1/chat/completions", "/v1/responses"];

/// A request of the wire at this path, for code.
fn request(path: &str, model: &str, tag: &str) -> Value {
    match path {
        "/v1/chat/completions" => {
            let mut request = question(model, tag, &[]);
            request["tools"] = json!([{"type": "code_interpreter"}]);
            request
        }
        "/v1/responses" => json!({"model": model, "input": format!("Add up the numbers to 100. {tag}"),
            "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}),
        _ => question(model, tag, &[DATED]),
    }
}

fn streamed(path: &str, model: &str, tag: &str) -> Call {
    let mut request = request(path, model, tag);
    request["stream"] = json!(true);
    Call::post(path, &request)
}

/// The error event at the end of a stream that has begun.
fn error_event(answer: &Answer) -> Value {
    let text = answer.text();
    let (before, event) = text.rsplit_once("event: error\n").unwrap_or_else(|| panic!("no error event: {text}"));
    assert!(before.contains("message_start"), "{text}");
    let data: Value = serde_json::from_str(event.strip_prefix("data: ").unwrap().trim_end()).unwrap();
    assert_eq!(data["type"], "error");
    assert!(data["error"]["message"].is_string());
    data
}

/// The sandbox processes of one turn.
struct Sandboxes(BTreeSet<Process>);

impl Sandboxes {
    /// Starts a turn whose code sleeps, and waits until it does.
    async fn of_a_running_turn(stack: &Stack, tag: &str) -> (Streaming, Self) {
        Self::of(stack, streamed("/v1/messages", "code-slow", tag)).await
    }

    /// The same for this call.
    async fn of(stack: &Stack, call: Call) -> (Streaming, Self) {
        let before = stack.sidecar().descendants();
        let stream = call.bearer(stack.key()).open(stack.address()).await.unwrap();
        let mut sandboxes = Self(BTreeSet::new());
        let started = eventually(GONE_WITHIN, async || {
            sandboxes.0 = stack.sidecar().descendants().difference(&before).copied().collect();
            // The program writes this file and then sleeps.
            sandboxes.0.iter().any(|process| process.has_file("otari-slow-marker"))
        });
        assert!(started.await, "the program was not seen running: {:?}", sandboxes.0);
        (stream, sandboxes)
    }

    async fn assert_gone(&self) {
        let gone = eventually(GONE_WITHIN, async || !self.0.iter().any(Process::is_alive));
        assert!(gone.await, "processes are left: {:?}", self.0);
    }
}

#[tokio::test]
async fn a_model_that_breaks_off_becomes_an_error_event() {
    let stack = start(Setup::default()).await;
    for model in ["cut", "messages--cut", "cut-later", "messages--cut-later", "messages--error-event"] {
        let answer = open(&stack, model, &tag()).await.finish().await.unwrap();
        error_event(&answer);
    }
    for model in ["cut", "messages--cut", "cut-later"] {
        let whole = stack.send(ask(&question(model, &tag(), &[DATED]))).await;
        refused(&whole, 502, "api_error");
        // After code has run, an SDK must not send the request again by itself.
        assert_eq!(whole.header("x-should-retry"), (model == "cut-later").then_some("false"), "{:?}", whole.headers);
    }
}

#[tokio::test]
async fn a_model_that_breaks_off_is_told_in_the_words_of_openais_wires() {
    let stack = start(Setup::default()).await;
    for path in OPENAI {
        for model in ["cut", "messages--cut-later", "responses--cut", "messages--error-event"] {
            let answer = stack.send(streamed(path, model, &tag())).await;
            let text = answer.text();
            if path == "/v1/responses" {
                assert!(text.contains("event: error\n"), "{text}");
                assert!(text.rsplit_once("event: ").unwrap().1.starts_with("response.failed\n"), "{text}");
            } else {
                assert!(text.ends_with("\n\ndata: [DONE]\n\n"), "{text}");
                assert!(text.contains("data: {\"error\":") && !text.contains("\"finish_reason\":\"stop\""), "{text}");
            }
        }
        for model in ["cut", "cut-later"] {
            let whole = stack.send(Call::post(path, &request(path, model, &tag()))).await;
            assert_eq!(whole.status, 502, "{}", whole.text());
            assert_eq!(whole.header("x-should-retry"), (model == "cut-later").then_some("false"), "{path} {model}");
        }
        let limited = stack.send(Call::post(path, &request(path, "refused-429", &tag()))).await;
        assert_eq!((limited.status, limited.header("retry-after")), (429, Some("7")), "{}", limited.text());
    }
}

#[tokio::test]
async fn an_error_of_the_model_keeps_its_meaning() {
    let stack = start(Setup::default()).await;
    for stream in [false, true] {
        let mut request = question("refused-429", &tag(), &[DATED]);
        request["stream"] = json!(stream);
        let limited = stack.send(ask(&request)).await;
        refused(&limited, 429, "rate_limit_error");
        assert_eq!(limited.header("retry-after"), Some("7"));
    }
    let failed = stack.send(ask(&question("refused-500", &tag(), &[DATED]))).await;
    assert!(matches!(failed.status, 500 | 502), "{}", failed.text());
    assert_eq!(failed.json()["type"], "error");
    let nowhere = stack.send(ask(&question("nowhere--text", &tag(), &[DATED]))).await;
    assert!(matches!(nowhere.status, 502 | 503 | 529), "{} {}", nowhere.status, nowhere.text());
    assert_eq!(nowhere.json()["type"], "error", "{}", nowhere.text());
}

#[tokio::test]
async fn a_killed_model_becomes_an_error_event() {
    let stack = start(Setup::default()).await;
    let mut stream = open(&stack, "hang", &tag()).await;
    stream.read_until("I am about to").await.unwrap();
    stack.model().kill();
    error_event(&stream.finish().await.unwrap());
}

#[tokio::test]
async fn a_killed_sandbox_is_told_and_never_answers_for_the_code() {
    let stack = start(Setup::default()).await;
    let (stream, sandboxes) = Sandboxes::of_a_running_turn(&stack, &tag()).await;
    sandboxes.0.iter().for_each(Process::kill);
    let text = stream.finish().await.unwrap().text();
    // Either the wire's error event, or a result that tells it and the model's last word.
    assert!(text.contains("event: error") || text.contains("event: message_stop"), "{text}");
    assert!(!text.contains("started\\nfinished"), "{text}");
    sandboxes.assert_gone().await;
}

#[tokio::test]
async fn a_killed_sidecar_breaks_the_stream_and_leaves_no_sandbox() {
    let stack = start(Setup::default()).await;
    let (stream, sandboxes) = Sandboxes::of_a_running_turn(&stack, &tag()).await;
    stack.sidecar().kill();
    // Nobody is left who could add an event to a stream that has begun: it must break off, never end well.
    if let Ok(answer) = stream.finish().await {
        assert!(!answer.text().contains("message_stop"), "{}", answer.text());
    }
    sandboxes.assert_gone().await;
    let after = stack.send(ask(&question("code-once", &tag(), &[DATED]))).await;
    assert!(after.status >= 500, "{} {}", after.status, after.text());
    assert_eq!(after.json()["type"], "error", "{}", after.text());
    let health = Call::get("/healthz").send(stack.address()).await.unwrap();
    assert!(health.status >= 500, "{}", health.status);
    assert_eq!(stack.vm_reloads().await.unwrap(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_stops_the_code() {
    let stack = start(Setup::default()).await;
    let tag = tag();
    let (stream, sandboxes) = Sandboxes::of_a_running_turn(&stack, &tag).await;
    drop(stream);
    sandboxes.assert_gone().await;
    assert_eq!(seen(&stack, &tag).await.len(), 1, "no further model call was made");
}

#[tokio::test]
async fn a_client_of_openais_wires_that_leaves_stops_code_and_model_call() {
    let stack = start(Setup::default()).await;
    for path in OPENAI {
        let coding = tag();
        let (stream, sandboxes) = Sandboxes::of(&stack, streamed(path, "code-slow", &coding)).await;
        drop(stream);
        sandboxes.assert_gone().await;
        assert_eq!(seen(&stack, &coding).await.len(), 1, "no further model call was made");
        for model in ["hang", "silent"] {
            let tag = tag();
            let call = streamed(path, model, &tag).bearer(stack.key());
            let address = stack.address();
            let client = tokio::spawn(async move { call.open(address).await?.finish().await });
            let asked = eventually(GONE_WITHIN, async || !seen(&stack, &tag).await.is_empty());
            assert!(asked.await, "{path} {model}: the model was never asked");
            client.abort();
            let left = eventually(GONE_WITHIN, async || seen(&stack, &tag).await[0].end == End::Left);
            assert!(left.await, "{path} {model}: the model call goes on");
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_stops_the_model_call() {
    let stack = start(Setup::default()).await;
    for (model, stream) in [("hang", true), ("messages--hang", true), ("silent", true), ("silent", false)] {
        let tag = tag();
        let mut request = question(model, &tag, &[DATED]);
        request["stream"] = json!(stream);
        let call = ask(&request).bearer(stack.key());
        let address = stack.address();
        let client = tokio::spawn(async move {
            let mut answer = call.open(address).await?;
            while answer.next().await?.is_some() {}
            std::io::Result::Ok(())
        });
        let asked = eventually(GONE_WITHIN, async || !seen(&stack, &tag).await.is_empty());
        assert!(asked.await, "{model}: the model was never asked");
        client.abort();
        let left = eventually(GONE_WITHIN, async || seen(&stack, &tag).await[0].end == End::Left);
        assert!(left.await, "{model}, stream {stream}: the model call goes on");
    }
}

#[tokio::test]
async fn a_sidecar_that_is_told_to_stop_ends_cleanly() {
    let stack = start(Setup::default()).await;
    let (stream, sandboxes) = Sandboxes::of_a_running_turn(&stack, &tag()).await;
    drop(stream);
    assert_eq!(stack.sidecar().stop(DRAINED_WITHIN).await, Some(0), "{}", stack.sidecar().log_tail());
    sandboxes.assert_gone().await;
    assert_eq!(stack.sidecar().descendants(), BTreeSet::new());
}
