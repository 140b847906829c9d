//! Who gets a request, and in what state: the provider untouched, or the sidecar.

use harness::client::Call;
use http::Method;
use serde_json::{Value, json};

use crate::support::{DATED, ask, question, ran_here, refused, seen, shared, tag, untouched};

#[tokio::test]
async fn a_native_request_reaches_the_provider_byte_for_byte() {
    let (stack, tag) = (shared().await, tag());
    // Blanks, key order and an escape that a rewrite would not survive.
    let body = format!(
        "{{ \"model\":\"claude--native\",\n\t\"max_tokens\" : 9,\"tools\":[{{\"name\":\"code_execution\",\"type\":\
         \"{DATED}\"}}],\"messages\":[{{\"content\":\"\\u0041 {tag}\",\"role\":\"user\"}}] , \"x\": 1.0e2}}"
    );
    let path = "/v1/messages?beta=true&a=%20b";
    let call = Call::post_bytes(path, body.clone())
        .header("anthropic-version", "2023-06-01")
        .header("anthropic-beta", "code-execution-2025-08-25, files-api-2025-04-14")
        .header("x-stainless-retry-count", "0")
        .header("user-agent", "Anthropic/Python 2.14.0");
    let answer = stack.send(call).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["content"][0]["id"], "srvtoolu_scripted");

    let records = seen(&stack, &tag).await;
    assert_eq!(records.len(), 1);
    untouched(&records[0], path, body.as_bytes());
    assert_eq!(records[0].header("anthropic-version"), ["2023-06-01"]);
    assert_eq!(records[0].header("anthropic-beta"), ["code-execution-2025-08-25, files-api-2025-04-14"]);
    assert_eq!(records[0].header("x-stainless-retry-count"), ["0"]);
    assert_eq!(records[0].header("user-agent"), ["Anthropic/Python 2.14.0"]);
    assert_eq!(records[0].header("content-type"), ["application/json"]);
    for added in ["x-forwarded-for", "x-forwarded-proto", "x-request-id"] {
        assert_eq!(records[0].header(added), [""; 0], "{added}");
    }
}

#[tokio::test]
async fn the_operators_credential_replaces_the_otari_key_on_the_way_to_the_provider() {
    let (stack, tag) = (shared().await, tag());
    for credential in ["authorization", "x-api-key", "otari-key"] {
        let value = if credential == "authorization" { format!("Bearer {}", stack.key()) } else { stack.key().into() };
        let call = ask(&question("claude--native", &tag, &[DATED])).header(credential, value);
        let answer = call.send(stack.address()).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let records = seen(&stack, &tag).await;
    assert_eq!(records.len(), 3);
    for record in records {
        assert_eq!(record.header("x-api-key"), ["sk-ant-operator-canary"]);
        assert_eq!(record.header("authorization"), [""; 0]);
    }
}

#[tokio::test]
async fn a_credential_of_the_clients_own_passes_on_beside_an_otari_key() {
    let (stack, tag) = (shared().await, tag());
    let call = ask(&question("claude--native", &tag, &[DATED]))
        .header("otari-key", stack.key())
        .header("x-api-key", "sk-ant-the-clients-own");
    assert_eq!(call.send(stack.address()).await.unwrap().status, 200);
    let records = seen(&stack, &tag).await;
    assert_eq!(records[0].header("x-api-key"), ["sk-ant-the-clients-own"]);
}

#[tokio::test]
async fn the_header_brings_a_native_request_here() {
    let (stack, tag) = (shared().await, tag());
    for header in ["x-otari-code-execution", "otari-code-execution"] {
        let call = ask(&question("claude--code-once", &tag, &[DATED])).header(header, "OTARI");
        let answer = stack.send(call).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(ran_here(&answer.json()), "{}", answer.text());
    }
    for record in seen(&stack, &tag).await {
        let declared = record.json()["tools"].clone();
        assert!(!declared.to_string().contains(DATED), "{declared}");
        let ours = record.headers.iter().find(|(name, _)| name.contains("otari"));
        assert_eq!(ours, None, "{:?}", record.headers);
    }
}

#[tokio::test]
async fn internal_headers_of_a_client_change_nothing() {
    let (stack, tag) = (shared().await, tag());
    let internal = ["x-otari-route", "x-otari-provider", "x-otari-hop", "x-otari-decision"];
    let spoof = |mut call: Call, value: &str| {
        for name in internal {
            call = call.header(name, value);
        }
        call
    };
    for value in ["sidecar", "chat", "provider", "{}"] {
        let native = stack.send(spoof(ask(&question("claude--native", &tag, &[DATED])), value)).await;
        assert_eq!(native.json()["content"][0]["id"], "srvtoolu_scripted", "{value}: {}", native.text());
        let ours = stack.send(spoof(ask(&question("code-once", &tag, &[DATED])), value)).await;
        assert!(ran_here(&ours.json()), "{value}: {}", ours.text());
    }
    for record in seen(&stack, &tag).await {
        assert!(!record.headers.iter().any(|(name, _)| name.contains("otari")), "{:?}", record.headers);
    }
}

#[tokio::test]
async fn an_endpoint_has_one_spelling_and_no_other_reaches_anybody() {
    let (stack, tag) = (shared().await, tag());
    for model in ["claude--native", "anthropic:claude--native", "code-once"] {
        let body = question(model, &tag, &[DATED]);
        for path in [
            r"/v1\messages",
            "/v1//../messages",
            "/v1//messages",
            "/v1/./messages",
            "/v1/messages/",
            "/v1/%6dessages",
            "/v1/%256dessages",
            "/v1/messages;x",
            "/v1/messages%3fbeta=true",
            "/V1/Messages",
            "/x/../v1/messages",
            "/v1/files/../messages",
        ] {
            let message = refused(&stack.send(Call::post(path, &body)).await, 400, "invalid_request_error");
            assert!(message.contains("`/v1/messages`"), "{path}: {message}");
        }
    }
    for (method, path) in
        [(Method::GET, r"/v1\files"), (Method::DELETE, r"/v1\files\file-1"), (Method::GET, "/v1/x/../files")]
    {
        let answer = stack.send(Call::new(method, path).json(&json!({"model": "openai:x", "x": tag}))).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
    }
    let get = Call::new(Method::GET, "/v1/messages").json(&question("claude--native", &tag, &[DATED]));
    refused(&stack.send(get).await, 405, "invalid_request_error");
    assert!(seen(&stack, &tag).await.is_empty());
}

#[tokio::test]
async fn an_otari_key_travels_on_in_no_header_and_no_query() {
    let (stack, tag) = (shared().await, tag());
    let key = stack.key().to_owned();
    let body = question("claude--native", &tag, &[DATED]);
    for (name, value) in [
        ("authorization", key.clone()),
        ("authorization", format!("Token {key}")),
        ("authorization", format!("Bearer\t{key}")),
        ("x-api-key", format!("Bearer {key}")),
        ("api-key", key.clone()),
        ("cookie", format!("k={key}")),
    ] {
        let call = ask(&body).header("otari-key", &key).header(name, &value);
        let message = refused(&call.send(stack.address()).await.unwrap(), 400, "invalid_request_error");
        assert!(message.contains(name) && !message.contains(&key), "{message}");
    }
    let call = Call::post(format!("/v1/messages?key={key}"), &body).header("otari-key", &key);
    refused(&call.send(stack.address()).await.unwrap(), 400, "invalid_request_error");
    assert!(seen(&stack, &tag).await.is_empty());
}

#[tokio::test]
async fn an_unknown_model_or_path_is_a_404_in_the_callers_words() {
    let stack = shared().await;
    // This stack's last rule matches everything, so only an unknown provider prefix could miss; ask for a path instead.
    let answer = stack.send(Call::get("/v1/no-such-thing")).await;
    assert_eq!(answer.status, 404, "{}", answer.text());
    assert!(answer.json()["error"]["message"].is_string(), "{}", answer.text());
}

#[tokio::test]
async fn a_function_named_code_execution_is_the_callers_own() {
    let (stack, tag) = (shared().await, tag());
    let mut body = question("messages--text", &tag, &[]);
    body["tools"] = json!([{"name": "code_execution", "input_schema": {"type": "object"}}]);
    let answer = stack.send(ask(&body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    untouched(&seen(&stack, &tag).await[0], "/v1/messages", body.to_string().as_bytes());
}

#[tokio::test]
async fn the_executor_header_is_read_on_every_request() {
    let (stack, tag) = (shared().await, tag());
    for tools in [&[][..], &[DATED]] {
        let body = question("claude--text", &tag, tools);
        let message = refused(
            &stack.send(ask(&body).header("otari-code-execution", "maybe")).await,
            400,
            "invalid_request_error",
        );
        for word in ["auto", "otari", "provider"] {
            assert!(message.contains(word), "{message}");
        }
        let both = ask(&body).header("otari-code-execution", "otari").header("x-otari-code-execution", "provider");
        refused(&stack.send(both).await, 400, "invalid_request_error");
    }
    assert!(seen(&stack, &tag).await.is_empty());
}

#[tokio::test]
async fn a_plain_stream_is_relayed_as_it_comes() {
    let stack = shared().await;
    let mut body = question("messages--hang", &tag(), &[]);
    body["stream"] = json!(true);
    let mut answer = ask(&body).bearer(stack.key()).open(stack.address()).await.unwrap();
    // The model says no more until we leave: what is read here was not held back.
    answer.read_until("I am about to").await.unwrap();
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn chat_and_responses_errors_speak_openai() {
    let stack = shared().await;
    for path in ["/v1/chat/completions", "/v1/responses"] {
        let answer = stack.send(Call::post_bytes(path, "{").header("otari-code-execution", "maybe")).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error", "{path}: {}", answer.text());
        assert_eq!(answer.json()["type"], Value::Null);
    }
}
