//! A Responses request in neutral words, for a model that speaks another wire.
//!
//! INVARIANT: a part that the model would miss is refused by name; one that only tunes the answer is named in `dropped`.

mod items;

use std::collections::HashSet;

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use self::items::ItemReader;
use super::history;
use super::tools::is_claimed;
use crate::wire::conversation::{AnswerSchema, Choice, Conversation, Function};
use crate::wire::json::{Fields, take_count, take_number, take_text};
use crate::wire::model_request::{Foreign, GATEWAY_FIELDS};
use crate::wire::tools::{schema_or_empty, take_own};

/// Members that mean nothing outside this wire, nothing that shows, or that the answer repeats.
const SILENT: &[&str] = &[
    "background",
    "conversation",
    "max_tool_calls",
    "metadata",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "stream_options",
];

/// The value of `include` that this gateway follows itself.
const FOLLOWED: &str = "code_interpreter_call.outputs";

/// Reads a request. The claimed code tools are left out; a choice that names one of them becomes [`Choice::Code`].
pub fn parse(body: &[u8], run: &Run) -> Result<Conversation, Problem> {
    let mut fields: Fields<'_> = serde_json::from_slice(body).map_err(super::not_an_object)?;
    let input = fields.take("input");
    let mut body = fields.into_map().map_err(super::not_an_object)?;
    let mut conversation =
        Conversation { model: take_text(&mut body, "model").unwrap_or_default(), ..Conversation::default() };
    refuse_prompt(&body)?;
    conversation.system = take_text(&mut body, "instructions").filter(|text| !text.is_empty());
    read_input(input, &mut conversation)?;
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

fn refuse_prompt(body: &Map<String, Value>) -> Result<(), Problem> {
    if body.get("prompt").is_none_or(Value::is_null) {
        return Ok(());
    }
    let message = "`prompt` names a template that this model's provider does not keep: send its text in `input`";
    Err(Problem::invalid(message).with_param("prompt"))
}

fn read_input(input: Option<&RawValue>, conversation: &mut Conversation) -> Result<(), Problem> {
    let wrong = || Problem::invalid("`input` is missing, or neither text nor a list").with_param("input");
    // A provider's own is told with the rest of what this wire alone knows.
    let folded = history::fold(input.ok_or_else(wrong)?, Foreign::Stays)?;
    let mut reader = ItemReader::default();
    match serde_json::from_str(&folded.input) {
        Ok(Value::String(text)) => reader.user_text(text),
        Ok(Value::Array(items)) => reader.items(items)?,
        _ => return Err(wrong()),
    }
    reader.finish(conversation);
    conversation.dropped.extend(folded.dropped);
    Ok(())
}

fn read_tools(body: &mut Map<String, Value>, run: &Run, conversation: &mut Conversation) -> Result<(), Problem> {
    for (param, mut tool) in take_own(body, run)? {
        let kind = take_text(&mut tool, "type").unwrap_or_default();
        if kind != "function" {
            conversation.dropped.insert(format!("{param}.type={kind}"));
            continue;
        }
        let Some(name) = take_text(&mut tool, "name") else {
            return Err(Problem::invalid(format!("`{param}.name` is missing")).with_param(param));
        };
        let schema = schema_or_empty(tool.remove("parameters"));
        let strict = tool.remove("strict").as_ref().and_then(Value::as_bool);
        let description = take_text(&mut tool, "description");
        conversation.functions.push(Function { name, description, schema, strict });
    }
    Ok(())
}

fn read_choice(body: &mut Map<String, Value>, run: &Run, conversation: &mut Conversation) -> Result<(), Problem> {
    let Some(choice) = body.remove("tool_choice").filter(|choice| !choice.is_null()) else { return Ok(()) };
    conversation.choice = Some(match &choice {
        Value::String(text) => plain_choice(text, "tool_choice")?,
        Value::Object(object) if super::word(object, "type") == Some("allowed_tools") => {
            narrow(object, run, conversation)?
        }
        _ => named_choice(&choice, "tool_choice", run, &names(conversation))?,
    });
    Ok(())
}

fn plain_choice(text: &str, param: &str) -> Result<Choice, Problem> {
    match text {
        "auto" => Ok(Choice::Auto),
        "required" => Ok(Choice::Any),
        "none" => Ok(Choice::None),
        _ => Err(Problem::invalid(format!("`{param}` must be auto, required, none or an object")).with_param(param)),
    }
}

fn names(conversation: &Conversation) -> Vec<String> {
    conversation.functions.iter().map(|function| function.name.clone()).collect()
}

fn named_choice(choice: &Value, param: &str, run: &Run, names: &[String]) -> Result<Choice, Problem> {
    if is_claimed(choice, run, names) {
        return Ok(Choice::Code);
    }
    let word = |name: &str| choice.get(name).and_then(Value::as_str);
    match (word("type"), word("name")) {
        (Some("function"), Some(name)) if names.iter().any(|known| known == name) => {
            Ok(Choice::Function(name.to_owned()))
        }
        (kind, name) => {
            let wanted = name.or(kind).unwrap_or_default();
            let message = format!("`{param}` names `{wanted}`, which is no tool that this model can be given");
            Err(Problem::invalid(message).with_param(param))
        }
    }
}

/// An allow-list narrows the functions that the model is given.
fn narrow(choice: &Map<String, Value>, run: &Run, conversation: &mut Conversation) -> Result<Choice, Problem> {
    let entries = choice.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut code = false;
    let mut allowed = HashSet::new();
    let names = names(conversation);
    for (position, entry) in entries.iter().enumerate() {
        match named_choice(entry, &format!("tool_choice.tools[{position}]"), run, &names)? {
            Choice::Function(name) => {
                allowed.insert(name);
            }
            _ => code = true,
        }
    }
    if !code {
        let message = "`tool_choice.tools` leaves out the code tool: leave it out of `tools` as well";
        return Err(Problem::invalid(message).with_param("tool_choice.tools"));
    }
    conversation.functions.retain(|function| allowed.contains(&function.name));
    plain_choice(super::word(choice, "mode").unwrap_or("auto"), "tool_choice.mode")
}

fn read_settings(body: &mut Map<String, Value>, conversation: &mut Conversation) -> Result<(), Problem> {
    conversation.stream = body.remove("stream").as_ref().and_then(Value::as_bool).unwrap_or(false);
    conversation.max_tokens = take_count(body, "max_output_tokens")?;
    conversation.temperature = take_number(body, "temperature")?;
    conversation.top_p = take_number(body, "top_p")?;
    conversation.parallel_calls = body.remove("parallel_tool_calls").as_ref().and_then(Value::as_bool);
    let (user, safety) = (take_text(body, "user"), take_text(body, "safety_identifier"));
    conversation.user = safety.or(user);
    if body.get("store") == Some(&Value::Bool(false)) {
        body.remove("store");
    }
    if body.get("truncation").and_then(Value::as_str) == Some("disabled") {
        body.remove("truncation");
    }
    read_reasoning(body, conversation);
    read_format(body, conversation);
    if let Some(Value::Array(include)) = body.remove("include") {
        let unmet = include.iter().filter_map(Value::as_str).filter(|value| *value != FOLLOWED);
        conversation.dropped.extend(unmet.map(|value| format!("include={value}")));
    }
    Ok(())
}

fn read_reasoning(body: &mut Map<String, Value>, conversation: &mut Conversation) {
    let Some(Value::Object(mut reasoning)) = body.remove("reasoning") else { return };
    conversation.reasoning_effort = take_text(&mut reasoning, "effort").map(|effort| ("reasoning.effort", effort));
    let wish = |reasoning: &mut Map<String, Value>, name: &str| reasoning.remove(name).filter(|value| !value.is_null());
    let (summary, old_name) = (wish(&mut reasoning, "summary"), wish(&mut reasoning, "generate_summary"));
    conversation.show.reasoning = summary.or(old_name).is_some();
    let rest = reasoning.into_iter().filter(|(_, value)| !value.is_null());
    conversation.dropped.extend(rest.map(|(name, _)| format!("reasoning.{name}")));
}

fn read_format(body: &mut Map<String, Value>, conversation: &mut Conversation) {
    let Some(Value::Object(mut text)) = body.remove("text") else { return };
    if let Some(Value::Object(mut format)) = text.remove("format") {
        match (super::word(&format, "type"), format.contains_key("schema")) {
            (Some("json_schema"), true) => conversation.answer_schema = AnswerSchema::take(&mut format),
            (Some("text"), _) => {}
            (kind, _) => {
                conversation.dropped.insert(format!("text.format={}", kind.unwrap_or_default()));
            }
        }
    }
    let rest = text.into_iter().filter(|(_, value)| !value.is_null());
    conversation.dropped.extend(rest.map(|(name, _)| format!("text.{name}")));
}

#[cfg(test)]
mod tests;
