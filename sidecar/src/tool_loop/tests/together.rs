//! Calls of one turn that run at the same time: answered in order, their files told once, ended together.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use decision::format::ApiFormat::{ChatCompletions, Messages};
use decision::request::CodeTool;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::files::{FilesBench, limits, owner};
use super::scripts::{Said, WIRES, asked, code, text, turn};
use super::support::{Bench, lock, patient, until};
use crate::tool_loop::{Limits, ReplyBody, RunRequest};

fn bash(id: &str, command: &str) -> Said {
    Said::Call(id.to_owned(), "bash_code_execution".to_owned(), json!({"command": command}).to_string())
}

fn with_bash(mut asked: RunRequest) -> RunRequest {
    asked.run.tools = vec![CodeTool::Python, CodeTool::Bash];
    RunRequest { owner: owner(), ..asked }
}

/// What a model of the chat wire was told of its last calls, in its order.
fn told(bench: &Bench) -> Vec<(String, String)> {
    let received = bench.model.received();
    let body: Value = serde_json::from_slice(&received.last().expect("a request").body).expect("JSON");
    let messages = body["messages"].as_array().expect("messages").iter();
    let word = |message: &Value, name: &str| message[name].as_str().expect("text").to_owned();
    messages
        .filter(|message| message["role"] == "tool")
        .map(|message| (word(message, "tool_call_id"), word(message, "content")))
        .collect()
}

#[tokio::test]
async fn commands_that_need_each_other_end_and_each_file_is_told_once() {
    for caller in WIRES {
        for stream in [false, true] {
            let said = [
                vec![
                    bash("c1", "meet write: a.txt=1"),
                    bash("c2", "meet write: b.txt=2"),
                    code("c3", "write: c.txt=3"),
                    bash("c4", "ls; false"),
                ],
                vec![text("Done.")],
            ];
            let script = said.iter().map(|said| turn(ChatCompletions, stream, said)).collect();
            let bench = FilesBench::new(script, limits()).await;
            bench.bench.sandbox.max_together.store(2, Ordering::Relaxed);
            *lock(&bench.bench.sandbox.meeting) = Some(Arc::new(Barrier::new(2)));
            bench.bench.ask(with_bash(asked(caller, ChatCompletions, stream))).await.expect("an answer");
            let ran = lock(&bench.bench.sandbox.ran).clone();
            assert_eq!(ran[2..], ["write: c.txt=3", "ls; false"], "{caller:?}");
            let kept: Vec<String> = bench.kept().await.into_iter().map(|(name, _)| name).collect();
            assert_eq!(kept, ["a.txt", "b.txt", "c.txt"], "each once");
            let told = told(&bench.bench);
            let ids: Vec<&str> = told.iter().map(|(id, _)| id.as_str()).collect();
            assert_eq!(ids, ["c1", "c2", "c3", "c4"]);
            let names = |at: usize| ["a.txt", "b.txt", "c.txt"].map(|name| told[at].1.contains(&format!("- {name} (")));
            assert_eq!([0, 1, 2].map(names), [[true, true, false], [false; 3], [false, false, true]], "{told:?}");
        }
    }
}

#[tokio::test]
async fn with_a_limit_of_one_a_command_waits_for_the_one_before() {
    for (max_concurrent_calls, at_first) in [(1, 1), (2, 2), (4, 3)] {
        let said = [vec![bash("c1", "wait()"), bash("c2", "ls; false"), bash("c3", "print(6*7)")], vec![text("Done.")]];
        let script = said.iter().map(|said| turn(ChatCompletions, false, said)).collect();
        let bench = Bench::new(script, Limits { max_concurrent_calls, ..Limits::default() }).await;
        bench.sandbox.max_together.store(3, Ordering::Relaxed);
        let answer = bench.ask(with_bash(asked(Messages, ChatCompletions, false)));
        tokio::pin!(answer);
        tokio::select! {
            ended = &mut answer => panic!("{ended:?}"),
            () = until(|| lock(&bench.sandbox.ran).len() >= at_first) => {}
        }
        assert_eq!(lock(&bench.sandbox.ran).len(), at_first, "{max_concurrent_calls}");
        bench.sandbox.go_on.notify_one();
        patient(answer).await.expect("an answer");
        assert_eq!(*lock(&bench.sandbox.ran), ["wait()", "ls; false", "print(6*7)"]);
    }
}

#[tokio::test]
async fn a_session_lost_by_one_of_them_is_replaced_for_the_next_call_and_each_has_an_answer() {
    let said = [
        vec![bash("c1", "print(6*7)"), bash("c2", "lost()"), bash("c3", "lost()"), code("c4", "print(6*7)")],
        vec![text("Done.")],
    ];
    let script = said.iter().map(|said| turn(ChatCompletions, true, said)).collect();
    let bench = Bench::new(script, Limits::default()).await;
    bench.sandbox.max_together.store(4, Ordering::Relaxed);
    bench.ask(with_bash(asked(Messages, ChatCompletions, true))).await.expect("an answer");
    let told = told(&bench);
    let ran: Vec<bool> = told.iter().map(|(_, text)| text.contains("42")).collect();
    assert_eq!(ran, [true, false, false, true], "{told:?}");
    assert_eq!(bench.sandbox.created.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_client_that_leaves_stops_them_all() {
    for caller in WIRES {
        let said = [vec![bash("c1", "hang()"), bash("c2", "hang()")], vec![text("Never said.")]];
        let script = said.iter().map(|said| turn(ChatCompletions, true, said)).collect();
        let bench = Bench::new(script, Limits::default()).await;
        bench.sandbox.max_together.store(2, Ordering::Relaxed);
        let reply = patient(bench.engine.serve(with_bash(asked(caller, ChatCompletions, true)))).await;
        let ReplyBody::Stream(chunks) = reply.expect("a stream").body else { panic!("not a stream") };
        until(|| lock(&bench.sandbox.ran).len() == 2).await;
        drop(chunks);
        patient(bench.sandbox.destroyed.notified()).await;
        assert_eq!(bench.model.received().len(), 1, "the model is not called again");
    }
}
