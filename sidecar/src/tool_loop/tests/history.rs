//! Histories as SDKs echo them, between every two wires: ours is folded, a provider's own reaches only who can read it.

use decision::format::ApiFormat::{self, ChatCompletions, Messages, Responses};
use serde_json::{Value, json};

use super::scripts::{WIRES, asked_of, text, turn};
use super::support::Bench;
use crate::tool_loop::Limits;

/// A conversation of a caller's wire: blocks of ours in odd shapes, and a provider's own.
fn history(caller: ApiFormat) -> Vec<Value> {
    let question = json!({"role": "user", "content": "What is 6*7?"});
    let next = json!({"role": "user", "content": "And then?"});
    match caller {
        ChatCompletions => vec![
            question,
            json!({"role": "assistant", "content": "It is 42.", "refusal": null, "annotations": [], "audio": null,
                "function_call": null, "tool_calls": null, "reasoning_content": "hidden-thought"}),
            next,
        ],
        Messages => {
            let call = |id: &str| {
                json!({"type": "server_tool_use", "id": id, "name": "code_execution",
                "input": {"code": "print(1)"}, "caller": null, "cache_control": null})
            };
            let result = |id: &str| {
                json!({"type": "code_execution_tool_result", "tool_use_id": id, "retrieved_at": null,
                "content": {"type": "code_execution_result", "stdout": "one\n", "stderr": null, "return_code": null,
                    "content": null}})
            };
            let search =
                json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}});
            let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
                {"type": "web_search_result", "title": "Found", "url": "https://example.org", "encrypted_content": "sealed"}]});
            vec![
                question,
                json!({"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hidden-thought", "signature": "otari_thought_unsigned"},
                    call("otari_srvtoolu_1"), search, found, result("otari_srvtoolu_1"), result("otari_srvtoolu_lone"),
                    call("otari_srvtoolu_open"), {"type": "text", "text": "It is 42.", "citations": null}]}),
                next,
            ]
        }
        Responses => vec![
            question,
            json!({"type": "reasoning", "id": "rs_otr1", "summary": [{"type": "summary_text", "text": "hidden-thought"}]}),
            json!({"type": "code_interpreter_call", "id": "otari_ci_1", "code": "print(1)", "status": "completed",
                "outputs": [{"type": "logs", "logs": "one\n"}], "container_id": "otari_cntr_1"}),
            json!({"type": "code_interpreter_call", "id": "otari_ci_2", "outputs": null}),
            json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}),
            json!({"type": "message", "id": "msg_otr1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "It is 42.", "annotations": [], "logprobs": null}]}),
            next,
        ],
    }
}

/// A provider's own parts of it, as they stand.
fn foreign(caller: ApiFormat) -> Vec<Value> {
    match caller {
        ChatCompletions => vec![history(caller)[1].clone()],
        Messages => history(caller)[1]["content"].as_array().expect("blocks")[2..4].to_vec(),
        Responses => vec![history(caller)[4].clone()],
    }
}

#[tokio::test]
async fn whatever_is_echoed_is_read_by_a_model_of_every_wire() {
    for caller in WIRES {
        for model in WIRES {
            let bench = Bench::new(vec![turn(model, false, &[text("Then 43.")])], Limits::default()).await;
            let asked = asked_of(caller, model, false, &history(caller));
            let reply = bench.ask(asked).await.unwrap_or_else(|problem| panic!("{caller:?} to {model:?}: {problem:?}"));
            assert_eq!(reply.status, 200);
            let sent = String::from_utf8(bench.model.received()[0].body.to_vec()).expect("text");
            let has = |words: &str| sent.contains(words);
            let case = format!("{caller:?} to {model:?}: {sent}");
            assert!(has("It is 42.") && has("And then?"), "{case}");
            for ours in ["otari_", "_otr1"] {
                assert!(!has(ours), "{ours} in {case}");
            }
            if caller != ChatCompletions {
                assert!(has("I ran this Python code") && has("print(1)") && has("one"), "{case}");
                assert!(!has("hidden-thought"), "{case}");
            }
            for part in foreign(caller) {
                assert_eq!(has(&part.to_string()), caller == model, "{part} in {case}");
            }
            if caller != model {
                for sealed in ["sealed", "srvtoolu_", "ws_1", "\"web_search_call\"", "hidden-thought"] {
                    assert!(!has(sealed), "{sealed} in {case}");
                }
            }
        }
    }
}

#[tokio::test]
async fn what_another_wire_cannot_read_is_told_in_words_or_named() {
    let sent = async |caller, model, history: &[Value]| {
        let bench = Bench::new(vec![turn(model, false, &[text("x")])], Limits::default()).await;
        let reply = bench.ask(asked_of(caller, model, false, history)).await.expect("an answer");
        let dropped = reply.headers.get("otari-dropped").and_then(|names| names.to_str().ok()).unwrap_or_default();
        (String::from_utf8(bench.model.received()[0].body.to_vec()).expect("text"), dropped.to_owned())
    };
    let user = json!({"role": "user", "content": "go"});
    let (body, _) = sent(Messages, ChatCompletions, &history(Messages)).await;
    assert!(body.contains("web_search") && body.contains("https://example.org"), "{body}");
    let (body, dropped) = sent(Responses, ChatCompletions, &history(Responses)).await;
    assert!(body.contains("\\\"query\\\"") || body.contains("query"), "{body}");
    assert!(dropped.contains("reasoning"), "{dropped}");
    let open = json!({"role": "assistant", "content": [{"type": "text", "text": "a"},
        {"type": "thinking", "thinking": "t", "signature": "c2ln"},
        {"type": "server_tool_use", "id": "srvtoolu_9", "name": "web_search", "input": {}}]});
    let (body, dropped) = sent(Messages, ChatCompletions, &[user.clone(), open, user.clone()]).await;
    assert!(!body.contains("srvtoolu_9"), "{body}");
    assert!(dropped.contains("server_tool_use without a result") && dropped.contains("thinking"), "{dropped}");
    let thinking = json!({"role": "assistant", "content": "a", "reasoning_content": "t"});
    let (_, dropped) = sent(ChatCompletions, Messages, &[user.clone(), thinking, user]).await;
    assert!(dropped.contains("messages.reasoning_content"), "{dropped}");
}
