//! What holds of every answer of a caller's wire, whatever the model did and however it ended.

use decision::format::ApiFormat::{self, ChatCompletions, Messages, Responses};
use serde_json::Value;

/// How an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// As it should.
    Finished,
    /// With an error of this type (of this code, on wires that have no type) and these words.
    Failed(String, String),
}

/// A stream's events: their names where it has names, and their data. Comments are none.
pub(super) fn events(body: &str) -> Vec<(Option<&str>, Value)> {
    let frames = body.split("\n\n").filter(|frame| !frame.is_empty() && !frame.starts_with(':'));
    frames
        .map(|frame| {
            let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
            let data = field("data: ").unwrap_or_else(|| panic!("no data in {frame}"));
            let data = if data == "[DONE]" { Value::from(data) } else { serde_json::from_str(data).expect("JSON") };
            (field("event: "), data)
        })
        .collect()
}

/// Checks a streamed answer and says how it ended.
pub(super) fn check_stream(caller: ApiFormat, body: &str) -> End {
    assert!(body.ends_with("\n\n") || body.is_empty(), "half a frame: {body}");
    let events = events(body);
    assert!(!body.contains("\"code_execution\",\"arguments\""), "a call of ours leaked: {body}");
    match caller {
        ChatCompletions => chat(&events),
        Messages => messages(&events),
        Responses => responses(&events),
    }
}

fn word<'a>(value: &'a Value, place: &str) -> &'a str {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

fn failed(error: &Value, kind: &str) -> End {
    let message = word(error, "/message").to_owned();
    assert!(!message.is_empty(), "{error}");
    End::Failed(word(error, kind).to_owned(), message)
}

fn chat(events: &[(Option<&str>, Value)]) -> End {
    let (last, events) = events.split_last().expect("events");
    assert_eq!(last.1, "[DONE]");
    let mut reasons = 0;
    let mut next_call = 0;
    for (position, (name, chunk)) in events.iter().enumerate() {
        assert_eq!(*name, None);
        if chunk.get("error").is_some() {
            assert_eq!((position + 1, reasons), (events.len(), 0), "an error is the last thing said: {chunk}");
            return failed(&chunk["error"], "/type");
        }
        assert_eq!(chunk["object"], "chat.completion.chunk");
        let choice = &chunk["choices"][0];
        reasons += usize::from(choice["finish_reason"].is_string());
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            assert_ne!(call["function"]["name"], "code_execution", "a call of ours leaked");
            let index = call["index"].as_u64().expect("an index");
            assert!(index <= next_call, "a gap before {call}");
            next_call = next_call.max(index + 1);
        }
    }
    assert_eq!(reasons, 1, "one reason to stop");
    End::Finished
}

fn messages(events: &[(Option<&str>, Value)]) -> End {
    let (mut open, mut next, mut unanswered) = (None, 0, Vec::new());
    for (position, (name, event)) in events.iter().enumerate() {
        let kind = word(event, "/type");
        assert_eq!(*name, Some(kind));
        assert!((kind == "message_start") == (position == 0) || kind == "error" && events.len() == 1, "{event}");
        let is_last = position + 1 == events.len();
        assert_eq!(matches!(kind, "message_stop" | "error"), is_last, "{event}");
        match kind {
            "content_block_start" => {
                assert_eq!((open, event["index"].as_u64()), (None, Some(next)), "{event}");
                open = Some(next);
                next += 1;
                let block = &event["content_block"];
                match word(block, "/type") {
                    "server_tool_use" => unanswered.push(block["id"].clone()),
                    "code_execution_tool_result" => {
                        let place = unanswered.iter().position(|id| *id == block["tool_use_id"]);
                        unanswered.remove(place.expect("a call to the result"));
                    }
                    "tool_use" => assert_ne!(block["name"], "code_execution", "a call of ours leaked"),
                    _ => {}
                }
            }
            "content_block_delta" => assert_eq!(event["index"].as_u64(), open, "{event}"),
            "content_block_stop" => assert_eq!(event["index"].as_u64(), open.take(), "{event}"),
            "message_delta" => assert_eq!(events[position + 1].1["type"], "message_stop"),
            "error" => {
                assert!(unanswered.is_empty(), "a call without a result: {unanswered:?}");
                return failed(&event["error"], "/type");
            }
            _ => {}
        }
    }
    assert!(unanswered.is_empty(), "a call without a result: {unanswered:?}");
    End::Finished
}

fn responses(events: &[(Option<&str>, Value)]) -> End {
    let mut items: Vec<(Value, bool)> = Vec::new();
    let mut error = None;
    for (number, (name, event)) in events.iter().enumerate() {
        let kind = word(event, "/type");
        assert_eq!((*name, event["sequence_number"].as_u64()), (Some(kind), u64::try_from(number).ok()), "{event}");
        assert_eq!(kind == "response.created", number == 0, "{event}");
        let ends = matches!(kind, "response.completed" | "response.failed" | "response.incomplete");
        assert_eq!(ends, number + 1 == events.len(), "{event}");
        let index = event["output_index"].as_u64().and_then(|index| usize::try_from(index).ok());
        if kind == "response.output_item.added" {
            assert_eq!(index, Some(items.len()), "{event}");
            assert_ne!(event["item"]["name"], "code_execution", "a call of ours leaked");
            items.push((event["item"]["id"].clone(), false));
        } else if let Some((id, done)) = index.map(|index| &mut items[index]) {
            assert!(!*done, "{event}");
            *done = kind == "response.output_item.done";
            let said = if *done { &event["item"]["id"] } else { &event["item_id"] };
            assert_eq!(said, id, "{event}");
        } else if kind == "error" {
            error = Some(failed(event.get("error").unwrap_or(event), "/code"));
        }
        if ends {
            let output = event["response"]["output"].as_array().expect("items");
            let told: Vec<&Value> = items.iter().map(|(id, _)| id).collect();
            assert_eq!(output.iter().map(|item| &item["id"]).collect::<Vec<_>>(), told, "the whole output");
            assert!(items.iter().all(|(_, done)| *done), "an unfinished item");
            assert_eq!(kind == "response.failed", error.is_some(), "{event}");
        }
    }
    error.unwrap_or(End::Finished)
}
