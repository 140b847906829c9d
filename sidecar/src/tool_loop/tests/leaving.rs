//! A client that leaves stops model and sandbox; one that stays hears something while code runs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use decision::format::ApiFormat;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use super::scripts::{WIRES, asked, code, turn};
use super::support::{Answer, Bench, chat_code, chat_text, lock, patient};
use crate::tool_loop::{Limits, ReplyBody};

const CHAT: ApiFormat = ApiFormat::ChatCompletions;

async fn open(bench: &Bench, caller: ApiFormat) -> BoxStream<'static, Bytes> {
    let reply = patient(bench.engine.serve(asked(caller, CHAT, true))).await.expect("a stream");
    match reply.body {
        ReplyBody::Stream(chunks) => chunks,
        ReplyBody::Whole(_) => panic!("not a stream"),
    }
}

/// Reads until the text has come.
async fn read_until(chunks: &mut BoxStream<'static, Bytes>, text: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(text) {
        let chunk = patient(chunks.next()).await.expect("more");
        seen.push_str(std::str::from_utf8(&chunk).expect("text"));
    }
    seen
}

#[tokio::test]
async fn before_the_first_token() {
    for caller in WIRES {
        let hanging = Answer { hangs: true, body: Vec::new(), ..chat_text("") };
        let bench = Bench::new(vec![hanging], Limits::default()).await;
        drop(open(&bench, caller).await);
        patient(bench.model.dropped.notified()).await;
        assert_eq!(bench.sandbox.created.load(Ordering::Relaxed), 0, "no code, no session");
    }
}

#[tokio::test]
async fn in_the_middle_of_the_text() {
    for caller in WIRES {
        let mut answer = chat_text("Half a sentence");
        answer.body.truncate(answer.body.iter().position(|byte| *byte == b'\n').expect("a line") + 2);
        let bench = Bench::new(vec![Answer { hangs: true, ..answer }], Limits::default()).await;
        let mut chunks = open(&bench, caller).await;
        read_until(&mut chunks, "Half a sentence").await;
        drop(chunks);
        patient(bench.model.dropped.notified()).await;
        assert_eq!(bench.sandbox.created.load(Ordering::Relaxed), 0, "no code, no session");
    }
}

#[tokio::test]
async fn in_the_middle_of_the_code() {
    for caller in WIRES {
        let bench = Bench::new(vec![chat_code("hang()"), chat_text("never said")], Limits::default()).await;
        let chunks = open(&bench, caller).await;
        patient(bench.sandbox.hanging.notified()).await;
        drop(chunks);
        patient(bench.sandbox.destroyed.notified()).await;
        assert_eq!(bench.model.received().len(), 1, "the model is not called again");
    }
}

#[tokio::test]
async fn while_the_results_of_several_calls_are_collected() {
    for caller in WIRES {
        let calls = [code("c1", "print(6*7)"), code("c2", "hang()"), code("c3", "print(6*7)")];
        let bench = Bench::new(vec![turn(CHAT, true, &calls), chat_text("never said")], Limits::default()).await;
        let chunks = open(&bench, caller).await;
        patient(bench.sandbox.hanging.notified()).await;
        drop(chunks);
        patient(bench.sandbox.destroyed.notified()).await;
        assert_eq!(*lock(&bench.sandbox.ran), ["print(6*7)", "hang()"], "the call that waited is forgotten");
        assert_eq!(bench.model.received().len(), 1, "the model is not called again");
    }
}

#[tokio::test]
async fn while_waiting_for_a_whole_answer() {
    for caller in WIRES {
        let hanging = Answer { hangs: true, ..Answer::json("{") };
        let bench = Bench::new(vec![hanging], Limits::default()).await;
        {
            let serving = bench.engine.serve(asked(caller, CHAT, false));
            tokio::select! {
                _ = serving => panic!("the model never ends"),
                () = bench.model.arrived.notified() => {}
            }
        }
        patient(bench.model.dropped.notified()).await;
        assert_eq!(bench.sandbox.created.load(Ordering::Relaxed), 0, "no code, no session");
    }
}

#[tokio::test]
async fn while_code_runs_for_a_whole_answer() {
    for caller in WIRES {
        let bench = Bench::new(vec![turn(CHAT, false, &[code("c1", "hang()")])], Limits::default()).await;
        {
            let serving = bench.engine.serve(asked(caller, CHAT, false));
            tokio::select! {
                _ = serving => panic!("the code never ends"),
                () = bench.sandbox.hanging.notified() => {}
            }
        }
        patient(bench.sandbox.destroyed.notified()).await;
        assert_eq!(bench.model.received().len(), 1, "the model is not called again");
    }
}

#[tokio::test]
async fn pings_flow_while_code_runs() {
    let limits = Limits { keep_alive: Duration::from_millis(1), ..Limits::default() };
    let bench = Bench::new(vec![chat_code("wait()"), chat_text("Done.")], limits).await;
    let mut chunks = open(&bench, ApiFormat::Messages).await;
    read_until(&mut chunks, "content_block_stop").await;
    read_until(&mut chunks, "event: ping\ndata: {\"type\":\"ping\"}").await;
    bench.sandbox.go_on.notify_one();
    let rest = read_until(&mut chunks, "message_stop").await;
    assert!(rest.contains("waited"));
}
