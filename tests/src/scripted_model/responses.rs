//! The Responses wire: an answer as one JSON body, or as numbered, named events.

use serde_json::{Value, json};

use super::answer::{Act, Answer, Piece, fragments, interruption};
use super::scenario::{Finish, Usage};

const CREATED: u64 = 1_700_000_000;

/// The whole answer.
pub(crate) fn whole(answer: &Answer) -> Value {
    let items = answer.acts.iter().enumerate().filter_map(|(position, act)| item(answer, position, act));
    response(answer, &items.collect::<Vec<Value>>(), true)
}

/// The answer as a stream.
pub(crate) fn stream(answer: &Answer) -> Vec<Piece> {
    let mut events = Events::default();
    let begun = response(answer, &[], false);
    for kind in ["response.created", "response.in_progress"] {
        events.push(kind, json!({"response": begun}));
    }
    let mut output: Vec<Value> = Vec::new();
    for (position, act) in answer.acts.iter().enumerate() {
        match (act, item(answer, position, act)) {
            (Act::ErrorEvent(message), _) => {
                let error = json!({"type": "server_error", "code": "server_error", "message": message, "param": null});
                events.push("error", json!({"error": error}));
            }
            (Act::Malformed(text), _) => events.pieces.push(Piece::Bytes(text.clone().into())),
            (_, Some(item)) => {
                item_events(&mut events, output.len(), act, &item, answer.fragment);
                output.push(item);
            }
            (_, None) => events.pieces.extend(interruption(act)),
        }
    }
    let kind = if answer.finish == Finish::Length { "response.incomplete" } else { "response.completed" };
    events.push(kind, json!({"response": response(answer, &output, true)}));
    events.pieces
}

#[derive(Default)]
struct Events {
    pieces: Vec<Piece>,
    sequence: usize,
}

impl Events {
    fn push(&mut self, kind: &str, mut event: Value) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        self.pieces.push(Piece::Bytes(format!("event: {kind}\ndata: {event}\n\n").into()));
    }
}

fn response(answer: &Answer, output: &[Value], is_over: bool) -> Value {
    let (status, details) = match (is_over, answer.finish) {
        (false, _) => ("in_progress", Value::Null),
        (true, Finish::Length) => ("incomplete", json!({"reason": "max_output_tokens"})),
        (true, Finish::End | Finish::Tool | Finish::Refusal) => ("completed", Value::Null),
    };
    json!({"id": format!("resp_scripted_{}", answer.turn), "object": "response", "created_at": CREATED,
        "status": status, "error": null, "incomplete_details": details, "model": answer.model, "output": output,
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "metadata": {}, "store": true,
        "usage": if is_over { usage(answer.usage) } else { Value::Null }})
}

/// One act as a complete item.
fn item(answer: &Answer, position: usize, act: &Act) -> Option<Value> {
    let id = |prefix: &str| format!("{prefix}_{}_{position}", answer.turn);
    match act {
        Act::Text(text) => {
            let part = match answer.finish {
                Finish::Refusal => json!({"type": "refusal", "refusal": text}),
                _ => text_part(text),
            };
            Some(json!({"id": id("msg"), "type": "message", "status": "completed", "role": "assistant",
                "content": [part]}))
        }
        Act::Thinking(text) => {
            let summary = json!({"type": "summary_text", "text": text});
            Some(json!({"id": id("rs"), "type": "reasoning", "summary": [summary],
                "encrypted_content": "c2NyaXB0ZWQ="}))
        }
        Act::Call { id: call_id, name, arguments } => Some(json!({"id": id("fc"), "type": "function_call",
            "status": "completed", "call_id": call_id, "name": name, "arguments": arguments})),
        Act::Block(item) => Some(item.clone()),
        _ => None,
    }
}

fn item_events(events: &mut Events, index: usize, act: &Act, item: &Value, fragment: usize) {
    let mut begun = item.clone();
    for (name, empty) in [("status", json!("in_progress")), ("content", json!([])), ("summary", json!([]))] {
        if let Some(value) = begun.get_mut(name) {
            *value = empty;
        }
    }
    if begun.get("arguments").is_some() {
        begun["arguments"] = json!("");
    }
    events.push("response.output_item.added", json!({"output_index": index, "item": begun}));
    let mut of_item = |kind: &str, mut event: Value| {
        event["output_index"] = json!(index);
        event["item_id"] = item["id"].clone();
        events.push(kind, event);
    };
    match act {
        Act::Text(text) if item["content"][0]["type"] == "output_text" => {
            of_item("response.content_part.added", json!({"content_index": 0, "part": text_part("")}));
            for delta in fragments(text, fragment) {
                let event = json!({"content_index": 0, "delta": delta, "logprobs": []});
                of_item("response.output_text.delta", event);
            }
            of_item("response.output_text.done", json!({"content_index": 0, "text": text, "logprobs": []}));
            of_item("response.content_part.done", json!({"content_index": 0, "part": text_part(text)}));
        }
        Act::Thinking(text) => {
            let part = |text: &str| json!({"summary_index": 0, "part": {"type": "summary_text", "text": text}});
            of_item("response.reasoning_summary_part.added", part(""));
            for delta in fragments(text, fragment) {
                of_item("response.reasoning_summary_text.delta", json!({"summary_index": 0, "delta": delta}));
            }
            of_item("response.reasoning_summary_text.done", json!({"summary_index": 0, "text": text}));
            of_item("response.reasoning_summary_part.done", part(text));
        }
        Act::Call { name, arguments, .. } => {
            for delta in fragments(arguments, fragment) {
                of_item("response.function_call_arguments.delta", json!({"delta": delta}));
            }
            of_item("response.function_call_arguments.done", json!({"name": name, "arguments": arguments}));
        }
        _ => {}
    }
    events.push("response.output_item.done", json!({"output_index": index, "item": item}));
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn usage(usage: Usage) -> Value {
    json!({"input_tokens": usage.input, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output})
}
