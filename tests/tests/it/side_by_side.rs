//! Calls of one turn: commands beside each other in real sandboxes, and in order whatever builds on what came before.

use harness::client::Call;
use serde_json::{Value, json};

use crate::code_turn::streamed;
use crate::support::{DATED, accumulate, ask, block_types, events, question, shared, tag};

const PREFIXES: [&str; 3] = ["", "messages--", "responses--"];

fn check(message: &Value) {
    let (used, bash) = ("server_tool_use", "bash_code_execution_tool_result");
    let (editor, python) = ("text_editor_code_execution_tool_result", "code_execution_tool_result");
    let mut expected = vec!["text", used, used, bash, bash];
    expected.extend([used; 4]);
    expected.extend([editor, bash, python, bash, "text"]);
    assert_eq!(block_types(message), expected, "{message}");
    let blocks = message["content"].as_array().unwrap();
    let result = |number: usize| &blocks[number]["content"];
    assert_eq!((&blocks[3]["tool_use_id"], &blocks[4]["tool_use_id"]), (&blocks[1]["id"], &blocks[2]["id"]));
    assert_eq!([3, 4].map(|number| result(number)["stdout"].clone()), ["out of a\n", "out of b\n"]);
    assert_eq!([3, 4].map(|number| result(number)["return_code"].clone()), [0, 4]);
    let stdout = [10, 11, 12].map(|number| result(number)["stdout"].clone());
    assert_eq!(stdout, ["step 40\n", "cell 41\n", "last 42\n"]);
    // Every file is told of once, by whichever call saw it first.
    let files = |number: usize| result(number)["content"].as_array().map_or(0, Vec::len);
    assert_eq!([3, 4].map(files).iter().sum::<usize>(), 2, "{message}");
}

#[tokio::test]
async fn two_commands_meet_and_what_builds_on_another_waits() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let request = question(&format!("{prefix}side-by-side"), &tag(), &[DATED]);
        check(&stack.send(ask(&request)).await.json());
        check(&accumulate(&events(&stack.send(ask(&streamed(request))).await)));
    }
}

#[tokio::test]
async fn the_account_of_a_chat_answer_tells_them_in_order() {
    let stack = shared().await;
    let request = json!({"model": "side-by-side", "otari_include": ["code_execution"], "tools": [{"type": DATED}],
        "messages": [{"role": "user", "content": "Both at once."}]});
    let answer = stack.send(Call::post("/v1/chat/completions", &request)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let account = answer.json()["otari_code_execution"].clone();
    let stdout: Vec<&str> = account.as_array().unwrap().iter().filter_map(|call| call["stdout"].as_str()).collect();
    let printed: Vec<&str> = stdout.into_iter().filter(|text| !text.is_empty()).collect();
    assert_eq!(printed.iter().filter(|text| text.starts_with("out of")).count(), 2, "{account}");
    assert_eq!(printed[..2], ["out of a\n", "out of b\n"], "{account}");
}
