//! The Responses wire, for callers and models: recorded turns, and what client and model get.

use std::time::Duration;

use decision::decide::Dialect;
use decision::format::ApiFormat;
use decision::request::Keyword;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::support::{Answer, Bench, chat_call, chat_code, chat_stream, chat_text, patient, request, run_request};
use super::transcripts::{called, chat_whole, play};
use crate::tool_loop::{Limits, LoopReply, ReplyBody, RunRequest};

/// A request from a caller that speaks Responses; the code tool stands last in `tools`.
pub(super) fn asked(model_wire: ApiFormat, body: &Value) -> RunRequest {
    let mut asked = run_request(model_wire, body);
    asked.caller = ApiFormat::Responses;
    for claimed in &mut asked.run.claimed {
        claimed.keyword = Keyword::Interpreter;
        claimed.name = None;
    }
    asked
}

/// The usual request.
pub(super) fn question(stream: bool) -> Value {
    json!({
        "model": "demo",
        "stream": stream,
        "instructions": "Be brief.",
        "input": "What is 6*7?",
        "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
    })
}

pub(super) fn with_outputs(stream: bool) -> Value {
    let mut body = question(stream);
    body["include"] = json!(["code_interpreter_call.outputs"]);
    body
}

/// A Responses stream from its events, which it numbers.
pub(super) fn stream(events: &[Value]) -> Answer {
    let frame = |(number, event): (usize, &Value)| {
        let mut event = event.clone();
        event["sequence_number"] = json!(number);
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type"))
    };
    Answer::stream(&events.iter().enumerate().map(frame).collect::<String>())
}

fn response(status: &str, output: Value) -> Value {
    let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 15});
    json!({"id": "resp_model", "object": "response", "created_at": 1, "status": status, "model": "demo-2026",
        "output": output, "tools": [{"type": "function", "name": "code_execution"}], "tool_choice": "auto",
        "instructions": "the gateway's", "store": true, "from_the_future": 1,
        "usage": if status == "in_progress" { Value::Null } else { usage }})
}

/// The events of items: each added, grown as given, done.
pub(super) fn turn(items: &[(Value, Vec<Value>)]) -> Vec<Value> {
    let mut events = vec![json!({"type": "response.created", "response": response("in_progress", json!([]))})];
    for (index, (item, grown)) in items.iter().enumerate() {
        let mut begun = item.clone();
        begun["status"] = json!("in_progress");
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": begun}));
        for more in grown {
            let mut more = more.clone();
            more["output_index"] = json!(index);
            more["item_id"] = item["id"].clone();
            events.push(more);
        }
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    let output: Vec<Value> = items.iter().map(|(item, _)| item.clone()).collect();
    events.push(json!({"type": "response.completed", "response": response("completed", json!(output))}));
    events
}

fn thought() -> (Value, Vec<Value>) {
    let item = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "c2Vh",
        "summary": [{"type": "summary_text", "text": "6*7 is easy"}]});
    let delta = json!({"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": "6*7 is easy"});
    (item, vec![delta])
}

fn aura() -> (Value, Vec<Value>) {
    (json!({"type": "aura", "id": "au_1", "colour": "blue"}), vec![json!({"type": "response.aura.delta", "more": 1})])
}

pub(super) fn words(text: &str) -> (Value, Vec<Value>) {
    let part = json!({"type": "output_text", "text": text, "annotations": [], "from_the_future": 2});
    let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]});
    let delta = json!({"type": "response.output_text.delta", "content_index": 0, "delta": text, "logprobs": []});
    (item, vec![delta, json!({"type": "response.output_text.done", "content_index": 0, "text": text, "logprobs": []})])
}

fn function(call_id: &str, name: &str, arguments: &str) -> (Value, Vec<Value>) {
    let item = json!({"type": "function_call", "id": format!("fc_{call_id}"), "call_id": call_id, "name": name,
        "arguments": arguments, "status": "completed"});
    let (first, second) = arguments.split_at(arguments.len() / 2);
    let delta = |piece: &str| json!({"type": "response.function_call_arguments.delta", "delta": piece});
    (item, vec![delta(first), delta(second)])
}

pub(super) fn code(source: &str) -> (Value, Vec<Value>) {
    function("call_1", "code_execution", &json!({"code": source}).to_string())
}

fn thoughtful() -> Vec<Answer> {
    vec![
        stream(&turn(&[thought(), aura(), words("Let me."), code("print(6*7)")])),
        stream(&turn(&[words("It is 42.")])),
    ]
}

pub(super) fn whole(items: &[(Value, Vec<Value>)]) -> Answer {
    let output: Vec<Value> = items.iter().map(|(item, _)| item.clone()).collect();
    Answer::json(&response("completed", json!(output)).to_string())
}

/// The rules of this wire that hold for every stream (wire.md 3.3 and 3.4); gives the last event's response.
pub(super) fn checked(transcript: &str) -> Value {
    let (_, body) = transcript.split_once("== client: 200 OK\n").expect("an answer");
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).expect("JSON")).collect();
    let mut items: Vec<Value> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
        let kind = event["type"].as_str().expect("a type");
        assert_eq!(kind == "response.created", number == 0, "{event}");
        let index = event["output_index"].as_u64().and_then(|index| usize::try_from(index).ok());
        match (kind, index) {
            ("response.output_item.added", Some(index)) => {
                assert_eq!(index, items.len(), "{event}");
                items.push(event["item"].clone());
            }
            ("response.output_item.done", Some(index)) => {
                assert_eq!(items[index]["id"], event["item"]["id"], "{event}");
                items[index] = event["item"].clone();
            }
            (_, Some(index)) => assert_eq!(items[index]["id"], event["item_id"], "{event}"),
            (_, None) => assert_eq!(event["response"]["id"], events[0]["response"]["id"], "{event}"),
        }
    }
    let last = events.last().expect("events")["response"].clone();
    assert_eq!(last["output"], json!(items));
    assert_eq!(last["tools"][0]["type"], "code_interpreter", "{last}");
    assert_eq!(last["tool_choice"], "auto");
    assert_eq!(last["instructions"], "Be brief.");
    last
}

#[tokio::test]
async fn responses_caller_chat_model_streamed() {
    let script = || {
        let mut deltas = vec![json!({"role": "assistant", "content": ""}), json!({"content": "Let me compute."})];
        deltas.extend(chat_call("print(6*7)"));
        vec![Answer::stream(&chat_stream(&deltas, "tool_calls")), chat_text("It is 42.")]
    };
    let told = play(|| asked(ApiFormat::ChatCompletions, &with_outputs(true)), script).await;
    let last = checked(&told);
    assert_eq!(last["output"][1]["outputs"], json!([{"type": "logs", "logs": "42\n"}]));
    assert_eq!(last["usage"]["total_tokens"], 30);
    insta::assert_snapshot!(told);
}

#[tokio::test]
async fn responses_caller_chat_model_whole() {
    let script = || {
        let answer = json!({"role": "assistant", "content": "It is 42."});
        vec![chat_whole(&called("{\"code\": \"print(6*7)\"}"), "tool_calls"), chat_whole(&answer, "stop")]
    };
    insta::assert_snapshot!(play(|| asked(ApiFormat::ChatCompletions, &question(false)), script).await);
}

#[tokio::test]
async fn responses_model_streamed_keeps_what_nobody_knows() {
    let told = play(|| asked(ApiFormat::Responses, &with_outputs(true)), thoughtful).await;
    let last = checked(&told);
    let kinds: Vec<&str> =
        last["output"].as_array().expect("items").iter().filter_map(|i| i["type"].as_str()).collect();
    assert_eq!(kinds, ["reasoning", "aura", "message", "code_interpreter_call", "message"]);
    assert_eq!(last["from_the_future"], 1);
    insta::assert_snapshot!(told);
}

#[tokio::test]
async fn responses_model_whole_keeps_what_nobody_knows() {
    let script =
        || vec![whole(&[thought(), aura(), words("Let me."), code("print(6*7)")]), whole(&[words("It is 42.")])];
    insta::assert_snapshot!(play(|| asked(ApiFormat::Responses, &question(false)), script).await);
}

#[tokio::test]
async fn messages_caller_responses_model() {
    let streamed = play(|| run_request(ApiFormat::Responses, &request(true)), thoughtful).await;
    insta::assert_snapshot!("messages_caller_responses_model_streamed", streamed);
    let script = || vec![whole(&[thought(), words("Let me."), code("print(6*7)")]), whole(&[words("It is 42.")])];
    let told = play(|| run_request(ApiFormat::Responses, &request(false)), script).await;
    insta::assert_snapshot!("messages_caller_responses_model_whole", told);
}

#[tokio::test]
async fn outputs_are_shown_to_who_asked_for_them_and_failures_by_status() {
    let script = || vec![chat_code("1/0"), chat_code("slow()"), chat_text("It cannot be done.")];
    let last = checked(&play(|| asked(ApiFormat::ChatCompletions, &with_outputs(true)), script).await);
    let logs = "ZeroDivisionError: division by zero\n";
    assert_eq!(last["output"][0]["status"], "failed");
    assert_eq!(last["output"][0]["outputs"], json!([{"type": "logs", "logs": logs}]));
    assert_eq!((&last["output"][1]["status"], &last["output"][1]["outputs"]), (&json!("failed"), &Value::Null));
    let last = checked(&play(|| asked(ApiFormat::ChatCompletions, &question(true)), script).await);
    assert_eq!(last["output"][0]["outputs"], Value::Null);
}

#[tokio::test]
async fn a_mixed_turn_hands_the_responses_client_its_call() {
    let body = || {
        let mut body = question(true);
        body["tools"] = json!([{"type": "code_interpreter", "container": {"type": "auto"}}]);
        body["tools"].as_array_mut().expect("a list").insert(0, json!({"type": "function", "name": "lookup"}));
        body
    };
    let chat = || {
        let mut deltas = chat_call("print(6*7)");
        let function = json!({"name": "lookup", "arguments": "{\"q\": \"x\"}"});
        deltas.push(json!({"tool_calls": [{"index": 1, "id": "call_2", "function": function}]}));
        vec![Answer::stream(&chat_stream(&deltas, "tool_calls"))]
    };
    let same = || vec![stream(&turn(&[code("print(6*7)"), function("call_2", "lookup", "{\"q\": \"x\"}")]))];
    for (wire, told) in [
        (ApiFormat::ChatCompletions, play(|| asked(ApiFormat::ChatCompletions, &body()), chat).await),
        (ApiFormat::Responses, play(|| asked(ApiFormat::Responses, &body()), same).await),
    ] {
        let (_, client) = told.split_once("== client").expect("an answer");
        let last = client.lines().rfind(|line| line.starts_with("data: ")).expect("an event");
        let last: Value = serde_json::from_str(last.trim_start_matches("data: ")).expect("JSON");
        let output = &last["response"]["output"];
        assert_eq!((&output[0]["type"], &output[0]["status"]), (&json!("code_interpreter_call"), &json!("completed")));
        let call = (&output[1]["type"], &output[1]["call_id"], &output[1]["arguments"]);
        assert_eq!(call, (&json!("function_call"), &json!("call_2"), &json!("{\"q\": \"x\"}")), "{wire:?}");
        assert_eq!(output.as_array().map(Vec::len), Some(2));
    }
}

#[tokio::test]
async fn a_limit_of_tool_calls_is_a_limit_of_code_calls() {
    let mut body = question(true);
    body["max_tool_calls"] = json!(1);
    let script = || vec![chat_code("print(6*7)"), chat_text("It is 42.")];
    let told = play(|| asked(ApiFormat::ChatCompletions, &body), script).await;
    assert_eq!(checked(&told)["max_tool_calls"], 1);
    // The second call has no tool to use.
    assert_eq!(told.matches("\"tools\": [").count(), 1, "{told}");
}

#[tokio::test]
async fn the_plain_dialect_shows_no_items_for_code() {
    let plain = || {
        let mut asked = asked(ApiFormat::ChatCompletions, &question(true));
        asked.run.dialect = Dialect::Plain;
        asked
    };
    let script = || vec![chat_code("print(6*7)"), chat_text("It is 42.")];
    let last = checked(&play(plain, script).await);
    assert_eq!(last["output"].as_array().map(Vec::len), Some(1), "{last}");
}

#[tokio::test]
async fn thoughts_of_another_wire_are_shown_to_who_asked_for_a_summary() {
    let body = || {
        let mut body = question(true);
        body["reasoning"] = json!({"effort": "low", "summary": "auto"});
        body
    };
    let script = || {
        let deltas =
            [json!({"reasoning_content": "6*7 is "}), json!({"reasoning_content": "easy"}), json!({"content": "42"})];
        vec![Answer::stream(&chat_stream(&deltas, "stop"))]
    };
    let told = play(|| asked(ApiFormat::ChatCompletions, &body()), script).await;
    assert!(told.contains("\"reasoning_effort\": \"low\""), "{told}");
    let last = checked(&told);
    assert_eq!(last["output"][0]["summary"], json!([{"type": "summary_text", "text": "6*7 is easy"}]));
    let hidden = checked(&play(|| asked(ApiFormat::ChatCompletions, &question(true)), script).await);
    assert_eq!(hidden["output"][0]["type"], "message");
}

#[tokio::test]
async fn an_answer_cut_by_the_token_limit_is_incomplete() {
    let script = || vec![Answer::stream(&chat_stream(&[json!({"content": "It is"})], "length"))];
    let told = play(|| asked(ApiFormat::ChatCompletions, &question(true)), script).await;
    assert!(told.contains("event: response.incomplete\n"), "{told}");
    let last = checked(&told);
    assert_eq!(
        (&last["status"], &last["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_and_a_failed_response() {
    let body = chat_stream(&chat_call("print(6*7)"), "tool_calls");
    let cut = Answer::stream(&body[..body.len() / 2]);
    let bench = Bench::new(vec![cut], Limits::default()).await;
    let reply = bench.ask(asked(ApiFormat::ChatCompletions, &question(true))).await.expect("a stream");
    let events: Vec<Value> = reply
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    let [.., item, error, failed] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&item["type"], &item["item"]["status"]), (&json!("response.output_item.done"), &json!("failed")));
    assert_eq!((&error["type"], &error["error"]["code"]), (&json!("error"), &json!("server_error")));
    assert!(error["error"]["message"].as_str().is_some_and(|text| text.contains("broke off")), "{error}");
    assert_eq!((&failed["type"], &failed["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(failed["response"]["output"][0]["id"], item["item"]["id"]);
    assert_eq!(reply.headers["x-request-id"], "req_otr1");
}

#[tokio::test]
async fn keep_alives_of_the_responses_wire_are_comments() {
    let limits = Limits { keep_alive: Duration::from_millis(1), ..Limits::default() };
    let bench = Bench::new(vec![chat_code("wait()"), chat_text("Done.")], limits).await;
    let serving = bench.engine.serve(asked(ApiFormat::ChatCompletions, &question(true)));
    let LoopReply { body: ReplyBody::Stream(mut chunks), .. } = patient(serving).await.expect("an answer") else {
        panic!("no stream")
    };
    let mut told = String::new();
    while !told.contains(".interpreting") || !told.ends_with(": keep-alive\n\n") {
        let chunk = patient(chunks.next()).await.expect("more to come");
        told.push_str(std::str::from_utf8(&chunk).expect("text"));
    }
    bench.sandbox.go_on.notify_one();
    while let Some(chunk) = patient(chunks.next()).await {
        told.push_str(std::str::from_utf8(&chunk).expect("text"));
    }
    assert_eq!(checked(&format!("== client: 200 OK\n{told}"))["status"], "completed");
}

#[tokio::test]
async fn a_refusal_before_the_stream_keeps_the_providers_words_on_the_same_wire() {
    let refusal = r#"{"error":{"message":"no such thing","type":"invalid_request_error","param":"x","code":"y"}}"#;
    let answer = || vec![Answer::error(400, &[("content-type", "application/json")], refusal)];
    let bench = Bench::new(answer(), Limits::default()).await;
    let reply = bench.ask(asked(ApiFormat::Responses, &question(true))).await.expect("an answer");
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (400, refusal));
    let bench = Bench::new(answer(), Limits::default()).await;
    let problem = bench.ask(run_request(ApiFormat::Responses, &request(true))).await.expect_err("a problem");
    assert_eq!(problem.message, "no such thing");
}

#[tokio::test]
async fn an_echoed_answer_is_folded_and_what_is_left_out_is_named() {
    let mut body = question(false);
    let item = json!({"type": "code_interpreter_call", "id": "otari_ci_1", "code": "print(6*7)", "status": "completed",
        "container_id": "otari_cntr_1"});
    body["input"] = json!([{"role": "user", "content": "What?"}, item, {"type": "item_reference", "id": "otari_ci_2"},
        {"role": "user", "content": "Again?"}]);
    for wire in [ApiFormat::Responses, ApiFormat::ChatCompletions] {
        let answer = match wire {
            ApiFormat::Responses => whole(&[words("42")]),
            _ => chat_whole(&json!({"content": "42"}), "stop"),
        };
        let bench = Bench::new(vec![answer], Limits::default()).await;
        let reply = bench.ask(asked(wire, &body)).await.expect("an answer");
        assert_eq!(reply.headers["otari-dropped"], "input[2]", "{wire:?}");
        let sent = String::from_utf8(bench.model.received()[0].body.to_vec()).expect("text");
        assert!(sent.contains("print(6*7)") && !sent.contains("otari_ci_"), "{sent}");
    }
}
