//! The response object around the items: identity, the caller's own settings, usage, and how it ended.
//!
//! INVARIANT: tools, choice and instructions are those the caller wrote, not those the model was given.

use std::sync::Arc;

use decision::problem::{Problem, ProblemKind};
use serde_json::{Map, Value, json};

use crate::clock::Clock;
use crate::ids::{self, IdSource};
use crate::wire::event::{Ended, Stop};
use crate::wire::json::{push_json, push_name};
use crate::wire::usage::Usage;
use crate::wire::writer::WriterOptions;

/// What both forms share.
#[derive(Debug)]
pub(super) struct Answer {
    id: String,
    model: String,
    created_at: i64,
    /// The caller's settings, as the response repeats them.
    repeated: Map<String, Value>,
    shows_outputs: bool,
    kept: bool,
    container: Option<String>,
    ids: Arc<dyn IdSource>,
    clock: Arc<dyn Clock>,
}

/// Members of the request that were changed on the way to a model of the same wire.
const EDITED: [(&str, &str); 4] =
    [("instructions", "null"), ("tools", "[]"), ("tool_choice", "\"auto\""), ("max_tool_calls", "null")];

/// What asks for the outputs of code calls.
const OUTPUTS: &str = "code_interpreter_call.outputs";

impl Answer {
    pub(super) fn new(options: WriterOptions) -> Self {
        let WriterOptions { model, mut settings, ids, clock, kept, .. } = options;
        let include = settings.shift_remove("include");
        let includes = include.as_ref().and_then(Value::as_array);
        let shows_outputs = includes.is_some_and(|include| include.iter().any(|value| value == OUTPUTS));
        let id = ids.mint(ids::RESPONSE);
        let created_at = clock.now().as_second();
        Self { id, model, created_at, repeated: settings, shows_outputs, kept, container: None, ids, clock }
    }

    pub(super) fn shows_outputs(&self) -> bool {
        self.shows_outputs
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Somebody keeps it, so that the caller can go on from it by its id.
    pub(super) fn is_kept(&self) -> bool {
        self.kept
    }

    pub(super) fn mint(&self, prefix: &str) -> String {
        self.ids.mint(prefix)
    }

    /// One for all calls of an answer.
    pub(super) fn container(&mut self) -> String {
        self.container.get_or_insert_with(|| self.ids.mint(ids::CONTAINER)).clone()
    }

    /// The object of the first events; `raw` is the model's own, on the same wire.
    pub(super) fn open(&self, raw: Option<Map<String, Value>>) -> Map<String, Value> {
        let mut response = self.response(raw);
        response.insert("status".to_owned(), "in_progress".into());
        response
    }

    /// The last event's name, and its object.
    pub(super) fn close(&self, ended: Ended) -> (&'static str, Map<String, Value>) {
        let told = ended.raw.as_ref().map(|raw| raw.get("incomplete_details").cloned().unwrap_or_default());
        let details = told.unwrap_or_else(|| match ended.stop {
            Stop::MaxTokens => json!({"reason": "max_output_tokens"}),
            Stop::Refusal => json!({"reason": "content_filter"}),
            Stop::EndTurn | Stop::ToolUse | Stop::StopSequence(_) | Stop::Other(_) => Value::Null,
        });
        let (kind, status) =
            if details.is_null() { ("response.completed", "completed") } else { ("response.incomplete", "incomplete") };
        let mut response = self.response(ended.raw);
        response.insert("status".to_owned(), status.into());
        response.insert("incomplete_details".to_owned(), details);
        response.insert("usage".to_owned(), usage(ended.usage));
        if status == "completed" {
            response.insert("completed_at".to_owned(), self.clock.now().as_second().into());
        }
        (kind, response)
    }

    /// The object of `response.failed`.
    pub(super) fn failed(&self, problem: &Problem) -> Map<String, Value> {
        // The SDKs' types know few words here.
        let code = match problem.kind {
            ProblemKind::RateLimited => "rate_limit_exceeded",
            ProblemKind::InvalidRequest => "invalid_prompt",
            _ => "server_error",
        };
        let mut response = self.response(None);
        response.insert("status".to_owned(), "failed".into());
        response.insert("error".to_owned(), json!({"code": code, "message": problem.message}));
        response
    }

    fn response(&self, raw: Option<Map<String, Value>>) -> Map<String, Value> {
        let mut response = match raw {
            Some(raw) => self.with_callers_own(raw),
            None => self.of_nothing(),
        };
        response.insert("id".to_owned(), self.id.clone().into());
        response.insert("created_at".to_owned(), self.created_at.into());
        response.insert("model".to_owned(), self.model.clone().into());
        // Of this answer, whatever a provider keeps of single turns.
        response.insert("store".to_owned(), self.kept.into());
        response
    }

    fn with_callers_own(&self, mut response: Map<String, Value>) -> Map<String, Value> {
        for (name, absent) in EDITED {
            let own = self.repeated.get(name).cloned();
            let own = own.unwrap_or_else(|| serde_json::from_str(absent).unwrap_or_default());
            response.insert(name.to_owned(), own);
        }
        // An answer of ours is none that the provider was told of.
        if let Some(previous) = self.repeated.get("previous_response_id") {
            response.insert("previous_response_id".to_owned(), previous.clone());
        }
        response
    }

    /// Every member that the wire has, the caller's where it set one.
    fn of_nothing(&self) -> Map<String, Value> {
        let defaults = json!({
            "id": null, "object": "response", "created_at": null, "status": null, "background": false,
            "completed_at": null, "error": null, "incomplete_details": null, "instructions": null,
            "max_output_tokens": null, "max_tool_calls": null, "metadata": {}, "model": null, "output": null,
            "parallel_tool_calls": true, "previous_response_id": null, "prompt_cache_key": null,
            "reasoning": {"effort": null, "summary": null}, "safety_identifier": null, "service_tier": "default",
            "store": false, "temperature": 1.0, "text": {"format": {"type": "text"}}, "tool_choice": "auto",
            "tools": [], "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "usage": null, "user": null,
        });
        let Value::Object(mut response) = defaults else { return Map::new() };
        for (name, value) in &self.repeated {
            response.insert(name.clone(), value.clone());
        }
        response
    }
}

/// All members that the SDKs require, whatever the provider's own object had.
fn usage(usage: Usage) -> Value {
    let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    let mut counts = usage.raw.unwrap_or_default();
    let mut fill = |name: &str, value: Value| match (counts.get_mut(name), value) {
        (Some(Value::Object(known)), Value::Object(required)) => {
            for (name, value) in required {
                known.entry(name).or_insert(value);
            }
        }
        (Some(Value::Number(_)), _) => {}
        (_, value) => drop(counts.insert(name.to_owned(), value)),
    };
    fill("input_tokens", input.into());
    let details = json!({"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write});
    fill("input_tokens_details", details);
    fill("output_tokens", usage.output.into());
    fill("output_tokens_details", json!({"reasoning_tokens": usage.reasoning}));
    fill("total_tokens", input.saturating_add(usage.output).into());
    counts.into()
}

/// A response with its output, whose items are not parsed again.
pub(super) fn response_json(response: &Map<String, Value>, output: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut json = vec![b'{'];
    for (name, value) in response.iter().filter(|(name, _)| *name != "output") {
        push_name(&mut json, name);
        push_json(&mut json, value);
    }
    push_name(&mut json, "output");
    json.push(b'[');
    for (position, item) in output.iter().flatten().enumerate() {
        if position > 0 {
            json.push(b',');
        }
        json.extend_from_slice(item);
    }
    json.extend_from_slice(b"]}");
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_has_what_sdks_require_whatever_the_provider_said() {
        let neutral = Usage { input: 5, cache_read: 3, cache_write: 2, output: 7, reasoning: 6, raw: None };
        let details = json!({"cached_tokens": 3, "cache_write_tokens": 2});
        let expected = json!({"input_tokens": 10, "input_tokens_details": details, "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 6}, "total_tokens": 17});
        assert_eq!(usage(neutral.clone()), expected);
        let raw = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 7,
            "output_tokens_details": null, "total_tokens": 17, "future": 1});
        let told = usage(Usage { raw: raw.as_object().cloned(), ..neutral });
        assert_eq!(told["input_tokens_details"], details);
        assert_eq!(told["output_tokens_details"], json!({"reasoning_tokens": 6}));
        assert_eq!((&told["total_tokens"], &told["future"]), (&json!(17), &json!(1)));
    }

    #[test]
    fn items_that_never_ended_leave_no_hole() {
        let response = Map::from_iter([("output".to_owned(), Value::Null), ("status".to_owned(), "failed".into())]);
        let json = response_json(&response, &[Some(b"{}".to_vec()), None, Some(b"[]".to_vec())]);
        assert_eq!(json, br#"{"status":"failed","output":[{},[]]}"#);
    }
}
