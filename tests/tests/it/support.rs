//! What the modules share: one running stack, requests, and a look at what came out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use harness::client::{Answer, Call};
use harness::scripted_model::Record;
use harness::stack::{Setup, Stack};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// The dated keyword that current SDKs send.
pub(crate) const DATED: &str = "code_execution_20250825";
/// Longest upload of the shared stack.
pub(crate) const FILES_MAX_BYTES: u64 = 16 << 20;
/// The gateway's own tool type.
pub(crate) const OWN: &str = "otari_code_execution";

/// The stack of all tests that change nothing in it; it ends with the last of them.
pub(crate) async fn shared() -> Arc<Stack> {
    static SHARED: Mutex<Weak<Stack>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(stack) = shared.upgrade() {
        return stack;
    }
    let files = format!("{{max_bytes: {FILES_MAX_BYTES}}}");
    let stack = Arc::new(start(Setup::default().set("explain", "true").set("files", &files)).await);
    *shared = Arc::downgrade(&stack);
    stack
}

/// A stack of one's own.
pub(crate) async fn start(setup: Setup) -> Stack {
    Stack::start(setup).await.unwrap_or_else(|problem| panic!("{problem}"))
}

/// A word that no other request of this run contains, by which a request is found at the model.
pub(crate) fn tag() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("tag-{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A Messages request that carries the tag and declares these tool types.
pub(crate) fn question(model: &str, tag: &str, tools: &[&str]) -> Value {
    let mut request = json!({
        "model": model,
        "max_tokens": 1024,
        "messages": [{"role": "user", "content": format!("Add up the numbers to 100. {tag}")}],
    });
    if !tools.is_empty() {
        request["tools"] = tools.iter().map(|kind| json!({"type": kind, "name": "code_execution"})).collect();
    }
    request
}

/// A POST to the Messages endpoint.
pub(crate) fn ask(request: &Value) -> Call {
    Call::post("/v1/messages", request).header("anthropic-version", "2023-06-01")
}

/// The requests with this tag that reached the model.
pub(crate) async fn seen(stack: &Stack, tag: &str) -> Vec<Record> {
    let records = stack.received().await.expect("the scripted model answers");
    records.into_iter().filter(|record| record.body.as_ref().is_some_and(|body| body.contains(tag))).collect()
}

/// Data of every event of a stream, with `type` as its name says.
pub(crate) fn events(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let mut events = Vec::new();
    for block in text.split("\n\n") {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        if let (Some(name), Some(data)) = (field("event: "), field("data: ")) {
            let data: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
            assert_eq!(data["type"], name, "{block}");
            events.push(data);
        }
    }
    events
}

/// The message that an SDK would build of these events.
pub(crate) fn accumulate(events: &[Value]) -> Value {
    let mut message = Value::Null;
    let mut inputs: Vec<String> = Vec::new();
    for event in events {
        let index = event["index"].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                let content = message["content"].as_array_mut().expect("message_start came first");
                assert_eq!(index, content.len(), "indices count up without a gap");
                content.push(event["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                let delta = &event["delta"];
                for (kind, field) in [("text_delta", "text"), ("thinking_delta", "thinking")] {
                    if delta["type"] == kind {
                        let block = &mut message["content"][index][field];
                        *block = json!(format!("{}{}", block.as_str().unwrap(), delta[field].as_str().unwrap()));
                    }
                }
                if delta["type"] == "signature_delta" {
                    message["content"][index]["signature"] = delta["signature"].clone();
                }
                inputs[index].push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" if !inputs[index].is_empty() => {
                message["content"][index]["input"] = serde_json::from_str(&inputs[index]).expect("input is JSON");
            }
            "message_delta" => {
                for (key, value) in event["delta"].as_object().unwrap() {
                    message[key] = value.clone();
                }
                for (key, value) in event["usage"].as_object().unwrap() {
                    message["usage"][key] = value.clone();
                }
            }
            _ => {}
        }
    }
    message
}

/// The types of a message's blocks.
pub(crate) fn block_types(message: &Value) -> Vec<&str> {
    message["content"].as_array().into_iter().flatten().filter_map(|block| block["type"].as_str()).collect()
}

/// Whether this Messages answer shows that the gateway ran the code.
pub(crate) fn ran_here(message: &Value) -> bool {
    let blocks = message["content"].as_array().into_iter().flatten();
    let ours = blocks.filter_map(|block| block["id"].as_str()).any(|id| id.starts_with("otari_srvtoolu_"));
    ours && block_types(message).contains(&"code_execution_tool_result")
}

/// Asserts an Anthropic error of this status and type, and gives its message.
pub(crate) fn refused(answer: &Answer, status: u16, kind: &str) -> String {
    let body = answer.json();
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(body["type"], "error", "{body}");
    assert_eq!(body["error"]["type"], kind, "{body}");
    assert!(answer.header("request-id").is_some_and(|id| body["request_id"] == id), "{:?} {body}", answer.headers);
    body["error"]["message"].as_str().unwrap().to_owned()
}

/// Asserts that the provider got the request as the client sent it, and none of our headers.
pub(crate) fn untouched(record: &Record, path: &str, body: &[u8]) {
    assert_eq!(record.path, path);
    assert_eq!(record.sha256, harness::sha256(body), "{:?}", record.body);
    let ours = record.headers.iter().find(|(name, _)| name.contains("otari") || name.starts_with("x-envoy"));
    assert_eq!(ours, None, "{:?}", record.headers);
}
