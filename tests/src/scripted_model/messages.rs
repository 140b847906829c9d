//! The Messages wire: an answer as one JSON body, or as named events.

use serde_json::{Value, json};

use super::answer::{Act, Answer, Piece, fragments, interruption};
use super::scenario::{Finish, Usage};

/// The whole answer.
pub(crate) fn whole(answer: &Answer) -> Value {
    let content: Vec<Value> = answer.acts.iter().filter_map(block).collect();
    let mut message = head(answer);
    message["content"] = Value::Array(content);
    message["stop_reason"] = json!(stop_reason(answer.finish));
    message["usage"] = usage(answer.usage);
    message
}

/// The answer as a stream.
pub(crate) fn stream(answer: &Answer) -> Vec<Piece> {
    let mut start = head(answer);
    start["usage"] = usage(Usage { output: 1, ..answer.usage });
    let mut pieces = vec![
        event("message_start", &json!({"type": "message_start", "message": start})),
        event("ping", &json!({"type": "ping"})),
    ];
    let mut index = 0_usize;
    for act in &answer.acts {
        match act {
            Act::ErrorEvent(message) => pieces.push(event("error", &error_of("api_error", message))),
            Act::Malformed(text) => pieces.push(Piece::Bytes(text.clone().into())),
            Act::Wait(_) | Act::Cut | Act::Hang => pieces.extend(interruption(act)),
            _ => {
                pieces.extend(block_events(act, index, answer.fragment));
                index += 1;
            }
        }
    }
    pieces.push(event(
        "message_delta",
        &json!({"type": "message_delta",
            "delta": {"stop_reason": stop_reason(answer.finish), "stop_sequence": null},
            "usage": {"output_tokens": answer.usage.output}}),
    ));
    pieces.push(event("message_stop", &json!({"type": "message_stop"})));
    pieces
}

/// The error object of this wire.
pub(crate) fn error(message: &str) -> Value {
    error_of("invalid_request_error", message)
}

fn error_of(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"})
}

fn head(answer: &Answer) -> Value {
    json!({"id": "msg_scripted", "type": "message", "role": "assistant", "model": answer.model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": null})
}

/// One act as a whole content block.
fn block(act: &Act) -> Option<Value> {
    match act {
        Act::Text(text) => Some(json!({"type": "text", "text": text})),
        Act::Thinking(text) => Some(json!({"type": "thinking", "thinking": text, "signature": "c2NyaXB0ZWQ="})),
        Act::Call { id, name, arguments } => {
            let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
            Some(json!({"type": "tool_use", "id": id, "name": name, "input": input}))
        }
        Act::Block(block) => Some(block.clone()),
        _ => None,
    }
}

/// One act as the events of a content block.
fn block_events(act: &Act, index: usize, fragment: usize) -> Vec<Piece> {
    let (start, deltas) = match act {
        Act::Text(text) => {
            let parts = fragments(text, fragment);
            let deltas = parts.iter().map(|part| json!({"type": "text_delta", "text": part}));
            (json!({"type": "text", "text": ""}), deltas.collect::<Vec<_>>())
        }
        Act::Thinking(text) => {
            let parts = fragments(text, fragment);
            let deltas = parts.iter().map(|part| json!({"type": "thinking_delta", "thinking": part}));
            let signature = json!({"type": "signature_delta", "signature": "c2NyaXB0ZWQ="});
            (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas.chain([signature]).collect())
        }
        Act::Call { id, name, arguments } => {
            let parts = fragments(arguments, fragment);
            let first = json!({"type": "input_json_delta", "partial_json": ""});
            let deltas = parts.iter().map(|part| json!({"type": "input_json_delta", "partial_json": part}));
            let start = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
            (start, std::iter::once(first).chain(deltas).collect())
        }
        Act::Block(block) => (block.clone(), Vec::new()),
        _ => return Vec::new(),
    };
    let start = json!({"type": "content_block_start", "index": index, "content_block": start});
    let mut pieces = vec![event("content_block_start", &start)];
    for delta in deltas {
        let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
        pieces.push(event("content_block_delta", &delta));
    }
    pieces.push(event("content_block_stop", &json!({"type": "content_block_stop", "index": index})));
    pieces
}

fn event(name: &str, data: &Value) -> Piece {
    Piece::Bytes(format!("event: {name}\ndata: {data}\n\n").into())
}

fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::End => "end_turn",
        Finish::Tool => "tool_use",
        Finish::Length => "max_tokens",
        Finish::Refusal => "refusal",
    }
}

fn usage(usage: Usage) -> Value {
    json!({"input_tokens": usage.input, "output_tokens": usage.output})
}
