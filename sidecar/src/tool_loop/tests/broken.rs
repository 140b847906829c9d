//! What every caller is told when model or sandbox fail, before and after the first byte, whatever wire the model speaks.

use std::time::Duration;

use decision::format::ApiFormat::{self, ChatCompletions, Messages, Responses};
use decision::format::Vocabulary;
use decision::problem::ProblemKind;
use serde_json::json;

use super::answers::{End, check_stream};
use super::scripts::{WIRES, asked, code, text, turn};
use super::support::{Answer, Bench, lock};
use crate::sandbox::SandboxError;
use crate::tool_loop::Limits;

fn vocabulary(caller: ApiFormat) -> Vocabulary {
    if caller == Messages { Vocabulary::Anthropic } else { Vocabulary::OpenAi }
}

/// An error answer of a model.
fn refusal(model: ApiFormat, status: u16, words: &str) -> Answer {
    let body = match model {
        Messages => json!({"type": "error", "error": {"type": "some_error", "message": words}}),
        ChatCompletions | Responses => json!({"error": {"message": words, "type": "some_error", "code": null}}),
    };
    Answer::error(status, &[("content-type", "application/json"), ("retry-after", "7")], &body.to_string())
}

async fn bench(script: Vec<Answer>) -> Bench {
    Bench::new(script, Limits::default()).await
}

#[tokio::test]
async fn a_refused_first_call_keeps_its_status_and_its_wait_for_every_caller() {
    let meanings = [
        (400, ProblemKind::InvalidRequest),
        (401, ProblemKind::Unauthenticated),
        (404, ProblemKind::NotFound),
        (413, ProblemKind::PayloadTooLarge),
        (429, ProblemKind::RateLimited),
        (500, ProblemKind::UpstreamFailed),
        (503, ProblemKind::Overloaded),
    ];
    for caller in WIRES {
        for model in WIRES {
            for (status, kind) in meanings {
                for stream in [true, false] {
                    let bench = bench(vec![refusal(model, status, "slow down")]).await;
                    match bench.ask(asked(caller, model, stream)).await {
                        Ok(reply) => {
                            assert_eq!((caller, reply.status.as_u16()), (model, status));
                            assert_eq!(reply.headers["retry-after"], "7");
                            assert!(reply.body.contains("slow down"));
                        }
                        Err(problem) => {
                            assert_ne!(caller, model, "its own wire passes untouched");
                            assert_eq!((problem.kind, problem.message.as_str()), (kind, "slow down"));
                            assert_eq!((problem.retry_after_s, problem.side_effects), (Some(7), false));
                        }
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_call_that_fails_after_code_ran_is_told_and_must_not_be_sent_again() {
    for caller in WIRES {
        for model in WIRES {
            let script = |stream| vec![turn(model, stream, &[code("c1", "print(6*7)")]), refusal(model, 500, "broke")];
            let reply = bench(script(true)).await.ask(asked(caller, model, true)).await.expect("a stream");
            let kind = if caller == Messages { "api_error" } else { "server_error" };
            let end = End::Failed(kind.to_owned(), "broke".to_owned());
            assert_eq!(check_stream(caller, &reply.body), end, "{caller:?} of {model:?}");
            let problem = bench(script(false)).await.ask(asked(caller, model, false)).await.expect_err("a problem");
            assert_eq!((problem.kind, problem.side_effects), (ProblemKind::UpstreamFailed, true));
            let headers = problem.reply(vocabulary(caller), "req_1").headers;
            assert!(headers.contains(&("x-should-retry", "false".to_owned())), "{headers:?}");
        }
    }
}

#[tokio::test]
async fn a_sandbox_that_is_down_or_full_is_a_status_before_the_first_byte_and_a_result_after_it() {
    let down = || SandboxError::Unreachable { reason: "secret".to_owned(), source: None };
    let full = || SandboxError::AtCapacity { retry_after: Some(Duration::from_secs(3)) };
    for caller in WIRES {
        for model in WIRES {
            for (error, is_full) in [(down(), false), (full(), true)] {
                let bench = bench(vec![turn(model, false, &[code("c1", "print(6*7)")])]).await;
                *lock(&bench.sandbox.closed) = Some(error);
                let problem = bench.ask(asked(caller, model, false)).await.expect_err("a problem");
                let overloaded = if caller == Messages { 529 } else { 503 };
                assert_eq!(problem.status(vocabulary(caller)), if is_full { overloaded } else { 502 });
                assert_eq!((problem.retry_after_s, problem.side_effects), (is_full.then_some(3), false));
                assert!(!problem.message.contains("secret"));
            }
            for (error, words) in [(down(), "the sandbox is unavailable"), (full(), "too many calls at once")] {
                let script = vec![turn(model, true, &[code("c1", "print(6*7)")]), turn(model, true, &[text("Sorry.")])];
                let bench = bench(script).await;
                *lock(&bench.sandbox.closed) = Some(error);
                let reply = bench.ask(asked(caller, model, true)).await.expect("a stream");
                assert_eq!(check_stream(caller, &reply.body), End::Finished, "{caller:?} of {model:?}");
                let sent = String::from_utf8(bench.model.received()[1].body.to_vec()).expect("text");
                assert!(sent.contains("[tool error] ") && sent.contains(words), "{sent}");
                assert!(lock(&bench.sandbox.ran).is_empty());
            }
        }
    }
}

#[tokio::test]
async fn code_that_is_slow_or_killed_is_told_to_the_model_and_to_every_caller_that_sees_code() {
    for caller in WIRES {
        for (source, code_word) in [("slow()", "execution_time_exceeded"), ("lost()", "unavailable")] {
            for stream in [true, false] {
                let model = ChatCompletions;
                let script = vec![turn(model, stream, &[code("c1", source)]), turn(model, stream, &[text("Sorry.")])];
                let bench = bench(script).await;
                let reply = bench.ask(asked(caller, model, stream)).await.expect("an answer");
                if stream {
                    assert_eq!(check_stream(caller, &reply.body), End::Finished);
                }
                let shown = match caller {
                    ChatCompletions => reply.body.contains("ry."),
                    Messages => reply.body.contains(code_word),
                    Responses => reply.body.contains("\"status\":\"failed\""),
                };
                assert!(shown, "{caller:?}: {}", reply.body);
                let sent = String::from_utf8(bench.model.received()[1].body.to_vec()).expect("text");
                assert!(sent.contains("[tool error] "), "{sent}");
            }
        }
    }
}

#[tokio::test]
async fn at_the_cap_every_caller_gets_a_last_word_and_no_code_runs_in_vain() {
    for caller in WIRES {
        for model in WIRES {
            // The model goes on calling although the tool is gone.
            let script = vec![
                turn(model, true, &[code("c1", "print(6*7)")]),
                turn(model, true, &[text("It is 42."), code("c2", "in_vain()")]),
            ];
            let bench = bench(script).await;
            let mut capped = asked(caller, model, true);
            capped.run.max_iterations = 1;
            let reply = bench.ask(capped).await.expect("a stream");
            assert_eq!(check_stream(caller, &reply.body), End::Finished, "{caller:?} of {model:?}");
            assert!(reply.body.contains("42.") && !reply.body.contains("pause_turn"), "{}", reply.body);
            assert_eq!(*lock(&bench.sandbox.ran), ["print(6*7)"]);
            let sent: Vec<serde_json::Value> = bench
                .model
                .received()
                .iter()
                .map(|received| serde_json::from_slice(&received.body).expect("JSON"))
                .collect();
            let offers = |body: &serde_json::Value| body["tools"].to_string().contains("code_execution");
            assert_eq!(sent.iter().map(offers).collect::<Vec<_>>(), [true, false], "{caller:?} of {model:?}");
        }
    }
}
