//! A code turn on the Messages wire: what the client sees, whole and streamed, whatever wire the model speaks.

use serde_json::{Value, json};

use crate::support::{DATED, OWN, accumulate, ask, block_types, events, question, ran_here, seen, shared, tag};

/// The kinds of model that cannot run code: one for each wire.
const PREFIXES: [&str; 3] = ["", "messages--", "responses--"];

pub(crate) fn streamed(mut request: Value) -> Value {
    request["stream"] = json!(true);
    request
}

fn check_code_once(message: &Value) {
    assert_eq!(block_types(message), ["text", "server_tool_use", "code_execution_tool_result", "text"], "{message}");
    let (used, result) = (&message["content"][1], &message["content"][2]);
    assert!(used["id"].as_str().unwrap().starts_with("otari_srvtoolu_"), "{used}");
    assert_eq!(used["name"], "code_execution");
    assert_eq!(used["input"], json!({"code": "print('sum', sum(range(101)))"}));
    assert_eq!(result["tool_use_id"], used["id"]);
    let outcome = json!({"type": "code_execution_result", "stdout": "sum 5050\n", "stderr": "", "return_code": 0,
        "content": []});
    assert_eq!(result["content"], outcome);
    assert!(message["content"][3]["text"].as_str().unwrap().contains("sum 5050"), "{message}");
    assert_eq!(message["stop_reason"], "end_turn");
    assert!(message["container"]["id"].as_str().unwrap().starts_with("otari_cntr_"), "{message}");
    assert!(message["container"]["expires_at"].is_string());
    assert_eq!(message["usage"]["output_tokens"], 29);
    assert_eq!(message["usage"]["server_tool_use"]["web_search_requests"], 0);
    assert_eq!(message["role"], "assistant");
}

#[tokio::test]
async fn whole_and_streamed_answers_tell_the_same() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let request = question(&format!("{prefix}code-once"), &tag(), &[DATED]);
        let whole = stack.send(ask(&request)).await;
        assert_eq!((whole.status, whole.header("content-type")), (200, Some("application/json")));
        check_code_once(&whole.json());
        let stream = stack.send(ask(&streamed(request))).await;
        assert!(stream.header("content-type").unwrap().starts_with("text/event-stream"));
        let events = events(&stream);
        check_code_once(&accumulate(&events));
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(kinds.first(), Some(&"message_start"));
        assert_eq!(kinds[kinds.len() - 2..], ["message_delta", "message_stop"]);
        for once in ["message_start", "message_delta", "message_stop"] {
            assert_eq!(kinds.iter().filter(|kind| **kind == once).count(), 1, "{once}");
        }
    }
}

#[tokio::test]
async fn the_demo_computes_and_explains() {
    let stack = shared().await;
    let answer = stack.send(ask(&question("demo", &tag(), &[DATED]))).await;
    let message = answer.json();
    assert_eq!(block_types(&message), ["text", "server_tool_use", "code_execution_tool_result", "text"], "{message}");
    let stdout = message["content"][2]["content"]["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("1229 primes below 10,000"), "{stdout}");
    assert!(message["content"][3]["text"].as_str().unwrap().contains(stdout.trim_end()), "{message}");
}

#[tokio::test]
async fn code_streams_in_before_it_runs() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let request = streamed(question(&format!("{prefix}code-slow"), &tag(), &[DATED]));
        let mut answer = ask(&request).bearer(stack.key()).open(stack.address()).await.unwrap();
        // The program sleeps far longer than this read waits: the block is complete before the program ends.
        answer.read_until("\"content_block_stop\",\"index\":1").await.unwrap();
        let text = answer.seen_text();
        assert!(text.contains("input_json_delta") && !text.contains("code_execution_tool_result"), "{text}");
    }
}

#[tokio::test]
async fn keywords_of_a_provider_get_native_blocks_and_our_own_gets_text() {
    let stack = shared().await;
    for kind in ["code_execution", "code_interpreter", "code_execution_20250522", "code_execution_20260120"] {
        let answer = stack.send(ask(&question("code-once", &tag(), &[kind]))).await;
        assert!(ran_here(&answer.json()), "{kind}: {}", answer.text());
    }
    let plain = stack.send(ask(&question("code-once", &tag(), &[OWN]))).await.json();
    assert_eq!(block_types(&plain), ["text", "text"], "{plain}");
    assert!(plain["content"][1]["text"].as_str().unwrap().contains("sum 5050"), "{plain}");
}

#[tokio::test]
async fn several_declarations_become_one_set_of_tools() {
    let stack = shared().await;
    let tag = tag();
    let tools = [DATED, "code_execution", "code_interpreter", OWN];
    let answer = stack.send(ask(&question("messages--code-once", &tag, &tools))).await;
    assert!(ran_here(&answer.json()), "{}", answer.text());
    let given = seen(&stack, &tag).await[0].json()["tools"].clone();
    let names: Vec<&Value> = given.as_array().into_iter().flatten().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["code_execution", "bash_code_execution", "text_editor_code_execution"], "{given}");
}

#[tokio::test]
async fn state_lives_as_long_as_the_request() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let request = question(&format!("{prefix}code-state"), &tag(), &[DATED]);
        let message = stack.send(ask(&request)).await.json();
        let outputs: Vec<&Value> = message["content"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|block| block.pointer("/content/stdout"))
            .collect();
        assert_eq!(outputs, ["kept\n", "x is 42\n"], "{message}");
    }
    let other = stack.send(ask(&question("code-fails", &tag(), &[DATED]))).await.json();
    assert_eq!(other["content"][1]["content"]["stdout"], "before\n", "{other}");
}

#[tokio::test]
async fn both_programs_of_a_turn_run() {
    let stack = shared().await;
    for request in [question("code-twice", &tag(), &[DATED]), streamed(question("code-twice", &tag(), &[DATED]))] {
        let is_stream = request["stream"] == true;
        let answer = stack.send(ask(&request)).await;
        let message = if is_stream { accumulate(&events(&answer)) } else { answer.json() };
        let blocks = message["content"].as_array().unwrap();
        let uses: Vec<&Value> = blocks.iter().filter(|block| block["type"] == "server_tool_use").collect();
        assert_eq!(uses.len(), 2, "{message}");
        for (used, stdout) in uses.iter().zip(["first 42\n", "second 56\n"]) {
            let result = blocks.iter().find(|block| block["tool_use_id"] == used["id"]).unwrap();
            assert_eq!(result["content"]["stdout"], stdout, "{message}");
        }
    }
}

#[tokio::test]
async fn a_failing_program_is_an_ordinary_result() {
    let stack = shared().await;
    let message = stack.send(ask(&question("code-fails", &tag(), &[DATED]))).await.json();
    let result = &message["content"][1]["content"];
    assert_eq!(result["type"], "code_execution_result", "{message}");
    assert!(result["stderr"].as_str().unwrap().contains("ZeroDivisionError"), "{message}");
    assert_ne!(result["return_code"], 0);
    assert_eq!(message["stop_reason"], "end_turn");
}

#[tokio::test]
async fn arguments_that_are_no_json_do_not_end_the_turn() {
    let stack = shared().await;
    for request in [question("bad-arguments", &tag(), &[DATED]), streamed(question("bad-arguments", &tag(), &[DATED]))]
    {
        let is_stream = request["stream"] == true;
        let answer = stack.send(ask(&request)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let message = if is_stream { accumulate(&events(&answer)) } else { answer.json() };
        let last = message["content"].as_array().unwrap().last().unwrap();
        assert!(last["text"].as_str().unwrap().starts_with("So it was: "), "{message}");
    }
}

#[tokio::test]
async fn thinking_and_text_survive_between_rounds() {
    let (stack, tag) = (shared().await, tag());
    let message = stack.send(ask(&question("messages--thinking", &tag, &[DATED]))).await.json();
    let types = ["thinking", "text", "server_tool_use", "code_execution_tool_result", "text"];
    assert_eq!(block_types(&message), types, "{message}");
    let second = seen(&stack, &tag).await[1].json();
    let assistant = &second["messages"][1]["content"];
    assert_eq!(assistant[0]["signature"], "c2NyaXB0ZWQ=", "{assistant}");
    assert_eq!(assistant[1]["text"], "Checking. ");
    assert_eq!(assistant[2]["type"], "tool_use");
}

#[tokio::test]
async fn a_turn_that_also_calls_the_callers_tool_stops_for_it() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let mut request = question(&format!("{prefix}mixed"), &tag(), &[DATED]);
        let weather = json!({"name": "get_weather", "input_schema": {"type": "object"}});
        request["tools"].as_array_mut().unwrap().push(weather);
        let message = stack.send(ask(&request)).await.json();
        assert_eq!(message["stop_reason"], "tool_use", "{message}");
        let blocks = message["content"].as_array().unwrap();
        assert!(blocks.iter().any(|block| block["type"] == "tool_use" && block["name"] == "get_weather"), "{message}");
        assert!(ran_here(&message), "{message}");
    }
}

#[tokio::test]
async fn a_model_that_never_stops_is_stopped() {
    let (stack, tag) = (shared().await, tag());
    let message = stack.send(ask(&question("code-endless", &tag, &[DATED]))).await.json();
    let last = message["content"].as_array().unwrap().last().unwrap();
    assert_eq!(last["text"], "I must stop here.", "{message}");
    // Ten rounds with the tool, one without.
    assert_eq!(seen(&stack, &tag).await.len(), 11);
}

#[tokio::test]
async fn code_sees_no_network_no_secrets_and_no_host() {
    let stack = shared().await;
    let message = stack.send(ask(&question("code-isolated", &tag(), &[DATED]))).await.json();
    let stdout = message["content"][1]["content"]["stdout"].as_str().unwrap_or_else(|| panic!("{message}"));
    assert_eq!(stdout, "uid0 False\nsecrets []\nnetwork closed\nroot []\n");
}
