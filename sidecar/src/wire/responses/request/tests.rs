use decision::decide::Dialect;
use decision::request::{CodeTool, Keyword, ToolDeclaration};

use super::*;
use crate::wire::model_request::TurnKind;

/// A run that claims the entries of `tools` at these positions.
fn run(claimed: &[u32]) -> Run {
    let declaration =
        |index: &u32| ToolDeclaration { index: *index, keyword: Keyword::Interpreter, name: None, purpose_hint: None };
    Run {
        dialect: Dialect::Native,
        claimed: claimed.iter().map(declaration).collect(),
        tools: vec![CodeTool::Python],
        max_iterations: 10,
        exec_timeout_s: 60,
        purpose_hint: Some("for sums".to_owned()),
        image: None,
        container: None,
    }
}

fn bodies(request: &Value) -> [Value; 3] {
    let prepared = edit(request.to_string().as_bytes(), &run(&[0]), None, Foreign::Stays).unwrap();
    [TurnKind::First, TurnKind::Later, TurnKind::Closing]
        .map(|kind| serde_json::from_slice(&prepared.request.body(kind)).unwrap())
}

fn choices(choice: &Value) -> [Value; 3] {
    let tools = json!([{"type": "code_interpreter", "container": {"type": "auto"}}, {"type": "function", "name": "f"}]);
    bodies(&json!({"input": "a", "tools": tools, "tool_choice": choice})).map(|body| body["tool_choice"].clone())
}

#[test]
fn what_is_not_ours_keeps_its_bytes() {
    let body = br#"{"model":"m","input":[ {"type":"aura","n" : 1.0} ],"tools":[{"type":"code_interpreter"},{"type":"aura","n" : 2.0}],"future" : {"x":1.0},"max_tool_iterations":3,"include":["code_interpreter_call.outputs"]}"#;
    let prepared = edit(body, &run(&[0]), Some("up"), Foreign::Stays).unwrap();
    let body = String::from_utf8(prepared.request.body(TurnKind::First).to_vec()).unwrap();
    for kept in
        [r#""model":"up""#, r#"{"type":"aura","n" : 1.0}"#, r#"{"type":"aura","n" : 2.0}"#, r#""future":{"x":1.0}"#]
    {
        assert!(body.contains(kept), "{body}");
    }
    for gone in ["code_interpreter", "max_tool_iterations", "include"] {
        assert!(!body.contains(gone), "{gone}: {body}");
    }
    assert_eq!(prepared.model, "m");
}

#[test]
fn a_text_becomes_a_list_and_the_hint_stands_before_the_instructions() {
    let [body, ..] =
        bodies(&json!({"input": "a", "instructions": "Be brief.", "tools": [{"type": "code_interpreter"}]}));
    assert_eq!(body["input"], json!([{"role": "user", "content": "a"}]));
    let instructions = body["instructions"].as_str().unwrap();
    assert!(instructions.contains("for sums") && instructions.ends_with("\n\nBe brief."), "{instructions}");
    let [body, ..] = bodies(&json!({"previous_response_id": "resp_1", "tools": [{"type": "code_interpreter"}]}));
    assert_eq!((&body["input"], &body["previous_response_id"]), (&json!([]), &json!("resp_1")));
    assert!(edit(br#"{"input":1}"#, &run(&[]), None, Foreign::Stays).is_err());
}

#[test]
fn the_hint_stands_alone_where_there_are_no_instructions() {
    let tools = json!([{"type": "code_interpreter"}]);
    let with = |instructions: Value| json!({"input": "a", "tools": tools, "instructions": instructions});
    for request in [json!({"input": "a", "tools": tools}), with(Value::Null)] {
        for body in bodies(&request) {
            let instructions = body["instructions"].as_str().unwrap();
            assert!(instructions.contains("for sums") && !instructions.ends_with('\n'), "{instructions}");
            assert_eq!(body["input"], json!([{"role": "user", "content": "a"}]));
        }
    }
    assert_eq!(bodies(&with(json!(["Be brief."])))[0]["instructions"], json!(["Be brief."]));
}

#[test]
fn includes_that_others_read_stay() {
    let tools = json!([{"type": "code_interpreter"}]);
    let include = json!(["code_interpreter_call.outputs", "reasoning.encrypted_content"]);
    let [body, ..] = bodies(&json!({"input": "a", "tools": tools, "include": include}));
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
}

#[test]
fn a_choice_of_the_code_tool_is_forced_once() {
    let ours = json!({"type": "function", "name": "code_execution"});
    assert_eq!(choices(&json!({"type": "code_interpreter"})), [ours.clone(), json!("auto"), json!("auto")]);
    assert_eq!(choices(&json!("required")), [json!("required"), json!("auto"), json!("auto")]);
    let own = json!({"type": "function", "name": "f"});
    assert_eq!(choices(&own), [own.clone(), own.clone(), own.clone()]);
    let allowed = |mode: &str, tools: Value| json!({"type": "allowed_tools", "mode": mode, "tools": tools});
    let asked = allowed("required", json!([{"type": "code_interpreter"}, own]));
    let expected =
        [allowed("required", json!([own, ours])), allowed("auto", json!([own, ours])), allowed("auto", json!([own]))];
    assert_eq!(choices(&asked), expected);
    let alone = choices(&allowed("auto", json!([{"type": "code_interpreter"}])));
    assert_eq!(alone[2], "none");
}

#[test]
fn a_function_of_the_callers_with_our_name_stays_the_callers() {
    let tools = json!([{"type": "code_interpreter"}, {"type": "function", "name": "code_execution"}]);
    let choice = json!({"type": "function", "name": "code_execution"});
    let [body, ..] = bodies(&json!({"input": "a", "tools": tools, "tool_choice": choice}));
    assert_eq!(body["tool_choice"], choice);
    assert_eq!(body["tools"][1]["name"], "otari_code_execution_1");
}

#[test]
fn the_last_call_has_no_code_tool() {
    let [.., closing] = bodies(&json!({"input": "a", "tools": [{"type": "code_interpreter"}]}));
    assert_eq!((closing.get("tools"), closing.get("tool_choice")), (None, None));
}
