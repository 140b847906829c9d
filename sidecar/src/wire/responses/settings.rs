//! What a caller's request says that only its answer needs, and what a gateway that keeps no answers cannot honour.
//!
//! INVARIANT: a member that asks for a stored answer is honoured by the provider or refused by name.

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::Value;

use crate::ids;
use crate::wire::json::Fields;
use crate::wire::model_request::CallerSettings;
use crate::wire::references;

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
pub fn settings(body: &[u8], run: &Run, same_wire: bool) -> Result<CallerSettings, Problem> {
    let fields: Fields<'_> = serde_json::from_slice(body).map_err(super::not_an_object)?;
    check_storage(&fields, same_wire)?;
    let max_calls = max_calls(&fields)?;
    let dropped = read_containers(&fields, run)?;
    let members = fields
        .0
        .iter()
        .filter(|(name, _)| REPEATED.contains(&&**name))
        .filter_map(|(name, value)| Some((name.to_string(), serde_json::from_str(value.get()).ok()?)))
        .filter(|(_, value): &(String, Value)| !value.is_null())
        .collect();
    // As OpenAI has it: kept unless the caller says no.
    let store = fields.read::<bool>("store").unwrap_or(true);
    Ok(CallerSettings { members, max_calls, dropped, store, place: None })
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

/// What the declarations ask of their container, as far as a sandbox here cannot give it.
fn read_containers(fields: &Fields<'_>, run: &Run) -> Result<Vec<String>, Problem> {
    let tools: Vec<Value> = fields.read("tools").unwrap_or_default();
    let mut dropped = Vec::new();
    for claimed in &run.claimed {
        let position = usize::try_from(claimed.index).ok();
        let Some(container) = position.and_then(|position| tools.get(position)?.get("container")) else { continue };
        let param = format!("tools[{}].container", claimed.index);
        match container {
            Value::Null => {}
            // One of ours is the loop's business.
            Value::String(id) if id.starts_with(ids::CONTAINER) => {}
            Value::Object(auto) if auto.get("type").and_then(Value::as_str) == Some("auto") => {
                let files = auto.get("file_ids").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                if let Some(at) = files.iter().position(|id| !id.as_str().is_some_and(references::is_ours)) {
                    return Err(references::foreign(&format!("{param}.file_ids[{at}]")));
                }
                let others = auto
                    .iter()
                    .filter(|(name, value)| !matches!(name.as_str(), "type" | "file_ids") && !value.is_null());
                dropped.extend(others.map(|(name, _)| format!("{param}.{name}")));
            }
            _ => {
                let message = format!(
                    "`{param}` must be {{\"type\": \"auto\"}}: code that runs here has no access to a provider's container"
                );
                return Err(Problem::invalid(message).with_param(param));
            }
        }
    }
    Ok(dropped)
}

fn is_set(fields: &Fields<'_>, name: &str) -> bool {
    fields.get(name).is_some_and(|value| value.get() != "null")
}

#[cfg(test)]
mod tests {
    use decision::decide::Dialect;
    use decision::request::{CodeTool, Keyword, ToolDeclaration};

    use super::*;

    /// The first tool is claimed.
    fn read(body: &str, same_wire: bool) -> Result<CallerSettings, Problem> {
        let claimed = vec![ToolDeclaration { index: 0, keyword: Keyword::Interpreter, name: None, purpose_hint: None }];
        let run = Run {
            dialect: Dialect::Native,
            claimed,
            tools: vec![CodeTool::Python],
            max_iterations: 10,
            exec_timeout_s: 60,
            purpose_hint: None,
            image: None,
            container: None,
        };
        settings(body.as_bytes(), &run, same_wire)
    }

    fn refused(body: &str, same_wire: bool) -> Option<String> {
        read(body, same_wire).err().and_then(|problem| problem.param)
    }

    #[test]
    fn a_container_is_fresh_and_holds_files_of_ours_alone() {
        let of = |container: &str| format!(r#"{{"tools":[{{"type":"code_interpreter","container":{container}}}]}}"#);
        let dropped = |container: &str| read(&of(container), true).unwrap().dropped;
        assert_eq!(dropped(r#"{"type":"auto","file_ids":[]}"#), [""; 0]);
        assert_eq!(dropped(r#"{"type":"auto","memory_limit":"4g"}"#), ["tools[0].container.memory_limit"]);
        assert_eq!(dropped("null"), [""; 0]);
        assert_eq!(dropped(r#"{"type":"auto","file_ids":["file-otr1","cfile_otr1"]}"#), [""; 0]);
        for foreign in [r#""file-1""#, "null", "7"] {
            let files = of(&format!(r#"{{"type":"auto","file_ids":["file-otr1",{foreign}]}}"#));
            assert_eq!(refused(&files, true).as_deref(), Some("tools[0].container.file_ids[1]"));
        }
        for other in [r#""cntr_1""#, r#"{"type":"explicit"}"#, "1"] {
            assert_eq!(refused(&of(other), true).as_deref(), Some("tools[0].container"), "{other}");
        }
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
        assert_eq!(read(r#"{"max_tool_calls":2}"#, true).unwrap().max_calls, Some(2));
        for number in ["0", "-1", "1.5", "\"2\""] {
            assert!(refused(&format!(r#"{{"max_tool_calls":{number}}}"#), true).is_some(), "{number}");
        }
    }
}
