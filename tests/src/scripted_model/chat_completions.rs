//! The chat completions wire: an answer as one JSON body, or as `data:` frames.

use serde_json::{Map, Value, json};

use super::answer::{Act, Answer, Piece, fragments, interruption};
use super::scenario::{Finish, Usage};

const ID: &str = "chatcmpl-scripted";
const CREATED: u64 = 1_700_000_000;

/// The whole answer.
pub(crate) fn whole(answer: &Answer) -> Value {
    let joined = |pick: fn(&Act) -> Option<&String>| -> Value {
        let parts: Vec<&str> = answer.acts.iter().filter_map(pick).map(String::as_str).collect();
        if parts.is_empty() { Value::Null } else { Value::String(parts.concat()) }
    };
    let calls: Vec<Value> = answer.acts.iter().filter_map(call).collect();
    let mut message = Map::new();
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), joined(|act| if let Act::Text(text) = act { Some(text) } else { None }));
    let thinking = joined(|act| if let Act::Thinking(text) = act { Some(text) } else { None });
    if !thinking.is_null() {
        message.insert("reasoning_content".to_owned(), thinking);
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    json!({
        "id": ID, "object": "chat.completion", "created": CREATED, "model": answer.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish(answer.finish), "logprobs": null}],
        "usage": usage(answer.usage),
    })
}

/// The answer as a stream.
pub(crate) fn stream(answer: &Answer) -> Vec<Piece> {
    let mut pieces = vec![chunk(answer, &json!({"role": "assistant", "content": ""}), None)];
    let mut index = 0;
    for act in &answer.acts {
        match act {
            Act::Text(text) => {
                let parts = fragments(text, answer.fragment);
                pieces.extend(parts.iter().map(|part| chunk(answer, &json!({"content": part}), None)));
            }
            Act::Thinking(text) => {
                let parts = fragments(text, answer.fragment);
                pieces.extend(parts.iter().map(|part| chunk(answer, &json!({"reasoning_content": part}), None)));
            }
            Act::Call { id, name, arguments } => {
                let mut push = |call: Value| pieces.push(chunk(answer, &json!({"tool_calls": [call]}), None));
                push(json!({"index": index, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""}}));
                for part in fragments(arguments, answer.fragment) {
                    push(json!({"index": index, "function": {"arguments": part}}));
                }
                index += 1;
            }
            Act::ErrorEvent(message) => {
                pieces.push(frame(&json!({"error": {"message": message, "type": "server_error", "param": null,
                    "code": null}})));
            }
            Act::Malformed(text) => pieces.push(Piece::Bytes(text.clone().into())),
            Act::Block(_) => {}
            Act::Wait(_) | Act::Cut | Act::Hang => pieces.extend(interruption(act)),
        }
    }
    pieces.push(chunk(answer, &json!({}), Some(finish(answer.finish))));
    if answer.include_usage {
        pieces.push(frame(&json!({
            "id": ID, "object": "chat.completion.chunk", "created": CREATED, "model": answer.model,
            "choices": [], "usage": usage(answer.usage),
        })));
    }
    pieces.push(Piece::Bytes("data: [DONE]\n\n".into()));
    pieces
}

/// The error object of this wire.
pub(crate) fn error(message: &str) -> Value {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}})
}

fn call(act: &Act) -> Option<Value> {
    let Act::Call { id, name, arguments } = act else { return None };
    Some(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

fn chunk(answer: &Answer, delta: &Value, finish_reason: Option<&str>) -> Piece {
    frame(&json!({
        "id": ID, "object": "chat.completion.chunk", "created": CREATED, "model": answer.model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": null}],
        "usage": null,
    }))
}

fn frame(data: &Value) -> Piece {
    Piece::Bytes(format!("data: {data}\n\n").into())
}

fn finish(finish: Finish) -> &'static str {
    match finish {
        Finish::End => "stop",
        Finish::Tool => "tool_calls",
        Finish::Length => "length",
        Finish::Refusal => "content_filter",
    }
}

fn usage(usage: Usage) -> Value {
    json!({"prompt_tokens": usage.input, "completion_tokens": usage.output,
        "total_tokens": usage.input.saturating_add(usage.output)})
}
