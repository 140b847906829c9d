//! What a caller's request says that only its answer needs, and what a gateway that keeps no answers cannot honour.
//!
//! INVARIANT: a member that asks for a stored answer is honoured by the provider or refused by name.

use decision::problem::Problem;
use serde_json::Value;

use crate::ids;
use crate::wire::json::Fields;
use crate::wire::model_request::CallerSettings;

/// Members that the response object repeats, and `include`, which the answer follows.
const REPEATED: &[&str] = &[
    "include",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// Reads a request's settings. `same_wire`: the model speaks this wire too, so its provider may know stored answers.
pub fn settings(body: &[u8], same_wire: bool) -> Result<CallerSettings, Problem> {
    let fields: Fields<'_> = serde_json::from_slice(body).map_err(super::not_an_object)?;
    check_storage(&fields, same_wire)?;
    let max_calls = max_calls(&fields)?;
    let members = fields
        .0
        .iter()
        .filter(|(name, _)| REPEATED.contains(&&**name))
        .filter_map(|(name, value)| Some((name.to_string(), serde_json::from_str(value.get()).ok()?)))
        .filter(|(_, value): &(String, Value)| !value.is_null())
        .collect();
    Ok(CallerSettings { members, max_calls })
}

fn check_storage(fields: &Fields<'_>, same_wire: bool) -> Result<(), Problem> {
    let refuse = |param: &str, message: &str| Err(Problem::invalid(message).with_param(param));
    if fields.read::<bool>("background") == Some(true) {
        return refuse(
            "background",
            "`background` is not served where this gateway runs the code: leave it out, and set `stream` for long runs",
        );
    }
    if is_set(fields, "conversation") {
        return refuse(
            "conversation",
            "`conversation` is not served where this gateway runs the code: send the history in `input`",
        );
    }
    match fields.read::<String>("previous_response_id") {
        Some(id) if id.starts_with(ids::RESPONSE) => refuse(
            "previous_response_id",
            "`previous_response_id` names an answer of this gateway, which keeps none: send the history in `input`",
        ),
        Some(_) if !same_wire => refuse(
            "previous_response_id",
            "`previous_response_id` means nothing to this model's provider: send the history in `input`",
        ),
        _ => Ok(()),
    }
}

/// `max_tool_calls`: here, how many pieces of code may run.
fn max_calls(fields: &Fields<'_>) -> Result<Option<usize>, Problem> {
    if !is_set(fields, "max_tool_calls") {
        return Ok(None);
    }
    match fields.read::<usize>("max_tool_calls") {
        Some(calls) if calls > 0 => Ok(Some(calls)),
        _ => {
            let message = "`max_tool_calls` must be a whole number of at least 1; for none, leave out the code tool";
            Err(Problem::invalid(message).with_param("max_tool_calls"))
        }
    }
}

pub(super) fn is_set(fields: &Fields<'_>, name: &str) -> bool {
    fields.get(name).is_some_and(|value| value.get() != "null")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str, same_wire: bool) -> Option<String> {
        settings(body.as_bytes(), same_wire).err().and_then(|problem| problem.param)
    }

    #[test]
    fn what_needs_a_stored_answer_is_refused_by_name() {
        let own = format!(r#"{{"previous_response_id":"{}1"}}"#, ids::RESPONSE);
        assert_eq!(refused(&own, true).as_deref(), Some("previous_response_id"));
        assert_eq!(refused(r#"{"previous_response_id":"resp_1"}"#, true), None);
        assert_eq!(refused(r#"{"previous_response_id":"resp_1"}"#, false).as_deref(), Some("previous_response_id"));
        assert_eq!(refused(r#"{"conversation":"conv_1"}"#, true).as_deref(), Some("conversation"));
        assert_eq!(refused(r#"{"background":true}"#, true).as_deref(), Some("background"));
        let absent = r#"{"background":false,"conversation":null,"previous_response_id":null,"max_tool_calls":null}"#;
        assert_eq!(refused(absent, false), None);
    }

    #[test]
    fn a_limit_of_calls_is_at_least_one() {
        assert_eq!(settings(br#"{"max_tool_calls":2}"#, true).unwrap().max_calls, Some(2));
        for number in ["0", "-1", "1.5", "\"2\""] {
            assert!(refused(&format!(r#"{{"max_tool_calls":{number}}}"#), true).is_some(), "{number}");
        }
    }
}
