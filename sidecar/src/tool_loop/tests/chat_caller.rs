//! What a caller that speaks Chat Completions gets, from models of its own wire and of Messages.

use decision::format::ApiFormat::{ChatCompletions, Messages};
use serde_json::{Value, json};

use super::support::{Answer, Bench, chat_call, chat_code, chat_request, chat_stream, chat_text, lock};
use super::transcripts::{called, chat_whole, plain_text, play, thoughtful_call};
use crate::tool_loop::Limits;

fn body(changes: &Value) -> Value {
    let mut body = json!({
        "model": "demo",
        "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "What is 6*7?"}],
        "tools": [{"type": "code_interpreter"}],
    });
    for (name, value) in changes.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

fn streamed() -> Value {
    body(&json!({"stream": true, "stream_options": {"include_usage": true}}))
}

/// Chunks with members of their own: beside the choices, beside the delta, in it.
fn peculiar(deltas: &[Value], finish_reason: &str) -> String {
    let chunk = |choice: Value, usage: Value| {
        let chunk = json!({"id": "gen-1", "object": "chat.completion.chunk", "created": 7, "model": "upstream-name",
            "system_fingerprint": "fp_1", "service_tier": "default", "provider": "Aura", "choices": [choice],
            "usage": usage});
        format!("data: {chunk}\n\n")
    };
    let mut out = String::new();
    for delta in deltas {
        let logprobs = delta["content"].as_str().map(|text| json!({"content": [{"token": text, "logprob": -0.5}]}));
        out += &chunk(json!({"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": null}), Value::Null);
    }
    let last = json!({"index": 0, "delta": {}, "finish_reason": finish_reason, "native_finish_reason": "fin"});
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "cost_details": {"units": 2},
        "completion_tokens_details": {"reasoning_tokens": 3}});
    out += &chunk(last, usage);
    out + ": OPENROUTER PROCESSING\n\ndata: [DONE]\n\n"
}

#[tokio::test]
async fn chat_to_chat_streamed_keeps_what_nobody_knows() {
    let script = || {
        let mut deltas = vec![
            json!({"role": "assistant", "content": null}),
            json!({"reasoning_content": "6*7 is easy", "aura": "blue"}),
            json!({"content": "Let me "}),
            json!({"content": "compute."}),
            json!({"content": null, "annotations": [{"type": "aura"}]}),
        ];
        let mut call = chat_call("print(6*7)");
        call[0]["tool_calls"][0]["extra_content"] = json!({"google": {"thought_signature": "c2ln"}});
        deltas.extend(call);
        let last = [json!({"role": "assistant", "content": ""}), json!({"content": "It is 42."})];
        vec![Answer::stream(&peculiar(&deltas, "tool_calls")), Answer::stream(&peculiar(&last, "stop"))]
    };
    insta::assert_snapshot!(play(|| chat_request(ChatCompletions, &streamed()), script).await);
}

#[tokio::test]
async fn chat_to_chat_whole_keeps_what_nobody_knows() {
    let whole = |message: Value, finish_reason: &str| {
        Answer::json(
            &json!({"id": "gen-1", "object": "chat.completion", "created": 7, "model": "upstream-name",
                "system_fingerprint": "fp_1", "provider": "Aura", "usage": {"prompt_tokens": 10,
                "completion_tokens": 5, "total_tokens": 15, "completion_tokens_details": {"reasoning_tokens": 3}},
                "choices": [{"index": 0, "message": message, "finish_reason": finish_reason, "content_filter": {},
                    "logprobs": {"content": [{"token": finish_reason, "logprob": -0.5}], "refusal": null}}]})
            .to_string(),
        )
    };
    let script = || {
        let mut first = called("{\"code\": \"print(6*7)\"}");
        first["reasoning_content"] = json!("6*7 is easy");
        let last = json!({"role": "assistant", "content": "It is 42.", "refusal": null,
            "annotations": [{"type": "aura"}]});
        vec![whole(first, "tool_calls"), whole(last, "stop")]
    };
    insta::assert_snapshot!(play(|| chat_request(ChatCompletions, &body(&json!({}))), script).await);
}

#[tokio::test]
async fn chat_to_messages_streamed() {
    let script = || vec![thoughtful_call(), plain_text("It is 42.")];
    insta::assert_snapshot!(play(|| chat_request(Messages, &streamed()), script).await);
}

#[tokio::test]
async fn chat_to_messages_whole() {
    let script = || {
        let message = |content: Value, stop_reason: &str| {
            Answer::json(
                &json!({"id": "msg_01", "type": "message", "role": "assistant", "model": "demo-20260101",
                    "content": content, "stop_reason": stop_reason, "stop_sequence": null,
                    "usage": {"input_tokens": 10, "cache_read_input_tokens": 4, "output_tokens": 7}})
                .to_string(),
            )
        };
        let call = json!({"type": "tool_use", "id": "toolu_1", "name": "code_execution", "input": {"code": "1/0"}});
        let text = |text: &str| json!({"type": "text", "text": text});
        vec![
            message(json!([text("Let me compute.\n"), call]), "tool_use"),
            message(json!([text("It cannot "), text("be done.")]), "end_turn"),
        ]
    };
    let asked = body(&json!({"otari_include": ["code_execution"]}));
    insta::assert_snapshot!(play(|| chat_request(Messages, &asked), script).await);
}

#[tokio::test]
async fn the_account_tells_what_ran_and_what_did_not() {
    let mut asked = streamed();
    asked["otari_include"] = json!(["code_execution"]);
    asked["stream_options"] = Value::Null;
    let script = || vec![chat_code("print(6*7)"), chat_code("slow()"), chat_text("It is 42.")];
    insta::assert_snapshot!(play(|| chat_request(ChatCompletions, &asked), script).await);
}

/// The caller's function, declared before the code tool.
fn with_lookup(stream: bool) -> Value {
    let function = json!({"name": "lookup", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}});
    body(
        &json!({"stream": stream, "tools": [{"type": "function", "function": function}, {"type": "code_interpreter"}]}),
    )
}

#[tokio::test]
async fn a_mixed_turn_hands_the_client_its_calls_counted_from_zero() {
    let script = || {
        let mut deltas = chat_call("print(6*7)");
        for index in [1, 2] {
            let function = json!({"name": "lookup", "arguments": ""});
            let id = format!("call_x{index}");
            deltas.push(json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}));
            deltas.push(json!({"tool_calls": [{"index": index, "function": {"arguments": "{\"q\":"}}]}));
            deltas.push(json!({"tool_calls": [{"index": index, "function": {"arguments": " \"x\"}"}}]}));
        }
        vec![Answer::stream(&chat_stream(&deltas, "tool_calls"))]
    };
    insta::assert_snapshot!("mixed_chat", play(|| chat_request(ChatCompletions, &with_lookup(true)), script).await);
    let script = || {
        let mut message = called("{\"code\": \"print(6*7)\"}");
        let function = json!({"name": "lookup", "arguments": "{}"});
        let own = json!({"id": "call_2", "type": "function", "function": function, "aura": "blue"});
        message["tool_calls"].as_array_mut().expect("calls").push(own);
        vec![chat_whole(&message, "tool_calls")]
    };
    insta::assert_snapshot!(
        "mixed_chat_whole",
        play(|| chat_request(ChatCompletions, &with_lookup(false)), script).await
    );
}

#[tokio::test]
async fn a_mixed_turn_of_a_messages_model_gives_every_call_an_input() {
    use super::transcripts::{block, message_end, message_start, messages_stream};
    let script = || {
        let called = |id: &str, name: &str| json!({"type": "tool_use", "id": id, "name": name, "input": {}});
        let input = |json: &str| json!({"type": "input_json_delta", "partial_json": json});
        let mut events = vec![message_start()];
        events.extend(block(0, called("toolu_1", "code_execution"), &[input("{\"code\": \"print(6*7)\"}")]));
        events.extend(block(1, called("toolu_2", "lookup"), &[input("")]));
        events.extend(block(2, called("toolu_3", "lookup"), &[input("{\"q\":"), input("1}")]));
        events.extend(message_end("tool_use"));
        vec![messages_stream(&events)]
    };
    insta::assert_snapshot!(play(|| chat_request(Messages, &with_lookup(true)), script).await);
}

#[tokio::test]
async fn a_call_that_is_no_call_of_the_tool_is_told_in_the_account_alone() {
    let mut asked = streamed();
    asked["otari_include"] = json!(["code_execution"]);
    let start = json!({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "code_execution"}}]});
    let garbage = json!({"tool_calls": [{"index": 0, "function": {"arguments": "print(6*7)\"}"}}]});
    let script = vec![Answer::stream(&chat_stream(&[start, garbage], "tool_calls")), chat_text("Sorry.")];
    let bench = Bench::new(script, Limits::default()).await;
    let body = bench.ask(chat_request(ChatCompletions, &asked)).await.expect("a stream").body;
    assert!(!body.contains("print(6*7)") && !body.contains("tool_calls"), "{body}");
    assert!(body.contains(r#""code":"","error_code":"invalid_tool_input"}]"#), "{body}");
}

/// A stream whose last chunk holds a delta and the reason both.
fn with_last(deltas: &[Value], last: &Value) -> Answer {
    let mut choices: Vec<Value> =
        deltas.iter().map(|delta| json!({"index": 0, "delta": delta, "finish_reason": null})).collect();
    choices.push(last.clone());
    let frames: Vec<String> =
        choices.iter().map(|choice| format!("data: {}\n\n", json!({"id": "gen-1", "choices": [choice]}))).collect();
    Answer::stream(&(frames.concat() + "data: [DONE]\n\n"))
}

#[tokio::test]
async fn a_call_in_the_chunk_that_says_the_reason_is_run_and_never_shown() {
    let function = json!({"name": "code_execution", "arguments": "{\"code\": \"print(6*7)\"}"});
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
    let last = json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls",
        "logprobs": {"content": [{"token": "print(6*7)"}]}});
    let script = vec![with_last(&[json!({"content": "Let me."})], &last), chat_text("It is 42.")];
    let bench = Bench::new(script, Limits::default()).await;
    let body = bench.ask(chat_request(ChatCompletions, &streamed())).await.expect("a stream").body;
    assert!(!body.contains("print(6*7)") && !body.contains("tool_calls"), "{body}");
    assert!(body.contains("Let me.") && body.contains("It is 42."), "{body}");
    let received = bench.model.received();
    let again: Value = serde_json::from_slice(&received[1].body).expect("JSON");
    assert_eq!(again["messages"][3]["content"], "stdout:\n42\nreturn code: 0", "{again}");
}

#[tokio::test]
async fn what_comes_with_the_last_piece_of_a_call_of_ours_and_the_reason_goes_nowhere() {
    let call = |index: u64, id: &str, name: &str, arguments: &str| json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let more = |index: u64, arguments: &str| json!({"index": index, "function": {"arguments": arguments}});
    // Ours waits for the end of the caller's call, and ends with the answer.
    let deltas = [
        json!({"tool_calls": [call(0, "call_1", "lookup", "{\"q\": ")]}),
        json!({"tool_calls": [call(1, "call_2", "code_execution", "{\"code\": \"print(")]}),
        json!({"tool_calls": [more(0, "\"x\"}")]}),
    ];
    let last = json!({"index": 0, "delta": {"tool_calls": [more(1, "6*7)\"}")]}, "finish_reason": "tool_calls",
        "logprobs": {"content": [{"token": "6*7)"}]}});
    let bench = Bench::new(vec![with_last(&deltas, &last)], Limits::default()).await;
    let body = bench.ask(chat_request(ChatCompletions, &with_lookup(true))).await.expect("a stream").body;
    assert_eq!(lock(&bench.sandbox.ran).len(), 1, "{body}");
    assert!(body.contains(r#""name":"lookup""#) && !body.contains("6*7)"), "{body}");
}

#[tokio::test]
async fn a_call_of_a_custom_tool_keeps_its_shape() {
    let call = |index: u64, input: &str| json!({"index": index, "custom": {"input": input}});
    let begin = json!({"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "shell", "input": ""}});
    let deltas = [
        json!({"tool_calls": [begin]}),
        json!({"tool_calls": [call(0, "ls ")]}),
        json!({"tool_calls": [call(0, "-l")]}),
    ];
    let script = vec![Answer::stream(&chat_stream(&deltas, "tool_calls"))];
    let bench = Bench::new(script, Limits::default()).await;
    let body = bench.ask(chat_request(ChatCompletions, &streamed())).await.expect("a stream").body;
    for delta in deltas {
        let piece = delta["tool_calls"][0].to_string();
        assert!(body.contains(&piece), "{piece} in {body}");
    }
}

#[tokio::test]
async fn a_server_that_ignores_stream_is_told_as_a_stream_all_the_same() {
    let script = || {
        let answer = json!({"role": "assistant", "content": "It is 42."});
        vec![chat_whole(&called("{\"code\": \"print(6*7)\"}"), "tool_calls"), chat_whole(&answer, "stop")]
    };
    insta::assert_snapshot!(play(|| chat_request(ChatCompletions, &streamed()), script).await);
}

#[tokio::test]
async fn at_the_cap_a_chat_caller_gets_its_answer_without_the_tool() {
    let script = || vec![chat_code("print(6*7)"), chat_text("It is 42.")];
    let capped = || {
        let mut asked = chat_request(ChatCompletions, &body(&json!({"stream": true, "parallel_tool_calls": true})));
        asked.run.max_iterations = 1;
        asked
    };
    insta::assert_snapshot!(play(capped, script).await);
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_and_done() {
    for (model, broken) in [
        (ChatCompletions, chat_stream(&[json!({"content": "Let"})], "stop").replace("[DONE]", "{")),
        (ChatCompletions, "data: {\"choices\": [{\"delta\": {\"content\": \"Let\"}}]}\n\n".to_owned()),
        (Messages, "event: message_start\ndata: {\"type\": \"message_start\", \"message\": {}}\n\n".to_owned()),
    ] {
        let bench = Bench::new(vec![Answer::stream(&broken)], Limits::default()).await;
        let reply = bench.ask(chat_request(model, &streamed())).await.expect("a stream");
        let (before, end) = reply.body.rsplit_once("data: {\"error\":").expect("an error frame");
        assert!(before.contains("chat.completion.chunk") && !before.contains("\"finish_reason\":\"stop\""), "{before}");
        let (error, done) = end.split_once("\n\n").expect("two frames");
        let error: Value = serde_json::from_str(error.strip_suffix('}').expect("a brace")).expect("JSON");
        assert_eq!((&error["type"], &error["param"], done), (&json!("server_error"), &Value::Null, "data: [DONE]\n\n"));
    }
}

#[tokio::test]
async fn a_chat_callers_credential_and_ids_are_those_of_its_wire() {
    let bench = Bench::new(vec![plain_text("x")], Limits::default()).await;
    let reply = bench.ask(chat_request(Messages, &streamed())).await.expect("an answer");
    let sent = &bench.model.received()[0].headers;
    assert_eq!(sent["x-api-key"], "the-clients-own");
    assert_eq!(sent["anthropic-version"], "2023-06-01");
    assert!(!sent.contains_key("authorization") && !sent.contains_key("openai-organization"), "{sent:?}");
    assert_eq!(reply.headers["x-request-id"], "req_otr1");
}
