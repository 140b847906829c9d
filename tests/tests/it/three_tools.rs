//! Bash and the text editor beside Python on the Messages wire: one workspace, each tool in blocks of its own.

use harness::client::Call;
use harness::stack::Stack;
use serde_json::{Value, json};

use crate::code_turn::streamed;
use crate::support::{DATED, accumulate, ask, block_types, events, question, seen, shared, tag};

const PREFIXES: [&str; 3] = ["", "messages--", "responses--"];

fn check(message: &Value) {
    let (bash, editor) = ("bash_code_execution_tool_result", "text_editor_code_execution_tool_result");
    let used = "server_tool_use";
    let mut expected = vec!["text", used, bash];
    expected.extend([used; 4]);
    expected.extend([editor; 4]);
    expected.extend([used, "code_execution_tool_result", "text"]);
    assert_eq!(block_types(message), expected, "{message}");
    let blocks = message["content"].as_array().unwrap();
    let result = |call: usize| {
        let result = blocks.iter().find(|block| block["tool_use_id"] == blocks[call]["id"]);
        &result.unwrap_or_else(|| panic!("{message}"))["content"]
    };
    assert_eq!(blocks[1]["name"], "bash_code_execution");
    let note = &result(1)["content"][0]["file_id"];
    assert!(note.as_str().is_some_and(|id| id.starts_with("file-otr")), "{message}");
    let made = json!([{"type": "bash_code_execution_output", "file_id": note}]);
    assert_eq!(
        *result(1),
        json!({"type": "bash_code_execution_result", "stdout": "", "stderr": "made\n", "return_code": 3, "content": made})
    );
    assert_eq!(blocks[3]["name"], "text_editor_code_execution");
    assert_eq!(blocks[3]["input"], json!({"command": "view", "path": "notes.txt", "view_range": [2, -1]}));
    let view = json!({"type": "text_editor_code_execution_view_result", "content": "two\n", "file_type": "text",
        "num_lines": 1, "start_line": 2, "total_lines": 2});
    assert_eq!(*result(3), view);
    let replaced = json!({"type": "text_editor_code_execution_str_replace_result", "old_start": 2, "old_lines": 1,
        "new_start": 2, "new_lines": 1, "lines": ["-two", "+2 \"é\""]});
    assert_eq!(*result(4), replaced);
    let created = json!({"type": "text_editor_code_execution_create_result", "is_file_update": false});
    assert_eq!(*result(5), created);
    assert_eq!(result(6)["error_code"], "file_not_found", "{message}");
    assert!(result(6)["error_message"].as_str().unwrap().contains("gone.txt"), "{message}");
    assert_eq!(blocks[11]["name"], "code_execution");
    assert_eq!(result(11)["stdout"], "one\n2 \"é\"\na\\b\n\n");
    // The act in vain gave no result.
    assert_eq!(message["usage"]["server_tool_use"]["code_execution_requests"], 5);
}

#[tokio::test]
async fn every_tool_shows_in_its_own_blocks_whole_and_streamed() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let request = question(&format!("{prefix}three-tools"), &tag(), &[DATED]);
        check(&stack.send(ask(&request)).await.json());
        let events = events(&stack.send(ask(&streamed(request))).await);
        check(&accumulate(&events));
        // The command is told as it is written, the act of the editor when it is whole.
        let deltas = |index: usize| {
            let of = events.iter().filter(|event| event["index"] == index && event["type"] == "content_block_delta");
            of.filter(|event| event["delta"]["partial_json"] != "").count()
        };
        assert!(deltas(1) > 3, "{} pieces", deltas(1));
        assert_eq!(deltas(3), 1);
    }
}

#[tokio::test]
async fn the_model_remembers_what_each_tool_did() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let mut request = question(&format!("{prefix}three-tools"), &tag(), &[DATED]);
        let content = stack.send(ask(&request)).await.json()["content"].clone();
        let messages = request["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": content}));
        messages.push(json!({"role": "user", "content": "And then?"}));
        let message = stack.send(ask(&request)).await.json();
        assert_eq!(message["content"][0]["text"], "I remember the notes.", "{message}");
    }
}

#[tokio::test]
async fn a_choice_of_the_declaration_is_met_by_any_of_its_tools_and_names_never_collide() {
    let (stack, tag) = (shared().await, tag());
    let mut request = question("messages--three-tools", &tag, &[DATED]);
    let own = json!({"name": "bash_code_execution", "input_schema": {"type": "object"}});
    request["tools"].as_array_mut().unwrap().push(own.clone());
    request["tool_choice"] = json!({"type": "tool", "name": "code_execution"});
    let message = stack.send(ask(&request)).await.json();
    // The model of this scenario calls the function of that name, which is the caller's.
    assert_eq!(
        (&message["stop_reason"], &message["content"][1]["name"]),
        (&json!("tool_use"), &own["name"]),
        "{message}"
    );
    let first = seen(&stack, &tag).await[0].json();
    let given: Vec<&Value> = first["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(given, ["code_execution", "otari_bash_code_execution_1", "text_editor_code_execution"]);
    assert_eq!(first["tool_choice"], json!({"type": "any"}));
}

#[tokio::test]
async fn the_account_of_a_chat_answer_names_the_tools() {
    let stack = shared().await;
    let request = json!({"model": "three-tools", "otari_include": ["code_execution"], "tools": [{"type": DATED}],
        "messages": [{"role": "user", "content": "Make notes."}]});
    let answer = account(&stack, &request).await;
    let tools: Vec<&Value> = answer.as_array().unwrap().iter().map(|entry| &entry["tool"]).collect();
    let editor = "text_editor_code_execution";
    assert_eq!(tools, ["bash_code_execution", editor, editor, editor, editor, "code_execution"]);
    assert_eq!((&answer[0]["return_code"], &answer[1]["stdout"]), (&json!(3), &json!("two\n")));
    assert_eq!((&answer[1]["command"], &answer[4]["error_code"]), (&json!("view"), &json!("file_not_found")));
}

async fn account(stack: &Stack, request: &Value) -> Value {
    let answer = stack.send(Call::post("/v1/chat/completions", request)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["otari_code_execution"].clone()
}
