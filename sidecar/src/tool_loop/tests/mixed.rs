//! A turn that calls the caller's function beside the code tool, on wires that show no code, and the request after it.

use decision::decide::Dialect;
use decision::format::ApiFormat::{self, ChatCompletions, Messages, Responses};
use serde_json::{Value, json};

use super::answers::{End, check_stream, events};
use super::scripts::{Said, WIRES, asked_of, code, lookup, text, turn};
use super::support::{Answer, Bench};
use crate::tool_loop::{Limits, RunRequest};

const FOUND: &str = "found it";

/// A whole answer of a model; with nothing in it, its last word.
fn answer(wire: ApiFormat, said: &[Said]) -> Answer {
    if said.is_empty() { turn(wire, false, &[text("Done.")]) } else { turn(wire, false, said) }
}

fn ran(id: &str) -> Said {
    code(id, "print(6*7)")
}

/// A request in the dialect without blocks, of a history in the caller's wire.
fn asked(caller: ApiFormat, model: ApiFormat, history: &[Value]) -> RunRequest {
    let mut asked = asked_of(caller, model, false, history);
    asked.run.dialect = Dialect::Plain;
    asked
}

/// What a client appends: the answer as it came, and what its function gave.
fn echo(caller: ApiFormat, answer: &str, history: &mut Vec<Value>) {
    let mut answer: Value = serde_json::from_str(answer).expect("JSON");
    match caller {
        ChatCompletions => {
            let message = answer["choices"][0]["message"].take();
            let ids: Vec<Value> = calls_of(&message).iter().map(|call| call["id"].clone()).collect();
            history.push(message);
            history.extend(ids.iter().map(|id| json!({"role": "tool", "tool_call_id": id, "content": FOUND})));
        }
        Messages => {
            let content = answer["content"].take();
            let blocks = content.as_array().expect("blocks").iter();
            let results: Vec<Value> = blocks
                .filter(|block| block["type"] == "tool_use")
                .map(|block| json!({"type": "tool_result", "tool_use_id": block["id"], "content": FOUND}))
                .collect();
            history.push(json!({"role": "assistant", "content": content}));
            history.push(json!({"role": "user", "content": results}));
        }
        Responses => {
            let items = answer["output"].as_array().expect("items").clone();
            let outputs: Vec<Value> = items
                .iter()
                .filter(|item| item["type"] == "function_call")
                .map(|item| json!({"type": "function_call_output", "call_id": item["call_id"], "output": FOUND}))
                .collect();
            history.extend(items);
            history.extend(outputs);
        }
    }
}

fn calls_of(message: &Value) -> Vec<Value> {
    message["tool_calls"].as_array().cloned().unwrap_or_default()
}

/// The calls and results that the model was sent, in their order.
fn read(model: ApiFormat, body: &[u8]) -> Vec<String> {
    let body: Value = serde_json::from_slice(body).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut out = Vec::new();
    let list = if model == Responses { &body["input"] } else { &body["messages"] };
    for entry in list.as_array().expect("a list") {
        let blocks = entry["content"].as_array().cloned().unwrap_or_default();
        for one in calls_of(entry).iter().chain(&blocks).chain([entry]) {
            let name = one["function"]["name"].as_str().or(one["name"].as_str());
            let result = ["tool_call_id", "tool_use_id"].iter().any(|name| one[*name].is_string());
            if let Some(name) = name {
                out.push(format!("call {name} {}", id_of(one)));
            } else if result {
                out.push(format!("result {} {}", id_of(one), text(&one["content"])));
            } else if one["type"] == "function_call_output" {
                out.push(format!("result {} {}", id_of(one), text(&one["output"])));
            }
        }
    }
    out
}

fn id_of(one: &Value) -> &str {
    ["call_id", "tool_call_id", "tool_use_id", "id"].iter().find_map(|name| one[*name].as_str()).expect("an id")
}

const TOLD: &str = "stdout:\n42\nreturn code: 0";

/// The first request, whose history gains its answer.
async fn first(bench: &Bench, caller: ApiFormat, model: ApiFormat, history: &mut Vec<Value>) {
    let reply = bench.ask(asked(caller, model, history)).await.expect("an answer");
    assert!(!reply.body.contains("print(6*7)"), "{}", reply.body);
    echo(caller, &reply.body, history);
}

fn question() -> Vec<Value> {
    vec![json!({"role": "user", "content": "What is 6*7, and where is x?"})]
}

#[tokio::test]
async fn what_ran_in_a_mixed_turn_is_told_to_the_model_in_the_next_request_on_every_wire() {
    for caller in WIRES {
        for model in WIRES {
            let script = vec![
                answer(model, &[ran("c0")]),
                answer(model, &[lookup("l1"), ran("c1"), lookup("l2")]),
                answer(model, &[ran("c3"), lookup("l3")]),
                answer(model, &[]),
            ];
            let bench = Bench::new(script, Limits::default()).await;
            let mut history = question();
            first(&bench, caller, model, &mut history).await;
            first(&bench, caller, model, &mut history).await;
            bench.ask(asked(caller, model, &history)).await.expect("an answer");
            let received = bench.model.received();
            let gave = |id: &str| format!("result {id} {TOLD}");
            let found = |id: &str| format!("result {id} {FOUND}");
            let call =
                |id: &str| format!("call {} {id}", if id.starts_with('c') { "code_execution" } else { "lookup" });
            let mut expected = vec![call("c0"), call("c1"), call("l1"), call("l2"), gave("c0"), gave("c1")];
            expected.extend([found("l1"), found("l2")]);
            assert_eq!(read(model, &received[2].body), expected, "{caller:?} to {model:?}");
            expected.extend([call("c3"), call("l3"), gave("c3"), found("l3")]);
            assert_eq!(read(model, &received[3].body), expected, "{caller:?} to {model:?}, the request after");
        }
    }
}

#[tokio::test]
async fn callers_who_are_shown_what_ran_need_not_send_it_back() {
    for (caller, is_ours, whole) in [
        (Messages, ["server_tool_use", "code_execution_tool_result"], true),
        // Without `include`, an item tells the code alone, and what it gave is known here only.
        (Responses, ["code_interpreter_call", ""], false),
    ] {
        for kept in [true, false] {
            let script = vec![answer(ChatCompletions, &[ran("c1"), lookup("l1")]), answer(ChatCompletions, &[])];
            let bench = Bench::new(script, Limits::default()).await;
            let native = |history: &[Value]| {
                let asked = asked_of(caller, ChatCompletions, false, history);
                let mut body: Value = serde_json::from_slice(&asked.body).expect("JSON");
                body.as_object_mut().expect("an object").remove("include");
                RunRequest { body: body.to_string().into(), ..asked }
            };
            let mut history = question();
            let reply = bench.ask(native(&history)).await.expect("an answer");
            assert!(reply.body.contains("print(6*7)"), "{}", reply.body);
            echo(caller, &reply.body, &mut history);
            if !kept {
                let shown = |one: &Value| is_ours.iter().any(|kind| one["type"] == *kind);
                for entry in &mut history {
                    if let Some(blocks) = entry["content"].as_array_mut() {
                        blocks.retain(|block| !shown(block));
                    }
                }
                history.retain(|entry| !shown(entry));
            }
            bench.ask(native(&history)).await.expect("an answer");
            let body = bench.model.received()[1].body.clone();
            let told = read(ChatCompletions, &body);
            let again = told.contains(&format!("result c1 {TOLD}"));
            // What comes back whole is read in words, and not said twice.
            assert_eq!(again, !(kept && whole), "{caller:?}, kept {kept}: {told:?}");
            assert!(String::from_utf8_lossy(&body).contains("42"), "{caller:?}, kept {kept}");
        }
    }
}

#[tokio::test]
async fn a_model_of_another_wire_is_told_too() {
    let script = vec![answer(ChatCompletions, &[ran("c1"), lookup("l1")]), answer(Messages, &[])];
    let bench = Bench::new(script, Limits::default()).await;
    let mut history = question();
    first(&bench, ChatCompletions, ChatCompletions, &mut history).await;
    bench.ask(asked(ChatCompletions, Messages, &history)).await.expect("an answer");
    let told = read(Messages, &bench.model.received()[1].body);
    assert_eq!(
        told,
        [
            "call code_execution c1".to_owned(),
            "call lookup l1".to_owned(),
            format!("result c1 {TOLD}"),
            format!("result l1 {FOUND}")
        ]
    );
}

#[tokio::test]
async fn another_workspace_another_conversation_and_another_replica_read_the_callers_calls_alone() {
    let script = |model| vec![answer(model, &[ran("c1"), lookup("l1")]), answer(model, &[])];
    for caller in WIRES {
        for case in ["workspace", "conversation", "replica"] {
            let bench = Bench::new(script(ChatCompletions), Limits::default()).await;
            let mut history = question();
            first(&bench, caller, ChatCompletions, &mut history).await;
            if case == "conversation" {
                history[0]["content"] = json!("Somebody else's question");
            }
            let mut next = asked(caller, ChatCompletions, &history);
            if case == "workspace" {
                next.owner.workspace = "rivals".to_owned();
            }
            let other = Bench::new(vec![answer(ChatCompletions, &[])], Limits::default()).await;
            let bench = if case == "replica" { &other } else { &bench };
            bench.ask(next).await.expect("an answer");
            let received = bench.model.received();
            let told = read(ChatCompletions, &received.last().expect("a request").body);
            assert_eq!(told, ["call lookup l1".to_owned(), format!("result l1 {FOUND}")], "{caller:?}: {case}");
        }
    }
}

/// A streamed answer as the whole one that a client makes of it.
fn gathered(caller: ApiFormat, body: &str) -> Value {
    let events: Vec<Value> = events(body).into_iter().map(|(_, event)| event).collect();
    if caller == Responses {
        return events.last().expect("an end")["response"].clone();
    }
    let mut content: Vec<Value> = Vec::new();
    let mut input = String::new();
    for event in events {
        match event["type"].as_str() {
            Some("content_block_start") => content.push(event["content_block"].clone()),
            Some("content_block_delta") => input += event["delta"]["partial_json"].as_str().expect("input"),
            Some("content_block_stop") => {
                let input = serde_json::from_str(&std::mem::take(&mut input)).expect("JSON");
                content.last_mut().expect("a block")["input"] = input;
            }
            _ => {}
        }
    }
    json!({"content": content})
}

#[tokio::test]
async fn a_streamed_mixed_turn_shows_the_callers_calls_alone_and_is_told_whole_to_the_model() {
    for caller in [Messages, Responses] {
        for model in WIRES {
            let script =
                vec![turn(model, true, &[lookup("l1"), ran("c1"), lookup("l2")]), turn(model, true, &[text("Done.")])];
            let bench = Bench::new(script, Limits::default()).await;
            let streamed = |history: &[Value]| {
                let mut asked = asked_of(caller, model, true, history);
                asked.run.dialect = Dialect::Plain;
                asked
            };
            let mut history = question();
            let body = bench.ask(streamed(&history)).await.expect("a stream").body;
            assert_eq!(check_stream(caller, &body), End::Finished, "{caller:?} to {model:?}");
            for ours in ["print", "42", "\"server_tool_use\",", "code_interpreter_call\"", "c1"] {
                assert!(!body.contains(ours), "{ours}: {caller:?} to {model:?}: {body}");
            }
            let answer = gathered(caller, &body);
            let said = answer["content"].as_array().or(answer["output"].as_array()).expect("a list");
            let shown: Vec<&str> = said.iter().map(id_of).collect();
            assert_eq!(shown, ["l1", "l2"], "{caller:?} to {model:?}");
            echo(caller, &answer.to_string(), &mut history);
            bench.ask(streamed(&history)).await.expect("an answer");
            let expected = [
                "call code_execution c1".to_owned(),
                "call lookup l1".to_owned(),
                "call lookup l2".to_owned(),
                format!("result c1 {TOLD}"),
                format!("result l1 {FOUND}"),
                format!("result l2 {FOUND}"),
            ];
            let told = read(model, &bench.model.received()[1].body);
            assert_eq!(told, expected, "{caller:?} to {model:?}");
        }
    }
}
