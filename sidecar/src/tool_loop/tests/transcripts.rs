//! Recorded turns of models, and what client and model get. The snapshot holds both.

use decision::decide::Dialect;
use decision::format::ApiFormat;
use decision::request::CodeTool;
use serde_json::{Value, json};

use super::support::{Answer, Bench, chat_call, chat_code, chat_stream, chat_text, request, run_request};
use crate::tool_loop::{Limits, RunRequest};
use crate::wire::code_tool::description;

/// Plays the script whole, byte by byte and in odd pieces: the client must get the same bytes each time.
pub(super) async fn play(make_request: impl Fn() -> RunRequest, script: impl Fn() -> Vec<Answer>) -> String {
    play_on(async |answers| Box::new(Bench::new(answers, Limits::default()).await), make_request, script).await
}

/// The same, on benches of another make.
pub(super) async fn play_on<B: AsRef<Bench>>(
    make_bench: impl AsyncFn(Vec<Answer>) -> B,
    make_request: impl Fn() -> RunRequest,
    script: impl Fn() -> Vec<Answer>,
) -> String {
    let mut told: Option<String> = None;
    for piece in [usize::MAX, 1, 7] {
        let answers = script().into_iter().map(|answer| Answer { piece, ..answer }).collect();
        let bench = make_bench(answers).await;
        let reply = bench.as_ref().ask(make_request()).await.expect("an answer");
        let requests: Vec<String> = bench
            .as_ref()
            .model
            .received()
            .iter()
            .map(|received| {
                let body: Value = serde_json::from_slice(&received.body).expect("JSON");
                format!("POST {}\n{body:#}", received.path)
            })
            .collect();
        let body = match serde_json::from_str::<Value>(&reply.body) {
            Ok(body) => format!("{body:#}"),
            Err(_) => reply.body,
        };
        let now = format!("{}\n\n== client: {}\n{body}", requests.join("\n"), reply.status);
        match &told {
            None => told = Some(now),
            Some(told) => assert_eq!(*told, now, "cut in pieces of {piece}"),
        }
    }
    // The tools' own texts have one test of their own.
    let tools = [CodeTool::Python, CodeTool::Bash, CodeTool::TextEditor];
    tools.into_iter().map(description).fold(told.unwrap_or_default(), |told, text| told.replace(text, "[description]"))
}

fn chat(stream: bool) -> RunRequest {
    run_request(ApiFormat::ChatCompletions, &request(stream))
}

fn messages(stream: bool) -> RunRequest {
    run_request(ApiFormat::Messages, &request(stream))
}

pub(super) fn chat_whole(message: &Value, finish_reason: &str) -> Answer {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5});
    let choice = json!({"index": 0, "message": message, "finish_reason": finish_reason});
    Answer::json(
        &json!({"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": usage}).to_string(),
    )
}

pub(super) fn called(arguments: &str) -> Value {
    let function = json!({"name": "code_execution", "arguments": arguments});
    json!({"role": "assistant", "content": "Let me compute.", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]})
}

/// A Messages stream from its events.
pub(super) fn messages_stream(events: &[Value]) -> Answer {
    let frames: Vec<String> = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type")))
        .collect();
    Answer::stream(&frames.concat())
}

pub(super) fn message_start() -> Value {
    json!({"type": "message_start", "message": {
        "id": "msg_01", "type": "message", "role": "assistant", "model": "demo-20260101", "content": [],
        "stop_reason": null, "stop_sequence": null, "from_the_future": 1,
        "usage": {"input_tokens": 10, "output_tokens": 1, "cache_creation": {"ephemeral_5m_input_tokens": 2}},
    }})
}

pub(super) fn block(index: u64, start: Value, deltas: &[Value]) -> Vec<Value> {
    let mut events = vec![json!({"type": "content_block_start", "index": index, "content_block": start})];
    events.extend(deltas.iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})));
    events.push(json!({"type": "content_block_stop", "index": index}));
    events
}

pub(super) fn message_end(stop_reason: &str) -> Vec<Value> {
    let delta = json!({"stop_reason": stop_reason, "stop_sequence": null, "from_the_future": 2});
    let usage = json!({"output_tokens": 7, "server_tool_use": {"web_search_requests": 1}});
    vec![json!({"type": "message_delta", "delta": delta, "usage": usage}), json!({"type": "message_stop"})]
}

/// Thinking, a block and a delta nobody knows, text, and a call of the code tool.
pub(super) fn thoughtful_call() -> Answer {
    let mut events = vec![message_start(), json!({"type": "ping"})];
    events.extend(block(
        0,
        json!({"type": "thinking", "thinking": "", "signature": ""}),
        &[
            json!({"type": "thinking_delta", "thinking": "6*7 "}),
            json!({"type": "thinking_delta", "thinking": "is easy"}),
            json!({"type": "signature_delta", "signature": "c2ln"}),
        ],
    ));
    events.extend(block(1, json!({"type": "aura", "colour": "blue"}), &[json!({"type": "aura_delta", "more": 1})]));
    events.extend(block(
        2,
        json!({"type": "text", "text": ""}),
        &[json!({"type": "text_delta", "text": "Let me "}), json!({"type": "text_delta", "text": "compute."})],
    ));
    events.extend(block(
        3,
        json!({"type": "tool_use", "id": "toolu_1", "name": "code_execution", "input": {}}),
        &[
            json!({"type": "input_json_delta", "partial_json": ""}),
            json!({"type": "input_json_delta", "partial_json": "{\"code\": \"pri"}),
            json!({"type": "input_json_delta", "partial_json": "nt(6*7)\"}"}),
        ],
    ));
    events.extend(message_end("tool_use"));
    messages_stream(&events)
}

pub(super) fn plain_text(text: &str) -> Answer {
    let mut events = vec![message_start()];
    events.extend(block(0, json!({"type": "text", "text": ""}), &[json!({"type": "text_delta", "text": text})]));
    events.extend(message_end("end_turn"));
    messages_stream(&events)
}

#[tokio::test]
async fn chat_model_streamed() {
    let script = || {
        let mut deltas = vec![json!({"role": "assistant", "content": ""}), json!({"content": "Let me compute."})];
        deltas.extend(chat_call("print(6*7)"));
        vec![Answer::stream(&chat_stream(&deltas, "tool_calls")), chat_text("It is 42.")]
    };
    insta::assert_snapshot!(play(|| chat(true), script).await);
}

#[tokio::test]
async fn chat_model_whole() {
    let script = || {
        let answer = json!({"role": "assistant", "content": "It is 42."});
        vec![chat_whole(&called("{\"code\": \"print(6*7)\"}"), "tool_calls"), chat_whole(&answer, "stop")]
    };
    insta::assert_snapshot!(play(|| chat(false), script).await);
}

#[tokio::test]
async fn messages_model_streamed_keeps_what_nobody_knows() {
    let script = || vec![thoughtful_call(), plain_text("It is 42.")];
    insta::assert_snapshot!(play(|| messages(true), script).await);
}

#[tokio::test]
async fn a_streamed_compaction_is_repeated_to_the_model_with_its_final_content() {
    for (delta, expected) in [
        (
            json!({"type": "compaction_delta", "content": "They asked for 6*7.", "encrypted_content": "c2Vh"}),
            json!({"type": "compaction", "content": "They asked for 6*7.", "encrypted_content": "c2Vh"}),
        ),
        // A compaction that failed; and what the server leaves out is not made up.
        (json!({"type": "compaction_delta", "content": null}), json!({"type": "compaction", "content": null})),
    ] {
        let mut events = vec![message_start()];
        events.extend(block(0, json!({"type": "compaction", "content": "begun"}), &[delta]));
        let call = json!({"type": "tool_use", "id": "toolu_1", "name": "code_execution", "input": {}});
        let input = json!({"type": "input_json_delta", "partial_json": "{\"code\": \"print(6*7)\"}"});
        events.extend(block(1, call, &[input]));
        events.extend(message_end("tool_use"));
        let bench = Bench::new(vec![messages_stream(&events), plain_text("It is 42.")], Limits::default()).await;
        bench.ask(messages(true)).await.expect("an answer");
        let repeated: Value = serde_json::from_slice(&bench.model.received()[1].body).expect("JSON");
        assert_eq!(repeated["messages"][1]["content"][0], expected);
    }
}

#[tokio::test]
async fn messages_model_whole_keeps_what_nobody_knows() {
    let script = || {
        let message = |content: Value, stop_reason: &str| {
            Answer::json(
                &json!({
                    "id": "msg_01", "type": "message", "role": "assistant", "model": "demo-20260101",
                    "content": content, "stop_reason": stop_reason, "stop_sequence": null, "from_the_future": 1,
                    "usage": {"input_tokens": 10, "output_tokens": 7, "service_tier": "standard"},
                })
                .to_string(),
            )
        };
        let call =
            json!({"type": "tool_use", "id": "toolu_1", "name": "code_execution", "input": {"code": "print(6*7)"}});
        let aura = json!({"type": "aura", "colour": "blue"});
        let thinking = json!({"type": "thinking", "thinking": "6*7", "signature": "c2ln"});
        vec![
            message(json!([thinking, aura, call]), "tool_use"),
            message(json!([{"type": "text", "text": "It is 42."}]), "end_turn"),
        ]
    };
    insta::assert_snapshot!(play(|| messages(false), script).await);
}

#[tokio::test]
async fn failing_program_and_warnings_are_results() {
    let script = || vec![chat_code("1/0"), chat_code("warn()"), chat_text("It cannot be done.")];
    insta::assert_snapshot!(play(|| chat(true), script).await);
}

#[tokio::test]
async fn garbage_arguments_never_reach_the_client() {
    let script = || {
        let start = json!({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "code_execution"}}]});
        let garbage = json!({"tool_calls": [{"index": 0, "function": {"arguments": "print(6*7)\"}"}}]});
        vec![Answer::stream(&chat_stream(&[start, garbage], "tool_calls")), chat_text("Sorry.")]
    };
    insta::assert_snapshot!(play(|| chat(true), script).await);
}

#[tokio::test]
async fn mixed_turn_hands_the_client_its_call() {
    let body = |stream: bool| {
        let mut body = request(stream);
        body["tools"] = json!([
            {"name": "lookup", "description": "Looks up", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}},
            {"type": "code_execution_20250522", "name": "code_execution"},
        ]);
        body
    };
    let script = || {
        let mut deltas = chat_call("print(6*7)");
        deltas.push(json!({"tool_calls": [{"index": 1, "id": "call_2", "function": {"name": "lookup", "arguments": "{\"q\":"}}]}));
        deltas.push(json!({"tool_calls": [{"index": 1, "function": {"arguments": " \"x\"}"}}]}));
        vec![Answer::stream(&chat_stream(&deltas, "tool_calls"))]
    };
    insta::assert_snapshot!(play(|| run_request(ApiFormat::ChatCompletions, &body(true)), script).await);
}

#[tokio::test]
async fn at_the_cap_the_model_answers_without_the_tool() {
    let capped = |wire: ApiFormat| {
        let mut asked = run_request(wire, &request(true));
        asked.run.max_iterations = 1;
        asked
    };
    let script = || vec![chat_code("print(6*7)"), chat_text("It is 42.")];
    insta::assert_snapshot!("cap_chat", play(|| capped(ApiFormat::ChatCompletions), script).await);
    let script = || vec![thoughtful_call(), plain_text("It is 42.")];
    insta::assert_snapshot!("cap_messages", play(|| capped(ApiFormat::Messages), script).await);
}

#[tokio::test]
async fn plain_dialect_shows_text_alone() {
    let plain = |stream: bool| {
        let mut asked = chat(stream);
        asked.run.dialect = Dialect::Plain;
        asked
    };
    let script = || vec![chat_code("print(6*7)"), chat_text("It is 42.")];
    insta::assert_snapshot!(play(|| plain(true), script).await);
}

#[tokio::test]
async fn thinking_of_another_wire_is_shown_to_who_asked_for_it() {
    let body = || {
        let mut body = request(true);
        body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
        body
    };
    let script = || {
        let thought = json!({"reasoning_content": "6*7 is easy"});
        let mut deltas = vec![thought.clone()];
        deltas.extend(chat_call("print(6*7)"));
        vec![
            Answer::stream(&chat_stream(&deltas, "tool_calls")),
            Answer::stream(&chat_stream(&[thought, json!({"content": "It is 42."})], "stop")),
        ]
    };
    insta::assert_snapshot!(play(|| run_request(ApiFormat::ChatCompletions, &body()), script).await);
}

#[tokio::test]
async fn a_call_cut_by_the_token_limit_is_closed() {
    let script = || {
        let mut deltas = chat_call("print(6*7)");
        deltas.truncate(4);
        vec![Answer::stream(&chat_stream(&deltas, "length"))]
    };
    insta::assert_snapshot!(play(|| chat(true), script).await);
}
