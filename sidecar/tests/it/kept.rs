//! Answers on the Responses wire that are kept: read again as they were told, listed, forgotten; for their owner alone.

use serde_json::{Value, json};

use crate::code::{CALL, TEXT};
use crate::files::tenants;
use crate::support::{Answer, Call, Sidecar, Upstream};

const LATER: &str = r#"{"id": "3", "object": "chat.completion", "created": 1, "model": "local-1", "choices": [{"index": 0,
    "finish_reason": "stop", "message": {"role": "assistant", "content": "As I said."}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}"#;
const SANDBOX: &str = "sandbox: {backend: embedded}";

fn of(sidecar: &Sidecar, (user, team): (&str, &str), method: &str, path: &str) -> Call {
    let call = sidecar.bare_call(method, path).header("x-otari-hop", &sidecar.hop_secret);
    call.header("x-user", user).header("x-team", team)
}

const ANN: (&str, &str) = ("ann", "red");

async fn ask(sidecar: &Sidecar, members: Value) -> Answer {
    let mut request = json!({"model": "local-1", "input": "6 times 7?",
        "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]});
    request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let answer = of(sidecar, ANN, "POST", "/v1/responses").json(&request).send().await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    answer
}

async fn get(sidecar: &Sidecar, path: &str) -> Answer {
    of(sidecar, ANN, "GET", path).send().await
}

fn refused(answer: &Answer, status: u16, param: &str) {
    let error = &answer.json()["error"];
    assert_eq!(
        (answer.status, &error["type"], &error["param"]),
        (status, &json!("invalid_request_error"), &json!(param)),
        "{error}"
    );
}

#[tokio::test]
async fn an_answer_is_told_again_byte_for_byte_and_then_forgotten() {
    let sidecar = tenants(SANDBOX).await;
    let _upstream = Upstream::answering_each(&sidecar.config.model_socket(), &[CALL, TEXT, CALL, TEXT, CALL, TEXT]);
    let included = json!({"include": ["code_interpreter_call.outputs"], "metadata": {"a": "b"}});
    for (members, with_outputs) in [(json!({}), false), (included, true)] {
        let told = ask(&sidecar, members).await;
        let response = told.json();
        assert_eq!(response["output"][0]["outputs"].is_null(), !with_outputs, "{response}");
        let id = response["id"].as_str().unwrap();
        for root in ["/v1", "/api/v1"] {
            let again = get(&sidecar, &format!("{root}/responses/{id}")).await;
            assert_eq!((again.status, again.header("content-type")), (200, Some("application/json")));
            assert_eq!(again.body, told.body);
        }
        let asked = get(&sidecar, &format!("/v1/responses/{id}?include[]=code_interpreter_call.outputs")).await;
        if with_outputs {
            assert_eq!(asked.body, told.body);
        } else {
            refused(&asked, 400, "include");
        }
        for query in ["stream=true", "stream=true&starting_after=3"] {
            refused(&get(&sidecar, &format!("/v1/responses/{id}?{query}")).await, 400, "stream");
        }
        assert_eq!(get(&sidecar, &format!("/v1/responses/{id}?stream=false")).await.body, told.body);
        let cancelled = of(&sidecar, ANN, "POST", &format!("/v1/responses/{id}/cancel")).send().await;
        assert_eq!(cancelled.status, 400, "{:?}", cancelled.body);
        assert_eq!(of(&sidecar, ANN, "PATCH", &format!("/v1/responses/{id}")).send().await.status, 405);
        let path = format!("/v1/responses/{id}");
        let deleted = of(&sidecar, ANN, "DELETE", &path).send().await;
        assert_eq!((deleted.status, deleted.json()), (200, json!({"id": id, "object": "response", "deleted": true})));
        for (method, path) in [("GET", path.clone()), ("DELETE", path.clone()), ("GET", format!("{path}/input_items"))]
        {
            refused(&of(&sidecar, ANN, method, &path).send().await, 404, "id");
        }
    }
    // A stream tells its response in its last event.
    let stream = ask(&sidecar, json!({"stream": true})).await;
    let text = String::from_utf8(stream.body.to_vec()).unwrap();
    let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    let id = last["response"]["id"].as_str().unwrap();
    assert_eq!(get(&sidecar, &format!("/v1/responses/{id}")).await.json(), last["response"]);
    drop(sidecar.stopped().await);
}

#[tokio::test]
async fn what_is_somebody_elses_or_not_kept_is_unknown() {
    let sidecar = tenants(SANDBOX).await;
    let _upstream = Upstream::answering_each(&sidecar.config.model_socket(), &[CALL, TEXT, CALL, TEXT]);
    let kept = ask(&sidecar, json!({})).await.json()["id"].as_str().unwrap().to_owned();
    let unkept = ask(&sidecar, json!({"store": false})).await.json()["id"].as_str().unwrap().to_owned();
    let unknown = "resp_otr00000000000000000000000000000000";
    for (method, rest) in [("GET", ""), ("DELETE", ""), ("GET", "/input_items")] {
        for (who, id) in [
            (("bob", "red"), kept.as_str()),
            (("ann", "blue"), &kept),
            (ANN, &unkept),
            (ANN, unknown),
            (ANN, "resp_otr%22%0a"),
        ] {
            let answer = of(&sidecar, who, method, &format!("/v1/responses/{id}{rest}")).send().await;
            refused(&answer, 404, "id");
            assert!(answer.json()["error"]["message"].as_str().unwrap().contains("not found"), "{:?}", answer.body);
        }
    }
    // Nobody's query is looked at.
    for rest in ["", "/input_items", "?limit=1&limit=2", "/input_items?limit=1&limit=2"] {
        let nobody = sidecar.bare_call("GET", &format!("/v1/responses/{kept}{rest}"));
        assert_eq!(nobody.header("x-otari-hop", &sidecar.hop_secret).send().await.status, 401, "{rest}");
    }
    assert_eq!(get(&sidecar, &format!("/v1/responses/{kept}")).await.status, 200, "nobody else removed it");
    drop(sidecar.stopped().await);
}

#[tokio::test]
async fn what_an_answer_was_made_from_is_listed_page_by_page() {
    let sidecar = tenants(SANDBOX).await;
    let _upstream = Upstream::answering_each(&sidecar.config.model_socket(), &[CALL, TEXT, LATER]);
    let first = ask(&sidecar, json!({})).await.json();
    let first_id = first["id"].as_str().unwrap();
    let list =
        async |id: &str, query: &str| get(&sidecar, &format!("/v1/responses/{id}/input_items{query}")).await.json();
    let page = list(first_id, "").await;
    assert_eq!((&page["object"], &page["has_more"]), (&json!("list"), &json!(false)), "{page}");
    let question = &page["data"][0];
    assert_eq!(question["content"], json!([{"type": "input_text", "text": "6 times 7?"}]), "{page}");
    assert_eq!((&page["first_id"], &page["last_id"]), (&question["id"], &question["id"]));

    let next = json!({"previous_response_id": first_id, "input": [{"role": "user", "content": "Sure?"}]});
    let second = ask(&sidecar, next).await.json();
    let second_id = second["id"].as_str().unwrap();
    let all = list(second_id, "?order=asc").await["data"].as_array().unwrap().clone();
    let kinds: Vec<&str> = all.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "code_interpreter_call", "message", "message"], "{all:?}");
    assert_eq!((&all[0], &all[1]["id"]), (question, &first["output"][0]["id"]));
    assert_eq!(all[3]["content"][0]["text"], "Sure?");
    // The newest first, unless it is asked otherwise, and in pages that meet.
    let mut gathered: Vec<Value> = Vec::new();
    let mut query = "?limit=3".to_owned();
    loop {
        let page = list(second_id, &query).await;
        gathered.extend(page["data"].as_array().unwrap().clone());
        if page["has_more"] == false {
            break;
        }
        query = format!("?limit=3&after={}", page["last_id"].as_str().unwrap());
    }
    gathered.reverse();
    assert_eq!(gathered, all);
    for (query, param) in [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("order=up", "order"),
        ("after=msg_no", "after"),
        ("before=x", "before"),
        ("limit=1&limit=2", "limit"),
        (&*vec!["include=x"; 33].join("&"), "query"),
    ] {
        refused(&get(&sidecar, &format!("/v1/responses/{second_id}/input_items?{query}")).await, 400, param);
    }
    let many = format!("?{}", vec!["include=x"; 32].join("&"));
    assert_eq!(list(second_id, &many).await["data"].as_array().unwrap().len(), 4);
    // What is left of a conversation whose beginning was forgotten.
    of(&sidecar, ANN, "DELETE", &format!("/v1/responses/{first_id}")).send().await;
    assert_eq!(list(second_id, "").await["data"].as_array().unwrap().len(), 1);
    drop(sidecar.stopped().await);
}

#[tokio::test]
async fn an_answer_of_the_providers_own_is_the_providers() {
    let sidecar = tenants(SANDBOX).await;
    let upstream =
        Upstream::answering(&sidecar.config.model_socket(), 200, &[("content-type", "application/json")], b"{}");
    for (method, path) in [
        ("GET", "/v1/responses/resp_68a?stream=true"),
        ("DELETE", "/v1/responses/resp_68a"),
        ("GET", "/v1/responses/resp_68a/input_items?limit=1"),
        ("POST", "/v1/responses/resp_68a/cancel"),
    ] {
        let call = of(&sidecar, ANN, method, path).header("x-otari-route", "sidecar");
        let answer = call.send().await;
        // Without a model in its body it belongs to nobody where there are several providers, and that is said.
        assert_eq!(answer.status, 404, "{method} {path}: {:?}", answer.body);
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("more than one provider"));
    }
    assert!(upstream.recorded().is_empty());
    drop(sidecar.stopped().await);
}
