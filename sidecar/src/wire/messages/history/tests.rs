use serde_json::json;

use super::*;

/// F-numbers: the acceptance list of the reference gateway.
fn fold(messages: Value) -> Value {
    let mut body = json!({"messages": messages});
    fold_minted(&mut body);
    body["messages"].take()
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
    let folded = fold(json!([
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
    let folded = fold(json!([{"role": "assistant", "content": [call(OURS, "print(1)"), result]}]));
    let content = folded[0]["content"].as_array().expect("list");
    assert_eq!(content.len(), 1);
    assert!(content[0]["text"].as_str().expect("text").ends_with("error: unavailable"));
}

#[test]
fn f13_a_providers_pair_stays() {
    let messages = json!([{"role": "assistant", "content": [call("srvtoolu_1", "x"), result("srvtoolu_1", "1")]}]);
    let mut body = json!({"messages": messages});
    assert!(!fold_minted(&mut body));
    assert_eq!(body["messages"], messages);
}

#[test]
fn a_lone_call_goes_and_its_message_with_it() {
    let folded = fold(json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call(OURS, "x")]},
        {"role": "user", "content": "on"},
    ]));
    assert_eq!(folded, json!([{"role": "user", "content": "go"}, {"role": "user", "content": "on"}]));
}

#[test]
fn a_lone_result_is_told_where_it_stands() {
    let folded = fold(json!([{"role": "assistant", "content": [text("a"), result(OURS, "1"), text("b")]}]));
    let told = "I ran code in the sandbox.\nstdout:\n1\nreturn code: 0";
    assert_eq!(folded, json!([{"role": "assistant", "content": [text("a"), text(told), text("b")]}]));
}

#[test]
fn halves_in_different_messages_are_told_once_at_the_result() {
    let folded = fold(json!([
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
    let folded = fold(json!([{"role": "assistant", "content": [
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
        let folded = fold(json!([{"role": "assistant", "content": [call(OURS, "print(1)"), result]}]));
        let told = "I ran this Python code:\n```python\nprint(1)\n```";
        assert_eq!(folded, json!([{"role": "assistant", "content": [text(told)]}]));
    }
    let listed = json!([{"type": "code_execution_result", "stdout": "1\n", "return_code": 0}]);
    let result =
        json!({"type": "code_execution_tool_result", "tool_use_id": OURS, "content": listed, "is_error": null});
    let folded = fold(json!([{"role": "assistant", "content": [call(OURS, "print(1)"), result]}]));
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
fn other_shapes_pass() {
    for messages in [json!(null), json!("x"), json!([{"role": "user", "content": "x"}]), json!([1, {"content": []}])] {
        let mut body = json!({"messages": messages});
        assert!(!fold_minted(&mut body));
        assert_eq!(body["messages"], messages);
    }
}
