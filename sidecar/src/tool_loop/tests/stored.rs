//! Callers of the Responses wire who go on from an answer by its id, or by the ids of its items.

use std::sync::Arc;
use std::time::Duration;

use decision::format::ApiFormat::{ChatCompletions, Messages, Responses};
use decision::problem::Problem;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::answers::events;
use super::scripts::{WIRES, asked_of, code, lookup, text, turn};
use super::support::{Answer, Bench, FixedClock};
use crate::stored::{StoredLimits, StoredResponses};
use crate::tool_loop::{Limits, RunRequest};

const LIMITS: StoredLimits =
    StoredLimits { retention: Duration::from_hours(1), max_bytes: 1 << 20, max_workspace_bytes: 1 << 20 };

/// A bench whose answers are kept in the folder's database.
async fn bench(script: Vec<Answer>, folder: &TempDir, limits: StoredLimits) -> Bench {
    let mut bench = Bench::new(script, Limits::default()).await;
    let stored = StoredResponses::in_folder(folder.path(), Arc::new(FixedClock), limits).await;
    Arc::get_mut(&mut bench.engine).expect("nobody else has it").stored = Some(stored);
    bench
}

/// The usual request with other members; outputs are not asked for.
fn asked(model: decision::format::ApiFormat, stream: bool, members: Value) -> RunRequest {
    let asked = asked_of(Responses, model, stream, &[]);
    let mut body: Value = serde_json::from_slice(&asked.body).expect("JSON");
    let body_members = body.as_object_mut().expect("an object");
    body_members.remove("include");
    body_members.remove("reasoning");
    body_members.extend(members.as_object().expect("an object").clone());
    RunRequest { body: body.to_string().into(), ..asked }
}

/// The response of an answer in either form.
fn response(stream: bool, body: &str) -> Value {
    if stream {
        return events(body).pop().expect("an end").1["response"].clone();
    }
    serde_json::from_str(body).expect("JSON")
}

async fn ask(bench: &Bench, stream: bool, asked: RunRequest) -> Value {
    response(stream, &bench.ask(asked).await.expect("an answer").body)
}

fn sent(bench: &Bench, request: usize) -> String {
    String::from_utf8(bench.model.received()[request].body.to_vec()).expect("text")
}

#[tokio::test]
async fn a_conversation_goes_on_from_the_id_of_its_last_answer_on_every_model_wire() {
    for model in WIRES {
        for stream in [false, true] {
            let script = vec![
                turn(model, stream, &[text("Let me."), code("c1", "print(6*7)")]),
                turn(model, stream, &[text("It is so.")]),
                turn(model, stream, &[text("As I said.")]),
                turn(model, stream, &[text("Again.")]),
            ];
            let folder = tempfile::tempdir().expect("a folder");
            let bench = bench(script, &folder, LIMITS).await;
            let first = ask(&bench, stream, asked(model, stream, json!({"input": "What is 6*7?"}))).await;
            assert_eq!(first["store"], true);
            // The caller did not ask for the outputs; the model knows them all the same.
            assert!(!first.to_string().contains("\"logs\""), "{first}");
            let next = json!({"input": [{"role": "user", "content": "Sure?"}], "previous_response_id": first["id"]});
            let second = ask(&bench, stream, asked(model, stream, next)).await;
            assert_eq!(second["previous_response_id"], first["id"]);
            let next = json!({"input": "And now?", "previous_response_id": second["id"]});
            ask(&bench, stream, asked(model, stream, next)).await;
            let told = sent(&bench, 3);
            let places: Vec<usize> =
                ["What is 6*7?", "Let me.", "print(6*7)", "42", "It is so.", "Sure?", "As I said.", "And now?"]
                    .iter()
                    .map(|said| told.rfind(said).unwrap_or_else(|| panic!("{model:?}: {said} in {told}")))
                    .collect();
            assert!(places.is_sorted(), "{model:?}: {places:?} in {told}");
            for id in ["resp_otr", "msg_otr", "otari_ci_", "previous_response_id"] {
                assert!(!told.contains(id), "{model:?}: {id} in {told}");
            }
        }
    }
}

#[tokio::test]
async fn references_to_items_are_read_as_the_items() {
    let script = vec![
        turn(ChatCompletions, false, &[text("Let me."), code("c1", "print(6*7)")]),
        turn(ChatCompletions, false, &[text("It is so.")]),
        turn(ChatCompletions, false, &[text("Again.")]),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let bench = bench(script, &folder, LIMITS).await;
    let first = ask(&bench, false, asked(ChatCompletions, false, json!({"input": "What is 6*7?"}))).await;
    let mut input = vec![json!({"role": "user", "content": "What is 6*7?"})];
    for item in first["output"].as_array().expect("items") {
        input.push(json!({"type": "item_reference", "id": item["id"]}));
    }
    input.push(json!({"role": "user", "content": "Sure?"}));
    let reply = bench.ask(asked(ChatCompletions, false, json!({"input": input}))).await.expect("an answer");
    assert!(!reply.headers.contains_key("otari-dropped"), "{:?}", reply.headers);
    let told = sent(&bench, 2);
    for said in ["Let me.", "print(6*7)", "42", "It is so.", "Sure?"] {
        assert!(told.contains(said), "{said} in {told}");
    }
}

#[tokio::test]
async fn a_mixed_turn_goes_on_with_the_result_alone() {
    for model in WIRES {
        let script =
            vec![turn(model, false, &[code("c1", "print(6*7)"), lookup("l1")]), turn(model, false, &[text("Done.")])];
        let folder = tempfile::tempdir().expect("a folder");
        let bench = bench(script, &folder, LIMITS).await;
        let first = ask(&bench, false, asked(model, false, json!({"input": "Both, please."}))).await;
        let output = json!([{"type": "function_call_output", "call_id": "l1", "output": "found it"}]);
        let next = json!({"input": output, "previous_response_id": first["id"]});
        ask(&bench, false, asked(model, false, next)).await;
        let told = sent(&bench, 1);
        for said in ["Both, please.", "print(6*7)", "42", "lookup", "found it"] {
            assert!(told.contains(said), "{model:?}: {said} in {told}");
        }
    }
}

#[tokio::test]
async fn an_answer_is_the_owners_alone_and_only_if_it_was_kept() {
    let script = || (0..3).map(|_| turn(Messages, false, &[text("Hello.")])).collect();
    for (case, store, changed) in
        [("kept", true, ""), ("store false", false, ""), ("workspace", true, "rivals"), ("user", true, "bob")]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let bench = bench(script(), &folder, LIMITS).await;
        let first = ask(&bench, false, asked(Messages, false, json!({"input": "Hi.", "store": store}))).await;
        assert_eq!(first["store"], store, "{case}");
        let id = first["id"].as_str().expect("an id").to_owned();
        let item = first["output"][0]["id"].clone();
        let mut next = asked(Messages, false, json!({"input": "And?", "previous_response_id": id}));
        let reference = json!({"input": [{"type": "item_reference", "id": item}, {"role": "user", "content": "And?"}]});
        let mut by_item = asked(Messages, false, reference);
        for request in [&mut next, &mut by_item] {
            match case {
                "workspace" => request.owner.workspace = changed.to_owned(),
                "user" => request.owner.user = changed.to_owned(),
                _ => {}
            }
        }
        match (case, bench.ask(next).await, bench.ask(by_item).await) {
            ("kept", Ok(_), Ok(_)) => {}
            (_, Err(problem), Err(by_item)) => {
                assert_eq!(problem.code, Some("previous_response_not_found"), "{case}");
                assert_eq!(problem.param.as_deref(), Some("previous_response_id"), "{case}");
                assert!(problem.message.contains(&id), "{case}: {}", problem.message);
                assert_eq!(by_item.param.as_deref(), Some("input[0]"), "{case}");
            }
            (_, next, by_item) => panic!("{case}: {next:?}, {by_item:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_too_large_is_not_kept_and_a_conversation_that_grew_too_large_is_refused() {
    let script = || (0..4).map(|_| turn(Messages, false, &[text(&"word ".repeat(30))])).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let limits = StoredLimits { max_bytes: 600, ..LIMITS };
    let bench = bench(script(), &folder, limits).await;
    let long = ask(&bench, false, asked(Messages, false, json!({"input": "x".repeat(601)}))).await;
    assert_eq!(long["store"], false, "an input over the limit is told to be kept by nobody");
    let first = ask(&bench, false, asked(Messages, false, json!({"input": "1"}))).await;
    let next = json!({"input": "2", "previous_response_id": first["id"]});
    let second = ask(&bench, false, asked(Messages, false, next)).await;
    let next = json!({"input": "3", "previous_response_id": second["id"]});
    let problem = bench.ask(asked(Messages, false, next)).await.expect_err("too long");
    assert!(problem.message.contains("responses.max_bytes"), "{}", problem.message);
}

#[tokio::test]
async fn a_providers_own_answer_at_the_root_is_named_to_it() {
    let script = (0..2).map(|_| turn(Responses, false, &[text("Hello.")])).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let bench = bench(script, &folder, LIMITS).await;
    let begun = json!({"input": "Hi.", "previous_response_id": "resp_providers"});
    let first = ask(&bench, false, asked(Responses, false, begun)).await;
    let next = json!({"input": "And?", "previous_response_id": first["id"]});
    let second = ask(&bench, false, asked(Responses, false, next)).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    let told: Value = serde_json::from_str(&sent(&bench, 1)).expect("JSON");
    assert_eq!(told["previous_response_id"], "resp_providers");
    assert_eq!(told["input"][0]["content"], "Hi.");
}

#[tokio::test]
async fn an_answer_to_what_can_be_no_id_is_given_and_not_kept() {
    let ids = [("resp_\0", false), ("resp_\u{85}", false), (&*"r".repeat(513), false), (&"r".repeat(512), true)];
    let script = ids.iter().map(|_| turn(Responses, false, &[text("Hello.")])).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let bench = bench(script, &folder, LIMITS).await;
    for (id, is_kept) in ids {
        let begun = json!({"input": "Hi.", "previous_response_id": id});
        let answer = ask(&bench, false, asked(Responses, false, begun)).await;
        assert_eq!((&answer["status"], &answer["store"]), (&json!("completed"), &json!(is_kept)), "{id:?}");
    }
}

#[tokio::test]
async fn no_more_of_a_conversation_is_held_than_there_is_room_for() {
    let script = vec![turn(Messages, false, &[text("Hello.")])];
    let folder = tempfile::tempdir().expect("a folder");
    let bench = bench(script, &folder, LIMITS).await;
    let said = "word ".repeat(2000);
    let first = ask(&bench, false, asked(Messages, false, json!({"input": said}))).await;
    let stored = bench.engine.stored.clone().expect("answers are kept");
    let item = json!({"type": "item_reference", "id": first["output"][0]["id"]});
    for members in [json!({"previous_response_id": first["id"], "input": "And?"}), json!({"input": [item]})] {
        let next = asked(Messages, false, members);
        let mut most = 0;
        let mut room = |bytes| {
            most = bytes;
            Ok(())
        };
        let resolved = stored.resolve(&next.owner, next.body.clone(), &mut room).await;
        let (body, named) = resolved.expect("there is room");
        let made = body.len() + named.input.expect("it named something").len();
        let row = if named.previous.is_some() { said.len() } else { 0 };
        assert!(most >= (next.body.len() + made + row) as u64, "{most} bytes were asked for, of {made} that were made");
        for less in [next.body.len() as u64 + 1, most - 1] {
            let mut room = |bytes| if bytes <= less { Ok(()) } else { Err(Problem::bodies_full()) };
            let full = stored.resolve(&next.owner, next.body.clone(), &mut room).await;
            assert_eq!(full.expect_err("too much"), Problem::bodies_full());
        }
    }
}
