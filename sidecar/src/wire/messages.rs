//! Anthropic Messages: requests, model answers and client answers.

mod assistant;
mod emit;
mod history;
mod past;
mod reader;
mod request;
mod tools;
mod translate;
mod writer;

use decision::problem::{Origin, Problem, ProblemKind};
use serde_json::{Map, Value, json};

use super::event::Stop;
use super::model_request::CallResult;
use super::usage::Usage;

pub use emit::emit;
pub use history::fold;
pub(super) use history::recount;
pub(super) use past::SHAPE;
pub use reader::{StreamState, WholeReader};
pub use request::edit;
pub use translate::parse;
pub use writer::MessagesWriter;

/// Path of the endpoint at a provider.
pub const PATH: &str = "/v1/messages";

/// The results of a turn's calls as an entry of the history: one user message for all calls of a turn.
pub fn results_entry<'a>(results: impl Iterator<Item = &'a CallResult>) -> String {
    json!({"role": "user", "content": results.map(result_block).collect::<Vec<_>>()}).to_string()
}

fn result_block(result: &CallResult) -> Value {
    let mut block = json!({"type": "tool_result", "tool_use_id": result.call_id, "content": result.text});
    if let (true, Value::Object(block)) = (result.is_error, &mut block) {
        block.insert("is_error".to_owned(), true.into());
    }
    block
}

fn parse_usage(usage: &Map<String, Value>, keep_raw: bool) -> Usage {
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    Usage {
        input: count("input_tokens"),
        cache_read: count("cache_read_input_tokens"),
        cache_write: count("cache_creation_input_tokens"),
        output: count("output_tokens"),
        // This wire counts thoughts as output, and does not say how many.
        reasoning: 0,
        raw: keep_raw.then(|| usage.clone()),
    }
}

fn parse_stop(fields: Option<&Map<String, Value>>) -> Stop {
    let word = |name: &str| fields.and_then(|fields| fields.get(name)).and_then(Value::as_str);
    match word("stop_reason") {
        Some("end_turn") | None => Stop::EndTurn,
        Some("tool_use") => Stop::ToolUse,
        Some("max_tokens") => Stop::MaxTokens,
        Some("stop_sequence") => Stop::StopSequence(word("stop_sequence").map(str::to_owned)),
        Some("refusal") => Stop::Refusal,
        Some(other) => Stop::Other(other.to_owned()),
    }
}

fn stop_word(stop: &Stop) -> &str {
    match stop {
        Stop::EndTurn => "end_turn",
        Stop::ToolUse => "tool_use",
        Stop::MaxTokens => "max_tokens",
        Stop::StopSequence(_) => "stop_sequence",
        Stop::Refusal => "refusal",
        Stop::Other(other) => other,
    }
}

/// An error object of this wire, from a stream or a body.
pub fn parse_error(data: &[u8]) -> Problem {
    #[derive(serde::Deserialize, Default)]
    struct Body {
        error: Option<Inner>,
    }
    #[derive(serde::Deserialize, Default)]
    struct Inner {
        #[serde(rename = "type")]
        kind: Option<String>,
        message: Option<String>,
    }
    let inner = serde_json::from_slice::<Body>(data).unwrap_or_default().error.unwrap_or_default();
    let kind = match inner.kind.as_deref() {
        Some("invalid_request_error") => ProblemKind::InvalidRequest,
        Some("authentication_error") => ProblemKind::Unauthenticated,
        Some("permission_error") => ProblemKind::PermissionDenied,
        Some("not_found_error") => ProblemKind::NotFound,
        Some("request_too_large") => ProblemKind::PayloadTooLarge,
        Some("rate_limit_error") => ProblemKind::RateLimited,
        Some("overloaded_error") => ProblemKind::Overloaded,
        Some("timeout_error") => ProblemKind::UpstreamTimedOut,
        _ => ProblemKind::UpstreamFailed,
    };
    let message = inner.message.unwrap_or_else(|| "the model's provider reported an error".to_owned());
    Problem::new(kind, Origin::Upstream, message)
}
