//! A code turn on the Chat Completions wire: what the client sees, whole and streamed, whatever wire the model speaks.

use harness::client::{Answer, Call};
use serde_json::{Value, json};

use crate::code_turn::streamed;
use crate::support::{OWN, seen, shared, tag};

/// The two kinds of model that cannot run code: chat completions, Messages.
const PREFIXES: [&str; 2] = ["", "messages--"];
/// What the first turn of `code-retold` says, and what the second says of its result.
const TOLD: &str = "Adding up.\n\nThe program said: stdout:\nsum 5050\nreturn code: 0";

fn question(model: &str, tag: &str) -> Value {
    json!({
        "model": model,
        "messages": [{"role": "user", "content": format!("Add up the numbers to 100. {tag}")}],
        "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
    })
}

fn ask(request: &Value) -> Call {
    Call::post("/v1/chat/completions", request)
}

/// The chunks of a stream, which ends with `[DONE]`.
fn chunks(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let frames: Vec<&str> = text.split("\n\n").filter_map(|frame| frame.strip_prefix("data: ")).collect();
    let (last, chunks) = frames.split_last().unwrap();
    assert_eq!(*last, "[DONE]", "{text}");
    chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
}

/// The message that an SDK would build of these chunks; asserts what all streams of this wire have in common.
fn accumulate(chunks: &[Value]) -> Value {
    let mut content = String::new();
    let mut calls: Vec<Value> = Vec::new();
    let mut reasons = Vec::new();
    for (position, chunk) in chunks.iter().enumerate() {
        for name in ["id", "created", "model", "object"] {
            assert_eq!(chunk[name], chunks[0][name], "{chunk}");
        }
        let choice = &chunk["choices"][0];
        assert_eq!(choice["delta"]["role"] == "assistant", position == 0, "the role comes once: {chunk}");
        content += choice["delta"]["content"].as_str().unwrap_or_default();
        for piece in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(piece["index"].as_u64().unwrap()).unwrap();
            if piece["id"].is_string() {
                assert_eq!(index, calls.len(), "indices count up without a gap");
                calls.push(piece.clone());
            } else {
                let known = &mut calls[index]["function"]["arguments"];
                *known = json!([known.as_str().unwrap(), piece["function"]["arguments"].as_str().unwrap()].concat());
            }
        }
        reasons.extend(choice["finish_reason"].as_str());
    }
    assert_eq!(reasons.len(), 1, "{chunks:?}");
    json!({"content": content, "tool_calls": calls, "finish_reason": reasons[0]})
}

#[tokio::test]
async fn whole_and_streamed_chat_answers_tell_the_same() {
    let stack = shared().await;
    for prefix in PREFIXES {
        for tool in ["code_interpreter", "code_execution", OWN] {
            let tag = tag();
            let mut request = question(&format!("{prefix}code-retold"), &tag);
            request["tools"] = json!([{"type": tool}]);
            let whole = stack.send(ask(&request)).await;
            assert_eq!(
                (whole.status, whole.header("content-type")),
                (200, Some("application/json")),
                "{}",
                whole.text()
            );
            assert!(whole.header("x-request-id").is_some(), "{:?}", whole.headers);
            let body = whole.json();
            assert_eq!(body["choices"][0]["message"]["content"], TOLD, "{body}");
            assert_eq!(body["choices"][0]["message"]["tool_calls"], Value::Null, "{body}");
            assert_eq!(body["choices"][0]["finish_reason"], "stop");
            assert_eq!((&body["usage"]["prompt_tokens"], &body["usage"]["total_tokens"]), (&json!(110), &json!(139)));
            assert_eq!(body["otari_code_execution"], Value::Null);

            let stream = stack.send(ask(&streamed(request))).await;
            assert!(stream.header("content-type").unwrap().starts_with("text/event-stream"));
            let chunks = chunks(&stream);
            let told = json!({"content": TOLD, "tool_calls": [], "finish_reason": "stop"});
            assert_eq!(accumulate(&chunks), told);
            assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()), "nobody asked for the usage");
            assert!(!stream.text().contains("range(101)"), "{}", stream.text());
            assert_eq!(seen(&stack, &tag).await.len(), 4);
        }
    }
}

#[tokio::test]
async fn the_usage_of_all_turns_comes_last_to_who_asked_for_it() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let mut request = streamed(question(&format!("{prefix}code-retold"), &tag()));
        request["stream_options"] = json!({"include_usage": true});
        let chunks = chunks(&stack.send(ask(&request)).await);
        let (last, before) = chunks.split_last().unwrap();
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["completion_tokens"], 29, "{last}");
        assert!(before.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)), "{before:?}");
        accumulate(before);
    }
}

#[tokio::test]
async fn the_account_tells_a_chat_caller_what_ran() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let tag = tag();
        let mut request = question(&format!("{prefix}code-fails"), &tag);
        request["otari_include"] = json!(["code_execution"]);
        let whole = stack.send(ask(&request)).await.json();
        let stream = chunks(&stack.send(ask(&streamed(request))).await);
        for account in [&whole["otari_code_execution"], &stream.last().unwrap()["otari_code_execution"]] {
            assert_eq!(account.as_array().map(Vec::len), Some(1), "{whole}");
            let run = &account[0];
            assert!(run["id"].as_str().unwrap().starts_with("call_otr"), "{run}");
            assert_eq!((&run["code"], &run["stdout"]), (&json!("print('before')\nprint(1 / 0)"), &json!("before\n")));
            assert!(run["stderr"].as_str().unwrap().contains("ZeroDivisionError"), "{run}");
            assert_ne!(run["return_code"], 0);
        }
        let sent = seen(&stack, &tag).await;
        assert!(sent.iter().all(|record| record.json()["otari_include"].is_null()), "the model never sees it");
    }
}

#[tokio::test]
async fn a_mixed_turn_gives_a_chat_caller_its_own_call_alone() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let mut request = question(&format!("{prefix}mixed"), &tag());
        let weather =
            json!({"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}});
        request["tools"].as_array_mut().unwrap().push(weather);
        request["otari_include"] = json!(["code_execution"]);
        let whole = stack.send(ask(&request)).await.json();
        assert_eq!(whole["otari_code_execution"][0]["stdout"], "mixed 9\n", "{whole}");
        let message = &whole["choices"][0]["message"];
        let stream = accumulate(&chunks(&stack.send(ask(&streamed(request.clone()))).await));
        for calls in [&message["tool_calls"], &stream["tool_calls"]] {
            assert_eq!(calls.as_array().map(Vec::len), Some(1), "{calls}");
            assert_eq!((&calls[0]["type"], &calls[0]["function"]["name"]), (&json!("function"), &json!("get_weather")));
            assert_eq!(calls[0]["function"]["arguments"], "{\"city\":\"Oslo\"}", "{calls}");
        }
        assert_eq!(
            (&whole["choices"][0]["finish_reason"], &stream["finish_reason"]),
            (&json!("tool_calls"), &json!("tool_calls"))
        );
        // The client brings its own result; the model also reads what its code gave, which this wire does not show.
        let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sunny"});
        request["messages"].as_array_mut().unwrap().extend([message.clone(), result]);
        let told = stack.send(ask(&request)).await.json();
        let told = told["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned();
        assert!(told.contains("mixed 9") && told.contains("sunny"), "{told}");
    }
}

#[tokio::test]
async fn thinking_reaches_a_chat_caller_from_its_own_wire_alone() {
    let stack = shared().await;
    for (model, thought) in [("thinking", json!("The sum has a closed form.")), ("messages--thinking", Value::Null)] {
        let request = question(model, &tag());
        let whole = stack.send(ask(&request)).await.json();
        assert_eq!(whole["choices"][0]["message"]["reasoning_content"], thought, "{whole}");
        let stream = chunks(&stack.send(ask(&streamed(request))).await);
        let pieces: Vec<&str> =
            stream.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["reasoning_content"].as_str()).collect();
        assert_eq!(pieces.concat(), thought.as_str().unwrap_or_default());
    }
}

#[tokio::test]
async fn what_a_chat_run_cannot_honour_is_refused_in_openais_words() {
    let stack = shared().await;
    for (member, value, param) in [
        ("n", json!(2), "n"),
        ("otari_include", json!(["everything"]), "otari_include"),
        ("functions", json!([{"name": "f"}]), "functions"),
    ] {
        for prefix in PREFIXES {
            let mut request = question(&format!("{prefix}code-retold"), &tag());
            request[member] = value.clone();
            let answer = stack.send(ask(&request)).await;
            let error = &answer.json()["error"];
            assert_eq!(
                (answer.status, &error["param"], &error["type"]),
                (400, &json!(param), &json!("invalid_request_error"))
            );
            assert!(error["message"].as_str().unwrap().contains(param), "{error}");
            assert_eq!(error.get("code"), Some(&Value::Null));
        }
    }
}

#[tokio::test]
async fn a_broken_chat_stream_ends_with_an_error_frame_and_done() {
    let stack = shared().await;
    for model in ["cut", "messages--cut", "cut-later", "messages--error-event"] {
        let answer = stack.send(ask(&streamed(question(model, &tag())))).await;
        let chunks = chunks(&answer);
        let (last, before) = chunks.split_last().unwrap();
        assert!(last["error"]["message"].is_string() && last["error"].get("code").is_some(), "{last}");
        assert!(before.iter().all(|chunk| chunk["choices"][0]["finish_reason"].is_null()), "{before:?}");
    }
    let limited = stack.send(ask(&question("refused-429", &tag()))).await;
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("7")), "{}", limited.text());
}
