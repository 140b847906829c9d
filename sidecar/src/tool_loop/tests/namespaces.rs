//! Functions in a namespace of the caller's: they are never ours, whatever they are called.

use decision::format::ApiFormat::{ChatCompletions, Responses};
use serde_json::{Value, json};

use super::answers::events;
use super::responses::{asked, stream, turn, whole, words};
use super::scripts;
use super::support::{Bench, lock};
use crate::tool_loop::Limits;

fn question(streamed: bool) -> Value {
    let function = json!({"type": "function", "name": "code_execution", "parameters": {"type": "object"}});
    json!({
        "model": "demo", "stream": streamed, "input": "What is 6*7?",
        "tools": [{"type": "namespace", "name": "crm", "description": "Customers.", "tools": [function]},
            {"type": "code_interpreter", "container": {"type": "auto"}}],
    })
}

fn call(namespace: &Value) -> (Value, Vec<Value>) {
    let item = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "code_execution",
        "namespace": namespace, "arguments": "{\"code\":\"1/0\"}", "status": "completed"});
    (item, Vec::new())
}

#[tokio::test]
async fn a_call_in_a_namespace_is_the_callers_and_runs_nothing() {
    for streamed in [true, false] {
        let items = [words("Let me."), call(&json!("crm"))];
        let answer = if streamed { stream(&turn(&items)) } else { whole(&items) };
        let bench = Bench::new(vec![answer], Limits::default()).await;
        let reply = bench.ask(asked(Responses, &question(streamed))).await.expect("an answer");
        assert!(lock(&bench.sandbox.ran).is_empty(), "{:?}", lock(&bench.sandbox.ran));
        let response: Value = if streamed {
            events(&reply.body).pop().expect("an end").1["response"].clone()
        } else {
            serde_json::from_str(&reply.body).expect("JSON")
        };
        let last = &response["output"][1];
        assert_eq!((&last["type"], &last["namespace"]), (&json!("function_call"), &json!("crm")), "{response}");
        // Ours has another name than anything inside a namespace.
        let sent: Value = serde_json::from_slice(&bench.model.received()[0].body).expect("JSON");
        assert_eq!(sent["tools"][0], question(false)["tools"][0]);
        assert_eq!(sent["tools"][1]["name"], "otari_code_execution_1", "{sent}");
    }
}

#[tokio::test]
async fn an_empty_namespace_is_none() {
    let items = [call(&Value::Null)];
    let mut body = question(false);
    body["tools"].as_array_mut().expect("tools").remove(0);
    let bench = Bench::new(vec![whole(&items), whole(&[words("Done.")])], Limits::default()).await;
    let mut asked = asked(Responses, &body);
    asked.run.claimed[0].index = 0;
    bench.ask(asked).await.expect("an answer");
    assert_eq!(*lock(&bench.sandbox.ran), ["1/0"]);
}

#[tokio::test]
async fn a_model_of_another_wire_reads_a_past_call_by_both_names() {
    let mut body = question(false);
    let output = json!({"type": "function_call_output", "call_id": "call_1", "output": "none"});
    body["input"] = json!([{"role": "user", "content": "hi"}, call(&json!("crm")).0, output]);
    let answer = scripts::turn(ChatCompletions, false, &[scripts::text("Done.")]);
    let bench = Bench::new(vec![answer], Limits::default()).await;
    bench.ask(asked(ChatCompletions, &body)).await.expect("an answer");
    let sent: Value = serde_json::from_slice(&bench.model.received()[0].body).expect("JSON");
    assert_eq!(sent["messages"][1]["tool_calls"][0]["function"]["name"], "crm_code_execution", "{sent}");
}
