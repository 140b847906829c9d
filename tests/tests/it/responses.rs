//! A code turn on the Responses wire: what the client sees, whole and streamed, whatever wire the model speaks.

use harness::client::{Answer, Call};
use serde_json::{Value, json};

use crate::support::{OWN, events, seen, shared, tag};

/// Models that cannot run code: chat completions, and the caller's own wire.
const PREFIXES: [&str; 2] = ["", "responses--"];

fn question(model: &str, tag: &str) -> Value {
    json!({
        "model": model,
        "input": format!("Add up the numbers to 100. {tag}"),
        "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}],
    })
}

fn with_outputs(model: &str, tag: &str) -> Value {
    let mut request = question(model, tag);
    request["include"] = json!(["code_interpreter_call.outputs"]);
    request
}

fn streamed(mut request: Value) -> Value {
    request["stream"] = json!(true);
    request
}

fn ask(request: &Value) -> Call {
    Call::post("/v1/responses", request)
}

fn item_types(response: &Value) -> Vec<&str> {
    response["output"].as_array().into_iter().flatten().filter_map(|item| item["type"].as_str()).collect()
}

fn text_of(item: &Value) -> &str {
    item["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {item}"))
}

/// Checks order, numbers and identities of a stream, and gives its last event.
fn last_of(answer: &Answer) -> Value {
    let events = events(answer);
    let mut items: Vec<Value> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
        let index = event["output_index"].as_u64().and_then(|index| usize::try_from(index).ok());
        match (event["type"].as_str().unwrap(), index) {
            ("response.output_item.added", Some(index)) => {
                assert_eq!(index, items.len(), "{event}");
                assert_eq!(event["item"].get("status").unwrap_or(&json!("in_progress")), "in_progress", "{event}");
                items.push(event["item"].clone());
            }
            ("response.output_item.done", Some(index)) => {
                assert_eq!(items[index]["id"], event["item"]["id"], "{event}");
                items[index] = event["item"].clone();
            }
            (_, Some(index)) => assert_eq!(items[index]["id"], event["item_id"], "{event}"),
            (_, None) => {}
        }
    }
    assert_eq!(events[0]["type"], "response.created");
    let last = events.last().unwrap();
    assert_eq!(last["response"]["output"], json!(items), "{last}");
    assert_eq!(last["response"]["id"], events[0]["response"]["id"]);
    last.clone()
}

fn check_code_once(response: &Value) {
    assert_eq!(item_types(response), ["message", "code_interpreter_call", "message"], "{response}");
    let call = &response["output"][1];
    assert!(call["id"].as_str().unwrap().starts_with("otari_ci_"), "{call}");
    assert!(call["container_id"].as_str().unwrap().starts_with("otari_cntr_"), "{call}");
    assert_eq!(call["code"], "print('sum', sum(range(101)))");
    assert_eq!(call["status"], "completed");
    assert_eq!(call["outputs"], json!([{"type": "logs", "logs": "sum 5050\n"}]));
    assert!(text_of(&response["output"][2]).contains("sum 5050"), "{response}");
    assert_eq!(response["status"], "completed");
    assert_eq!(response["usage"]["input_tokens"], 110);
    assert_eq!(response["usage"]["output_tokens"], 29);
    assert_eq!(response["usage"]["total_tokens"], 139);
    assert_eq!(response["tools"][0]["type"], "code_interpreter");
}

#[tokio::test]
async fn a_whole_responses_answer_and_a_stream_tell_the_same_turn() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let request = with_outputs(&format!("{prefix}code-once"), &tag());
        let whole = stack.send(ask(&request)).await;
        assert_eq!(whole.status, 200, "{}", whole.text());
        assert!(whole.header("x-request-id").is_some(), "{:?}", whole.headers);
        check_code_once(&whole.json());
        let stream = stack.send(ask(&streamed(request.clone()))).await;
        assert!(stream.header("content-type").unwrap().starts_with("text/event-stream"), "{:?}", stream.headers);
        let last = last_of(&stream);
        assert_eq!(last["type"], "response.completed");
        check_code_once(&last["response"]);
        let other_root = Call::post("/api/v1/responses", &request);
        check_code_once(&stack.send(other_root).await.json());
    }
}

#[tokio::test]
async fn the_code_of_a_responses_turn_streams_in_before_it_runs() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let request = streamed(question(&format!("{prefix}code-slow"), &tag()));
        let mut answer = ask(&request).bearer(stack.key()).open(stack.address()).await.unwrap();
        // The program sleeps far longer than this read waits.
        answer.read_until("response.code_interpreter_call.interpreting").await.unwrap();
        let text = answer.seen_text();
        assert!(text.contains("code_interpreter_call_code.delta"), "{text}");
        assert!(!text.contains("code_interpreter_call.completed"), "{text}");
    }
}

#[tokio::test]
async fn outputs_stay_hidden_unless_included() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let tag = tag();
        let response = stack.send(ask(&question(&format!("{prefix}code-once"), &tag))).await.json();
        assert_eq!(response["output"][1]["outputs"], Value::Null, "{response}");
        let sent = seen(&stack, &tag).await;
        assert!(sent.iter().all(|record| !record.body.as_ref().unwrap().contains("code_interpreter")), "{sent:?}");
    }
}

#[tokio::test]
async fn an_echoed_responses_answer_is_remembered() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let model = format!("{prefix}code-once");
        let first = stack.send(ask(&with_outputs(&model, &tag()))).await.json();
        let mut second = question(&model, &tag());
        let mut input = vec![json!({"role": "user", "content": "Add up the numbers to 100."})];
        input.extend(first["output"].as_array().unwrap().clone());
        input.push(json!({"role": "user", "content": "What was it again?"}));
        second["input"] = json!(input);
        let answer = stack.send(ask(&second)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(text_of(&answer.json()["output"][0]), "I remember 5050.");
    }
}

#[tokio::test]
async fn an_echoed_answer_that_goes_to_its_provider_names_nothing_of_ours() {
    let (stack, tag) = (shared().await, tag());
    let first = stack.send(ask(&with_outputs("code-once", &tag))).await.json();
    let mut second = question("gpt--native-items", &tag);
    let mut input = first["output"].as_array().unwrap().clone();
    input.push(json!({"role": "user", "content": format!("Again? {tag}")}));
    second["input"] = json!(input);
    let answer = stack.send(ask(&second)).await.json();
    assert_eq!(answer["output"][0]["id"], "ci_scripted", "{answer}");
    let sent = seen(&stack, &tag).await.pop().unwrap();
    let body = sent.body.clone().unwrap();
    assert!(body.contains("sum 5050") && !body.contains("otari_ci_"), "{body}");
    assert_eq!(sent.json()["tools"][0]["type"], "code_interpreter", "{body}");
}

#[tokio::test]
async fn a_responses_turn_that_also_calls_the_callers_function_stops_for_it() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let mut request = question(&format!("{prefix}mixed"), &tag());
        let weather = json!({"type": "function", "name": "get_weather", "parameters": {"type": "object"}});
        request["tools"].as_array_mut().unwrap().push(weather);
        let first = stack.send(ask(&request)).await.json();
        assert_eq!(item_types(&first), ["code_interpreter_call", "function_call"], "{first}");
        assert_eq!(first["output"][0]["status"], "completed");
        let call = &first["output"][1];
        assert_eq!((&call["name"], &call["arguments"]), (&json!("get_weather"), &json!("{\"city\":\"Oslo\"}")));
        let last = last_of(&stack.send(ask(&streamed(request.clone()))).await);
        assert_eq!(item_types(&last["response"]), ["code_interpreter_call", "function_call"], "{last}");

        let mut input = vec![json!({"role": "user", "content": "Add up."})];
        input.extend(first["output"].as_array().unwrap().clone());
        input.push(json!({"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}));
        request["input"] = json!(input);
        let second = stack.send(ask(&request)).await;
        assert_eq!(second.status, 200, "{}", second.text());
        assert_eq!(text_of(&second.json()["output"][0]), "Weather and sum: sunny");
    }
}

#[tokio::test]
async fn a_failing_program_has_a_failed_item_and_its_traceback() {
    let stack = shared().await;
    for prefix in PREFIXES {
        let response = stack.send(ask(&with_outputs(&format!("{prefix}code-fails"), &tag()))).await.json();
        let call = &response["output"][0];
        assert_eq!(call["status"], "failed", "{response}");
        let logs = call["outputs"][0]["logs"].as_str().unwrap();
        assert!(logs.starts_with("before\n") && logs.contains("ZeroDivisionError"), "{logs}");
        assert_eq!(response["status"], "completed");
    }
}

#[tokio::test]
async fn thoughts_go_back_to_the_model_between_rounds() {
    let (stack, tag) = (shared().await, tag());
    let response = stack.send(ask(&question("responses--thinking", &tag))).await.json();
    assert_eq!(item_types(&response), ["reasoning", "message", "code_interpreter_call", "message"], "{response}");
    let second = seen(&stack, &tag).await[1].json();
    assert_eq!(second["input"][1]["encrypted_content"], "c2NyaXB0ZWQ=", "{second}");
    assert_eq!(second["input"][2]["type"], "message");
    assert_eq!(second["input"][3]["type"], "function_call");
    assert_eq!(second["input"][4]["type"], "function_call_output");
}

#[tokio::test]
async fn our_own_declaration_on_the_responses_wire_gets_text_alone() {
    let stack = shared().await;
    let mut request = question("code-once", &tag());
    request["tools"] = json!([{"type": OWN}]);
    let response = stack.send(ask(&request)).await.json();
    assert_eq!(item_types(&response), ["message", "message"], "{response}");
}

#[tokio::test]
async fn a_provider_with_an_interpreter_of_its_own_is_left_alone_unless_asked() {
    let stack = shared().await;
    let native = stack.send(ask(&question("gpt--native-items", &tag()))).await.json();
    assert_eq!(native["output"][0]["id"], "ci_scripted", "{native}");
    let call = ask(&with_outputs("gpt--code-once", &tag())).header("otari-code-execution", "otari");
    check_code_once(&stack.send(call).await.json());
}

#[tokio::test]
async fn what_nobody_stores_is_refused_in_openais_words() {
    let stack = shared().await;
    for (name, value) in [
        ("previous_response_id", json!("resp_otr0123")),
        ("conversation", json!("conv_1")),
        ("background", json!(true)),
        ("max_tool_calls", json!(0)),
        ("input", json!([{"type": "item_reference", "id": "msg_otr0123"}])),
    ] {
        let mut request = question("code-once", &tag());
        request[name] = value;
        let answer = stack.send(ask(&request)).await;
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["type"]), (400, &json!("invalid_request_error")), "{}", answer.text());
        assert!(error["param"].as_str().unwrap().starts_with(name), "{error}");
        assert!(answer.header("x-request-id").is_some(), "{:?}", answer.headers);
    }
}

#[tokio::test]
async fn a_responses_stream_that_breaks_off_ends_in_an_error() {
    let stack = shared().await;
    for model in ["cut", "responses--cut", "cut-later", "responses--cut-later", "responses--error-event"] {
        let answer = stack.send(ask(&streamed(question(model, &tag())))).await;
        let events = events(&answer);
        let [.., error, failed] = &events[..] else { panic!("{model}: {}", answer.text()) };
        assert_eq!((&error["type"], &failed["type"]), (&json!("error"), &json!("response.failed")), "{model}");
        assert!(error["error"]["message"].is_string() && error["error"]["code"].is_string(), "{error}");
        assert_eq!(failed["response"]["status"], "failed");
        let calls = failed["response"]["output"].as_array().unwrap();
        assert!(calls.iter().all(|item| item["status"] != "in_progress"), "{failed}");
    }
}

/// The code stays with the first request; the second is the provider's alone, which has never seen the first.
#[tokio::test]
async fn a_provider_is_told_the_conversation_that_a_request_without_code_goes_on_from() {
    let stack = shared().await;
    let (before, after) = (tag(), tag());
    let first = stack.send(ask(&question("responses--code-once", &before))).await.json();
    assert_eq!(first["store"], true, "{first}");
    let next = json!({"model": "responses--code-once", "input": format!("What was it again? {after}"),
        "previous_response_id": first["id"]});
    let answer = stack.send(ask(&next)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = seen(&stack, &after).await;
    let told = told.last().expect("the provider's request");
    let body: Value = serde_json::from_str(told.body.as_deref().expect("kept")).unwrap();
    assert!(body["previous_response_id"].is_null(), "{body}");
    let said = body["input"].to_string();
    let places: Vec<usize> = [before.as_str(), "sum(range(101))", "sum 5050", after.as_str()]
        .map(|part| said.find(part).expect(&said))
        .to_vec();
    assert!(places.is_sorted(), "{said}");
    for ours in ["msg_otr", "otari_ci_", "resp_otr"] {
        assert!(!said.contains(ours), "{said}");
    }
}
