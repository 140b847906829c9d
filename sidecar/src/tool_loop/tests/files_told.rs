//! Files that code wrote, as each wire tells its client of them. The snapshots hold what model and client get.

use std::sync::Arc;
use std::time::Duration;

use decision::format::ApiFormat::{self, ChatCompletions, Messages, Responses};
use decision::request::{CodeTool, Keyword};
use serde_json::{Value, json};

use super::files::{FilesBench, limits, owner};
use super::responses::{asked as of_responses, checked, question, stream, whole, with_outputs, words};
use super::scripts::{self, Said, text};
use super::support::{Answer, FixedClock, chat_request, request, run_request};
use super::transcripts::play_on;
use crate::stored::{StoredLimits, StoredResponses};
use crate::tool_loop::{Limits, RunRequest};

const CHART: &str = "write: chart.png=PNG; out/data.csv=1,2";
const LINK: &str = "É: [the chart](sandbox:/mnt/data/chart.png).";

async fn play(make_request: impl Fn() -> RunRequest, script: impl Fn() -> Vec<Answer>) -> String {
    let bench = async |answers| Box::new(FilesBench::new(answers, limits()).await);
    play_on(async |answers| *bench(answers).await, make_request, script).await
}

fn code(id: &str, program: &str) -> Said {
    scripts::code(id, program)
}

/// A turn with words before its code, one with words between two, and the last words.
fn turns(model: ApiFormat, stream: bool) -> Vec<Answer> {
    let said = [
        vec![text("Let me draw."), code("call_1", CHART)],
        vec![text("See sandbox:out/data.csv, and more."), code("call_2", "write: chart.png=PNG; late.txt=x")],
        vec![text(LINK)],
    ];
    said.iter().map(|said| scripts::turn(model, stream, said)).collect()
}

fn annotations(item: &Value) -> Vec<String> {
    let text: Vec<char> = item["content"][0]["text"].as_str().expect("text").chars().collect();
    let annotations = item["content"][0]["annotations"].as_array().expect("a list").iter();
    let of = |annotation: &Value| {
        let index = |name: &str| usize::try_from(annotation[name].as_u64().expect("a number")).expect("small");
        let words: String = text[index("start_index")..index("end_index")].iter().collect();
        assert_eq!(annotation["type"], "container_file_citation");
        assert!(annotation["container_id"].as_str().expect("an id").starts_with("otari_cntr_"));
        assert!(annotation["file_id"].as_str().expect("an id").starts_with("cfile_otr"));
        format!("{} {words:?}", annotation["filename"].as_str().expect("a name"))
    };
    annotations.map(of).collect()
}

/// What holds of such an answer, whoever spoke it.
fn check_answer(response: &Value) {
    let items = response["output"].as_array().expect("items");
    let messages: Vec<&Value> = items.iter().filter(|item| item["type"] == "message").collect();
    assert_eq!(annotations(messages[0]), [] as [&str; 0], "before the code");
    assert_eq!(annotations(messages[1]), ["data.csv \"sandbox:out/data.csv\""], "only what it speaks of");
    // The chart was written again as it was, so it is no new file.
    assert_eq!(annotations(messages[2]), ["late.txt \"\"", "chart.png \"sandbox:/mnt/data/chart.png\""]);
    let calls: Vec<&Value> = items.iter().filter(|item| item["type"] == "code_interpreter_call").collect();
    assert_eq!(calls[0]["container_id"], messages[2]["content"][0]["annotations"][0]["container_id"]);
}

#[tokio::test]
async fn on_responses_the_words_cite_the_files_whatever_the_model_speaks() {
    for model in scripts::WIRES {
        let streamed = play(|| of_responses(model, &with_outputs(true)), || turns(model, true)).await;
        let last = checked(&streamed);
        check_answer(&last);
        let image =
            json!({"type": "image", "url": "data:image/png;base64,UE5H", "file_id": format!("file-otr{:032x}", 0)});
        assert_eq!(last["output"][1]["outputs"], json!([image]), "{model:?}");
        // The same without outputs, whole.
        let whole = play(|| of_responses(model, &question(false)), || turns(model, false)).await;
        let (_, body) = whole.split_once("== client: 200 OK\n").expect("an answer");
        let response: Value = serde_json::from_str(body).expect("JSON");
        check_answer(&response);
        assert_eq!(response["output"][1]["outputs"], Value::Null);
        if model == ChatCompletions {
            insta::assert_snapshot!("responses_caller_chat_model_streamed", streamed);
            insta::assert_snapshot!("responses_caller_chat_model_whole", whole);
        }
    }
}

#[tokio::test]
async fn a_providers_own_frames_stay_as_they_are_and_citations_stand_where_openai_has_them() {
    let part = |text: &str| {
        json!({"type": "output_text", "text": text, "annotations": [{"type": "url_citation", "x": 1}],
        "from_the_future": 2})
    };
    let ends = |text: &str| {
        vec![
            json!({"type": "response.content_part.added", "content_index": 0, "part": part("")}),
            json!({"type": "response.output_text.delta", "content_index": 0, "delta": text, "logprobs": []}),
            json!({"type": "response.output_text.done", "content_index": 0, "text": text, "logprobs": [], "new": 1}),
            json!({"type": "response.content_part.done", "content_index": 0, "part": part(text), "new": 2}),
        ]
    };
    let message = |text: &str| {
        let mut item = words(text).0;
        item["content"] = json!([part(text)]);
        (item, ends(text))
    };
    let run = super::responses::code(CHART);
    let script = || {
        vec![
            stream(&super::responses::turn(std::slice::from_ref(&run))),
            stream(&super::responses::turn(&[message(LINK)])),
        ]
    };
    let told = play(|| of_responses(Responses, &with_outputs(true)), script).await;
    let last = checked(&told);
    let annotations = last["output"][1]["content"][0]["annotations"].as_array().expect("a list");
    assert_eq!((annotations.len(), &annotations[0]["type"]), (3, &json!("url_citation")));
    let (_, client) = told.split_once("== client").expect("an answer");
    let kinds: Vec<&str> = client.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let end: Vec<&str> = kinds.iter().rev().take(7).rev().copied().collect();
    let expected = [
        "response.output_text.delta",
        "response.output_text.annotation.added",
        "response.output_text.annotation.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(end, expected);
    insta::assert_snapshot!(told);
    let script = || vec![whole(std::slice::from_ref(&run)), whole(&[message(LINK)])];
    let told = play(|| of_responses(Responses, &question(false)), script).await;
    let (_, body) = told.split_once("== client: 200 OK\n").expect("an answer");
    let response: Value = serde_json::from_str(body).expect("JSON");
    let part = &response["output"][1]["content"][0];
    assert_eq!((part["annotations"].as_array().map(Vec::len), &part["from_the_future"]), (Some(3), &json!(2)));
}

#[tokio::test]
async fn images_beyond_what_an_answer_shows_in_itself_are_shown_by_their_address() {
    let tight = Limits { max_inline_image_bytes: 8, ..Limits::default() };
    let said = [
        vec![code("call_1", "write: a.png=12345; b.png=123456; c.gif=123; d.svg=1; e.csv=1; f.png=")],
        vec![text("Done.")],
    ];
    let script = said.iter().map(|said| scripts::turn(ChatCompletions, false, said)).collect();
    let bench = FilesBench::patient(script, limits(), tight).await;
    let reply = bench.bench.ask(of_responses(ChatCompletions, &with_outputs(false))).await.expect("an answer");
    let response: Value = serde_json::from_str(&reply.body).expect("JSON");
    let outputs = response["output"][0]["outputs"].as_array().expect("a list");
    let urls: Vec<&str> = outputs.iter().filter_map(|output| output["url"].as_str()).collect();
    let address = |number: u32| format!("/v1/files/file-otr{number:032x}/content");
    let (b, d, f) = (address(1), address(3), address(5));
    assert_eq!(urls, ["data:image/png;base64,MTIzNDU=", &b, "data:image/gif;base64,MTIz", &d, &f]);
}

#[tokio::test]
async fn without_blocks_there_are_no_citations() {
    let plain = || {
        let mut asked = of_responses(ChatCompletions, &with_outputs(true));
        asked.run.dialect = decision::decide::Dialect::Plain;
        asked
    };
    let told = play(plain, || turns(ChatCompletions, true)).await;
    let (_, client) = told.split_once("== client").expect("an answer");
    assert!(!client.contains("cfile_otr") && !client.contains("annotation.added"), "{client}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_has_its_words_whole() {
    // The message waits for what follows it, and then the model fails.
    let mut broken = scripts::turn(ChatCompletions, true, &[text("Half")]);
    let end = String::from_utf8_lossy(&broken.body).find("\"finish_reason\":\"stop\"").expect("an end");
    let frame = String::from_utf8_lossy(&broken.body)[..end].rfind("data: ").expect("a frame");
    broken.body.truncate(frame);
    let script = vec![scripts::turn(ChatCompletions, true, &[code("call_1", CHART)]), broken];
    let bench = FilesBench::new(script, limits()).await;
    let reply = bench.bench.ask(of_responses(ChatCompletions, &with_outputs(true))).await.expect("a stream");
    assert_eq!(reply.body.matches("event: response.output_item.added").count(), 2, "{}", reply.body);
    assert_eq!(reply.body.matches("event: response.output_item.done").count(), 2, "{}", reply.body);
    assert!(reply.body.trim_end().rsplit("\n\n").next().expect("an event").starts_with("event: response.failed"));
}

#[tokio::test]
async fn on_messages_each_program_s_block_has_its_files_and_those_of_edits_before_it() {
    let with_all = |stream: bool| {
        let mut asked = RunRequest { owner: owner(), ..run_request(ChatCompletions, &request(stream)) };
        asked.run.tools = vec![CodeTool::Python, CodeTool::Bash, CodeTool::TextEditor];
        asked.run.claimed[0].keyword = Keyword::Dated("20250825".to_owned());
        asked
    };
    let call =
        |id: &str, name: &str, arguments: Value| Said::Call(id.to_owned(), name.to_owned(), arguments.to_string());
    let said = [
        vec![
            code("c1", CHART),
            call(
                "c2",
                "text_editor_code_execution",
                json!({"command": "create", "path": "note.txt", "file_text": "n"}),
            ),
            call("c3", "text_editor_code_execution", json!({"command": "view", "path": "note.txt"})),
            call("c4", "bash_code_execution", json!({"command": "write: b.txt=2"})),
            code("c5", "1/0"),
        ],
        vec![text("Done.")],
    ];
    for stream in [true, false] {
        let script = || said.iter().map(|said| scripts::turn(ChatCompletions, stream, said)).collect();
        let told = play(|| with_all(stream), script).await;
        let name = if stream { "messages_caller_streamed" } else { "messages_caller_whole" };
        insta::assert_snapshot!(name, told);
    }
}

#[tokio::test]
async fn on_chat_the_account_lists_the_files() {
    let mut body = request(false);
    body["otari_include"] = json!(["code_execution"]);
    let said = [vec![code("c1", "write: out/a.csv=1; !gone.txt=(gone)")], vec![text("Done.")]];
    let script = said.iter().map(|said| scripts::turn(ChatCompletions, false, said)).collect();
    let bench = FilesBench::new(script, limits()).await;
    let reply = bench.bench.ask(chat_request(ChatCompletions, &body)).await.expect("an answer");
    let answer: Value = serde_json::from_str(&reply.body).expect("JSON");
    let id = format!("file-otr{:032x}", 0);
    let expected = json!([
        {"path": "gone.txt", "file_id": null},
        {"path": "out/a.csv", "file_id": id, "filename": "a.csv", "mime_type": "text/csv", "size_bytes": 1},
    ]);
    assert_eq!(answer["otari_code_execution"][0]["files"], expected);
}

#[tokio::test]
async fn what_comes_back_still_names_the_files_to_the_model() {
    // Each wire's answer as SDKs echo it, to a model of each wire.
    for (caller, member) in [(Messages, "content"), (Responses, "output")] {
        for model in scripts::WIRES {
            let mut script = turns(model, false);
            script.push(scripts::turn(model, false, &[text("Again.")]));
            let bench = FilesBench::new(script, limits()).await;
            let mut history = vec![json!({"role": "user", "content": "Draw."})];
            let ask =
                |history: &[Value]| RunRequest { owner: owner(), ..scripts::asked_of(caller, model, false, history) };
            let reply = bench.bench.ask(ask(&history)).await.expect("an answer");
            let answer: Value = serde_json::from_str(&reply.body).expect("JSON");
            match caller {
                Messages => history.push(json!({"role": "assistant", "content": answer[member]})),
                _ => history.extend(answer[member].as_array().expect("items").iter().cloned()),
            }
            history.push(json!({"role": "user", "content": "Again?"}));
            bench.bench.ask(ask(&history)).await.expect("an answer");
            let received = bench.bench.model.received();
            let sent = String::from_utf8_lossy(&received[3].body);
            // The one between was written again as it had been.
            for number in [0, 1, 2] {
                assert!(sent.contains(&format!("file-otr{number:032x}")), "{caller:?} to {model:?}: {sent}");
            }
            assert!(!sent.contains("cfile_otr") && !sent.contains("otari_cntr_"), "{caller:?} to {model:?}: {sent}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_kept_knows_its_files_by_name_and_holds_no_image() {
    for include in [false, true] {
        let mut script = turns(ChatCompletions, false);
        script.push(scripts::turn(ChatCompletions, false, &[text("Again.")]));
        let mut bench = FilesBench::new(script, limits()).await;
        let folder = tempfile::tempdir().expect("a folder");
        let (retention, max_bytes) = (Duration::from_hours(1), 1 << 20);
        let kept = StoredLimits { retention, max_bytes, max_workspace_bytes: 1 << 20 };
        let stored = StoredResponses::in_folder(folder.path(), Arc::new(FixedClock), kept).await;
        let engine = Arc::get_mut(&mut bench.bench.engine).expect("nobody else has it");
        engine.stored = Some(stored.clone());
        let first = if include { with_outputs(false) } else { question(false) };
        let reply = bench.bench.ask(of_responses(ChatCompletions, &first)).await.expect("an answer");
        let answer: Value = serde_json::from_str(&reply.body).expect("JSON");
        let mut next = question(false);
        next["previous_response_id"] = answer["id"].clone();
        let mut asked = of_responses(ChatCompletions, &next);
        let resolved = stored.resolve(&asked.owner, asked.body, &mut |_| Ok(())).await;
        (asked.body, asked.named) = resolved.expect("it is kept");
        bench.bench.ask(asked).await.expect("an answer");
        let received = bench.bench.model.received();
        let sent = String::from_utf8_lossy(&received[3].body);
        for (path, number) in [("chart.png", 0), ("out/data.csv", 1), ("late.txt", 2)] {
            let line = format!("file: {path} (file_id: file-otr{number:032x})");
            assert!(sent.contains(&line), "{line} is not in {sent}");
        }
        assert!(!sent.contains("base64"), "{sent}");
    }
}
