//! The scripted model over a real socket, before anything of the product stands in between.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::client::Call;

async fn start() -> SocketAddr {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let library = Library::load(&folder).unwrap();
    let model = ScriptedModel::bind("127.0.0.1:0".parse().unwrap(), library).await.unwrap();
    let address = model.address().unwrap();
    tokio::spawn(model.serve());
    address
}

async fn records(address: SocketAddr) -> Vec<Record> {
    let answer = Call::get("/__scripted/requests").send(address).await.unwrap();
    serde_json::from_slice(&answer.body).unwrap()
}

fn code_tool() -> Value {
    json!({"type": "function", "function": {"name": "code_execution", "parameters": {}}})
}

/// The data of every frame of a stream.
fn frames(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect()
}

#[tokio::test]
async fn a_chat_stream_says_what_the_whole_body_says() {
    let address = start().await;
    let mut request = json!({"model": "code-once", "tools": [code_tool()],
        "messages": [{"role": "user", "content": "add up"}]});
    let whole = Call::post("/v1/chat/completions", &request).send(address).await.unwrap().json();
    request["stream"] = json!(true);
    request["stream_options"] = json!({"include_usage": true});
    let stream = Call::post("/v1/chat/completions", &request).send(address).await.unwrap().text();

    let frames = frames(&stream);
    let pick = |pointer: &str| -> String {
        frames.iter().filter_map(|frame| frame.pointer(pointer)).filter_map(Value::as_str).collect()
    };
    let message = &whole["choices"][0]["message"];
    assert_eq!(pick("/choices/0/delta/content"), message["content"].as_str().unwrap());
    let arguments = &message["tool_calls"][0]["function"]["arguments"];
    assert_eq!(pick("/choices/0/delta/tool_calls/0/function/arguments"), arguments.as_str().unwrap());
    assert_eq!(pick("/choices/0/delta/tool_calls/0/function/name"), "code_execution");
    assert_eq!(pick("/choices/0/finish_reason"), "tool_calls");
    assert_eq!(frames.last().unwrap()["usage"], whole["usage"]);
    assert!(stream.ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_messages_stream_says_what_the_whole_body_says() {
    let address = start().await;
    let mut request = json!({"model": "thinking", "tools": [{"name": "code_execution", "input_schema": {}}],
        "messages": [{"role": "user", "content": "add up"}]});
    let whole = Call::post("/v1/messages", &request).send(address).await.unwrap().json();
    request["stream"] = json!(true);
    let stream = Call::post("/v1/messages", &request).send(address).await.unwrap().text();

    let frames = frames(&stream);
    let at = |index: usize, field: &str| -> String {
        let of_block = frames.iter().filter(|frame| frame["index"] == index && frame["type"] == "content_block_delta");
        of_block.filter_map(|frame| frame["delta"][field].as_str()).collect()
    };
    assert_eq!(at(0, "thinking"), whole["content"][0]["thinking"].as_str().unwrap());
    assert_eq!(at(1, "text"), whole["content"][1]["text"].as_str().unwrap());
    let input: Value = serde_json::from_str(&at(2, "partial_json")).unwrap();
    assert_eq!(input, whole["content"][2]["input"]);
    assert_eq!(frames[frames.len() - 2]["delta"]["stop_reason"], whole["stop_reason"]);
    assert_eq!(frames.last().unwrap()["type"], "message_stop");
}

#[tokio::test]
async fn a_responses_stream_says_what_the_whole_body_says() {
    let address = start().await;
    let tool = json!({"type": "function", "name": "code_execution", "parameters": {}});
    let mut request = json!({"model": "thinking", "tools": [tool], "input": "add up"});
    let whole = Call::post("/v1/responses", &request).send(address).await.unwrap().json();
    request["stream"] = json!(true);
    let stream = Call::post("/v1/responses", &request).send(address).await.unwrap().text();

    let frames = frames(&stream);
    assert_eq!(frames.last().unwrap()["response"], whole);
    let joined = |kind: &str| -> String {
        frames.iter().filter(|frame| frame["type"] == kind).filter_map(|frame| frame["delta"].as_str()).collect()
    };
    let output = &whole["output"];
    assert_eq!(joined("response.reasoning_summary_text.delta"), output[0]["summary"][0]["text"].as_str().unwrap());
    assert_eq!(joined("response.output_text.delta"), output[1]["content"][0]["text"].as_str().unwrap());
    assert_eq!(joined("response.function_call_arguments.delta"), output[2]["arguments"].as_str().unwrap());

    let mut items = vec![json!({"role": "user", "content": "add up"})];
    items.extend(output.as_array().unwrap().clone());
    items.push(json!({"type": "function_call_output", "call_id": "c", "output": "5050"}));
    request["input"] = json!(items);
    let second = Call::post("/v1/responses", &request).send(address).await.unwrap().text();
    assert!(second.contains("Checked: 5050"), "{second}");
}

#[tokio::test]
async fn a_tool_result_that_is_not_what_the_turn_expects_is_refused_by_name() {
    let address = start().await;
    let answer_to = async |result: &str| {
        let request = json!({"model": "code-once", "tools": [code_tool()], "messages": [
            {"role": "user", "content": "add up"},
            {"role": "assistant", "content": null, "tool_calls": []},
            {"role": "tool", "tool_call_id": "c", "content": result},
        ]});
        Call::post("/v1/chat/completions", &request).send(address).await.unwrap()
    };
    let good = answer_to("stdout:\nsum 5050\n").await;
    assert_eq!(good.status, 200);
    assert_eq!(good.json()["choices"][0]["message"]["content"], "The program said: stdout:\nsum 5050\n");
    let bad = answer_to("sum 17").await;
    assert_eq!(bad.status, 400);
    assert!(bad.text().contains("do not contain"), "{}", bad.text());
}

#[tokio::test]
async fn a_model_without_a_scenario_or_a_code_tool_says_so() {
    let address = start().await;
    let ask = async |body: Value| Call::post("/v1/messages", &body).send(address).await.unwrap();
    let unknown = ask(json!({"model": "nobody", "messages": []})).await;
    assert_eq!(unknown.status, 400);
    assert!(unknown.text().contains("code-once"), "{}", unknown.text());
    let no_tool = ask(json!({"model": "code-once", "messages": [{"role": "user", "content": "a"}]})).await;
    assert_eq!(no_tool.status, 400);
    let demo = ask(json!({"model": "x--demo", "messages": [{"role": "user", "content": "a"}]})).await;
    assert!(demo.text().contains("I can only talk here"), "{}", demo.text());
}

#[tokio::test]
async fn requests_are_recorded_with_their_ends() {
    let address = start().await;
    let ask = |model: &str, stream: bool| {
        let body = json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "a"}]});
        Call::post("/v1/messages?beta=true", &body).header("x-canary", "1")
    };
    ask("text", true).send(address).await.unwrap();
    let broken = ask("cut", true).send(address).await;
    assert!(broken.is_err(), "{broken:?}");
    let mut hanging = ask("hang", true).open(address).await.unwrap();
    hanging.read_until("about").await.unwrap();
    assert_eq!(records(address).await.last().unwrap().end, End::Open);
    drop(hanging);
    let ends = loop {
        let ends: Vec<End> = records(address).await.iter().map(|record| record.end).collect();
        if ends.last() != Some(&End::Open) {
            break ends;
        }
    };
    assert_eq!(ends, [End::Answered, End::Answered, End::Left]);

    let record = &records(address).await[0];
    assert_eq!((record.method.as_str(), record.path.as_str()), ("POST", "/v1/messages?beta=true"));
    assert_eq!(record.header("x-canary"), ["1"]);
    assert_eq!(record.sha256, crate::sha256(record.body.as_ref().unwrap().as_bytes()));
    Call::new(http::Method::DELETE, "/__scripted/requests").send(address).await.unwrap();
    assert!(records(address).await.is_empty());
}

#[tokio::test]
async fn errors_come_with_their_status_and_headers() {
    let address = start().await;
    let body = json!({"model": "refused-429", "stream": true, "messages": [{"role": "user", "content": "a"}]});
    let answer = Call::post("/v1/chat/completions", &body).send(address).await.unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("7")));
    assert_eq!(answer.json()["error"]["message"], "slow down");
}

#[test]
fn a_scenario_with_a_typo_does_not_load() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("typo.json");
    std::fs::write(&file, r#"{"about": "", "prompts": [[{"steps": [{"txet": "a"}]}]]}"#).unwrap();
    let problem = Library::load(folder.path()).unwrap_err();
    assert!(problem.contains("typo.json") && problem.contains("txet"), "{problem}");
}
