use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::ids::SystemIds;
use crate::wire::event::{BlockEvent, BlockKind, Delta, Stop};

/// The events of these deltas' calls, one letter a kind: `+name`, `arguments`, `-`.
fn check(deltas: &[Value], expected: Expect) {
    let last = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
    let calls = deltas.iter().map(|calls| json!({"choices": [{"delta": {"tool_calls": calls}}]}));
    check_chunks(calls.chain([last]), expected);
}

/// The same of whole chunks.
fn check_chunks(chunks: impl Iterator<Item = Value>, expected: Expect) {
    let (events, failed) = read(chunks);
    let told: Vec<String> = events
        .into_iter()
        .filter_map(|event| match event {
            TurnEvent::Block(BlockEvent::Start(BlockKind::Call { name, .. }, _)) => Some(format!("+{name}")),
            TurnEvent::Block(BlockEvent::Delta(Delta::Arguments(piece), _)) => Some(piece),
            TurnEvent::Block(BlockEvent::Stop(_)) => Some("-".to_owned()),
            _ => None,
        })
        .chain(failed)
        .collect();
    expected.assert_eq(&told.join(" "));
}

/// What is read of chunks up to the first that cannot be read, and why it cannot.
fn read(chunks: impl Iterator<Item = Value>) -> (Vec<TurnEvent>, Option<String>) {
    let mut reader = StreamState::new(false, 1 << 20, Arc::new(SystemIds));
    let mut events = Vec::new();
    for data in chunks.map(|chunk| chunk.to_string()).chain(["[DONE]".to_owned()]) {
        let frame = Frame { event: bytes::Bytes::new(), data: data.into() };
        if let Err(error) = reader.frame(&frame, &mut events) {
            return (events, Some(error.to_string()));
        }
    }
    (events, None)
}

fn begin(index: u64, id: &str, name: &str, arguments: &str) -> Value {
    json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}})
}

fn more(index: u64, arguments: &str) -> Value {
    json!({"index": index, "function": {"arguments": arguments}})
}

#[test]
fn calls_that_come_one_after_another_are_told_as_they_grow() {
    check(
        &[
            json!([begin(0, "a", "f", "")]),
            json!([more(0, "{}")]),
            json!([begin(1, "b", "g", "{")]),
            json!([more(1, "}")]),
        ],
        expect!["+f {} - +g { } -"],
    );
}

#[test]
fn mixed_calls_are_told_in_order() {
    check(
        &[
            json!([begin(0, "a", "f", "{"), begin(1, "b", "g", "["), begin(2, "c", "h", "1")]),
            json!([more(1, "]"), more(0, "}"), more(2, "2")]),
        ],
        expect!["+f { } - +g [] - +h 12 -"],
    );
}

#[test]
fn a_call_that_goes_on_after_its_end_is_refused() {
    check(
        &[json!([begin(0, "a", "f", "{}")]), json!([begin(1, "b", "g", "{")]), json!([more(0, "x")])],
        expect!["+f {} - +g { malformed model answer: a call goes on after its end"],
    );
}

#[test]
fn calls_without_an_index_or_all_of_one_index_are_told_apart_by_their_ids_and_names() {
    check(
        &[
            json!([begin(0, "a", "f", "{")]),
            json!([begin(0, "b", "g", "[")]),
            json!([{"index": 0, "id": "a", "function": {"arguments": "}"}}]),
        ],
        expect!["+f { } - +g [ -"],
    );
    check(
        &[
            json!([{"function": {"name": "f", "arguments": {"a": 1}}}]),
            json!([{"function": {"name": "g", "arguments": "{"}}, {"function": {"arguments": "}"}}]),
        ],
        expect![[r#"+f {"a":1} - +g { } -"#]],
    );
}

#[test]
fn calls_in_the_chunk_that_says_the_reason_are_told_whole() {
    let chunk =
        |calls: Value, reason: Value| json!({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": reason}]});
    let alone = chunk(json!([begin(0, "a", "f", "{}"), begin(1, "b", "g", "[]")]), json!("tool_calls"));
    check_chunks([alone].into_iter(), expect!["+f {} - +g [] -"]);
    let begun = chunk(json!([begin(0, "a", "f", "{")]), Value::Null);
    let last = chunk(json!([more(0, "}"), begin(1, "b", "g", "[]")]), json!("tool_calls"));
    check_chunks([begun, last].into_iter(), expect!["+f { } - +g [] -"]);
}

#[test]
fn no_answer_holds_calls_without_end() {
    let calls: Vec<Value> = (0..=1024).map(|index| begin(index, "", "f", "")).collect();
    let mut reader = StreamState::new(false, 1 << 20, Arc::new(SystemIds));
    let chunk = json!({"choices": [{"delta": {"tool_calls": calls}}]});
    let frame = Frame { event: bytes::Bytes::new(), data: chunk.to_string().into() };
    assert_eq!(reader.frame(&frame, &mut Vec::new()), Err(ReadError::Malformed("one answer holds too many calls")));
}

#[test]
fn a_turn_with_calls_waits_for_them_whatever_word_says_its_end() {
    for word in ["stop", "", "eos"] {
        let calls = json!({"choices": [{"delta": {"tool_calls": [begin(0, "a", "f", "{}")]}}]});
        let last = json!({"choices": [{"delta": {}, "finish_reason": word}]});
        for (chunks, expected) in [(vec![calls, last.clone()], Stop::ToolUse), (vec![last], Stop::EndTurn)] {
            let (events, failed) = read(chunks.into_iter());
            let stops: Vec<Stop> = events
                .into_iter()
                .filter_map(|event| match event {
                    TurnEvent::Ended(ended) => Some(ended.stop),
                    _ => None,
                })
                .collect();
            assert_eq!((stops, failed), (vec![expected], None), "{word:?}");
        }
    }
}

#[test]
fn an_empty_word_in_every_chunk_cuts_no_call_and_ends_nothing_by_itself() {
    let chunk = |calls: Value| json!({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": ""}]});
    let chunks = [chunk(json!([begin(0, "a", "f", "{")])), chunk(json!([more(0, "}")]))];
    check_chunks(chunks.clone().into_iter(), expect!["+f { } -"]);
    let mut reader = StreamState::new(false, 1 << 20, Arc::new(SystemIds));
    let mut events = Vec::new();
    for chunk in chunks {
        let frame = Frame { event: bytes::Bytes::new(), data: chunk.to_string().into() };
        reader.frame(&frame, &mut events).unwrap();
    }
    reader.closed(&mut events);
    assert!(!events.iter().any(|event| matches!(event, TurnEvent::Ended(_))), "it broke off: {events:?}");
}

#[test]
fn content_in_parts_is_text_and_thoughts() {
    let thinking =
        json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}]);
    let chunks = [
        json!({"choices": [{"delta": {"content": thinking}}]}),
        json!({"choices": [{"delta": {"content": "b"}}]}),
        json!({"choices": [{"delta": {"content": []}}]}),
        json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
    ];
    let (events, failed) = read(chunks.into_iter());
    assert_eq!(failed, None);
    let told: Vec<String> = events
        .into_iter()
        .filter_map(|event| match event {
            TurnEvent::Block(BlockEvent::Delta(Delta::Text(text), _)) => Some(text),
            TurnEvent::Block(BlockEvent::Delta(Delta::Reasoning(text), _)) => Some(format!("({text})")),
            _ => None,
        })
        .collect();
    assert_eq!(told, ["(hm)", "a", "b"]);
}
