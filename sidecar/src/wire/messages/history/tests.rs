use serde_json::json;

use super::*;

/// F-numbers: the acceptance list of the reference gateway.
fn folded(messages: &Value) -> Value {
    let messages = serde_json::value::to_raw_value(messages).expect("JSON");
    serde_json::from_str(&fold(&messages, Foreign::Stays)).expect("JSON")
}

/// Nothing is changed, not even a blank.
fn check_untouched(messages: &str) {
    let messages = RawValue::from_string(messages.to_owned()).expect("JSON");
    assert!(matches!(fold(&messages, Foreign::Stays), Cow::Borrowed(same) if same == messages.get()));
}

fn call(id: &str, code: &str) -> Value {
    json!({"type": "server_tool_use", "id": id, "name": "code_execution", "input": {"code": code}})
}

fn result(id: &str, stdout: &str) -> Value {
    let content =
        json!({"type": "code_execution_result", "stdout": stdout, "stderr": "", "return_code": 0, "content": []});
    json!({"type": "code_execution_tool_result", "tool_use_id": id, "content": content})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

const OURS: &str = "otari_srvtoolu_1";
const FOLDED: &str = "I ran this Python code:\n```python\nprint(1)\n```\nstdout:\n1\nreturn code: 0";

#[test]
fn f11_a_pair_becomes_one_text_block_and_the_text_after_it_stays() {
    let folded = folded(&json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call(OURS, "print(1)"), result(OURS, "1\n"), text("done")]},
    ]));
    assert_eq!(
        folded,
        json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [text(FOLDED), text("done")]},
        ])
    );
}

#[test]
fn f12_an_error_is_told_by_its_code() {
    let error = json!({"type": "code_execution_tool_result_error", "error_code": "unavailable"});
    let result = json!({"type": "code_execution_tool_result", "tool_use_id": OURS, "content": error});
    let folded = folded(&json!([{"role": "assistant", "content": [call(OURS, "print(1)"), result]}]));
    let content = folded[0]["content"].as_array().expect("list");
    assert_eq!(content.len(), 1);
    assert!(content[0]["text"].as_str().expect("text").ends_with("error: unavailable"));
}

#[test]
fn f13_a_providers_pair_stays() {
    let messages = json!([{"role": "assistant", "content": [call("srvtoolu_1", "x"), result("srvtoolu_1", "1")]}]);
    check_untouched(&messages.to_string());
}

#[test]
fn a_lone_call_goes_and_its_message_with_it() {
    let folded = folded(&json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call(OURS, "x")]},
        {"role": "user", "content": "on"},
    ]));
    assert_eq!(folded, json!([{"role": "user", "content": "go"}, {"role": "user", "content": "on"}]));
}

#[test]
fn a_lone_result_is_told_where_it_stands() {
    let folded = folded(&json!([{"role": "assistant", "content": [text("a"), result(OURS, "1"), text("b")]}]));
    let told = "I ran code in the sandbox.\nstdout:\n1\nreturn code: 0";
    assert_eq!(folded, json!([{"role": "assistant", "content": [text("a"), text(told), text("b")]}]));
}

#[test]
fn halves_in_different_messages_are_told_once_at_the_result() {
    let folded = folded(&json!([
        {"role": "assistant", "content": [text("a"), call(OURS, "print(1)")]},
        {"role": "user", "content": [result(OURS, "1")]},
    ]));
    assert_eq!(
        folded,
        json!([
            {"role": "assistant", "content": [text("a")]},
            {"role": "user", "content": [text(FOLDED)]},
        ])
    );
}

#[test]
fn a_pair_split_by_other_blocks_is_told_where_the_call_stood() {
    let client = json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}});
    let nested = [call("srvtoolu_9", "y"), result("srvtoolu_9", "2")];
    let folded = folded(&json!([{"role": "assistant", "content": [
        call(OURS, "print(1)"), client, nested[0], nested[1], result(OURS, "1"), result(OURS, "1"),
    ]}]));
    assert_eq!(folded, json!([{"role": "assistant", "content": [text(FOLDED), client, nested[0], nested[1]]}]));
}

#[test]
fn echoes_with_nulls_missing_keys_and_lists_are_understood() {
    for content in [
        json!({"type": "code_execution_result", "stdout": null, "stderr": null, "return_code": null, "content": null}),
        json!({}),
        json!(null),
        json!([]),
    ] {
        let result = json!({"type": "code_execution_tool_result", "tool_use_id": OURS, "content": content});
        let folded = folded(&json!([{"role": "assistant", "content": [call(OURS, "print(1)"), result]}]));
        let told = "I ran this Python code:\n```python\nprint(1)\n```";
        assert_eq!(folded, json!([{"role": "assistant", "content": [text(told)]}]));
    }
    let listed = json!([{"type": "code_execution_result", "stdout": "1\n", "return_code": 0}]);
    let result =
        json!({"type": "code_execution_tool_result", "tool_use_id": OURS, "content": listed, "is_error": null});
    let folded = folded(&json!([{"role": "assistant", "content": [call(OURS, "print(1)"), result]}]));
    assert_eq!(folded, json!([{"role": "assistant", "content": [text(FOLDED)]}]));
}

#[test]
fn stderr_return_code_and_files_are_told() {
    let content = json!({
        "type": "code_execution_result", "stdout": "", "stderr": "boom", "return_code": 1,
        "content": [{"type": "code_execution_output", "file_id": "file-otr1"}],
    });
    assert_eq!(
        recount(Some(&json!({"code": "a = '```'"})), &content),
        "I ran this Python code:\n````python\na = '```'\n````\nstderr:\nboom\nreturn code: 1\nfile: file-otr1"
    );
}

#[test]
fn pairs_of_every_tool_are_folded_in_any_completeness() {
    let fold_pair = |name: &str, input: Value, content: Value| {
        let call = json!({"type": "server_tool_use", "id": OURS, "name": name, "input": input, "caller": null});
        let result = json!({"type": format!("{name}_tool_result"), "tool_use_id": OURS, "content": content});
        let folded = folded(&json!([{"role": "assistant", "content": [call, result]}]));
        assert_eq!(folded[0]["content"].as_array().map(Vec::len), Some(1), "{folded}");
        folded[0]["content"][0]["text"].as_str().expect("text").to_owned()
    };
    let bash = |content: Value| fold_pair("bash_code_execution", json!({"command": "ls"}), content);
    let ran =
        json!({"type": "bash_code_execution_result", "stdout": "a\n", "stderr": "", "return_code": 0, "content": []});
    assert_eq!(bash(ran), "I ran this command:\n```bash\nls\n```\nstdout:\na\nreturn code: 0");
    let error = json!({"type": "bash_code_execution_tool_result_error", "error_code": "unavailable"});
    assert_eq!(bash(error), "I ran this command:\n```bash\nls\n```\nerror: unavailable");
    assert_eq!(bash(json!({"stdout": null})), "I ran this command:\n```bash\nls\n```");
    let editor = |content: Value| {
        let text = fold_pair("text_editor_code_execution", json!({"command": "view", "path": "a"}), content);
        let head = "I used the sandbox:\n```json\n{\"command\":\"view\",\"path\":\"a\"}\n```";
        text.strip_prefix(head).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let view = json!({"type": "text_editor_code_execution_view_result", "content": "one\n", "file_type": "text"});
    assert_eq!(editor(view), "\ncontent:\none");
    assert_eq!(editor(json!({"is_file_update": true})), "\nThe file was written over.");
    assert_eq!(editor(json!({"is_file_update": false})), "\nThe file was created.");
    assert_eq!(editor(json!({"lines": ["-a", "+b"], "old_start": null})), "\nchanged lines:\n-a\n+b");
    assert_eq!(editor(json!({"lines": null})), "");
    let error = json!({"error_code": "file_not_found", "error_message": "no such file"});
    assert_eq!(editor(error), "\nerror: file_not_found\nno such file");
}

#[test]
fn other_shapes_pass() {
    for messages in ["null", r#""otari_srvtoolu_1""#, r#"[{"role": "user", "content": "otari_srvtoolu_1"} ]"#] {
        check_untouched(messages);
    }
    check_untouched(r#"[1, "otari_srvtoolu_1", {"content": ["otari_srvtoolu_1", {"id" : "otari_srvtoolu_1"}]}]"#);
}

#[test]
fn everything_else_keeps_its_bytes() {
    let messages = RawValue::from_string(
        r#"[ {"n": 1.50, "content" : "\u00e9" }, {"content": [ {"type":"text", "text":"\u00e9", "n": 18446744073709551616} ,
        {"type":"server_tool_use","id":"otari_srvtoolu_1"}, {"type":"x_tool_result","tool_use_id":"otari_srvtoolu_1"}], "role" : "assistant" } ]"#
            .to_owned(),
    )
    .expect("JSON");
    expect_test::expect![[r#"[{"n": 1.50, "content" : "\u00e9" },{"content": [{"type":"text", "text":"\u00e9", "n": 18446744073709551616},{"type":"text","text":"I ran code in the sandbox."}], "role" : "assistant" }]"#]]
        .assert_eq(&fold(&messages, Foreign::Stays));
}

#[test]
fn thinking_that_no_provider_signed_goes_and_signed_thinking_stays() {
    let thinking = |signature: &str| json!({"type": "thinking", "thinking": "t", "signature": signature});
    let folded = folded(&json!([
        {"role": "assistant", "content": [thinking("otari_thought_unsigned"), thinking("c2ln"), text("a")]},
        {"role": "assistant", "content": [thinking("otari_thought_unsigned")]},
    ]));
    assert_eq!(folded, json!([{"role": "assistant", "content": [thinking("c2ln"), text("a")]}]));
}
