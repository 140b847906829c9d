//! OpenAI Chat Completions: requests, model answers and client answers.

mod chunk;
mod edit;
mod members;
mod past;
mod reader;
mod request;
mod stream;
mod tools;
mod translate;
mod turn;
mod writer;

use decision::problem::{Origin, Problem, ProblemKind};
use serde_json::{Value, json};

use super::event::Stop;
use super::model_request::CallResult;
use super::usage::Usage;

pub use edit::edit;
pub(super) use past::SHAPE;
pub use reader::WholeReader;
pub use request::emit;
pub use stream::StreamState;
pub use translate::parse;
pub use writer::ChatWriter;

/// Path of the endpoint at a provider.
pub const PATH: &str = "/v1/chat/completions";

/// A call's result as an entry of the history.
pub fn result_entry(result: &CallResult) -> String {
    json!({"role": "tool", "tool_call_id": result.call_id, "content": result.text}).to_string()
}

fn parse_usage(usage: &Value, keep_raw: bool) -> Usage {
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let cached = count("/prompt_tokens_details/cached_tokens");
    Usage {
        input: count("/prompt_tokens").saturating_sub(cached),
        cache_read: cached,
        cache_write: 0,
        output: count("/completion_tokens"),
        reasoning: count("/completion_tokens_details/reasoning_tokens"),
        raw: if keep_raw { usage.as_object().cloned() } else { None },
    }
}

/// `called`: the turn holds calls. Servers that say `stop` then mean `tool_calls` all the same.
fn parse_stop(finish_reason: &str, called: bool) -> Stop {
    match finish_reason {
        "tool_calls" | "function_call" => Stop::ToolUse,
        "stop" | "eos" | "eos_token" | "" if called => Stop::ToolUse,
        "stop" | "eos" | "eos_token" | "" => Stop::EndTurn,
        "length" => Stop::MaxTokens,
        "content_filter" => Stop::Refusal,
        // A word of no vocabulary would break a strict client of another wire.
        _ if called => Stop::ToolUse,
        _ => Stop::EndTurn,
    }
}

/// The reason as this wire says it. The model's own word stands where it is one of the wire's and no call decides.
fn finish_word(stop: &Stop, word: Option<&str>) -> &'static str {
    let own = ["stop", "length", "content_filter"].into_iter().find(|known| Some(*known) == word);
    match (stop, own) {
        (Stop::ToolUse, _) => "tool_calls",
        (_, Some(own)) => own,
        (Stop::EndTurn | Stop::StopSequence(_), None) => "stop",
        (Stop::MaxTokens, None) => "length",
        (Stop::Refusal, None) => "content_filter",
        (Stop::Other(reason), None) if reason == "model_context_window_exceeded" => "length",
        (Stop::Other(_), None) => "stop",
    }
}

/// An error object of this wire, from a stream or a body.
pub fn parse_error(data: &[u8]) -> Problem {
    let body: Value = serde_json::from_slice(data).unwrap_or_default();
    let error = body.get("error").unwrap_or(&body);
    let word = |name: &str| error.get(name).and_then(Value::as_str);
    let message = word("message").or_else(|| error.as_str()).unwrap_or("the model's provider reported an error");
    let kind = match (word("type"), word("code")) {
        (Some("rate_limit_error" | "rate_limit_exceeded" | "tokens" | "requests"), _)
        | (_, Some("rate_limit_exceeded")) => ProblemKind::RateLimited,
        (Some("invalid_request_error"), _) => ProblemKind::InvalidRequest,
        (Some("authentication_error"), _) => ProblemKind::Unauthenticated,
        (Some("permission_error"), _) => ProblemKind::PermissionDenied,
        (Some("overloaded_error"), _) => ProblemKind::Overloaded,
        _ => ProblemKind::UpstreamFailed,
    };
    Problem::new(kind, Origin::Upstream, message)
}
