use std::sync::Arc;

use super::*;
use crate::clock::SystemClock;
use crate::ids::SystemIds;
use crate::wire::event::Stop;
use crate::wire::served::CallerWire;

/// The text a client gets when these pieces are told, with code between them where a piece is `None`.
fn told(pieces: &[Option<&str>], streamed: bool) -> String {
    let mut writer = ChatWriter::new(WriterOptions {
        kept: false,
        settings: serde_json::Map::new(),
        wire: CallerWire::ChatCompletions,
        streamed,
        native: false,
        show: Show::default(),
        model: "m".to_owned(),
        request_id: String::new(),
        ids: Arc::new(SystemIds),
        clock: Arc::new(SystemClock),
    });
    let mut write = |event| writer.write(event).expect("this wire says everything");
    write(ClientEvent::Opened(Opened::default()));
    for piece in pieces {
        if let Some(text) = piece {
            write(ClientEvent::Block(BlockEvent::Start(BlockKind::Text, None)));
            write(ClientEvent::Block(BlockEvent::Delta(Delta::Text((*text).to_owned()), None)));
            write(ClientEvent::Block(BlockEvent::Stop(None)));
        } else {
            write(ClientEvent::CodeStart { call: 0, tool: CodeTool::Python });
            write(ClientEvent::CodeStop { call: 0 });
        }
    }
    writer.finish(Ended { stop: Stop::EndTurn, usage: Usage::default(), raw: None });
    let body = String::from_utf8(writer.take().to_vec()).expect("text");
    if streamed {
        let chunks = body.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
        return chunks
            .filter_map(|chunk| Some(chunk.pointer("/choices/0/delta/content")?.as_str()?.to_owned()))
            .collect();
    }
    let body: Value = serde_json::from_str(&body).expect("JSON");
    body.pointer("/choices/0/message/content").and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[test]
fn texts_of_two_turns_are_two_paragraphs_and_texts_of_one_are_one() {
    for streamed in [false, true] {
        for (pieces, expected) in [
            (vec![Some("a"), Some("b")], "ab"),
            (vec![Some("a"), None, Some("b"), Some("c")], "a\n\nbc"),
            (vec![Some("a\n"), None, None, Some("b")], "a\n\nb"),
            (vec![Some("a\n"), Some("\n"), None, Some("b")], "a\n\nb"),
            (vec![Some("a\n\n\n"), None, Some("b")], "a\n\n\nb"),
            (vec![Some("a"), None, Some(""), Some("b")], "a\n\nb"),
            (vec![Some("a"), None, Some("")], "a"),
            (vec![None, Some("b")], "b"),
            (vec![Some("a"), None], "a"),
        ] {
            assert_eq!(told(&pieces, streamed), expected, "{pieces:?}");
        }
    }
}

#[test]
fn the_reason_is_always_a_word_of_this_wire() {
    for (stop, word, expected) in [
        (Stop::EndTurn, None, "stop"),
        (Stop::EndTurn, Some("eos"), "stop"),
        (Stop::EndTurn, Some("tool_calls"), "stop"),
        (Stop::ToolUse, Some("stop"), "tool_calls"),
        (Stop::Refusal, Some("stop"), "stop"),
        (Stop::Refusal, None, "content_filter"),
        (Stop::MaxTokens, None, "length"),
        (Stop::StopSequence(None), None, "stop"),
        (Stop::Other("pause_turn".to_owned()), None, "stop"),
        (Stop::Other("model_context_window_exceeded".to_owned()), None, "length"),
    ] {
        assert_eq!(finish_word(&stop, word), expected, "{stop:?} {word:?}");
    }
}

#[test]
fn usage_of_another_wire_counts_the_cache_in() {
    let usage = Usage { input: 10, cache_read: 4, cache_write: 2, output: 5, reasoning: 0, raw: None };
    let mut expected = json!({"prompt_tokens": 16, "completion_tokens": 5, "total_tokens": 21,
        "prompt_tokens_details": {"cached_tokens": 4}});
    assert_eq!(Value::from(usage_object(usage.clone())), expected);
    expected["completion_tokens_details"] = json!({"reasoning_tokens": 3});
    assert_eq!(Value::from(usage_object(Usage { reasoning: 3, ..usage })), expected);
}
