//! What the client is told when something breaks, before and after its first byte.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use decision::decide::Run;
use decision::format::{ApiFormat, Vocabulary};
use decision::problem::ProblemKind;
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::support::{Answer, Bench, chat_code, chat_stream, chat_text, lock, request, run_request};
use crate::sandbox::SandboxError;
use crate::tool_loop::{Engine, Limits};
use crate::upstream::{ModelClient, ModelLimits, ModelTarget};

const CHAT: ApiFormat = ApiFormat::ChatCompletions;

async fn bench(script: Vec<Answer>) -> Bench {
    Bench::new(script, Limits::default()).await
}

#[tokio::test]
async fn a_refusal_in_the_callers_wire_passes_untouched() {
    let words = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down","extra":[1, 2]}}"#;
    let headers = [("content-type", "application/json"), ("retry-after", "7"), ("request-id", "req_model")];
    for stream in [true, false] {
        let bench = bench(vec![Answer::error(429, &headers, words)]).await;
        let reply = bench.ask(run_request(ApiFormat::Messages, &request(stream))).await.expect("the provider's answer");
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (429, words));
        for (name, value) in headers {
            assert_eq!(reply.headers[name], value);
        }
    }
}

#[tokio::test]
async fn a_refusal_in_another_wire_is_translated() {
    let words = r#"{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}"#;
    let headers = [("content-type", "application/json"), ("retry-after", "7")];
    let bench = bench(vec![Answer::error(429, &headers, words)]).await;
    let problem = bench.ask(run_request(CHAT, &request(true))).await.expect_err("a problem");
    assert_eq!((problem.kind, problem.message.as_str()), (ProblemKind::RateLimited, "slow down"));
    assert_eq!((problem.retry_after_s, problem.side_effects), (Some(7), false));
}

#[tokio::test]
async fn a_proxys_own_words_are_translated_in_every_wire() {
    for wire in [ApiFormat::Messages, CHAT] {
        let bench = bench(vec![Answer::error(503, &[("content-type", "text/plain")], "upstream connect error")]).await;
        let problem = bench.ask(run_request(wire, &request(true))).await.expect_err("a problem");
        assert_eq!(problem.status(Vocabulary::Anthropic), 529);
    }
}

#[tokio::test]
async fn a_later_failure_ends_the_stream_with_an_error_event() {
    let script = || {
        let error = Answer::error(500, &[("content-type", "application/json")], r#"{"error":{"message":"broke"}}"#);
        vec![chat_code("print(6*7)"), error]
    };
    let reply = bench(script()).await.ask(run_request(CHAT, &request(true))).await.expect("a stream");
    let frames: Vec<&str> = reply.body.trim_end().split("\n\n").collect();
    let last = frames.last().expect("a frame");
    assert!(last.starts_with("event: error\ndata: {\"type\":\"error\""), "{last}");
    assert!(last.contains("broke") && last.contains("req_otr1"), "{last}");
    assert_eq!(reply.body.matches("code_execution_tool_result\"").count(), 1, "the call has its result");
    assert!(!reply.body.contains("message_stop"));

    let whole = {
        let call =
            json!({"id": "call_1", "function": {"name": "code_execution", "arguments": "{\"code\": \"print(6*7)\"}"}});
        let answer = json!({"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]});
        vec![Answer::json(&answer.to_string()), script().remove(1)]
    };
    let problem = bench(whole).await.ask(run_request(CHAT, &request(false))).await.expect_err("a problem");
    assert_eq!((problem.kind, problem.side_effects), (ProblemKind::UpstreamFailed, true));
}

#[tokio::test]
async fn broken_streams_end_with_an_error_event_and_every_call_with_a_result() {
    let mut cut = chat_code("print(6*7)");
    cut.body.truncate(cut.body.len() / 2);
    let provider = Answer::stream("data: {\"choices\":[]}\n\ndata: {\"error\":{\"message\":\"overheated\"}}\n\n");
    let malformed = Answer::stream("data: {\"choices\":[]}\n\ndata: nonsense\n\n");
    let compressed = Answer { headers: vec![("content-encoding", "gzip")], ..chat_text("x") };
    for (answer, words) in
        [(cut, "broke off"), (provider, "overheated"), (malformed, "not JSON"), (compressed, "compressed")]
    {
        let reply = bench(vec![answer]).await.ask(run_request(CHAT, &request(true))).await.expect("a stream");
        let last = reply.body.trim_end().rsplit("\n\n").next().expect("a frame");
        assert!(last.starts_with("event: error") && last.contains(words), "{words}: {last}");
        let calls = reply.body.matches("server_tool_use\"").count();
        assert_eq!(calls, reply.body.matches("code_execution_tool_result\"").count());
    }
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_had_is_an_error_before_the_first_byte() {
    let call =
        json!({"id": "call_1", "function": {"name": "code_execution", "arguments": "{\"code\": \"print(6*7)\"}"}});
    let answer = json!({"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}).to_string();
    let unreachable = SandboxError::Unreachable { reason: "secret socket path".to_owned(), source: None };
    let full = SandboxError::AtCapacity { retry_after: Some(Duration::from_millis(2500)) };
    for (error, status, retry_after) in [(unreachable, 502, None), (full, 529, Some(3))] {
        let bench = bench(vec![Answer::json(&answer)]).await;
        *lock(&bench.sandbox.closed) = Some(error);
        let problem = bench.ask(run_request(CHAT, &request(false))).await.expect_err("a problem");
        assert_eq!(problem.status(Vocabulary::Anthropic), status);
        assert_eq!((problem.retry_after_s, problem.side_effects), (retry_after, false));
        assert!(!problem.message.contains("secret"));
    }
}

#[tokio::test]
async fn a_session_lost_in_the_middle_is_told_and_replaced() {
    let script = vec![chat_code("lost()"), chat_code("slow()"), chat_code("print(6*7)"), chat_text("Done.")];
    let bench = bench(script).await;
    let reply = bench.ask(run_request(CHAT, &request(true))).await.expect("a stream");
    let codes: Vec<&str> = ["unavailable", "execution_time_exceeded", "42\\n"]
        .into_iter()
        .filter(|word| reply.body.contains(word))
        .collect();
    assert_eq!(codes.len(), 3, "{}", reply.body);
    assert!(reply.body.contains("message_stop"));
    assert_eq!(lock(&bench.sandbox.ran).len(), 3);
}

/// An engine whose model is whatever stands, or does not stand, at this address.
async fn engine_at(address: SocketAddr, limits: Limits) -> Arc<Engine> {
    let bench = bench(Vec::new()).await;
    let target = ModelTarget::Url(format!("http://{address}"));
    Arc::new(Engine {
        models: ModelClient::new(target, ModelLimits::default()).expect("a client"),
        containers: None,
        reaper: bench.engine.reaper.clone(),
        clock: bench.engine.clock.clone(),
        ids: bench.engine.ids.clone(),
        limits,
        stored: None,
        files: None,
        memory: bench.engine.memory.clone(),
        tasks: TaskTracker::new(),
    })
}

#[tokio::test]
async fn the_deadline_is_an_error_too() {
    // Takes connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let limits = Limits { request_timeout: Duration::ZERO, ..Limits::default() };
    let engine = engine_at(silent.local_addr().expect("an address"), limits).await;
    for stream in [true, false] {
        let problem = engine.serve(run_request(CHAT, &request(stream))).await.expect_err("a problem");
        assert_eq!(problem.kind, ProblemKind::UpstreamTimedOut);
    }
}

#[tokio::test]
async fn a_model_that_cannot_be_reached_is_a_502() {
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("an address");
    let engine = engine_at(nobody, Limits::default()).await;
    let problem = engine.serve(run_request(CHAT, &request(true))).await.expect_err("a problem");
    assert_eq!((problem.kind, problem.status(Vocabulary::Anthropic)), (ProblemKind::UpstreamFailed, 502));
}

#[tokio::test]
async fn a_whole_answer_without_a_choice_is_the_upstreams_failure() {
    for answer in [json!({"id": "chatcmpl-1", "object": "chat.completion"}), json!({"choices": []})] {
        let answer = Answer::json(&answer.to_string());
        let problem = bench(vec![answer]).await.ask(run_request(CHAT, &request(false))).await.expect_err("a problem");
        assert_eq!((problem.kind, problem.status(Vocabulary::Anthropic)), (ProblemKind::UpstreamFailed, 502));
        assert!(problem.message.contains("holds no choice"), "{}", problem.message);
    }
}

#[tokio::test]
async fn a_server_that_ignores_stream_is_told_as_a_stream() {
    let answer = json!({"choices": [{"message": {"content": "It is 42."}, "finish_reason": "stop"}]}).to_string();
    let reply =
        bench(vec![Answer::json(&answer)]).await.ask(run_request(CHAT, &request(true))).await.expect("a stream");
    assert!(reply.body.contains(r#"{"type":"text_delta","text":"It is 42."}"#), "{}", reply.body);
    assert!(reply.body.ends_with("data: {\"type\":\"message_stop\"}\n\n"));
}

#[tokio::test]
async fn arguments_of_the_clients_function_that_are_no_json_are_an_error() {
    let mut body = request(true);
    body["tools"] =
        json!([{"name": "lookup", "input_schema": {"type": "object"}}, {"type": "code_execution", "name": "c"}]);
    let call =
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "lookup", "arguments": "{\"q\": "}}]});
    let answer = Answer::stream(&chat_stream(&[call], "tool_calls"));
    let reply = bench(vec![answer]).await.ask(run_request(CHAT, &body)).await.expect("a stream");
    let last = reply.body.trim_end().rsplit("\n\n").next().expect("a frame");
    assert!(last.starts_with("event: error") && last.contains("not a JSON object"), "{last}");
}

#[tokio::test]
async fn a_transcript_over_its_limit_ends_the_answer_and_says_which_limit() {
    let limits = Limits { max_transcript_bytes: 250, ..Limits::default() };
    let script = || vec![chat_code("print(6*7)"), chat_code("print(6*7)"), chat_text("never asked")];
    let reply = Bench::new(script(), limits).await.ask(run_request(CHAT, &request(true))).await.expect("a stream");
    let last = reply.body.trim_end().rsplit("\n\n").next().expect("a frame");
    assert!(last.starts_with("event: error") && last.contains("tool_loop.max_transcript_bytes"), "{last}");
    assert_eq!(reply.body.matches("code_execution_tool_result\"").count(), 1, "{}", reply.body);
}

#[tokio::test]
async fn what_a_run_asks_for_and_no_build_gives_is_refused_by_name() {
    let refused = async |change: fn(&mut Run)| {
        let mut asked = run_request(CHAT, &request(true));
        change(&mut asked.run);
        let bench = bench(Vec::new()).await;
        let problem = bench.ask(asked).await.expect_err("a problem");
        assert!(bench.model.received().is_empty());
        (problem.status(Vocabulary::Anthropic), problem.param)
    };
    assert_eq!(refused(|run| run.image = Some("img".to_owned())).await, (403, None));
}
