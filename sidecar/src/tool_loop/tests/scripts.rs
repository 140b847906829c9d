//! Turns of models and requests of callers in no wire's words, written in any wire; and what holds of any answer.

use decision::decide::Dialect;
use decision::format::ApiFormat::{self, ChatCompletions, Messages, Responses};
use decision::request::Keyword;
use serde_json::{Value, json};

use super::support::{Answer, run_request};
use crate::tool_loop::RunRequest;

/// The wires, for callers and models alike.
pub(super) const WIRES: [ApiFormat; 3] = [ChatCompletions, Messages, Responses];

/// One thing that a model says.
#[derive(Debug, Clone)]
pub(super) enum Said {
    Thought(String),
    Text(String),
    /// Id, name, arguments.
    Call(String, String, String),
}

pub(super) fn text(text: &str) -> Said {
    Said::Text(text.to_owned())
}

pub(super) fn thought(text: &str) -> Said {
    Said::Thought(text.to_owned())
}

/// A call of the code tool.
pub(super) fn code(id: &str, source: &str) -> Said {
    Said::Call(id.to_owned(), "code_execution".to_owned(), json!({"code": source}).to_string())
}

/// A call of the caller's function.
pub(super) fn lookup(id: &str) -> Said {
    Said::Call(id.to_owned(), "lookup".to_owned(), json!({"q": "x"}).to_string())
}

/// A request of a caller with a function of its own and the code tool.
pub(super) fn asked(caller: ApiFormat, model: ApiFormat, stream: bool) -> RunRequest {
    asked_of(caller, model, stream, &[json!({"role": "user", "content": "What is 6*7?"})])
}

/// The same, with a history in the caller's wire.
pub(super) fn asked_of(caller: ApiFormat, model: ApiFormat, stream: bool, history: &[Value]) -> RunRequest {
    let schema = json!({"type": "object", "properties": {"q": {"type": "string"}}});
    let body = match caller {
        ChatCompletions => {
            let function = json!({"type": "function", "function": {"name": "lookup", "parameters": schema}});
            json!({"model": "demo", "stream": stream, "messages": history,
                "tools": [function, {"type": "code_execution"}]})
        }
        Messages => json!({"model": "demo", "stream": stream, "max_tokens": 9, "messages": history,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tools": [{"name": "lookup", "input_schema": schema}, {"type": "code_execution_20250522", "name": "code_execution"}]}),
        Responses => json!({"model": "demo", "stream": stream, "input": history,
            "include": ["code_interpreter_call.outputs"], "reasoning": {"summary": "auto"},
            "tools": [{"type": "function", "name": "lookup", "parameters": schema},
                {"type": "code_interpreter", "container": {"type": "auto"}}]}),
    };
    let mut asked = run_request(model, &body);
    asked.caller = caller;
    if caller == ChatCompletions {
        asked.run.dialect = Dialect::Plain;
    }
    if caller == Responses {
        for claimed in &mut asked.run.claimed {
            (claimed.keyword, claimed.name) = (Keyword::Interpreter, None);
        }
    }
    asked
}

/// A model's turn in this wire.
pub(super) fn turn(wire: ApiFormat, stream: bool, said: &[Said]) -> Answer {
    let called = said.iter().any(|one| matches!(one, Said::Call(..)));
    match (wire, stream) {
        (ChatCompletions, true) => Answer::stream(&chat_stream(said, called)),
        (ChatCompletions, false) => Answer::json(&chat_whole(said, called).to_string()),
        (Messages, true) => Answer::stream(&messages_stream(said, called)),
        (Messages, false) => Answer::json(&message(&said.iter().map(block).collect(), Some(stop(called))).to_string()),
        (Responses, true) => Answer::stream(&responses_stream(said)),
        (Responses, false) => {
            let items: Value = said.iter().enumerate().map(|(at, one)| item(at, one)).collect();
            Answer::json(&response("completed", &items).to_string())
        }
    }
}

/// A text in two pieces, the border in no character's middle.
fn halves(text: &str) -> [&str; 2] {
    let (first, second) = text.split_at(text.floor_char_boundary(text.len() / 2));
    [first, second]
}

fn chat_stream(said: &[Said], called: bool) -> String {
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    let mut calls = 0;
    for one in said {
        match one {
            Said::Thought(text) => deltas.extend(halves(text).map(|piece| json!({"reasoning_content": piece}))),
            Said::Text(text) => deltas.extend(halves(text).map(|piece| json!({"content": piece}))),
            Said::Call(id, name, arguments) => {
                let function = json!({"name": name, "arguments": ""});
                let begin = json!({"index": calls, "id": id, "type": "function", "function": function});
                deltas.push(json!({"tool_calls": [begin]}));
                deltas.extend(
                    halves(arguments)
                        .map(|piece| json!({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})),
                );
                calls += 1;
            }
        }
    }
    super::support::chat_stream(&deltas, if called { "tool_calls" } else { "stop" })
}

fn chat_whole(said: &[Said], called: bool) -> Value {
    let mut message = json!({"role": "assistant", "content": null});
    let mut calls = Vec::new();
    for one in said {
        match one {
            Said::Thought(text) => message["reasoning_content"] = json!(text),
            Said::Text(text) => message["content"] = json!(text),
            Said::Call(id, name, arguments) => {
                let function = json!({"name": name, "arguments": arguments});
                calls.push(json!({"id": id, "type": "function", "function": function}));
            }
        }
    }
    if called {
        message["tool_calls"] = json!(calls);
    }
    json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": if called { "tool_calls" } else { "stop" }}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}})
}

fn stop(called: bool) -> &'static str {
    if called { "tool_use" } else { "end_turn" }
}

fn block(said: &Said) -> Value {
    match said {
        Said::Thought(text) => json!({"type": "thinking", "thinking": text, "signature": "c2ln"}),
        Said::Text(text) => json!({"type": "text", "text": text}),
        Said::Call(id, name, arguments) => {
            let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
    }
}

fn message(content: &Value, stop_reason: Option<&str>) -> Value {
    json!({"id": "msg_01", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 5}})
}

fn messages_stream(said: &[Said], called: bool) -> String {
    let mut events = vec![json!({"type": "message_start", "message": message(&json!([]), None)})];
    for (index, one) in said.iter().enumerate() {
        let (begun, kind, field, pieces) = match one {
            Said::Thought(text) => {
                let begun = json!({"type": "thinking", "thinking": "", "signature": ""});
                (begun, "thinking_delta", "thinking", halves(text))
            }
            Said::Text(text) => (json!({"type": "text", "text": ""}), "text_delta", "text", halves(text)),
            Said::Call(id, name, arguments) => {
                let begun = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                (begun, "input_json_delta", "partial_json", halves(arguments))
            }
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": begun}));
        let delta = |delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(pieces.map(|piece| delta(json!({"type": kind, field: piece}))));
        if matches!(one, Said::Thought(_)) {
            events.push(delta(json!({"type": "signature_delta", "signature": "c2ln"})));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": stop(called), "stop_sequence": null});
    events.push(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}));
    events.push(json!({"type": "message_stop"}));
    named(&events)
}

/// Events of a stream that names them.
fn named(events: &[Value]) -> String {
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type"));
    events.iter().map(frame).collect()
}

fn item(at: usize, said: &Said) -> Value {
    match said {
        Said::Thought(text) => json!({"type": "reasoning", "id": format!("rs_{at}"), "encrypted_content": "c2Vh",
            "summary": [{"type": "summary_text", "text": text}]}),
        Said::Text(text) => json!({"type": "message", "id": format!("msg_{at}"), "role": "assistant",
            "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]}),
        Said::Call(id, name, arguments) => json!({"type": "function_call", "id": format!("fc_{at}"), "call_id": id,
            "name": name, "arguments": arguments, "status": "completed"}),
    }
}

fn response(status: &str, output: &Value) -> Value {
    let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15});
    json!({"id": "resp_model", "object": "response", "created_at": 1, "status": status, "model": "m", "output": output,
        "usage": if status == "completed" { usage } else { Value::Null }})
}

fn responses_stream(said: &[Said]) -> String {
    let mut events = vec![json!({"type": "response.created", "response": response("in_progress", &json!([]))})];
    for (at, one) in said.iter().enumerate() {
        let whole = item(at, one);
        let (kind, place, pieces) = match one {
            Said::Thought(text) => ("response.reasoning_summary_text.delta", "summary_index", halves(text)),
            Said::Text(text) => ("response.output_text.delta", "content_index", halves(text)),
            Said::Call(_, _, text) => ("response.function_call_arguments.delta", "x", halves(text)),
        };
        events.push(json!({"type": "response.output_item.added", "output_index": at, "item": whole}));
        events.extend(pieces.map(|piece| {
            json!({"type": kind, "output_index": at, "item_id": whole["id"], place: 0, "delta": piece, "logprobs": []})
        }));
        events.push(json!({"type": "response.output_item.done", "output_index": at, "item": whole}));
    }
    let output: Value = said.iter().enumerate().map(|(at, one)| item(at, one)).collect();
    events.push(json!({"type": "response.completed", "response": response("completed", &output)}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    named(&events)
}
