//! A code turn through the whole sidecar: decision, model, a real sandbox, native blocks.

use serde_json::json;

use crate::support::{Answer, POLICY, Sidecar, Upstream, start_with};

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

/// Writes two files, one of them an image, and one that is no file.
const WRITES: &str = r#"{"id": "1", "object": "chat.completion", "created": 1, "model": "local-1", "choices": [{"index": 0,
    "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1",
    "type": "function", "function": {"name": "code_execution", "arguments":
    "{\"code\": \"import os\\nn = open('chart.png', 'wb').write(b'PNG'); os.mkdir('out'); n = open('out/a b.csv', 'w').write('1,2'); os.symlink('/etc/passwd', 'passwd')\"}"}}]}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}"#;

/// A file's bytes over the routes of either vocabulary.
async fn content(sidecar: &Sidecar, id: &str) -> Answer {
    sidecar.call("GET", &format!("/v1/files/{id}/content")).send().await
}

#[tokio::test]
async fn what_code_writes_is_a_file_of_its_callers_on_every_wire() {
    let sidecar = start_with("sandbox: {backend: embedded}").await;
    let upstream =
        Upstream::answering_each(&sidecar.config.model_socket(), &[WRITES, TEXT, WRITES, TEXT, WRITES, TEXT]);
    let request = json!({
        "model": "local-1", "max_tokens": 99, "messages": [{"role": "user", "content": "Draw."}],
        "tools": [{"type": "code_execution_20250522", "name": "code_execution"}],
    });
    let answer = sidecar.messages(&request).await.json();
    let outputs = answer["content"][1]["content"]["content"].as_array().unwrap();
    assert_eq!(outputs.len(), 2, "{answer}");
    for (output, bytes) in outputs.iter().zip(["PNG", "1,2"]) {
        assert_eq!(output["type"], "code_execution_output");
        let file = content(&sidecar, output["file_id"].as_str().unwrap()).await;
        assert_eq!((file.status, &file.body[..]), (200, bytes.as_bytes()));
    }
    let path = format!("/v1/files/{}", outputs[1]["file_id"].as_str().unwrap());
    let metadata = sidecar.call("GET", &path).header("anthropic-version", "2023-06-01").send().await.json();
    assert_eq!((&metadata["filename"], &metadata["mime_type"]), (&json!("a b.csv"), &json!("text/csv")), "{metadata}");
    assert_eq!(metadata["downloadable"], true);
    // What the model read of it.
    let told: serde_json::Value = serde_json::from_slice(&upstream.recorded()[1].body).unwrap();
    let told = told["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(told.contains("out/a b.csv (file_id: file-otr") && !told.contains("passwd"), "{told}");

    let request = json!({
        "model": "local-1", "input": "Draw.", "include": ["code_interpreter_call.outputs"],
        "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
    });
    let answer = sidecar.call("POST", "/v1/responses").json(&request).send().await.json();
    assert_eq!(answer["output"][0]["outputs"][0]["url"], "data:image/png;base64,UE5H", "{answer}");
    let citations = answer["output"][1]["content"][0]["annotations"].as_array().unwrap();
    let names: Vec<_> = citations.iter().map(|citation| citation["filename"].as_str().unwrap()).collect();
    assert_eq!(names, ["chart.png", "a b.csv"], "{answer}");
    let id = citations[1]["file_id"].as_str().unwrap().replace("cfile_otr", "file-otr");
    assert_eq!(content(&sidecar, &id).await.body, "1,2");

    let request = json!({
        "model": "local-1", "messages": [{"role": "user", "content": "Draw."}],
        "tools": [{"type": "code_interpreter"}], "otari_include": ["code_execution"],
    });
    let answer = sidecar.call("POST", "/v1/chat/completions").json(&request).send().await.json();
    let files = answer["otari_code_execution"][0]["files"].as_array().unwrap();
    assert_eq!((files.len(), &files[1]["path"]), (2, &json!("out/a b.csv")), "{answer}");
    assert_eq!(content(&sidecar, files[1]["file_id"].as_str().unwrap()).await.body, "1,2");
    drop(sidecar.stopped().await);
}
