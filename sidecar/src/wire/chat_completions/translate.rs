//! A Chat Completions request in neutral words, for a model that speaks another wire.
//!
//! INVARIANT: a part that the model would miss is refused by name; one that only tunes the answer is named in `dropped`.

mod content;

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::{Map, Value};

use self::content::ContentReader;
use super::members;
use crate::wire::conversation::{AnswerSchema, Choice, Conversation, Function};
use crate::wire::json::{Fields, take_count, take_number, take_text};
use crate::wire::model_request::GATEWAY_FIELDS;
use crate::wire::tools::{schema_or_empty, take_own};

/// Members that mean nothing outside this wire, or nothing that shows.
const SILENT: &[&str] = &["prompt_cache_key", "prompt_cache_retention", "service_tier", "stream_options"];

/// Members that ask for something another wire's answer cannot hold.
const REFUSED: &[&str] = &["audio", "logprobs", "top_logprobs", "web_search_options"];

/// Reads a request. The claimed code tools are left out; a choice that names one of them becomes [`Choice::Code`].
pub fn parse(body: &[u8], run: &Run) -> Result<Conversation, Problem> {
    let not_an_object = |_| Problem::invalid("the body is not a JSON object");
    let mut fields: Fields<'_> = serde_json::from_slice(body).map_err(not_an_object)?;
    members::check_servable(&fields)?;
    let show = members::read_show(&mut fields)?;
    let mut body = fields.into_map().map_err(not_an_object)?;
    let model = take_text(&mut body, "model").unwrap_or_default();
    let mut conversation = Conversation { model, show, ..Conversation::default() };
    let Some(Value::Array(messages)) = body.remove("messages") else {
        return Err(Problem::invalid("`messages` is missing, or no list").with_param("messages"));
    };
    let mut reader = ContentReader::default();
    conversation.messages = reader.messages(messages)?;
    conversation.system = Some(reader.system.join("\n\n")).filter(|system| !system.is_empty());
    conversation.dropped = reader.dropped;
    read_tools(&mut body, run, &mut conversation)?;
    read_choice(&mut body, run, &mut conversation)?;
    read_settings(&mut body, &mut conversation)?;
    for (name, value) in body {
        let is_off = value.is_null() || value == false || value == 0;
        if REFUSED.contains(&&*name) && !is_off || name == "modalities" && asks_for_sound(&value) {
            let message = format!("`{name}` cannot be carried to this model, which speaks another API: leave it out");
            return Err(Problem::invalid(message).with_param(name));
        }
        let is_silent =
            GATEWAY_FIELDS.contains(&&*name) || SILENT.contains(&&*name) || name == "modalities" || name == "n";
        if !is_silent && !is_off {
            conversation.dropped.insert(name);
        }
    }
    Ok(conversation)
}

fn asks_for_sound(modalities: &Value) -> bool {
    modalities.as_array().into_iter().flatten().any(|one| one == "audio")
}

fn read_tools(body: &mut Map<String, Value>, run: &Run, conversation: &mut Conversation) -> Result<(), Problem> {
    for (param, mut tool) in take_own(body, run)? {
        match take_text(&mut tool, "type").as_deref() {
            None | Some("function") => {}
            Some(kind) => {
                conversation.dropped.insert(format!("{param}.type={kind}"));
                continue;
            }
        }
        let Some(Value::Object(mut function)) = tool.remove("function") else {
            return Err(Problem::invalid(format!("`{param}.function` is missing")).with_param(param));
        };
        let Some(name) = take_text(&mut function, "name") else {
            return Err(Problem::invalid(format!("`{param}.function.name` is missing")).with_param(param));
        };
        let schema = schema_or_empty(function.remove("parameters"));
        let strict = function.remove("strict").as_ref().and_then(Value::as_bool);
        let description = take_text(&mut function, "description");
        conversation.functions.push(Function { name, description, schema, strict });
    }
    Ok(())
}

fn read_choice(body: &mut Map<String, Value>, run: &Run, conversation: &mut Conversation) -> Result<(), Problem> {
    conversation.parallel_calls = body.remove("parallel_tool_calls").as_ref().and_then(Value::as_bool);
    let Some(choice) = body.remove("tool_choice").filter(|choice| !choice.is_null()) else { return Ok(()) };
    conversation.choice = Some(match choice.as_str() {
        Some("auto") => Choice::Auto,
        Some("required") => Choice::Any,
        Some("none") => Choice::None,
        _ if choice.get("allowed_tools").is_some() => read_allowed(&choice, run, conversation)?,
        _ => named(&choice, run, conversation).ok_or_else(|| unknown(&choice, "tool_choice"))?,
    });
    Ok(())
}

/// The tool that a choice, or an entry of an allow-list, names.
fn named(one: &Value, run: &Run, conversation: &Conversation) -> Option<Choice> {
    let name = one.pointer("/function/name").or_else(|| one.get("name")).and_then(Value::as_str);
    let own = name.filter(|name| conversation.functions.iter().any(|function| function.name == *name));
    if let Some(name) = own {
        return Some(Choice::Function(name.to_owned()));
    }
    let kind = one.as_str().or_else(|| one.get("type")?.as_str());
    run.claims(kind, name).then_some(Choice::Code)
}

/// Another wire has no allow-list, so the functions that are not on it are not given to the model.
fn read_allowed(choice: &Value, run: &Run, conversation: &mut Conversation) -> Result<Choice, Problem> {
    const PARAM: &str = "tool_choice.allowed_tools.tools";
    let list = choice.pointer("/allowed_tools/tools").and_then(Value::as_array);
    let list = list.ok_or_else(|| Problem::invalid(format!("`{PARAM}` is not a list")).with_param(PARAM))?;
    let mut allowed = Vec::new();
    let mut code = false;
    for entry in list {
        match named(entry, run, conversation) {
            Some(Choice::Function(name)) => allowed.push(name),
            Some(_) => code = true,
            None => return Err(unknown(entry, PARAM)),
        }
    }
    if !code {
        let message = format!(
            "`{PARAM}` leaves out the code tool, which cannot be carried to this model: leave the tool out of `tools`, \
             or allow it"
        );
        return Err(Problem::invalid(message).with_param(PARAM));
    }
    conversation.functions.retain(|function| allowed.contains(&function.name));
    let forced = choice.pointer("/allowed_tools/mode").and_then(Value::as_str) == Some("required");
    Ok(if forced { Choice::Any } else { Choice::Auto })
}

fn unknown(choice: &Value, param: &str) -> Problem {
    Problem::invalid(format!("`{param}` names {choice}, which is no tool that this model can be given"))
        .with_param(param)
}

fn read_settings(body: &mut Map<String, Value>, conversation: &mut Conversation) -> Result<(), Problem> {
    conversation.stream = body.remove("stream").as_ref().and_then(Value::as_bool).unwrap_or(false);
    let (newer, older) = (take_count(body, "max_completion_tokens")?, take_count(body, "max_tokens")?);
    conversation.max_tokens = newer.or(older);
    conversation.temperature = take_number(body, "temperature")?;
    conversation.top_p = take_number(body, "top_p")?;
    conversation.stop = match body.remove("stop") {
        Some(Value::String(stop)) => vec![stop],
        Some(Value::Array(stop)) => stop.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let (safety, user) = (take_text(body, "safety_identifier"), take_text(body, "user"));
    // The newer name of the two.
    conversation.user = safety.or(user);
    conversation.reasoning_effort = take_text(body, "reasoning_effort").map(|effort| ("reasoning_effort", effort));
    // `json_object` demands that the prompt ask for JSON too, so it stays, to be named among what was dropped.
    if let Some(mut format) = body.remove("response_format") {
        let kind = format.get("type").and_then(Value::as_str).unwrap_or_default();
        let is_text = kind == "text";
        let schema = format.get_mut("json_schema").and_then(Value::as_object_mut);
        conversation.answer_schema = schema.and_then(AnswerSchema::take);
        if conversation.answer_schema.is_none() && !is_text {
            body.insert("response_format".to_owned(), format);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
