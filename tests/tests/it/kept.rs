//! Kept answers on the Responses wire through Envoy: ours come to the sidecar past the filter, the provider's own do not.

use harness::client::Call;
use harness::stack::Setup;
use http::Method;
use serde_json::{Value, json};

use crate::support::{seen, shared, start, tag};

fn question(model: &str, tag: &str) -> Value {
    json!({"model": model, "input": format!("Add up the numbers to 100. {tag}"),
        "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]})
}

#[tokio::test]
async fn an_answer_of_ours_is_read_listed_and_forgotten_under_every_root() {
    let stack = shared().await;
    for root in ["/v1", "/api/v1"] {
        for model in ["code-once", "messages--code-once", "responses--code-once"] {
            let told = stack.send(Call::post(format!("{root}/responses"), &question(model, &tag()))).await;
            let id = told.json()["id"].as_str().unwrap().to_owned();
            let path = format!("{root}/responses/{id}");
            let again = stack.send(Call::get(path.clone())).await;
            assert_eq!((again.status, &again.body), (200, &told.body), "{}", again.text());
            assert!(again.header("x-request-id").is_some(), "{:?}", again.headers);
            let items = stack.send(Call::get(format!("{path}/input_items?limit=5"))).await.json();
            assert_eq!(items["data"][0]["role"], "user", "{items}");
            let streamed = stack.send(Call::get(format!("{path}?stream=true"))).await;
            assert_eq!(streamed.status, 400, "{}", streamed.text());
            let deleted = stack.send(Call::new(Method::DELETE, path.clone())).await;
            assert_eq!((deleted.status, &deleted.json()["deleted"]), (200, &json!(true)));
            assert_eq!(stack.send(Call::get(path)).await.status, 404);
        }
    }
}

#[tokio::test]
async fn what_could_be_read_as_another_path_is_refused_past_the_filter_too() {
    let stack = shared().await;
    let tag = tag();
    for path in ["/v1/responses/resp_otr1/../../messages", "/v1/responses/resp_otr1/%2e%2e/%2e%2e/messages"] {
        let answer = stack.send(Call::post(path, &question("code-once", &tag))).await;
        assert!((400..500).contains(&answer.status), "{path}: {}", answer.text());
    }
    assert!(seen(&stack, &tag).await.is_empty(), "no model was asked");
}

#[tokio::test]
async fn an_answer_of_the_providers_own_goes_to_it_untouched() {
    let provider = r#"{openai: {type: openai, base_url: "MODEL", api_key_env: SCRIPTED_OPENAI_KEY}}"#;
    let setup = Setup::default().set("providers", provider).set("models", r#"[{match: "*", provider: openai}]"#);
    let stack = start(setup).await;
    let answer = stack.send(Call::get("/v1/responses/resp_68a?include[]=x")).await;
    let records = stack.received().await.unwrap();
    let record = records.iter().find(|record| record.path.starts_with("/v1/responses/resp_68a"));
    let record = record.unwrap_or_else(|| panic!("{} {}: {records:?}", answer.status, answer.text()));
    assert_eq!(record.path, "/v1/responses/resp_68a?include[]=x");
}
