use decision::decide::{Dialect, Run};
use decision::request::{CodeTool, Keyword, ToolDeclaration};
use serde_json::json;

use std::collections::HashSet;

use super::*;

fn run() -> Run {
    let declaration = |index| ToolDeclaration { index, keyword: Keyword::Explicit, name: None, purpose_hint: None };
    Run {
        dialect: Dialect::Plain,
        claimed: vec![declaration(1)],
        tools: vec![CodeTool::Python],
        max_iterations: 10,
        exec_timeout_s: 60,
        purpose_hint: None,
        image: None,
        container: None,
    }
}

/// Remembers one run, told to who asks for `mine` at the place.
struct Remembers(Place);

impl PastRuns for Remembers {
    fn find(&self, call_ids: &HashSet<String>, place: &Place) -> Option<Arc<[PastRun]>> {
        let call = Call { id: "ours".to_owned(), name: "code".to_owned(), arguments: r#"{"code":"1"}"#.to_owned() };
        let result = CallResult { call_id: "ours".to_owned(), text: "one".to_owned(), is_error: true };
        (call_ids.contains("mine") && *place == self.0).then(|| [PastRun { call, result }].into())
    }
}

struct Nothing;

impl PastRuns for Nothing {
    fn find(&self, _: &HashSet<String>, _: &Place) -> Option<Arc<[PastRun]>> {
        None
    }
}

fn body(list: &str, entries: &[Value]) -> Vec<u8> {
    json!({"system": "s", "instructions": "i", "tools": [{"name": "lookup"}, {"type": "otari_code_execution"}],
        list: entries})
    .to_string()
    .into()
}

/// The list after it was looked through, when the answer after its first entry is remembered.
fn restored(wire: CallerWire, list: &str, entries: &[Value]) -> Value {
    let first = restore(wire, &body(list, &entries[..1]), &run(), &Nothing).unwrap();
    assert_eq!(first.body, None);
    let now = restore(wire, &body(list, entries), &run(), &Remembers(first.place)).unwrap();
    let before: Value = serde_json::from_slice(&body(list, entries)).unwrap();
    let Some(after) = now.body else { return Value::Null };
    let mut after: Value = serde_json::from_slice(&after).unwrap();
    let found = after[list].take();
    after[list] = before[list].clone();
    assert_eq!(after, before, "nothing else changes");
    found
}

#[test]
fn in_chat_completions_the_call_joins_the_others_and_its_result_comes_first() {
    let user = json!({"role": "user", "content": "a"});
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "lookup", "arguments": "{}"}});
    let ours = json!({"id": "ours", "type": "function", "function": {"name": "code", "arguments": "{\"code\":\"1\"}"}});
    let said = |calls: Vec<Value>| json!({"role": "assistant", "content": null, "tool_calls": calls, "x": 1});
    let result = |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    let (theirs, more) = (result("mine", "b"), result("more", "c"));
    assert_eq!(
        restored(
            CallerWire::ChatCompletions,
            "messages",
            &[user.clone(), said(vec![call("more"), call("mine")]), theirs.clone(), more.clone()]
        ),
        json!([user, said(vec![ours, call("more"), call("mine")]), result("ours", "one"), theirs, more])
    );
}

#[test]
fn in_messages_the_call_stands_before_the_callers_and_the_result_in_the_same_message() {
    let user = json!({"role": "user", "content": "a"});
    let thought = json!({"type": "thinking", "thinking": "t", "signature": "s"});
    let mine = json!({"type": "tool_use", "id": "mine", "name": "lookup", "input": {}});
    let ours = json!({"type": "tool_use", "id": "ours", "name": "code", "input": {"code": "1"}});
    let result = json!({"type": "tool_result", "tool_use_id": "ours", "content": "one", "is_error": true});
    let said = |blocks: Value| json!({"role": "assistant", "content": blocks});
    let theirs = json!({"type": "tool_result", "tool_use_id": "mine", "content": "b"});
    let asked = said(json!([thought, mine]));
    let then = said(json!([thought, ours, mine]));
    let with = |next: Option<Value>| {
        let entries: Vec<Value> = [user.clone(), asked.clone()].into_iter().chain(next).collect();
        restored(CallerWire::Messages, "messages", &entries)
    };
    let user_says = |content: Value| json!({"role": "user", "content": content});
    assert_eq!(with(Some(user_says(json!([theirs])))), json!([user, then, user_says(json!([result, theirs]))]));
    let text = json!({"type": "text", "text": "never mind"});
    assert_eq!(with(Some(user_says(json!("never mind")))), json!([user, then, user_says(json!([result, text]))]));
    assert_eq!(with(None), json!([user, then, user_says(json!([result]))]));
}

#[test]
fn in_responses_the_call_stands_before_the_callers_and_the_output_behind_the_answer() {
    let user = json!({"role": "user", "content": "a"});
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "lookup", "arguments": "{}"});
    let ours = json!({"type": "function_call", "call_id": "ours", "name": "code", "arguments": "{\"code\":\"1\"}"});
    let output = |id: &str, text: &str| json!({"type": "function_call_output", "call_id": id, "output": text});
    let (mine, more) = (call("mine"), call("more"));
    assert_eq!(
        restored(
            CallerWire::Responses,
            "input",
            &[user.clone(), thought.clone(), mine.clone(), more.clone(), output("mine", "b"), output("more", "c")]
        ),
        json!([user, thought, ours, mine, more, output("ours", "one"), output("mine", "b"), output("more", "c")])
    );
}

#[test]
fn another_history_gets_nothing_and_a_text_is_a_message() {
    let call = json!({"type": "function_call", "call_id": "mine", "name": "lookup", "arguments": "{}"});
    let user = |text: &str| json!({"role": "user", "content": text});
    let first = |input: Value| {
        let body = json!({"input": input, "tools": [{"name": "lookup"}, {"type": "otari_code_execution"}]});
        restore(CallerWire::Responses, body.to_string().as_bytes(), &run(), &Nothing).unwrap().place
    };
    assert_eq!(first(json!("a")), first(json!([user("a")])));
    assert_ne!(first(json!("a")), first(json!("b")));
    let place = first(json!("a"));
    let changed = |list: Value, instructions: &str| {
        let body = json!({"input": list, "instructions": instructions,
            "tools": [{"name": "lookup"}, {"type": "otari_code_execution"}]});
        restore(CallerWire::Responses, body.to_string().as_bytes(), &run(), &Remembers(place)).unwrap().body
    };
    assert_eq!(changed(json!([user("b"), call]), ""), None);
    assert_eq!(changed(json!([user("a"), call]), "of another"), None);
    assert_eq!(changed(json!([user("a"), user("a"), call]), ""), None);
}

#[test]
fn without_functions_of_the_callers_nothing_is_looked_through() {
    let body = json!({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "otari_code_execution"}]});
    assert!(restore(CallerWire::ChatCompletions, body.to_string().as_bytes(), &run(), &Nothing).is_none());
}
