use decision::decide::Dialect;

use super::*;
use crate::wire::event::CodeFailure;

fn run(tools: &[CodeTool]) -> Run {
    Run {
        dialect: Dialect::Native,
        claimed: Vec::new(),
        tools: tools.to_vec(),
        max_iterations: 10,
        exec_timeout_s: 60,
        purpose_hint: None,
        image: None,
        container: None,
    }
}

#[test]
fn each_tool_of_the_run_is_one_function_with_a_name_of_its_own() {
    let taken = ["code_execution", "otari_code_execution_1", "lookup"];
    let functions = Functions::of(&run(&[CodeTool::Python, CodeTool::TextEditor]), taken.into_iter());
    assert_eq!(functions.names().collect::<Vec<_>>(), ["otari_code_execution_2", "text_editor_code_execution"]);
    assert_eq!(functions.tool("otari_code_execution_2"), Some(CodeTool::Python));
    assert_eq!(functions.tool("text_editor_code_execution"), Some(CodeTool::TextEditor));
    for callers in ["code_execution", "bash_code_execution", "lookup"] {
        assert_eq!(functions.tool(callers), None);
    }
}

#[test]
fn the_model_is_told_what_each_takes() {
    let functions = Functions::of(&run(&[CodeTool::Python, CodeTool::Bash, CodeTool::TextEditor]), [].into_iter());
    let told: Vec<Value> =
        functions.definitions().map(|function| json!({"name": function.name, "schema": function.schema})).collect();
    insta::assert_snapshot!(format!("{:#}", Value::from(told)));
}

/// What is shown of a call of the editor, and what it asks for.
fn editor(arguments: &Value) -> (Value, Result<CodeInput, CodeFailure>) {
    let mut argument = Argument::new(CodeTool::TextEditor, 1 << 10);
    for piece in arguments.to_string().chars() {
        assert_eq!(argument.feed(&piece.to_string()), "", "shown before it is whole");
    }
    let Finished { shown, input } = argument.finish();
    (serde_json::from_str(&shown).expect("JSON"), input)
}

#[test]
fn an_act_of_the_editor_is_shown_without_what_it_does_not_have() {
    let path = || "a.txt".to_owned();
    let text = |text: &str| text.to_owned();
    for (members, input) in [
        (json!({"command": "view", "path": "a.txt"}), CodeInput::View { path: path(), lines: None }),
        (
            json!({"command": "view", "path": "a.txt", "view_range": [2, -1]}),
            CodeInput::View { path: path(), lines: Some((2, None)) },
        ),
        (
            json!({"command": "view", "path": "a.txt", "view_range": [2, 2]}),
            CodeInput::View { path: path(), lines: Some((2, Some(2))) },
        ),
        (
            json!({"command": "create", "path": "a.txt", "file_text": ""}),
            CodeInput::Create { path: path(), text: text("") },
        ),
        (
            json!({"command": "str_replace", "path": "a.txt", "old_str": "a\n", "new_str": "b"}),
            CodeInput::StrReplace { path: path(), old: text("a\n"), new: text("b") },
        ),
        (
            json!({"command": "str_replace", "path": "a.txt", "old_str": "a"}),
            CodeInput::StrReplace { path: path(), old: text("a"), new: text("") },
        ),
    ] {
        assert_eq!(editor(&members), (members.clone(), Ok(input.clone())));
        let mut more = members.clone();
        for (name, value) in
            [("unknown", json!([1])), ("insert_line", json!(3)), ("view_range", members["view_range"].clone())]
        {
            more[name] = value;
        }
        assert_eq!(editor(&more), (members, Ok(input)));
    }
}

#[test]
fn an_act_that_cannot_be_done_is_shown_and_the_model_is_told_what_to_change() {
    for (arguments, named) in [
        (json!([]), "JSON object"),
        (json!("view"), "JSON object"),
        (json!({}), "`command`"),
        (json!({"command": "undo_edit", "path": "a"}), "`command`"),
        (json!({"command": "insert", "path": "a", "insert_line": 1, "new_str": "b"}), "`command`"),
        (json!({"command": "view"}), "`path`"),
        (json!({"command": "view", "path": ""}), "`path`"),
        (json!({"command": "view", "path": 1}), "`path`"),
        (json!({"command": "view", "path": "a", "view_range": [0, 1]}), "`view_range`"),
        (json!({"command": "view", "path": "a", "view_range": [3, 2]}), "`view_range`"),
        (json!({"command": "view", "path": "a", "view_range": [1]}), "`view_range`"),
        (json!({"command": "create", "path": "a"}), "`file_text`"),
        (json!({"command": "str_replace", "path": "a", "old_str": ""}), "`old_str`"),
        (json!({"command": "str_replace", "path": "a", "old_str": "b", "new_str": 1}), "`new_str`"),
    ] {
        let (shown, input) = editor(&arguments);
        assert!(shown.is_object(), "{shown}");
        assert!(shown.as_object().unwrap().iter().all(|(name, value)| arguments[name] == *value), "{shown}");
        assert!(
            matches!(input, Err(CodeFailure::InvalidInput(what)) if what.contains(named)),
            "{arguments}: {input:?}"
        );
    }
    let long = json!({"command": "create", "path": "a", "file_text": "b".repeat(1 << 10)});
    assert_eq!(editor(&long).0, json!({}));
}
