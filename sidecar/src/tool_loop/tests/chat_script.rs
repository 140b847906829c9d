//! Answers of a model that speaks Chat Completions.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::support::Answer;

/// Chat Completions chunks as a stream.
pub(super) fn chat_stream(deltas: &[Value], finish_reason: &str) -> String {
    let mut out = String::new();
    let mut chunk = |value: Value| writeln!(out, "data: {value}\n").expect("a string takes everything");
    let head = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"});
    let with = |choices: Value, usage: Value| {
        let mut value = head.clone();
        value["choices"] = choices;
        value["usage"] = usage;
        value
    };
    for delta in deltas {
        chunk(with(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null));
    }
    let last = json!([{"index": 0, "delta": {}, "finish_reason": finish_reason}]);
    chunk(with(last, Value::Null));
    let details = json!({"cached_tokens": 4});
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": details});
    chunk(with(json!([]), usage));
    out.push_str("data: [DONE]\n\n");
    out
}

/// A chat delta that calls the code tool with this code, in pieces of three characters.
pub(super) fn chat_call(code: &str) -> Vec<Value> {
    let start = json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function",
        "function": {"name": "code_execution", "arguments": ""}}]});
    let arguments: Vec<char> = json!({"code": code}).to_string().chars().collect();
    let pieces = arguments.chunks(3).map(|piece| {
        let piece: String = piece.iter().collect();
        json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    });
    std::iter::once(start).chain(pieces).collect()
}

/// A chat answer of one text.
pub(super) fn chat_text(text: &str) -> Answer {
    Answer::stream(&chat_stream(&[json!({"role": "assistant", "content": text})], "stop"))
}

/// A chat answer that runs this code.
pub(super) fn chat_code(code: &str) -> Answer {
    Answer::stream(&chat_stream(&chat_call(code), "tool_calls"))
}
