//! A code turn through the whole sidecar: decision, model, a real sandbox, native blocks.

use serde_json::json;

use crate::support::{POLICY, Upstream, start_with};

pub(crate) const CALL: &str = r#"{"id": "1", "object": "chat.completion", "created": 1, "model": "local-1", "choices": [{"index": 0,
    "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1",
    "type": "function", "function": {"name": "code_execution", "arguments": "{\"code\": \"print(6 * 7)\"}"}}]}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}"#;
pub(crate) const TEXT: &str = r#"{"id": "2", "object": "chat.completion", "created": 1, "model": "local-1", "choices": [{"index": 0,
    "finish_reason": "stop", "message": {"role": "assistant", "content": "It is 42."}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}"#;

#[tokio::test]
async fn code_a_model_writes_runs_here_and_comes_back_in_native_blocks() {
    let sidecar = start_with("sandbox: {backend: embedded}").await;
    let health = sidecar.bare_call("GET", "/healthz").send().await.json();
    assert_eq!(health["sandbox"]["backend"], "embedded");
    let upstream = Upstream::answering_each(&sidecar.config.model_socket(), &[CALL, TEXT]);
    let request = json!({
        "model": "local-1", "max_tokens": 99, "messages": [{"role": "user", "content": "6 times 7?"}],
        "tools": [{"type": "code_execution_20250522", "name": "code_execution"}],
    });
    let answer = sidecar.messages(&request).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let content = answer.json()["content"].clone();
    assert_eq!(content[0]["type"], "server_tool_use", "{content}");
    assert_eq!(content[1]["content"]["stdout"], "42\n", "{content}");
    assert_eq!(content[2]["text"], "It is 42.", "{content}");
    assert_eq!(upstream.recorded().len(), 2);
    assert!(upstream.recorded().iter().all(|call| call.path == "/v1/chat/completions"));
    let metrics = sidecar.admin("GET", "/otari/metrics").send().await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    for line in ["otari_sidecar_turns_total 2\n", "otari_sidecar_code_runs_total 1\n"] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let off = json!({"enabled": false});
    assert_eq!(sidecar.admin("PUT", POLICY).json(&off).send().await.status, 200);
    let refused = sidecar.messages(&request).await;
    assert_eq!((refused.status, refused.json()["error"]["type"].as_str()), (403, Some("permission_error")));
    assert_eq!(upstream.recorded().len(), 2, "no model was asked");
    let folder = sidecar.stopped().await;
    drop(folder);
}
