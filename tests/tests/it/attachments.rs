//! Requests that name files, through Envoy and its filter: those of ours reach the sidecar, all others do not.

use harness::client::Call;
use harness::stack::Stack;
use http::Method;
use serde_json::{Value, json};

use crate::support::{ask, refused, seen, shared, tag, untouched};

pub(crate) async fn upload(stack: &Stack, name: &str, content: &str) -> String {
    let body = format!(
        "--a-boundary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{content}\r\n--a-boundary--\r\n"
    );
    let call = Call::new(Method::POST, "/v1/files").header("content-type", "multipart/form-data; boundary=a-boundary");
    let answer = stack.send(call.bytes(body.into_bytes())).await;
    answer.json()["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned()
}

fn request(tag: &str, id: &str) -> Value {
    let document = json!({"type": "document", "source": {"type": "file", "file_id": id}});
    json!({"model": "claude--code-once", "max_tokens": 9, "messages": [
        {"role": "user", "content": tag},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "sum 5050"}, document]}]},
    ]})
}

#[tokio::test]
async fn a_file_of_ours_reaches_its_provider_as_content_and_a_foreign_one_as_it_came() {
    let stack = shared().await;
    let (mine, tag_of_mine) = (upload(&stack, "data.csv", "a,b\n1,2").await, tag());
    let answer = stack.send(ask(&request(&tag_of_mine, &mine))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = seen(&stack, &tag_of_mine).await.pop().unwrap().json();
    let block = &sent["messages"][2]["content"][0]["content"][1];
    let source = json!({"type": "text", "media_type": "text/plain", "data": "a,b\n1,2"});
    assert_eq!(block, &json!({"type": "document", "source": source, "title": "data.csv"}), "{sent}");

    let foreign = tag();
    let body = request(&foreign, "file_011CForeign").to_string();
    let call = Call::new(Method::POST, "/v1/messages").header("content-type", "application/json").bytes(body.clone());
    assert_eq!(stack.send(call).await.status, 200);
    untouched(&seen(&stack, &foreign).await.pop().unwrap(), "/v1/messages", body.as_bytes());

    let gone = tag();
    let answer = stack.send(ask(&request(&gone, "file-otr0123456789abcdef0123456789abcdef"))).await;
    assert_eq!(refused(&answer, 404, "not_found_error"), "File `file-otr0123456789abcdef0123456789abcdef` not found.");
    assert!(seen(&stack, &gone).await.is_empty());
}

#[tokio::test]
async fn a_token_count_names_files_of_ours_like_a_message_and_a_batch_is_refused() {
    let stack = shared().await;
    let (mine, tag) = (upload(&stack, "data.csv", "a,b\n1,2").await, tag());
    let count = |id: &str, tag: &str| {
        Call::post("/v1/messages/count_tokens", &request(tag, id)).header("anthropic-version", "2023-06-01")
    };
    stack.send(count(&mine, &tag)).await;
    let record = seen(&stack, &tag).await.pop().expect("it reached the model");
    assert_eq!(record.path, "/v1/messages/count_tokens");
    let sent = record.json();
    let source = json!({"type": "text", "media_type": "text/plain", "data": "a,b\n1,2"});
    assert_eq!(sent["messages"][2]["content"][0]["content"][1]["source"], source, "{sent}");
    let gone = stack.send(count("file-otr0123456789abcdef0123456789abcdef", &tag)).await;
    refused(&gone, 404, "not_found_error");
    let batch = json!({"requests": [{"custom_id": "a", "params": request(&tag, &mine)}]});
    let batch = Call::post("/v1/messages/batches", &batch).header("anthropic-version", "2023-06-01");
    let message = refused(&stack.send(batch).await, 400, "invalid_request_error");
    assert!(message.contains("upload the file to the provider"), "{message}");
    assert_eq!(seen(&stack, &tag).await.len(), 1);
}
