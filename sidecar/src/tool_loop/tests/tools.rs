//! Bash and the text editor beside Python, in each wire's own words. The snapshot holds what model and client get.

use decision::format::ApiFormat;
use decision::request::{CodeTool, Keyword};
use serde_json::{Value, json};

use super::support::{Answer, Bench, chat_request, chat_stream, chat_text, request, run_request};
use super::transcripts::{block, chat_whole, message_end, message_start, messages_stream, plain_text, play};
use crate::tool_loop::{Limits, RunRequest};

const ALL: [CodeTool; 3] = [CodeTool::Python, CodeTool::Bash, CodeTool::TextEditor];

/// What the model does in one turn.
fn calls() -> Vec<(&'static str, Value)> {
    let editor = "text_editor_code_execution";
    vec![
        ("code_execution", json!({"code": "print(6*7)"})),
        ("bash_code_execution", json!({"command": "ls; false"})),
        (editor, json!({"command": "view", "path": "a.txt", "view_range": [2, 2], "unknown": 1})),
        (editor, json!({"command": "view", "path": "."})),
        (editor, json!({"path": "b.txt", "command": "create", "file_text": "\"é\"\n"})),
        (editor, json!({"command": "str_replace", "path": "a.txt", "old_str": "two", "new_str": "2"})),
        (editor, json!({"command": "view", "path": "gone"})),
        (editor, json!({"command": "insert", "path": "a.txt", "insert_line": 1, "new_str": "x"})),
    ]
}

fn with_all(mut asked: RunRequest) -> RunRequest {
    asked.run.tools = ALL.to_vec();
    asked.run.claimed[0].keyword = Keyword::Dated("20250825".to_owned());
    asked
}

fn chat_script(stream: bool) -> Vec<Answer> {
    let function = |(name, arguments): &(&str, Value)| json!({"name": name, "arguments": arguments.to_string()});
    let calls = calls();
    if !stream {
        let called: Vec<Value> = calls
            .iter()
            .enumerate()
            .map(|(index, call)| json!({"id": format!("call_{index}"), "type": "function", "function": function(call)}))
            .collect();
        let answer = json!({"role": "assistant", "content": null, "tool_calls": called});
        let last = json!({"role": "assistant", "content": "Done."});
        return vec![chat_whole(&answer, "tool_calls"), chat_whole(&last, "stop")];
    }
    let mut deltas = Vec::new();
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let function = json!({"name": name, "arguments": ""});
        let start = json!({"index": index, "id": format!("call_{index}"), "type": "function", "function": function});
        deltas.push(json!({"tool_calls": [start]}));
        let arguments: Vec<char> = arguments.to_string().chars().collect();
        for piece in arguments.chunks(9) {
            let piece: String = piece.iter().collect();
            deltas.push(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}));
        }
    }
    vec![Answer::stream(&chat_stream(&deltas, "tool_calls")), chat_text("Done.")]
}

fn messages_script() -> Vec<Answer> {
    let mut events = vec![message_start()];
    for (index, (name, input)) in calls().into_iter().enumerate() {
        let start = json!({"type": "tool_use", "id": format!("toolu_{index}"), "name": name, "input": {}});
        let delta = json!({"type": "input_json_delta", "partial_json": input.to_string()});
        events.extend(block(index as u64, start, &[delta]));
    }
    events.extend(message_end("tool_use"));
    vec![messages_stream(&events), plain_text("Done.")]
}

#[tokio::test]
async fn each_tool_has_its_own_blocks_streamed() {
    let asked = || with_all(run_request(ApiFormat::ChatCompletions, &request(true)));
    insta::assert_snapshot!(play(asked, || chat_script(true)).await);
}

#[tokio::test]
async fn each_tool_has_its_own_blocks_whole() {
    let asked = || with_all(run_request(ApiFormat::ChatCompletions, &request(false)));
    insta::assert_snapshot!(play(asked, || chat_script(false)).await);
}

#[tokio::test]
async fn a_model_of_the_same_wire_gets_the_same_tools() {
    let asked = || with_all(run_request(ApiFormat::Messages, &request(true)));
    insta::assert_snapshot!(play(asked, messages_script).await);
}

#[tokio::test]
async fn the_account_names_the_tool_and_its_input() {
    let mut body = request(false);
    body["otari_include"] = json!(["code_execution"]);
    let bench = Bench::new(chat_script(false), Limits::default()).await;
    let reply = bench.ask(with_all(chat_request(ApiFormat::ChatCompletions, &body))).await.expect("an answer");
    let answer: Value = serde_json::from_str(&reply.body).expect("JSON");
    insta::assert_snapshot!(format!("{:#}", answer["otari_code_execution"]));
}

#[tokio::test]
async fn on_responses_every_tool_shows_as_code_that_ran() {
    let body = |stream: bool| {
        json!({"model": "demo", "input": "What is 6*7?", "stream": stream,
            "include": ["code_interpreter_call.outputs"], "tools": [{"type": "code_execution_20250825"}]})
    };
    let asked = |stream: bool| {
        let mut asked = with_all(run_request(ApiFormat::ChatCompletions, &body(stream)));
        asked.caller = ApiFormat::Responses;
        asked
    };
    for stream in [false, true] {
        let bench = Bench::new(chat_script(stream), Limits::default()).await;
        let reply = bench.ask(asked(stream)).await.expect("an answer");
        let last = reply.body.lines().rev().find_map(|line| line.strip_prefix("data: "));
        let answer: Value = serde_json::from_str(last.unwrap_or(&reply.body)).expect("JSON");
        let answer = answer.get("response").unwrap_or(&answer);
        let codes: Vec<&Value> = answer["output"].as_array().expect("items").iter().collect();
        let of = |index: usize| (&codes[index]["code"], &codes[index]["status"], &codes[index]["outputs"][0]["logs"]);
        assert_eq!(of(1), (&json!("ls; false"), &json!("failed"), &json!("a.txt\n")));
        let view = r#"{"command":"view","path":"a.txt","view_range":[2,2]}"#;
        assert_eq!(of(2), (&json!(view), &json!("completed"), &json!("two\n")));
        assert_eq!(of(6).2, &json!("there is no such file"));
        assert_eq!(codes.len(), 9);
    }
}

#[tokio::test]
async fn a_policy_that_leaves_bash_alone_is_served() {
    let asked = || {
        let mut asked = with_all(run_request(ApiFormat::ChatCompletions, &request(false)));
        asked.run.tools = vec![CodeTool::Bash];
        asked
    };
    let bench = Bench::new(chat_script(false), Limits::default()).await;
    let reply = bench.ask(asked()).await.expect("an answer");
    let sent: Value = serde_json::from_slice(&bench.model.received()[0].body).expect("JSON");
    let names: Vec<&Value> =
        sent["tools"].as_array().expect("tools").iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["bash_code_execution"]);
    let answer: Value = serde_json::from_str(&reply.body).expect("JSON");
    // What the model calls besides is no function of ours, so the client gets it.
    let types: Vec<&Value> = answer["content"].as_array().expect("blocks").iter().map(|block| &block["type"]).collect();
    assert!(types[0] == "tool_use" && types.contains(&&json!("bash_code_execution_tool_result")), "{answer}");
}

#[tokio::test]
async fn of_a_sandbox_that_gives_no_report_the_block_says_what_is_known() {
    let arguments = json!({"command": "view", "path": "no report"}).to_string();
    let function = json!({"name": "text_editor_code_execution", "arguments": arguments});
    let call = json!({"id": "call_1", "type": "function", "function": function});
    let script = vec![
        chat_whole(&json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls"),
        chat_whole(&json!({"role": "assistant", "content": "Done."}), "stop"),
    ];
    let bench = Bench::new(script, Limits::default()).await;
    let reply = bench.ask(with_all(run_request(ApiFormat::ChatCompletions, &request(false)))).await.expect("an answer");
    let answer: Value = serde_json::from_str(&reply.body).expect("JSON");
    let expected = json!({"type": "text_editor_code_execution_view_result", "content": "seen\n", "file_type": "text",
        "num_lines": null, "start_line": null, "total_lines": null});
    assert_eq!(answer["content"][1]["content"], expected, "{answer}");
}
