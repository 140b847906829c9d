//! Containers: sandbox sessions that a later request goes on with, through a real Envoy, with real interpreters.

use std::time::Duration;

use harness::client::{Answer, Call};
use harness::stack::{Setup, Stack, eventually, free_address};
use http::Method;
use serde_json::{Value, json};
use services::postgres::Postgres;

use crate::code_turn::streamed;
use crate::support::{DATED, accumulate, ask, events, question, seen, shared, start, tag};

/// For whatever should happen at once.
const SOON: Duration = Duration::from_secs(20);
/// Plays the text of the prompt as code.
const MODEL: &str = "code-marked";

/// A caller in a workspace of its own, so that no other test's sessions push out its own.
struct Caller<'a> {
    stack: &'a Stack,
    key: String,
}

impl<'a> Caller<'a> {
    fn new(stack: &'a Stack) -> Self {
        Self::of(stack, "ann", &format!("containers-{}", tag()))
    }

    fn of(stack: &'a Stack, user: &str, workspace: &str) -> Self {
        Self { stack, key: stack.make_key(user, workspace).unwrap() }
    }

    async fn send(&self, call: Call) -> Answer {
        call.bearer(&self.key).send(self.stack.address()).await.unwrap()
    }

    /// Runs code on the Messages wire, in this container.
    async fn run(&self, code: &str, container: &Value) -> Value {
        let answer = self.send(ask(&program(code, container))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Runs code on the Responses wire, in this container.
    async fn respond(&self, code: &str, container: &Value) -> Value {
        let answer = self.send(Call::post("/v1/responses", &response(code, container))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    async fn container(&self, method: Method, id: &str) -> Answer {
        self.send(Call::new(method, format!("/v1/containers/{id}"))).await
    }
}

/// A Messages request whose model runs this code.
fn program(code: &str, container: &Value) -> Value {
    let mut request = question(MODEL, "", &[DATED]);
    request["messages"] = json!([{"role": "user", "content": code}]);
    request["container"] = container.clone();
    request
}

/// A Responses request whose model runs this code.
fn response(code: &str, container: &Value) -> Value {
    json!({
        "model": MODEL,
        "input": code,
        "tools": [{"type": "code_interpreter", "container": container}],
        "include": ["code_interpreter_call.outputs"],
    })
}

fn id(message: &Value) -> String {
    message["container"]["id"].as_str().unwrap_or_else(|| panic!("no container in {message}")).to_owned()
}

/// What the only program of a message printed.
fn stdout(message: &Value) -> &str {
    let results = message["content"].as_array().into_iter().flatten();
    let mut printed = results.filter_map(|block| block.pointer("/content/stdout").and_then(Value::as_str));
    printed.next().unwrap_or_else(|| panic!("nothing ran in {message}"))
}

fn code_item(response: &Value) -> &Value {
    let mut items = response["output"].as_array().into_iter().flatten();
    items.find(|item| item["type"] == "code_interpreter_call").unwrap_or_else(|| panic!("nothing ran in {response}"))
}

fn logs(response: &Value) -> &str {
    code_item(response)["outputs"][0]["logs"].as_str().unwrap_or_else(|| panic!("no logs in {response}"))
}

fn container_id(response: &Value) -> String {
    code_item(response)["container_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_later_request_goes_on_with_variables_and_files() {
    let stack = shared().await;
    let caller = Caller::new(&stack);
    for prefix in ["", "messages--", "responses--"] {
        let request = |code: &str, container: &Value| {
            let mut request = program(code, container);
            request["model"] = json!(format!("{prefix}{MODEL}"));
            request
        };
        let first =
            caller.send(ask(&request("x = 41\nopen('kept.txt', 'w').write('here')", &Value::Null))).await.json();
        let container = id(&first);
        let look = "print(x + 1, open('kept.txt').read())";
        for form in [json!(container), json!({"id": container}), json!({"id": container, "skills": []})] {
            let whole = caller.send(ask(&request(look, &form))).await;
            assert_eq!(whole.status, 200, "{}", whole.text());
            assert_eq!(stdout(&whole.json()), "42 here\n", "{form}");
            assert_eq!(id(&whole.json()), container);
            let stream = caller.send(ask(&streamed(request(look, &form)))).await;
            let events = events(&stream);
            assert!(events[0]["message"]["container"].is_null(), "{}", events[0]);
            let delta = events.iter().find(|event| event["type"] == "message_delta").unwrap();
            assert_eq!(delta["delta"]["container"]["id"], json!(container), "{delta}");
            assert_eq!(stdout(&accumulate(&events)), "42 here\n", "{form}");
        }
        let other = caller.run("print('x' in globals())", &json!("auto")).await;
        assert_eq!(stdout(&other), "False\n");
        assert_ne!(id(&other), container, "`auto` is a new one on this wire");
    }
}

#[tokio::test]
async fn an_answer_says_until_when_its_container_is_kept() {
    let stack = shared().await;
    let caller = Caller::new(&stack);
    let message = caller.run("x = 1", &Value::Null).await;
    let seconds = |container: &Value| container["last_active_at"].as_i64().unwrap();
    let container = caller.container(Method::GET, &id(&message)).await;
    assert_eq!(container.status, 200, "{}", container.text());
    let container = container.json();
    assert_eq!((&container["object"], &container["status"]), (&json!("container"), &json!("running")));
    assert_eq!(container["expires_after"], json!({"anchor": "last_active_at", "minutes": 10}));
    assert!(seconds(&container) >= container["created_at"].as_i64().unwrap());
    // Both tell one time: ten minutes from the end of the answer.
    let expires = message["container"]["expires_at"].as_str().unwrap();
    let clock: Vec<i64> = expires[11..19].split(':').map(|number| number.parse().unwrap()).collect();
    let second_of_day = clock[0] * 3600 + clock[1] * 60 + clock[2];
    let apart = (second_of_day - seconds(&container)).rem_euclid(86_400);
    assert!((595..=601).contains(&apart), "{message} {container}");
}

#[tokio::test]
async fn on_the_responses_wire_an_id_and_the_history_lead_back_to_the_container() {
    let stack = shared().await;
    let caller = Caller::new(&stack);
    let auto = json!({"type": "auto"});
    let first = caller.respond("x = 41", &auto).await;
    let container = container_id(&first);
    let named = caller.respond("print(x + 1)", &json!(container)).await;
    assert_eq!((logs(&named), container_id(&named)), ("42\n", container.clone()));

    let mut history = vec![json!({"role": "user", "content": "x = 41"})];
    history.extend(first["output"].as_array().unwrap().clone());
    history.push(json!({"role": "user", "content": "print(x + 2)"}));
    let mut echoed = response("", &auto);
    echoed["input"] = json!(history);
    let echoed = caller.send(Call::post("/v1/responses", &echoed)).await.json();
    assert_eq!((logs(&echoed), container_id(&echoed)), ("43\n", container.clone()));

    let mut next = response("print(x + 3)", &auto);
    next["previous_response_id"] = first["id"].clone();
    let next = caller.send(Call::post("/v1/responses", &streamed(next))).await;
    let events = events(&next);
    let last = &events.last().unwrap()["response"];
    assert_eq!((logs(last), container_id(last)), ("44\n", container.clone()));

    // Once it is gone the conversation goes on all the same, in a new one.
    assert_eq!(caller.container(Method::DELETE, &container).await.status, 200);
    let mut gone = response("print('x' in globals())", &auto);
    gone["previous_response_id"] = first["id"].clone();
    let gone = caller.send(Call::post("/v1/responses", &gone)).await.json();
    assert_eq!(logs(&gone), "False\n");
    assert_ne!(container_id(&gone), container);
}

#[tokio::test]
async fn a_container_that_is_not_the_callers_is_as_one_that_is_not_there() {
    let stack = shared().await;
    let workspace = format!("containers-{}", tag());
    let ann = Caller::of(&stack, "ann", &workspace);
    let container = id(&ann.run("x = 41", &Value::Null).await);
    let others = [Caller::of(&stack, "bob", &workspace), Caller::of(&stack, "ann", &format!("other-{workspace}"))];
    let never = "otari_cntr_00000000000000000000000000000000";
    let mut refused = Vec::new();
    for caller in &others {
        refused.push((caller, container.clone()));
        assert_eq!(caller.container(Method::GET, &container).await.status, 404);
        assert_eq!(caller.container(Method::DELETE, &container).await.status, 404);
    }
    refused.extend([never, "otari_cntr_../../x", "container_011C"].map(|id| (&ann, id.to_owned())));
    for (caller, id) in refused {
        let marked = format!("print(1) # {}", tag());
        for form in [json!(id), json!({"id": id})] {
            let answer = caller.send(ask(&program(&marked, &form))).await;
            assert_eq!(answer.status, 400, "{}", answer.text());
            let error = &answer.json()["error"];
            assert_eq!(error["type"], "invalid_request_error", "{error}");
            let told = error["message"].as_str().unwrap();
            assert!(told.contains(&id) && told.contains("leave `container` out"), "{told}");
        }
        if id.starts_with("otari_cntr_") {
            let answer = caller.send(Call::post("/v1/responses", &response(&marked, &json!(id)))).await;
            let error = &answer.json()["error"];
            assert_eq!((answer.status, &error["param"]), (400, &json!("tools[0].container")), "{error}");
            assert_eq!(error["code"], "container_expired", "{error}");
        }
        assert!(seen(&stack, &marked).await.is_empty(), "no model was asked");
    }
    let long = "x".repeat(200);
    let answer = ann.send(ask(&program("print(1)", &json!(long)))).await;
    assert!(answer.status == 400 && !answer.text().contains(&long), "{}", answer.text());
    assert_eq!(stdout(&ann.run("print(x)", &json!(container)).await), "41\n", "nobody took anything from it");
}

#[tokio::test]
async fn two_containers_in_one_request_and_one_for_a_provider_are_refused() {
    let stack = shared().await;
    let caller = Caller::new(&stack);
    let container = id(&caller.run("x = 41", &Value::Null).await);
    let call = ask(&program("print(1)", &json!(container))).header("otari-code-execution", "provider");
    assert_eq!(caller.send(call).await.status, 400);
    // At a provider that runs code itself, the id alone says who is to run it.
    let mut native = program("print(x + 1)", &json!(container));
    native["model"] = json!(format!("claude--{MODEL}"));
    assert_eq!(stdout(&caller.send(ask(&native)).await.json()), "42\n");
}

#[tokio::test]
async fn a_deleted_container_is_gone_with_its_processes() {
    let stack = start(Setup::default()).await;
    let caller = Caller::new(&stack);
    let before = stack.sidecar().descendants();
    let container = id(&caller.run("x = 41", &Value::Null).await);
    assert!(stack.sidecar().descendants().len() > before.len(), "its interpreter waits");
    let deleted = caller.container(Method::DELETE, &container).await;
    assert_eq!(deleted.json(), json!({"id": container, "object": "container.deleted", "deleted": true}));
    assert_eq!(stack.sidecar().descendants(), before);
    for method in [Method::GET, Method::DELETE] {
        let answer = caller.container(method, &container).await;
        let told = format!("Container with id '{container}' not found.");
        assert_eq!((answer.status, &answer.json()["error"]["message"]), (404, &json!(told)));
    }
    let answer = caller.send(ask(&program("print(1)", &json!(container)))).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
}

#[tokio::test]
async fn an_unused_container_expires_and_its_processes_end() {
    let stack = start(Setup::default().set("containers", "{idle_seconds: 4}")).await;
    let caller = Caller::new(&stack);
    let before = stack.sidecar().descendants();
    let container = id(&caller.run("x = 41", &Value::Null).await);
    assert_eq!(stdout(&caller.run("print(x)", &json!(container)).await), "41\n");
    let gone = async || caller.container(Method::GET, &container).await.status == 404;
    assert!(eventually(SOON, gone).await);
    let answer = caller.send(ask(&program("print(1)", &json!(container)))).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("has expired"), "{}", answer.text());
    assert!(eventually(SOON, async || stack.sidecar().descendants() == before).await, "the sweep ends it");
    let counted = async || {
        let metrics =
            Call::get("/otari/metrics").bearer(stack.master_key()).send(stack.address()).await.unwrap().text();
        metrics.contains("otari_sidecar_containers_total{event=\"expired\"} 1")
    };
    assert!(eventually(SOON, counted).await, "its end is counted");
}

#[tokio::test]
async fn where_nothing_is_kept_a_session_ends_with_its_answer() {
    let stack = start(Setup::default().set("containers", "{idle_seconds: 0}")).await;
    let caller = Caller::new(&stack);
    let before = stack.sidecar().descendants();
    let message = caller.run("x = 41", &Value::Null).await;
    assert!(eventually(SOON, async || stack.sidecar().descendants() == before).await);
    let answer = caller.send(ask(&program("print(1)", &message["container"]["id"]))).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(caller.container(Method::GET, &id(&message)).await.status, 404);
}

#[tokio::test]
async fn one_request_at_a_time_works_in_a_container_and_one_that_is_left_lives_on() {
    let stack = start(Setup::default().set("containers", "{busy_wait_seconds: 1}")).await;
    let caller = Caller::new(&stack);
    let container = id(&caller.run("x = 41", &Value::Null).await);
    let slow = "import time\nopen('slow.txt', 'w').write('begun')\ntime.sleep(45)";
    let request = streamed(program(slow, &json!(container)));
    let mut answer = ask(&request).bearer(&caller.key).open(stack.address()).await.unwrap();
    answer.read_until("\"content_block_stop\",\"index\":1").await.unwrap();

    let busy = caller.send(ask(&program("print(1)", &json!(container)))).await;
    assert_eq!((busy.status, busy.header("retry-after")), (409, Some("1")), "{}", busy.text());
    assert_eq!(busy.json()["error"]["type"], "conflict_error");
    let busy = caller.send(Call::post("/v1/responses", &response("print(1)", &json!(container)))).await;
    let error = &busy.json()["error"];
    assert_eq!((busy.status, &error["code"]), (409, &json!("container_in_use")), "{error}");
    assert_eq!(error["param"], "tools[0].container");
    assert_eq!(caller.container(Method::DELETE, &container).await.status, 409);
    assert_eq!(caller.container(Method::GET, &container).await.status, 200);

    drop(answer);
    // The call is cut off; what it wrote and what was there before stay.
    let look = program("print(x + 1, open('slow.txt').read())", &json!(container));
    let free = async || caller.send(ask(&look)).await.status == 200;
    assert!(eventually(SOON, free).await);
    assert_eq!(stdout(&caller.send(ask(&look)).await.json()), "42 begun\n");
}

#[tokio::test]
async fn whoever_leaves_while_the_model_speaks_leaves_the_container_as_it_was() {
    let stack = shared().await;
    let caller = Caller::new(&stack);
    let container = id(&caller.run("x = 41", &Value::Null).await);
    let mut hanging = streamed(program("print(1)", &json!(container)));
    hanging["model"] = json!("hang");
    let mut answer = ask(&hanging).bearer(&caller.key).open(stack.address()).await.unwrap();
    answer.read_until("message_start").await.unwrap();
    drop(answer);
    assert_eq!(stdout(&caller.run("print(x + 1)", &json!(container)).await), "42\n");
    // So does a model that fails.
    let mut failing = program("print(1)", &json!(container));
    failing["model"] = json!("refused-500");
    assert!(caller.send(ask(&failing)).await.status >= 500);
    assert_eq!(stdout(&caller.run("print(x + 2)", &json!(container)).await), "43\n");
}

#[tokio::test]
async fn kept_sessions_make_room_for_new_runs_the_oldest_first() {
    let sandbox = "{max_sessions: 2, max_sessions_per_workspace: 2}";
    let stack = start(Setup::default().set("sandbox", sandbox)).await;
    let workspace = tag();
    let caller = Caller::of(&stack, "ann", &workspace);
    let first = id(&caller.run("x = 1", &Value::Null).await);
    let second = id(&caller.run("x = 2", &Value::Null).await);
    let third = id(&caller.run("x = 3", &Value::Null).await);
    assert_eq!(caller.send(ask(&program("print(x)", &json!(first)))).await.status, 400);
    assert_eq!(stdout(&caller.run("print(x)", &json!(second)).await), "2\n");
    // Another workspace finds room, too, and it is not the one used last that gives way.
    let other = Caller::of(&stack, "ann", &format!("other-{workspace}"));
    other.run("x = 4", &Value::Null).await;
    assert_eq!(caller.send(ask(&program("print(x)", &json!(third)))).await.status, 400);
    assert_eq!(stdout(&caller.run("print(x)", &json!(second)).await), "2\n");
    let chat = json!({"model": MODEL, "tools": [{"type": "code_interpreter"}],
        "messages": [{"role": "user", "content": "print('x' in globals())"}]});
    let chat = caller.send(Call::post("/v1/chat/completions", &chat)).await;
    assert!(chat.status == 200 && chat.text().contains("False"), "{}", chat.text());
}

/// Ids of the files that a message's programs returned.
fn files(message: &Value) -> Vec<&Value> {
    let results = message["content"].as_array().into_iter().flatten();
    results.filter_map(|block| block.pointer("/content/content")?.as_array()).flatten().collect()
}

#[tokio::test]
async fn what_was_returned_once_or_has_not_changed_is_not_returned_again() {
    let stack = shared().await;
    let caller = Caller::new(&stack);
    let first = caller.run("open('a.txt', 'w').write('a')\nopen('b.txt', 'w').write('b')", &Value::Null).await;
    assert_eq!(files(&first).len(), 2, "{first}");
    let container = json!(id(&first));
    let second = caller.run("print(open('a.txt').read())", &container).await;
    assert_eq!((stdout(&second), files(&second).len()), ("a\n", 0), "{second}");
    let third = caller.run("open('b.txt', 'w').write('changed')\nopen('c.txt', 'w').write('c')", &container).await;
    assert_eq!(files(&third).len(), 2, "{third}");
}

async fn upload(caller: &Caller<'_>, name: &str, content: &str) -> String {
    let body = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: text/csv\r\n\r\n{content}\r\n--b--\r\n"
    );
    let call = Call::new(Method::POST, "/v1/files").header("content-type", "multipart/form-data; boundary=b");
    let answer = caller.send(call.bytes(body.into_bytes())).await;
    answer.json()["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned()
}

#[tokio::test]
async fn files_that_are_there_already_keep_their_name_and_others_get_another() {
    let stack = shared().await;
    let caller = Caller::new(&stack);
    let (one, other) = (upload(&caller, "data.csv", "1,2").await, upload(&caller, "data.csv", "3,4").await);
    let with = |code: &str, container: &Value, file: &str| {
        let mut request = program(code, container);
        request["messages"] = json!([
            {"role": "user", "content": [{"type": "container_upload", "file_id": file}]},
            {"role": "assistant", "content": "I see it."},
            {"role": "user", "content": code},
        ]);
        request
    };
    let list = "import os\nfor name in sorted(os.listdir()): print(name, open(name).read())";
    let first = caller.send(ask(&with(list, &Value::Null, &one))).await.json();
    assert_eq!(stdout(&first), "data.csv 1,2\n");
    let container = json!(id(&first));
    // The history names it again, as it does in every request of a conversation.
    let again = caller.send(ask(&with(list, &container, &one))).await;
    assert_eq!(again.status, 200, "{}", again.text());
    assert_eq!(stdout(&again.json()), "data.csv 1,2\n");
    let second = caller.send(ask(&with(list, &container, &other))).await.json();
    assert_eq!(stdout(&second), "data-2.csv 3,4\ndata.csv 1,2\n");
    assert!(files(&second).is_empty(), "{second}");
}

/// Two sidecars, each with an Envoy and a sandbox of its own, on one database.
async fn replicas() -> (Stack, Stack) {
    let database = Postgres::shared().unwrap().database().unwrap();
    let replica = async || {
        let address = free_address().unwrap();
        let sandbox =
            format!("{{serve: \"{address}\", serve_token_env: SANDBOX_TOKEN, advertise_url: \"http://{address}\"}}");
        let setup = Setup::default().set("sandbox", &sandbox).set("database_url", &format!("\"{database}\""));
        start(setup.env("SANDBOX_TOKEN", "a-token-that-both-know")).await
    };
    (replica().await, replica().await)
}

#[tokio::test]
async fn another_replica_goes_on_with_a_container_until_its_own_one_ends() {
    let (one, other) = replicas().await;
    // The bootstrap key is the same in both.
    let ann = Caller { stack: &one, key: one.key().to_owned() };
    let container = id(&ann.run("x = 41\nopen('kept.txt', 'w').write('here')", &Value::Null).await);
    let before = other.sidecar().descendants();
    let there = Caller { stack: &other, key: ann.key.clone() };
    let message = there.run("print(x + 1, open('kept.txt').read())\nx = 42", &json!(container)).await;
    assert_eq!((stdout(&message), id(&message)), ("42 here\n", container.clone()));
    assert_eq!(other.sidecar().descendants(), before, "it ran where it was");
    assert_eq!(stdout(&ann.run("print(x)", &json!(container)).await), "42\n");
    assert_eq!(there.container(Method::GET, &container).await.status, 200);

    assert_eq!(one.sidecar().stop(SOON).await, Some(0));
    let answer = there.send(ask(&program("print(x)", &json!(container)))).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(there.container(Method::GET, &container).await.status, 404);
}
