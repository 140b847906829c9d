//! Requests whose code the provider runs, or that have none: decided again, then passed on unchanged.

use bytes::Bytes;
use hyper::body::Frame;
use serde_json::{Value, json};

use crate::support::{KEY, MASTER, POLICY, Recorded, Sidecar, Upstream, start, start_with};

const BODY: &str = "{\"model\" : \"claude-x\",  \"max_tokens\":1.0, \"x\": 12345678901234567890123, \"messages\":[]}";

fn upstream(sidecar: &Sidecar) -> Upstream {
    Upstream::answering(&sidecar.config.model_socket(), 418, &[("x-from", "model"), ("x-from", "twice")], b"tea")
}

fn only(upstream: &Upstream) -> Recorded {
    let mut recorded = upstream.recorded();
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    recorded.remove(0)
}

#[tokio::test]
async fn body_path_and_client_headers_stay_and_ours_go() {
    let sidecar = start().await;
    let upstream = upstream(&sidecar);
    let answer = sidecar
        .call("POST", "/v1/messages?beta=true")
        .header("x-otari-route", "sidecar")
        .header("x-otari-decision", "outcome=undecided")
        .header("otari-code-execution", "provider")
        .header("anthropic-beta", "one")
        .header("anthropic-beta", "two")
        .header("content-type", "application/json")
        .body(BODY)
        .send()
        .await;
    assert_eq!((answer.status, &answer.body[..]), (418, &b"tea"[..]));
    assert_eq!(answer.headers.get_all("x-from").iter().count(), 2);
    let seen = only(&upstream);
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/v1/messages?beta=true"));
    assert_eq!(seen.body, BODY);
    assert_eq!(seen.headers["x-otari-provider"], "anthropic");
    assert_eq!(seen.headers.get_all("anthropic-beta").iter().count(), 2);
    for gone in ["x-otari-hop", "x-otari-route", "x-otari-decision", "otari-code-execution", "authorization"] {
        assert!(!seen.headers.contains_key(gone), "{gone}");
    }
    assert!(!format!("{seen:?}").contains(KEY));
}

#[tokio::test]
async fn the_admins_key_stays_here_where_keys_are_not_asked_for() {
    let sidecar = start_with("identity: {mode: none}").await;
    let upstream = upstream(&sidecar);
    for header in ["authorization", "x-api-key"] {
        let call = sidecar.bare_call("POST", "/v1/messages").header("x-otari-hop", &sidecar.hop_secret);
        let value = if header == "x-api-key" { MASTER.to_owned() } else { format!("Bearer {MASTER}") };
        assert_eq!(call.header(header, &value).body(BODY).send().await.status, 418);
    }
    assert_eq!(upstream.recorded().len(), 2);
    assert!(!format!("{:?}", upstream.recorded()).contains(MASTER));
}

#[tokio::test]
async fn a_credential_that_is_not_ours_goes_along() {
    let sidecar = start().await;
    let upstream = upstream(&sidecar);
    let call = sidecar.bare_call("POST", "/v1/messages").header("x-otari-hop", &sidecar.hop_secret);
    let call = call.header("otari-key", KEY).header("x-api-key", "sk-ant-own").body(BODY);
    assert_eq!(call.send().await.status, 418);
    let seen = only(&upstream);
    assert_eq!(seen.headers["x-api-key"], "sk-ant-own");
    assert!(!seen.headers.contains_key("otari-key"));
}

#[tokio::test]
async fn a_model_with_another_name_upstream_gets_it_and_nothing_else_changes() {
    let sidecar = start().await;
    let upstream = upstream(&sidecar);
    let body = "{ \"model\": \"alias\", \"n\": 1.50 }";
    sidecar.call("POST", "/v1/chat/completions").body(body).send().await;
    sidecar.call("POST", "/v1/chat/completions").body("{\"model\":\"openai:gpt-9\"}").send().await;
    let seen = upstream.recorded();
    assert_eq!(seen[0].body, "{ \"model\": \"real \\\"name\\\"\", \"n\": 1.50 }");
    assert_eq!(
        (&seen[1].body[..], &seen[1].headers["x-otari-provider"]),
        (&b"{\"model\":\"gpt-9\"}"[..], &"openai".parse().unwrap())
    );
}

#[tokio::test]
async fn an_answer_of_ours_sent_back_without_tools_is_folded_for_a_provider() {
    let sidecar = start().await;
    let upstream = upstream(&sidecar);
    let body = concat!(
        r#"{ "model" : "claude-x", "max_tokens":1.0,"messages":[{"role":"user","content":"go"},"#,
        r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"otari_srvtoolu_1","name":"code_execution","input":{"code":"print(1)"}},"#,
        r#"{"type":"code_execution_tool_result","tool_use_id":"otari_srvtoolu_1","content":{"type":"code_execution_result","stdout":"1\n","stderr":"","return_code":0,"content":[]}},"#,
        r#"{"type":"text","text":"done"}]},{"role":"user","content":"on"}]}"#
    );
    assert_eq!(sidecar.call("POST", "/v1/messages").body(body).send().await.status, 418);
    let sent = String::from_utf8(only(&upstream).body.to_vec()).unwrap();
    assert!(sent.starts_with(r#"{ "model" : "claude-x", "max_tokens":1.0,"messages":["#), "{sent}");
    let sent: Value = serde_json::from_str(&sent).unwrap();
    let told = "I ran this Python code:\n```python\nprint(1)\n```\nstdout:\n1\nreturn code: 0";
    let text = |text: &str| json!({"type": "text", "text": text});
    let expected = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [text(told), text("done")]},
        {"role": "user", "content": "on"},
    ]);
    assert_eq!(sent["messages"], expected);
}

#[tokio::test]
async fn a_citation_of_a_file_of_ours_becomes_words_for_a_provider_though_nothing_else_is_ours() {
    let sidecar = start().await;
    let upstream = upstream(&sidecar);
    let citation = json!({"type": "container_file_citation", "container_id": "otari_cntr_1", "filename": "a.csv",
        "file_id": "cfile_otr00000000000000000000000000000001", "start_index": 0, "end_index": 0});
    let part = json!({"type": "output_text", "text": "Done.", "annotations": [citation]});
    let said = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [part]});
    let body = json!({"model": "gpt-9", "input": [said, {"role": "user", "content": "Go on."}]});
    assert_eq!(sidecar.call("POST", "/v1/responses").json(&body).send().await.status, 418);
    let sent: Value = serde_json::from_slice(&only(&upstream).body).unwrap();
    let part = &sent["input"][0]["content"][0];
    let told = "Done.\nfile: a.csv (file_id: file-otr00000000000000000000000000000001)";
    assert_eq!((&part["text"], &part["annotations"]), (&json!(told), &json!([])), "{sent}");
}

#[tokio::test]
async fn refusals_speak_the_callers_words_and_reach_no_model() {
    let sidecar = start().await;
    let upstream = upstream(&sidecar);
    let unknown = sidecar.bare_call("POST", "/v1/messages").header("x-otari-hop", &sidecar.hop_secret);
    let unknown = unknown.header("x-api-key", "otk_unknown").body(BODY).send().await;
    assert_eq!((unknown.status, unknown.json()["error"]["type"].as_str()), (401, Some("authentication_error")));
    let model = sidecar.call("POST", "/v1/responses").json(&json!({"model": "nobody's"})).send().await;
    assert_eq!((model.status, model.json()["error"]["code"].as_str()), (404, Some("model_not_found")));
    let broken = sidecar.call("POST", "/v1/messages").body("{").send().await;
    assert_eq!((broken.status, broken.json()["type"].as_str()), (400, Some("error")));
    let explicit = json!({"model": "local-1", "tools": [{"type": "otari_code_execution"}]});
    let explicit = sidecar.messages(&explicit).await;
    assert_eq!(explicit.status, 400, "no sandbox is configured");
    assert!(upstream.recorded().is_empty());
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_or_without_its_length() {
    let sidecar = start_with("max_body_bytes: 1024").await;
    let long = || sidecar.call("POST", "/v1/messages").body(vec![b' '; 1025]);
    for call in [long(), long().chunked()] {
        let answer = call.send().await;
        assert_eq!((answer.status, answer.json()["error"]["type"].as_str()), (413, Some("request_too_large")));
        let text = answer.json().to_string();
        assert!(text.contains("`max_body_bytes`"), "in the words of the decision: {text}");
    }
    let metrics = sidecar.admin("GET", "/otari/metrics").send().await;
    let counted = "otari_sidecar_decisions_total{outcome=\"refuse\",reason=\"body_too_large\"} 2\n";
    assert!(String::from_utf8_lossy(&metrics.body).contains(counted), "{metrics:?}");
}

#[tokio::test]
async fn a_body_that_decides_nothing_is_passed_on_as_it_comes_whatever_its_length() {
    let limits = "max_body_bytes: 1024\nhttp: {max_buffered_bytes: 1024, drain_timeout_ms: 5000}";
    let sidecar = start_with(&format!("{limits}\nproviders: {{only: {{type: openai}}}}")).await;
    let upstream = upstream(&sidecar);
    let upload = vec![b'x'; 5000];
    let call = || {
        let call = sidecar.call("POST", "/v1/audio/transcriptions").header("x-otari-route", "sidecar");
        call.header("content-type", "multipart/form-data; boundary=x").body(upload.clone())
    };
    for call in [call(), call().chunked()] {
        assert_eq!(call.send().await.status, 418);
    }
    let seen = upstream.recorded();
    assert!(seen.iter().all(|seen| seen.body == upload));
    assert_eq!(seen[0].headers["content-length"], "5000", "a known length stays known");
    assert!(!seen[1].headers.contains_key("content-length"));
}

#[tokio::test]
async fn a_disabled_workspace_is_served_where_no_code_is_declared() {
    let sidecar = start().await;
    let upstream = upstream(&sidecar);
    sidecar.admin("PUT", POLICY).json(&json!({"enabled": false})).send().await;
    assert_eq!(sidecar.call("POST", "/v1/messages").body(BODY).send().await.status, 418);
    assert_eq!(upstream.recorded().len(), 1);
}

#[tokio::test]
async fn a_model_that_is_not_there_is_an_error_of_the_wire() {
    let sidecar = start().await;
    let answer = sidecar.call("POST", "/v1/messages").body(BODY).send().await;
    assert_eq!((answer.status, answer.json()["error"]["type"].as_str()), (502, Some("api_error")));
    let text = answer.json().to_string();
    assert!(!text.contains("model.sock"), "the cause stays in the log: {text}");
}

#[tokio::test]
async fn a_stream_arrives_piece_by_piece_and_breaks_off_when_the_model_does() {
    let sidecar = start().await;
    let (_upstream, pieces) = Upstream::streaming(&sidecar.config.model_socket());
    pieces.send(Ok(Frame::data(Bytes::from_static(b"data: 1\n\n")))).await.unwrap();
    let mut open = sidecar.call("POST", "/v1/messages").body(BODY).open().await;
    assert_eq!(open.status, 200);
    assert_eq!(open.piece().await.unwrap().unwrap(), "data: 1\n\n");
    pieces.send(Ok(Frame::data(Bytes::from_static(b"data: 2\n\n")))).await.unwrap();
    assert_eq!(open.piece().await.unwrap().unwrap(), "data: 2\n\n");
    pieces.send(Err(std::io::Error::other("the model died"))).await.unwrap();
    assert!(open.piece().await.is_err(), "a broken answer must not look whole");
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_call_to_the_model() {
    let sidecar = start().await;
    let (_upstream, pieces) = Upstream::streaming(&sidecar.config.model_socket());
    pieces.send(Ok(Frame::data(Bytes::from_static(b"data: 1\n\n")))).await.unwrap();
    let mut open = sidecar.call("POST", "/v1/messages").body(BODY).open().await;
    open.piece().await.unwrap();
    drop(open);
    // The model notices by itself, though it has nothing to send.
    pieces.closed().await;
}

#[tokio::test]
async fn requests_and_decisions_are_counted() {
    let sidecar = start().await;
    let _upstream = upstream(&sidecar);
    sidecar.call("POST", "/v1/messages").body(BODY).send().await;
    let metrics = sidecar.admin("GET", "/otari/metrics").send().await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    for line in [
        "otari_sidecar_requests_total{route=\"/v1/messages\",status=\"418\",end=\"complete\"} 1",
        "otari_sidecar_decisions_total{outcome=\"provider\",reason=\"no_code_tool\"} 1",
        "otari_sidecar_requests_in_flight 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
