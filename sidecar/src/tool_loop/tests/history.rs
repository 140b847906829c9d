//! Histories as SDKs echo them, between every two wires: ours is folded, a provider's own reaches only who can read it.

use decision::config::ProviderKind;
use decision::format::ApiFormat::{self, ChatCompletions, Messages, Responses};
use serde_json::{Value, json};

use super::scripts::{WIRES, asked_of, text, turn};
use super::support::Bench;
use crate::tool_loop::{Limits, RunRequest};

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

/// Wires of models, and whose they are.
fn models() -> impl Iterator<Item = (ApiFormat, Option<ProviderKind>)> {
    let kinds = [None, Some(ProviderKind::Anthropic), Some(ProviderKind::Openai), Some(ProviderKind::OpenaiCompatible)];
    WIRES.into_iter().flat_map(move |wire| kinds.map(|kind| (wire, kind)))
}

#[tokio::test]
async fn whatever_is_echoed_is_read_by_a_model_of_every_wire() {
    for caller in WIRES {
        for (model, provider_kind) in models() {
            let bench = Bench::new(vec![turn(model, false, &[text("Then 43.")])], Limits::default()).await;
            let asked = RunRequest { provider_kind, ..asked_of(caller, model, false, &history(caller)) };
            // Whoever speaks Anthropic's wire is not Anthropic, and knows none of its blocks.
            let its_own = match (caller, provider_kind) {
                (_, None) | (ChatCompletions, _) => true,
                (Messages, Some(kind)) => kind == ProviderKind::Anthropic,
                (Responses, Some(kind)) => kind == ProviderKind::Openai,
            } && caller == model;
            let reply = bench.ask(asked).await.unwrap_or_else(|problem| panic!("{caller:?} to {model:?}: {problem:?}"));
            assert_eq!(reply.status, 200);
            let sent = String::from_utf8(bench.model.received()[0].body.to_vec()).expect("text");
            let has = |words: &str| sent.contains(words);
            let case = format!("{caller:?} to {model:?} of {provider_kind:?}: {sent}");
            assert!(has("It is 42.") && has("And then?"), "{case}");
            for ours in ["otari_", "_otr1"] {
                assert!(!has(ours), "{ours} in {case}");
            }
            if caller != ChatCompletions {
                assert!(has("I ran this Python code") && has("print(1)") && has("one"), "{case}");
                assert!(!has("hidden-thought"), "{case}");
            }
            for part in foreign(caller) {
                assert_eq!(has(&part.to_string()), its_own, "{part} in {case}");
            }
            if caller != ChatCompletions && !its_own {
                assert!(has("I used"), "{case}");
            }
            if !its_own {
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

#[tokio::test]
async fn a_providers_own_run_is_told_to_another_server_of_the_same_wire() {
    let sent = async |caller, history: &[Value]| {
        let bench = Bench::new(vec![turn(caller, false, &[text("x")])], Limits::default()).await;
        let provider_kind = Some(ProviderKind::OpenaiCompatible);
        let asked = RunRequest { provider_kind, ..asked_of(caller, caller, false, history) };
        bench.ask(asked).await.expect("an answer");
        String::from_utf8(bench.model.received()[0].body.to_vec()).expect("text")
    };
    let user = json!({"role": "user", "content": "go"});
    let code =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "print(9)"}});
    let gave = json!({"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content":
        {"type": "code_execution_result", "stdout": "nine\n", "stderr": "", "return_code": 0, "content": []}});
    let open = json!({"type": "server_tool_use", "id": "srvtoolu_2", "name": "web_search", "input": {"query": "lost"}});
    let own = json!({"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {}});
    let result =
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"}]});
    let body =
        sent(Messages, &[user.clone(), json!({"role": "assistant", "content": [code, gave, open, own]}), result]).await;
    for said in ["I ran this Python code", "print(9)", "nine", "I used web_search", "lost", "\"toolu_1\"", "found"] {
        assert!(body.contains(said), "{said} in {body}");
    }
    assert!(!body.contains("srvtoolu_"), "{body}");
    let code = json!({"type": "code_interpreter_call", "id": "ci_1", "code": "print(9)", "status": "completed",
        "container_id": "cntr_1", "outputs": [{"type": "logs", "logs": "nine\n"}]});
    let own = json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "f", "input": "x"});
    let result = json!({"type": "custom_tool_call_output", "call_id": "c1", "output": "found"});
    let body = sent(Responses, &[user, code, own.clone(), result.clone()]).await;
    for said in ["I ran this Python code", "print(9)", "nine", &own.to_string(), &result.to_string()] {
        assert!(body.contains(said), "{said} in {body}");
    }
    assert!(!body.contains("code_interpreter_call") && !body.contains("cntr_1"), "{body}");
}
