//! Files that requests name, through the whole sidecar: to a provider, to a model of text alone, into a run.

use bytes::Bytes;
use hyper::body::Frame;
use serde_json::{Value, json};

use crate::code::{CALL, TEXT};
use crate::extract::{pdf_saying, word};
use crate::support::{Sidecar, Upstream, start, start_with};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nabc";
/// [`PNG`] in base64.
const PNG_BASE64: &str = "iVBORw0KGgphYmM=";
const BOUNDARY: &str = "a-line-that-no-file-has";

/// Uploads these bytes as clients do that know no type; gives the file's id.
async fn upload(sidecar: &Sidecar, name: &str, bytes: &[u8]) -> String {
    let head = format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n--{BOUNDARY}\r\n\
         content-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         content-type: application/octet-stream\r\n\r\n"
    );
    let body = [head.as_bytes(), bytes, format!("\r\n--{BOUNDARY}--\r\n").as_bytes()].concat();
    let call = sidecar.call("POST", "/v1/files");
    let answer =
        call.header("content-type", &format!("multipart/form-data; boundary={BOUNDARY}")).body(body).send().await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn sent(upstream: &Upstream, call: usize) -> Value {
    serde_json::from_slice(&upstream.recorded()[call].body).unwrap()
}

#[tokio::test]
async fn a_relayed_request_gets_the_bytes_of_its_files_and_keeps_all_others() {
    let sidecar = start().await;
    let id = upload(&sidecar, "chart.png", PNG).await;
    let (upstream, pieces) = Upstream::streaming(&sidecar.config.model_socket());
    let image = format!(
        r#"{{"type":"image", "source":{{"type":"file","file_id":"{id}"}},"cache_control":{{"type":"ephemeral"}}}}"#
    );
    let body = |image: &str| {
        format!(
            "{{\"model\" : \"claude-x\",\"stream\":true,  \"max_tokens\":1.0, \"messages\":[{{\"role\":\"user\",\"content\":[{image}, \
             {{\"type\":\"text\",\"text\":\"what is in {id}?\"}}]}}] }}"
        )
    };
    pieces.send(Ok(Frame::data(Bytes::from_static(b"data: 1\n\n")))).await.unwrap();
    let mut open = sidecar.call("POST", "/v1/messages").body(body(&image)).open().await;
    assert_eq!((open.status, open.piece().await.unwrap().unwrap()), (200, Bytes::from_static(b"data: 1\n\n")));
    let image = format!(
        r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{PNG_BASE64}"}},"cache_control":{{"type":"ephemeral"}}}}"#
    );
    assert_eq!(upstream.recorded()[0].body, body(&image));
    assert_eq!(upstream.recorded()[0].headers["content-length"], body(&image).len().to_string());
}

#[tokio::test]
async fn a_model_of_text_alone_reads_documents_as_text_unless_that_is_off() {
    for (lines, reads) in [("", true), ("files: {extraction: false}", false)] {
        let sidecar = start_with(lines).await;
        let pdf = upload(&sidecar, "report.pdf", &pdf_saying("Revenue rose by 4 percent")).await;
        let doc = upload(&sidecar, "minutes.docx", &word([b"<w:p><w:t>All agreed</w:t></w:p>".to_vec()])).await;
        let page = upload(&sidecar, "page.html", b"<p>Welcome <b>all</b></p><script>x</script>").await;
        let broken = upload(&sidecar, "broken.pdf", b"%PDF-1.4 nothing").await;
        let upstream = Upstream::answering(&sidecar.config.model_socket(), 200, &[], b"{}");
        let file = |id: &str| json!({"type": "file", "file": {"file_id": id}});
        let body = json!({"model": "local-1", "messages": [{"role": "user", "content": [
            file(&pdf), file(&doc), file(&page), file(&broken),
        ]}]});
        let answer = sidecar.call("POST", "/v1/chat/completions").json(&body).send().await;
        let place = |part: usize| format!("messages[0].content[{part}].file.file_id");
        let lost: Vec<String> = if reads { vec![place(3)] } else { (0..4).map(place).collect() };
        assert_eq!((answer.status, answer.header("otari-dropped")), (200, Some(lost.join(", ").as_str())));
        let content = sent(&upstream, 0)["messages"][0]["content"].clone();
        let texts: Vec<&str> = content.as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect();
        let unreadable = |name: &str| format!("[file \"{name}\" could not be read as text]");
        assert_eq!(texts[3], unreadable("broken.pdf"));
        for (text, (name, said)) in texts.iter().zip([
            ("report.pdf", "Revenue rose by 4 percent"),
            ("minutes.docx", "All agreed"),
            ("page.html", "Welcome all"),
        ]) {
            if reads {
                assert!(text.starts_with(&format!("[begin of file \"{name}\", mark ")), "{text}");
                assert!(text.contains(&format!("]\n{said}\n[end of file \"{name}\", mark ")), "{text}");
            } else {
                assert_eq!(*text, unreadable(name));
            }
        }
    }
}

#[tokio::test]
async fn a_document_is_read_once_however_often_it_is_named() {
    let sidecar = start_with("files: {text_max_chars: 100}").await;
    let upstream = Upstream::answering(&sidecar.config.model_socket(), 200, &[], b"{}");
    let padded = |text: &str| format!("{:<400}", format!("<p>{text}</p>")).into_bytes();
    for (text, status) in [("short".to_owned(), 200), ("long ".repeat(30), 413)] {
        let id = upload(&sidecar, "page.html", &padded(&text)).await;
        let body = json!({"model": "local-1", "messages": [{"role": "user", "content": [
            {"type": "file", "file": {"file_id": id}}, {"type": "file", "file": {"file_id": id}},
        ]}]});
        let ask = async || sidecar.call("POST", "/v1/chat/completions").json(&body).send().await;
        assert_eq!(ask().await.status, status);
        // Nobody changes a blob; by this one it shows whether it is read again.
        let blob = sidecar.config.data_dir.join("files").join(&id[8..10]).join(&id[8..]);
        std::fs::write(blob, padded(if status == 200 { "changed" } else { "short" })).unwrap();
        assert_eq!(ask().await.status, status, "{text}");
        if status == 200 {
            let said = sent(&upstream, 1).to_string();
            assert!(said.contains("short") && !said.contains("changed"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_is_refused_in_the_callers_words_before_any_model_is_asked() {
    let sidecar = start().await;
    let upstream = Upstream::answering(&sidecar.config.model_socket(), 200, &[], b"{}");
    let id = upload(&sidecar, "a.png", PNG).await;
    assert_eq!(sidecar.call("DELETE", &format!("/v1/files/{id}")).send().await.status, 200);
    for id in [id.as_str(), "file-otr1"] {
        let body = json!({"model": "claude-x", "messages": [{"role": "user", "content": [
            {"type": "document", "source": {"type": "file", "file_id": id}},
        ]}]});
        let answer = sidecar.messages(&body).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status, error["type"].as_str()), (404, Some("not_found_error")));
        assert_eq!(error["message"], format!("File `{id}` not found."));
        let body = json!({"model": "gpt-x", "input": [{"type": "input_file", "file_id": id}]});
        let answer = sidecar.call("POST", "/v1/responses").json(&body).send().await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status, error["type"].as_str()), (404, Some("invalid_request_error")));
        assert_eq!(error["message"], format!("No such File object: {id}"));
        assert_eq!(error["param"], "input[0].file_id");
    }
    assert!(upstream.recorded().is_empty());
}

#[tokio::test]
async fn urls_in_a_request_are_nobodys_to_fetch_here() {
    let sidecar = start().await;
    let upstream = Upstream::answering(&sidecar.config.model_socket(), 200, &[], b"{}");
    let inside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let url = format!("http://{}/file-otr0123456789abcdef0123456789abcdef.png", inside.local_addr().unwrap());
    let id = upload(&sidecar, "a.png", PNG).await;
    let body = json!({"model": "gpt-x", "input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": url}, {"type": "input_file", "file_url": url}, {"type": "input_image", "file_id": id},
    ]}]});
    assert_eq!(sidecar.call("POST", "/v1/responses").json(&body).send().await.status, 200);
    let parts = sent(&upstream, 0)["input"][0]["content"].clone();
    assert_eq!((&parts[0]["image_url"], &parts[1]["file_url"]), (&json!(url), &json!(url)));
    assert_eq!(parts[2]["image_url"], format!("data:image/png;base64,{PNG_BASE64}"));
    assert_eq!(inside.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody connected");
}

#[tokio::test]
async fn files_that_do_not_fit_beside_the_bodies_held_are_told_to_come_back() {
    let limits = "max_body_bytes: 4096\nhttp: {max_buffered_bytes: 65536, drain_timeout_ms: 5000}";
    let sidecar = start_with(limits).await;
    let upstream = Upstream::answering(&sidecar.config.model_socket(), 200, &[], b"{}");
    let (small, large) =
        (upload(&sidecar, "s.png", PNG).await, upload(&sidecar, "l.png", &[PNG, &vec![0; 65536]].concat()).await);
    let body = |id: &str| {
        json!({"model": "claude-x", "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "file", "file_id": id}},
        ]}]})
    };
    let full = sidecar.messages(&body(&large)).await;
    assert_eq!((full.status, full.json()["error"]["type"].as_str()), (529, Some("overloaded_error")));
    assert!(upstream.recorded().is_empty());
    assert_eq!(sidecar.messages(&body(&small)).await.status, 200, "all was given back");
}

#[tokio::test]
async fn what_a_relayed_history_loses_is_named_in_the_answers_head() {
    let sidecar = start().await;
    let upstream = Upstream::answering(&sidecar.config.model_socket(), 200, &[("x-from", "model")], b"{}");
    let body = json!({"model": "gpt-x", "input": [
        {"role": "user", "content": "hi"}, {"type": "item_reference", "id": "otari_ci_0123456789abcdef0123456789abcdef"},
    ]});
    let answer = sidecar.call("POST", "/v1/responses").json(&body).send().await;
    assert_eq!((answer.header("otari-dropped"), answer.header("x-from")), (Some("input[1]"), Some("model")));
    assert_eq!(sent(&upstream, 0)["input"], json!([{"role": "user", "content": "hi"}]));
}

/// A model's call that prints what the working directory holds.
const READ: &str = r#"{"id": "1", "object": "chat.completion", "created": 1, "model": "local-1", "choices": [{"index": 0,
    "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1",
    "type": "function", "function": {"name": "code_execution", "arguments": "{\"code\": \"import os\\nfor n in sorted(os.listdir('.')):\\n  print(n, open(n, 'rb').read())\"}"}}]}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}"#;

#[tokio::test]
async fn a_runs_code_finds_every_file_and_its_model_is_told_their_names() {
    let sidecar = start_with("sandbox: {backend: embedded}").await;
    let upstream = Upstream::answering_each(&sidecar.config.model_socket(), &[READ, TEXT]);
    let (one, two) = (upload(&sidecar, "data.csv", b"a,b").await, upload(&sidecar, "data.csv", b"c,d").await);
    let png = upload(&sidecar, "a.png", PNG).await;
    let request = json!({
        "model": "local-1", "max_tokens": 99,
        "messages": [{"role": "user", "content": [
            {"type": "container_upload", "file_id": one},
            {"type": "document", "source": {"type": "file", "file_id": two}, "title": "The second"},
            {"type": "image", "source": {"type": "file", "file_id": png}},
            {"type": "text", "text": "compare them"},
        ]}],
        "tools": [{"type": "code_execution_20250522", "name": "code_execution"}],
    });
    let answer = sidecar.messages(&request).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let content = answer.json()["content"].clone();
    assert_eq!(
        content[1]["content"]["stdout"], "a.png b'\\x89PNG\\r\\n\\x1a\\nabc'\ndata-2.csv b'c,d'\ndata.csv b'a,b'\n",
        "{content}"
    );
    let left_out = "messages[0].content[2].source.file_id";
    assert_eq!(answer.header("otari-dropped"), Some(left_out), "a picture is nothing to this model");
    let told = sent(&upstream, 0)["messages"].to_string();
    for text in [
        r#"[file \\\"data.csv\\\" lies in the working directory of the code tools]"#,
        r#"[file \\\"data-2.csv\\\" lies in the working directory of the code tools]"#,
        "c,d",
        "compare them",
    ] {
        let text = text.replace(r#"\\\""#, r#"\""#);
        assert!(told.contains(&text), "{text} is not in {told}");
    }
    assert!(!told.contains("a,b") && !told.contains("file-otr"), "{told}");
}

#[tokio::test]
async fn files_of_a_container_are_there_again_for_who_goes_on_from_the_answer() {
    let sidecar = start_with("sandbox: {backend: embedded}").await;
    let upstream = Upstream::answering_each(&sidecar.config.model_socket(), &[READ, TEXT, READ, TEXT, CALL, TEXT]);
    let (csv, png) = (upload(&sidecar, "data.csv", b"a,b").await, upload(&sidecar, "a.png", PNG).await);
    let tools = json!([{"type": "code_interpreter", "container": {"type": "auto", "file_ids": [csv]}}]);
    let first = json!({
        "model": "local-1", "tools": tools, "include": ["code_interpreter_call.outputs"],
        "input": [{"role": "user", "content": [{"type": "input_file", "file_id": png}, {"type": "input_text", "text": "look"}]}],
    });
    let answer = sidecar.call("POST", "/v1/responses").json(&first).send().await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let logs = |answer: &Value| answer["output"][0]["outputs"][0]["logs"].as_str().unwrap().to_owned();
    let seen = "a.png b'\\x89PNG\\r\\n\\x1a\\nabc'\ndata.csv b'a,b'\n";
    assert_eq!(logs(&answer.json()), seen, "{:?}", answer.json());
    let system = sent(&upstream, 0)["messages"][0].to_string();
    assert!(system.contains(r#"Files that lie in the working directory: \"data.csv\"."#), "{system}");

    let next = json!({
        "model": "local-1", "tools": tools, "include": ["code_interpreter_call.outputs"],
        "previous_response_id": answer.json()["id"], "input": "once more",
    });
    let answer = sidecar.call("POST", "/v1/responses").json(&next).send().await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(logs(&answer.json()), seen, "a file named two turns ago lies there again");
    assert_eq!(sidecar.call("DELETE", &format!("/v1/files/{png}")).send().await.status, 200);
    let gone = sidecar.call("POST", "/v1/responses").json(&next).send().await;
    assert_eq!(gone.status, 404, "{:?}", gone.body);
    assert_eq!(upstream.recorded().len(), 4);
}
