use serde_json::{Value, json};

use super::*;

fn read(body: &Value) -> Result<Call, (u16, String)> {
    read_text(&body.to_string())
}

fn read_text(body: &str) -> Result<Call, (u16, String)> {
    Call::read(body.as_bytes()).map_err(|failure| (failure.render().status().as_u16(), format!("{failure:?}")))
}

fn call(tool: &str, input: Value) -> Value {
    json!({"tool": tool, "input": input})
}

fn edit(input: Value) -> Result<EditorCommand, (u16, String)> {
    read(&call("text_editor_code_execution", input)).map(|call| match call.input {
        ToolInput::TextEditor(command) => command,
        other => panic!("{other:?}"),
    })
}

#[test]
fn every_tool_is_read_with_its_input() {
    let python = read(&call("code_execution", json!({"code": "1"}))).unwrap();
    assert_eq!(python.input, ToolInput::Python { code: "1".to_owned() });
    assert_eq!((python.tool.result_type(), python.timeout_s, python.id), ("code_execution_tool_result", None, None));
    let bash = read(&call("bash_code_execution", json!({"command": "ls"}))).unwrap();
    assert_eq!(bash.input, ToolInput::Bash { command: "ls".to_owned() });
    assert_eq!(bash.tool.result_type(), "bash_code_execution_tool_result");
    let text = |text: &str| text.to_owned();
    let range = |first, last| Some(ViewRange { first, last });
    let view = |range| EditorCommand::View { path: text("a"), range };
    for (input, expected) in [
        (json!({"command": "view", "path": "a"}), view(None)),
        (json!({"command": "view", "path": "a", "view_range": null}), view(None)),
        (json!({"command": "view", "path": "a", "view_range": [2, 3]}), view(range(2, Some(3)))),
        (json!({"command": "view", "path": "a", "view_range": [2.0, -1]}), view(range(2, None))),
        (
            json!({"command": "create", "path": "a", "file_text": ""}),
            EditorCommand::Create { path: text("a"), text: text("") },
        ),
        (
            json!({"command": "str_replace", "path": "a", "old_str": "x", "new_str": "y", "file_text": null}),
            EditorCommand::StrReplace { path: text("a"), old: text("x"), new: text("y") },
        ),
        (
            json!({"command": "str_replace", "path": "a", "old_str": "x"}),
            EditorCommand::StrReplace { path: text("a"), old: text("x"), new: text("") },
        ),
        (json!({"command": "undo_edit", "path": "a"}), EditorCommand::UndoEdit { path: text("a") }),
        (
            json!({"command": "insert", "path": "a", "insert_line": 0, "new_str": "y"}),
            EditorCommand::Insert { path: text("a"), line: 0, text: text("y") },
        ),
    ] {
        assert_eq!(edit(input.clone()).unwrap(), expected, "{input}");
    }
    let edited = read(&call("text_editor_code_execution", json!({"command": "view", "path": "a"}))).unwrap();
    assert_eq!(edited.tool.result_type(), "text_editor_code_execution_tool_result");
}

#[test]
fn members_that_the_contract_does_not_have_mean_nothing_whatever_they_nest() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let body = format!(
        r#"{{"tool": "code_execution", "new": {deep}, "input": {{"code": "1", "new": {deep}}}, "timeout_seconds": null}}"#
    );
    assert_eq!(read_text(&body).unwrap().input, ToolInput::Python { code: "1".to_owned() });
}

#[test]
fn what_is_demanded_must_be_there_and_of_its_kind_and_nothing_is_quoted() {
    let code = json!({"code": "canary"});
    let mut refused = vec![
        ("`tool`", 422, json!({"input": code})),
        ("`tool`", 422, json!({"tool": null, "input": code})),
        ("`tool`", 422, json!({"tool": ["canary"], "input": code})),
        ("`tool`", 400, json!({"tool": "canary", "input": code})),
        ("`input`", 422, json!({"tool": "code_execution"})),
        ("`input`", 422, json!({"tool": "code_execution", "input": null})),
        ("`input`", 422, json!({"tool": "code_execution", "input": "canary"})),
        ("`code`", 422, call("code_execution", json!({}))),
        ("`code`", 422, call("code_execution", json!({"code": ""}))),
        ("`code`", 422, call("code_execution", json!({"code": ["canary"]}))),
        ("`command`", 422, call("bash_code_execution", code.clone())),
    ];
    for seconds in [json!(0), json!(-1), json!(1.5), json!("canary"), json!(true), json!([1])] {
        let mut body = call("code_execution", code.clone());
        body["timeout_seconds"] = seconds;
        refused.push(("`timeout_seconds`", 422, body));
    }
    for id in [json!(""), json!(1), json!("canary".repeat(50))] {
        let mut body = call("code_execution", code.clone());
        body["tool_use_id"] = id;
        refused.push(("`tool_use_id`", 422, body));
    }
    for (named, input) in [
        ("`command`", json!({})),
        ("`command`", json!({"command": "canary", "path": "a"})),
        ("`path`", json!({"command": "view"})),
        ("`path`", json!({"command": "view", "path": ""})),
        ("`path`", json!({"command": "undo_edit"})),
        ("`view_range`", json!({"command": "view", "path": "a", "view_range": [1]})),
        ("`view_range`", json!({"command": "view", "path": "a", "view_range": [0, 1]})),
        ("`view_range`", json!({"command": "view", "path": "a", "view_range": [2, 1]})),
        ("`view_range`", json!({"command": "view", "path": "a", "view_range": ["canary", 1]})),
        ("`file_text`", json!({"command": "create", "path": "a"})),
        ("`old_str`", json!({"command": "str_replace", "path": "a", "new_str": "canary"})),
        ("`old_str`", json!({"command": "str_replace", "path": "a", "old_str": ""})),
        ("`new_str`", json!({"command": "str_replace", "path": "a", "old_str": "a", "new_str": 1})),
        ("`insert_line`", json!({"command": "insert", "path": "a", "new_str": "canary"})),
        ("`insert_line`", json!({"command": "insert", "path": "a", "new_str": "a", "insert_line": -1})),
        ("`new_str`", json!({"command": "insert", "path": "a", "insert_line": 1})),
    ] {
        refused.push((named, 422, call("text_editor_code_execution", input)));
    }
    for (named, status, body) in refused {
        let (answered, text) = read(&body).unwrap_err();
        assert_eq!(answered, status, "{body}");
        assert!(text.contains(named) && !text.contains("canary"), "{body}: {text}");
    }
}

#[test]
fn a_body_that_two_readers_could_read_in_two_ways_is_not_read() {
    for body in [
        "",
        "null",
        "[]",
        "1",
        "canary",
        r#"{"tool": "code_execution""#,
        r#"{"tool": "code_execution", "tool": "bash_code_execution", "input": {"code": "1"}}"#,
        r#"{"tool": "code_execution", "input": {"code": "1", "code": "2"}}"#,
        r#"{"tool": "code_execution", "\u0074ool": "code_execution", "input": {"code": "1"}}"#,
        r#"{"tool": "code_execution", "input": {"code": "1"}} {}"#,
        r#"{"tool": "code_execution", "input": {"code": "\ud800"}}"#,
    ] {
        assert_eq!(read_text(body).unwrap_err().0, 422, "{body}");
    }
    let many: Vec<_> = (0..=MAX_MEMBERS).map(|number| format!(r#""m{number}": 1"#)).collect();
    assert_eq!(read_text(&format!("{{{}}}", many.join(","))).unwrap_err().0, 422);
}

#[test]
fn numbers_may_be_written_in_every_way_json_has() {
    for (seconds, read_as) in
        [("1", 1), ("30.0", 30), ("3e1", 30), ("1e300", u64::MAX), ("99999999999999999999", u64::MAX)]
    {
        let body = format!(r#"{{"tool": "code_execution", "input": {{"code": "1"}}, "timeout_seconds": {seconds}}}"#);
        assert_eq!(read_text(&body).unwrap().timeout_s, Some(read_as), "{seconds}");
    }
}
