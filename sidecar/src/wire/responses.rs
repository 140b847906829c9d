//! OpenAI Responses: requests, model answers and client answers.

mod emit;
mod history;
mod items;
mod past;
mod reader;
mod request;
pub mod retrieved;
mod settings;
pub mod stored;
mod tools;
mod translate;
mod writer;

use decision::problem::Problem;
use serde_json::{Map, Value, json};

use super::chat_completions;
use super::model_request::CallResult;
use super::usage::Usage;

pub use emit::emit;
pub use history::fold;
pub(super) use past::SHAPE;
pub use reader::{StreamState, WholeReader};
pub use request::edit;
pub use settings::settings;
pub use translate::parse;
pub use writer::ResponsesWriter;

/// Path of the endpoint at a provider.
pub const PATH: &str = "/v1/responses";

/// A call's result as an entry of the history.
pub fn result_entry(result: &CallResult) -> String {
    json!({"type": "function_call_output", "call_id": result.call_id, "output": result.text}).to_string()
}

fn parse_usage(usage: &Value, keep_raw: bool) -> Usage {
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let cache_read = count("/input_tokens_details/cached_tokens");
    let cache_write = count("/input_tokens_details/cache_write_tokens");
    Usage {
        input: count("/input_tokens").saturating_sub(cache_read).saturating_sub(cache_write),
        cache_read,
        cache_write,
        output: count("/output_tokens"),
        reasoning: count("/output_tokens_details/reasoning_tokens"),
        raw: keep_raw.then(|| usage.as_object().cloned()).flatten(),
    }
}

/// An error object of this wire: a body, an `error` event of either shape, or the response of `response.failed`.
pub fn parse_error(data: &[u8]) -> Problem {
    let body: Value = serde_json::from_slice(data).unwrap_or_default();
    match body.pointer("/response/error").filter(|error| error.is_object()) {
        Some(error) => chat_completions::parse_error(error.to_string().as_bytes()),
        None => chat_completions::parse_error(data),
    }
}

fn not_an_object(_: serde_json::Error) -> Problem {
    Problem::invalid("the body is not a JSON object")
}

fn word<'a>(map: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    map.get(name).and_then(Value::as_str)
}
