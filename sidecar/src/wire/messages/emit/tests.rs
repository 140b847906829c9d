use decision::decide::Dialect;
use decision::request::CodeTool;

use super::*;
use crate::wire::conversation::Function;
use crate::wire::model_request::TurnKind;

fn run() -> Run {
    Run {
        dialect: Dialect::Plain,
        claimed: Vec::new(),
        tools: vec![CodeTool::Python],
        max_iterations: 10,
        exec_timeout_s: 60,
        purpose_hint: Some("sums".to_owned()),
        image: None,
        container: None,
    }
}

fn bodies(conversation: Conversation) -> [Value; 3] {
    let prepared = emit(conversation, &run(), Some("upstream"));
    [TurnKind::First, TurnKind::Later, TurnKind::Closing]
        .map(|kind| serde_json::from_slice(&prepared.request.body(kind)).expect("JSON"))
}

fn function(name: &str) -> Function {
    Function { name: name.to_owned(), description: None, schema: Map::new(), strict: None }
}

#[test]
fn a_forced_call_of_the_code_tool_is_forced_once() {
    let [first, later, closing] = bodies(Conversation {
        choice: Some(Choice::Code),
        parallel_calls: Some(false),
        functions: vec![function("code_execution")],
        ..Conversation::default()
    });
    let forced = json!({"type": "tool", "name": "otari_code_execution_1", "disable_parallel_tool_use": true});
    assert_eq!(first["tool_choice"], forced);
    assert_eq!(later["tool_choice"], json!({"type": "auto", "disable_parallel_tool_use": true}));
    assert_eq!(closing["tools"].as_array().map(Vec::len), Some(1));
    assert_eq!(first["tools"].as_array().map(Vec::len), Some(2));
}

#[test]
fn without_functions_of_the_caller_the_last_call_keeps_the_tool_and_forbids_it() {
    let [first, _, closing] = bodies(Conversation::default());
    assert_eq!(first["tool_choice"], Value::Null);
    assert_eq!((&closing["tools"], &closing["tool_choice"]), (&first["tools"], &json!({"type": "none"})));
}

#[test]
fn the_hint_stands_before_the_system_text_and_the_providers_name_is_used() {
    let system = Some("Be brief.".to_owned());
    let [first, ..] = bodies(Conversation { system, model: "demo".to_owned(), ..Conversation::default() });
    assert_eq!(first["system"], "When to use the tools of this gateway:\n- code_execution: sums\n\nBe brief.");
    assert_eq!((&first["model"], &first["max_tokens"]), (&json!("upstream"), &json!(DEFAULT_MAX_TOKENS)));
}

#[test]
fn ids_of_calls_are_written_as_this_wire_takes_them_and_stay_pairs() {
    let long = "functions.lookup:0";
    let fitting = "call_1-a";
    for id in [long, fitting, ""] {
        let call = Call { id: id.to_owned(), name: "f".to_owned(), arguments: "{}".to_owned() };
        let result = Message::Result { call_id: id.to_owned(), text: "r".to_owned() };
        let messages = vec![Message::Assistant { text: String::new(), calls: vec![call] }, result];
        let turns = turns(messages);
        let written = turns[0].1[0]["id"].as_str().expect("an id").to_owned();
        assert_eq!(turns[1].1[0]["tool_use_id"], written);
        assert!(!written.is_empty() && written.chars().all(|one| one.is_ascii_alphanumeric() || "_-".contains(one)));
        assert_eq!(written == id, id == fitting, "{written}");
    }
    assert_ne!(id_of_call("a.b"), id_of_call("a:b"));
}
