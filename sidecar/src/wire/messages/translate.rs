//! A Messages request in neutral words, for a model that speaks another wire.
//!
//! INVARIANT: a part that the model would miss is refused by name; one that only tunes the answer is named in `dropped`.

mod content;

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::{Map, Value};

use self::content::ContentReader;
use super::history;
use crate::wire::conversation::{AnswerSchema, Choice, Conversation, Function};
use crate::wire::json::{Fields, take_count, take_number, take_text};
use crate::wire::model_request::{Foreign, GATEWAY_FIELDS};
use crate::wire::tools::{schema_or_empty, take_own};

/// Members that mean nothing outside this wire, or nothing that shows.
const SILENT: &[&str] = &["anthropic_version", "betas", "cache_control", "service_tier"];

/// Reads a request. The claimed code tools are left out; a choice that names one of them becomes [`Choice::Code`].
pub fn parse(body: &[u8], run: &Run) -> Result<Conversation, Problem> {
    let not_an_object = |_| Problem::invalid("the body is not a JSON object");
    let mut fields: Fields<'_> = serde_json::from_slice(body).map_err(not_an_object)?;
    // A provider's own is told with the rest of what this wire alone knows.
    let fold = |messages| history::fold(messages, Foreign::Stays);
    let messages = fields.take("messages").and_then(|messages| serde_json::from_str(&fold(messages)).ok());
    let mut body = fields.into_map().map_err(not_an_object)?;
    let mut conversation =
        Conversation { model: take_text(&mut body, "model").unwrap_or_default(), ..Conversation::default() };
    let mut reader = ContentReader::default();
    conversation.system = body.remove("system").map(ContentReader::system).transpose()?.filter(|s| !s.is_empty());
    conversation.messages = reader.messages(
        messages.ok_or_else(|| Problem::invalid("`messages` is missing, or no list").with_param("messages"))?,
    )?;
    conversation.dropped = reader.dropped;
    read_tools(&mut body, run, &mut conversation)?;
    read_choice(&mut body, run, &mut conversation)?;
    read_settings(&mut body, &mut conversation)?;
    for (name, value) in body {
        if !GATEWAY_FIELDS.contains(&&*name) && !SILENT.contains(&&*name) && !value.is_null() {
            conversation.dropped.insert(name);
        }
    }
    Ok(conversation)
}

fn read_tools(body: &mut Map<String, Value>, run: &Run, conversation: &mut Conversation) -> Result<(), Problem> {
    for (param, mut tool) in take_own(body, run)? {
        match take_text(&mut tool, "type").as_deref() {
            None | Some("custom") => {}
            Some(kind) => {
                conversation.dropped.insert(format!("{param}.type={kind}"));
                continue;
            }
        }
        let Some(name) = take_text(&mut tool, "name") else {
            return Err(Problem::invalid(format!("`{param}.name` is missing")).with_param(param));
        };
        let schema = schema_or_empty(tool.remove("input_schema"));
        let strict = tool.remove("strict").as_ref().and_then(Value::as_bool);
        let description = take_text(&mut tool, "description");
        for name in ["allowed_callers", "defer_loading", "input_examples"] {
            if tool.get(name).is_some_and(|value| !value.is_null()) {
                conversation.dropped.insert(format!("{param}.{name}"));
            }
        }
        conversation.functions.push(Function { name, description, schema, strict });
    }
    Ok(())
}

fn read_choice(body: &mut Map<String, Value>, run: &Run, conversation: &mut Conversation) -> Result<(), Problem> {
    let Some(Value::Object(mut choice)) = body.remove("tool_choice") else { return Ok(()) };
    let disabled = choice.get("disable_parallel_tool_use").and_then(Value::as_bool);
    conversation.parallel_calls = disabled.map(|disabled| !disabled);
    conversation.choice = Some(match take_text(&mut choice, "type").as_deref() {
        Some("auto") => Choice::Auto,
        Some("any") => Choice::Any,
        Some("none") => Choice::None,
        Some("tool") => {
            let name = take_text(&mut choice, "name").unwrap_or_default();
            if conversation.functions.iter().any(|function| function.name == name) {
                Choice::Function(name)
            } else if run.claims(Some("tool"), Some(&name)) {
                Choice::Code
            } else {
                let message =
                    format!("`tool_choice.name` names `{name}`, which is no tool that this model can be given");
                return Err(Problem::invalid(message).with_param("tool_choice.name"));
            }
        }
        _ => {
            return Err(
                Problem::invalid("`tool_choice.type` must be auto, any, tool or none").with_param("tool_choice")
            );
        }
    });
    Ok(())
}

fn read_settings(body: &mut Map<String, Value>, conversation: &mut Conversation) -> Result<(), Problem> {
    conversation.stream = body.remove("stream").as_ref().and_then(Value::as_bool).unwrap_or(false);
    conversation.max_tokens = take_count(body, "max_tokens")?;
    conversation.temperature = take_number(body, "temperature")?;
    conversation.top_p = take_number(body, "top_p")?;
    if let Some(Value::Array(stop)) = body.remove("stop_sequences") {
        conversation.stop = stop.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }
    if let Some(Value::Object(mut metadata)) = body.remove("metadata") {
        conversation.user = take_text(&mut metadata, "user_id");
    }
    let thinking = body.get("thinking").and_then(|thinking| thinking.get("type")).and_then(Value::as_str);
    conversation.show.reasoning = matches!(thinking, Some("enabled" | "adaptive"));
    if thinking == Some("disabled") {
        body.remove("thinking");
    }
    conversation.answer_schema = body
        .remove("output_format")
        .or_else(|| body.get_mut("output_config")?.as_object_mut()?.remove("format"))
        .and_then(|mut format| format.as_object_mut()?.remove("schema"))
        .map(AnswerSchema::strict);
    if body.get("output_config").and_then(Value::as_object).is_some_and(Map::is_empty) {
        body.remove("output_config");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
