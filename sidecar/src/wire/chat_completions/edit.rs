//! A caller's Chat Completions request turned into one to the model: edited, not rebuilt.
//!
//! INVARIANT: members and history the gateway has no business with leave as the bytes they came in.

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::members;
use super::tools::{self, Words};
use crate::wire::json::{Fields, inside_array, push_json, push_name, replaced};
use crate::wire::model_request::{CallerSettings, GATEWAY_FIELDS, ModelRequest, Prepared};

/// Edits a request for a run here. `upstream_model` replaces the model's name.
pub fn edit(body: &[u8], run: &Run, upstream_model: Option<&str>) -> Result<Prepared, Problem> {
    let mut fields: Fields<'_> =
        serde_json::from_slice(body).map_err(|_| Problem::invalid("the body is not a JSON object"))?;
    members::check_servable(&fields)?;
    let show = members::read_show(&mut fields)?;
    let tools = tools::read(&mut fields, run)?;
    let mut request = ModelRequest { history_name: "messages", ..ModelRequest::default() };
    let messages =
        fields.take("messages").ok_or_else(|| Problem::invalid("`messages` is missing").with_param("messages"))?;
    let hint = tools.functions.hint(run);
    request.history = history(messages, hint.as_deref())
        .ok_or_else(|| Problem::invalid("`messages` is not a list").with_param("messages"))?;
    tools.write::<Words>(&mut request);
    let model: String = fields.read("model").unwrap_or_default();
    let streamed = fields.read("stream").unwrap_or(false);
    let options = fields.take("stream_options");
    for (name, value) in &fields.0 {
        if GATEWAY_FIELDS.contains(&&**name) {
            continue;
        }
        push_name(&mut request.fields, name);
        match upstream_model {
            Some(upstream) if name == "model" => push_json(&mut request.fields, upstream),
            _ => request.fields.extend_from_slice(value.get().as_bytes()),
        }
    }
    push_options(&mut request.fields, options, streamed);
    let functions = tools.functions;
    Ok(Prepared { request, functions, model, show, dropped: Vec::new(), caller: CallerSettings::default() })
}

/// The stream's options. The usage is always asked for: the client's sum needs that of every turn.
fn push_options(out: &mut Vec<u8>, options: Option<&RawValue>, streamed: bool) {
    if !streamed {
        if let Some(options) = options {
            push_name(out, "stream_options");
            out.extend_from_slice(options.get().as_bytes());
        }
        return;
    }
    let known = options.and_then(|options| serde_json::from_str::<Map<String, Value>>(options.get()).ok());
    let mut options = known.unwrap_or_default();
    options.insert("include_usage".to_owned(), true.into());
    push_name(out, "stream_options");
    push_json(out, &options);
}

/// The messages, with the hint at the end of the first system message, or in one of its own in front.
fn history(messages: &RawValue, hint: Option<&str>) -> Option<Vec<u8>> {
    let text = messages.get();
    let entries = inside_array(text)?;
    let Some(hint) = hint else { return Some(entries.as_bytes().to_vec()) };
    let list: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    let hinted = list.iter().find_map(|message| Some((*message, with_hint(message, hint)?)));
    if let Some((message, edited)) = hinted {
        return replaced(entries.as_bytes(), message.get(), &edited);
    }
    let mut history = Vec::new();
    push_json(&mut history, &json!({"role": "system", "content": hint}));
    if !entries.is_empty() {
        history.push(b',');
        history.extend_from_slice(entries.as_bytes());
    }
    Some(history)
}

/// A system message with the hint behind its text; `None` for any other message.
fn with_hint(message: &RawValue, hint: &str) -> Option<Vec<u8>> {
    let fields: Fields<'_> = serde_json::from_str(message.get()).ok()?;
    if !matches!(fields.read::<String>("role").as_deref(), Some("system" | "developer")) {
        return None;
    }
    let content = fields.get("content")?.get();
    let mut edited = Vec::new();
    if let Some(parts) = inside_array(content) {
        edited.push(b'[');
        edited.extend_from_slice(parts.as_bytes());
        if !parts.is_empty() {
            edited.push(b',');
        }
        push_json(&mut edited, &json!({"type": "text", "text": hint}));
        edited.push(b']');
    } else {
        let text: String = serde_json::from_str(content).ok()?;
        push_json(&mut edited, &format!("{text}\n\n{hint}"));
    }
    replaced(message.get().as_bytes(), content, &edited)
}

#[cfg(test)]
mod tests;
