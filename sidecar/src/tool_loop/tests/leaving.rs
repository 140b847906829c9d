//! A client that leaves stops model and sandbox; one that stays hears something while code runs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use decision::format::ApiFormat;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use super::support::{Answer, Bench, chat_code, chat_text, patient, request, run_request};
use crate::tool_loop::{Limits, ReplyBody};

const CHAT: ApiFormat = ApiFormat::ChatCompletions;

async fn open(bench: &Bench) -> BoxStream<'static, Bytes> {
    let reply = patient(bench.engine.serve(run_request(CHAT, &request(true)))).await.expect("a stream");
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
    let bench = Bench::new(vec![Answer { hangs: true, body: Vec::new(), ..chat_text("") }], Limits::default()).await;
    drop(open(&bench).await);
    patient(bench.model.dropped.notified()).await;
    assert_eq!(bench.sandbox.created.load(Ordering::Relaxed), 0, "no code, no session");
}

#[tokio::test]
async fn in_the_middle_of_the_text() {
    let mut answer = chat_text("Half a sentence");
    answer.body.truncate(answer.body.iter().position(|byte| *byte == b'\n').expect("a line") + 2);
    let bench = Bench::new(vec![Answer { hangs: true, ..answer }], Limits::default()).await;
    let mut chunks = open(&bench).await;
    read_until(&mut chunks, "Half a sentence").await;
    drop(chunks);
    patient(bench.model.dropped.notified()).await;
    assert_eq!(bench.sandbox.created.load(Ordering::Relaxed), 0, "no code, no session");
}

#[tokio::test]
async fn in_the_middle_of_the_code() {
    let bench = Bench::new(vec![chat_code("hang()")], Limits::default()).await;
    let mut chunks = open(&bench).await;
    read_until(&mut chunks, "server_tool_use").await;
    patient(bench.sandbox.hanging.notified()).await;
    drop(chunks);
    patient(bench.sandbox.destroyed.notified()).await;
}

#[tokio::test]
async fn while_waiting_for_a_whole_answer() {
    let hanging = Answer { hangs: true, ..Answer::json("{") };
    let bench = Bench::new(vec![hanging], Limits::default()).await;
    {
        let serving = bench.engine.serve(run_request(CHAT, &request(false)));
        tokio::select! {
            _ = serving => panic!("the model never ends"),
            () = bench.model.arrived.notified() => {}
        }
    }
    patient(bench.model.dropped.notified()).await;
    assert_eq!(bench.sandbox.created.load(Ordering::Relaxed), 0, "no code, no session");
}

#[tokio::test]
async fn pings_flow_while_code_runs() {
    let limits = Limits { keep_alive: Duration::from_millis(1), ..Limits::default() };
    let bench = Bench::new(vec![chat_code("wait()"), chat_text("Done.")], limits).await;
    let mut chunks = open(&bench).await;
    read_until(&mut chunks, "content_block_stop").await;
    read_until(&mut chunks, "event: ping\ndata: {\"type\":\"ping\"}").await;
    bench.sandbox.go_on.notify_one();
    let rest = read_until(&mut chunks, "message_stop").await;
    assert!(rest.contains("waited"));
}
