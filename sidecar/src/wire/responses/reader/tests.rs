use serde_json::{Value, json};

use super::*;

fn read(keep_raw: bool, events: &[Value]) -> Result<(Vec<TurnEvent>, String), ReadError> {
    let mut state = StreamState::new(keep_raw, 1 << 20);
    let mut told = Vec::new();
    for event in events {
        let name = event["type"].as_str().unwrap_or_default().to_owned();
        state.frame(&Frame { event: name.into(), data: event.to_string().into() }, &mut told)?;
    }
    Ok((told, String::from_utf8(state.into_history()).unwrap()))
}

fn added(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn delta(kind: &str, index: u64, text: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "output_index": index, "delta": text})
}

fn completed(members: &Value) -> Value {
    json!({"type": "response.completed", "response": members})
}

fn call(call_id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": "fc_1", "call_id": call_id, "name": "f", "arguments": arguments})
}

fn words(told: &[TurnEvent]) -> Vec<String> {
    told.iter()
        .filter_map(|event| match event {
            TurnEvent::Block(BlockEvent::Start(kind, _)) => Some(match kind {
                BlockKind::Call { id, .. } => format!("<{id}"),
                other => format!("<{other:?}"),
            }),
            TurnEvent::Block(BlockEvent::Delta(
                Delta::Text(text) | Delta::Reasoning(text) | Delta::Arguments(text),
                _,
            )) => Some(text.clone()),
            TurnEvent::Block(BlockEvent::Stop(_)) => Some(">".to_owned()),
            _ => None,
        })
        .collect()
}

#[test]
fn items_that_overlap_are_told_one_after_another() {
    let (told, _) = read(
        false,
        &[
            added(0, &call("a", "")),
            added(1, &call("b", "")),
            delta("function_call_arguments", 1, "{1"),
            delta("function_call_arguments", 0, "{0"),
            done(1, &call("b", "{1")),
            done(0, &call("a", "{0")),
        ],
    )
    .unwrap();
    assert_eq!(words(&told), ["<a", "{0", ">", "<b", "{1", ">"]);
}

#[test]
fn items_that_come_whole_are_told_all_the_same() {
    let message = json!({"type": "message", "content": [{"type": "output_text", "text": "Hi."}]});
    let silent = json!({"type": "message", "content": []});
    let (told, _) = read(
        false,
        &[
            added(0, &silent),
            done(0, &message),
            added(1, &silent),
            done(1, &silent),
            added(2, &call("a", "")),
            done(2, &call("a", "{}")),
        ],
    )
    .unwrap();
    assert_eq!(words(&told), ["<Text", "Hi.", ">", "<a", "{}", ">"]);
}

#[test]
fn an_item_cut_by_the_token_limit_ends_as_the_output_has_it() {
    let cut = json!({"type": "message", "status": "incomplete", "content": [{"type": "output_text", "text": "Half"}]});
    let details = json!({"reason": "max_output_tokens"});
    let last = json!({"type": "response.incomplete",
        "response": {"status": "incomplete", "incomplete_details": details, "output": [cut]}});
    for keep_raw in [false, true] {
        let events = [added(0, &json!({"type": "message"})), delta("output_text", 0, "Half"), last.clone()];
        let (told, _) = read(keep_raw, &events).unwrap();
        assert_eq!(words(&told), ["<Text", "Half", ">"]);
        let Some(TurnEvent::Ended(ended)) = told.last() else { panic!("{told:?}") };
        assert_eq!(ended.stop, Stop::MaxTokens);
    }
    let without = json!({"type": "response.completed", "response": {}});
    assert!(read(false, &[added(0, &cut), without]).is_err());
}

#[test]
fn a_turn_with_calls_waits_for_their_results_and_usage_counts_the_cache_apart() {
    let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5});
    let (told, _) = read(
        false,
        &[added(0, &call("a", "")), done(0, &call("a", "{}")), completed(&json!({"output": [], "usage": usage}))],
    )
    .unwrap();
    let Some(TurnEvent::Ended(ended)) = told.last() else { panic!("{told:?}") };
    assert_eq!(ended.stop, Stop::ToolUse);
    assert_eq!((ended.usage.input, ended.usage.cache_read, ended.usage.output), (6, 4, 5));
}

#[test]
fn reasoning_that_its_provider_cannot_look_up_stays_out_of_the_history() {
    let bare = json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "thought"}]});
    let sealed = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2Vh"});
    let history = |reasoning: &Value, store: bool| {
        let events = [
            added(0, reasoning),
            done(0, reasoning),
            added(1, &call("a", "")),
            done(1, &call("a", "{}")),
            completed(&json!({"store": store})),
        ];
        read(false, &events).unwrap().1
    };
    assert_eq!(history(&bare, true), format!("{bare},{}", call("a", "{}")));
    assert_eq!(history(&sealed, false), format!("{sealed},{}", call("a", "{}")));
    let alone = json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"});
    assert_eq!(history(&bare, false), alone.to_string());
}

#[test]
fn a_sign_of_life_is_one_and_nothing_unknown_comes_before_the_opening() {
    let unknown = json!({"type": "response.aura", "n": 1});
    let created = json!({"type": "response.created", "response": {"id": "resp_1"}});
    let events = [json!({"type": "keepalive"}), unknown.clone(), created, unknown];
    let (told, _) = read(true, &events).unwrap();
    let [TurnEvent::Aside(Aside::Ping), TurnEvent::Opened(_), TurnEvent::Aside(Aside::Unknown { .. })] = &told[..]
    else {
        panic!("{told:?}")
    };
}

#[test]
fn garbage_arguments_go_back_as_an_empty_object() {
    let garbage = call("a", "print(1)");
    let (_, history) = read(false, &[added(0, &garbage), done(0, &garbage)]).unwrap();
    assert_eq!(history, call("a", "{}").to_string());
}

#[test]
fn errors_of_either_shape_are_the_providers() {
    let shapes = [
        json!({"type": "error", "error": {"type": "invalid_request_error", "code": "x", "message": "no"}}),
        json!({"type": "error", "code": "x", "message": "no", "param": null}),
        json!({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "no"}}}),
    ];
    for shape in shapes {
        let Err(ReadError::Provider(problem)) = read(false, std::slice::from_ref(&shape)) else { panic!("{shape}") };
        assert_eq!(problem.message, "no", "{shape}");
    }
}
