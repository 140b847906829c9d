//! A neutral request as a Messages request to the model.
//!
//! INVARIANT: user and assistant alternate; what this wire has no word for is named in `dropped`.

use decision::decide::Run;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::tools::{SERIAL, Words};
use crate::wire::conversation::{AnswerSchema, Call, Choice, Conversation, Message, Part};
use crate::wire::json::{push_json, push_name};
use crate::wire::model_request::{CallerSettings, ModelRequest, Prepared};
use crate::wire::tools::Tools;

/// Most tokens of an answer whose caller named no limit: this wire demands one, and every current model takes this.
const DEFAULT_MAX_TOKENS: u64 = 8192;
/// So much of a digest keeps the calls of one conversation apart.
const DIGEST_BYTES: usize = 6;
/// Highest temperature of this wire.
const MAX_TEMPERATURE: f64 = 1.0;

/// Writes the request. `upstream_model` replaces the model's name.
pub fn emit(mut conversation: Conversation, run: &Run, upstream_model: Option<&str>) -> Prepared {
    let serial = conversation.parallel_calls == Some(false);
    if serial && conversation.choice.is_none() {
        // What forbids parallel calls stands in a choice, and a choice needs a type.
        conversation.choice = Some(Choice::Auto);
    }
    let asked = if serial { json!({SERIAL: true}) } else { Value::Null };
    let tools = Tools::of::<Words>(&conversation, run, &asked);
    let mut request = ModelRequest { history_name: "messages", ..ModelRequest::default() };
    let hint = tools.functions.hint(run);
    let mut system: Vec<String> = hint.into_iter().chain(conversation.system.take()).collect();
    system.extend(hoist(&mut conversation));
    let model = upstream_model.unwrap_or(&conversation.model).to_owned();
    request.fields = fields(&mut conversation, &model, &system);
    tools.write::<Words>(&mut request);
    for (role, blocks) in turns(conversation.messages) {
        let mut entry = Vec::new();
        push_json(&mut entry, &json!({"role": role, "content": blocks}));
        request.append(&entry);
    }
    if let Some((param, _)) = conversation.reasoning_effort.take() {
        // A thinking budget is refused by every model that cannot think.
        conversation.dropped.insert(param.to_owned());
    }
    Prepared {
        caller: CallerSettings::default(),
        request,
        functions: tools.functions,
        model: conversation.model,
        show: conversation.show,
        dropped: conversation.dropped.into_iter().collect(),
    }
}

fn fields(conversation: &mut Conversation, model: &str, system: &[String]) -> Vec<u8> {
    let mut fields = Map::new();
    fields.insert("model".to_owned(), model.into());
    fields.insert("max_tokens".to_owned(), conversation.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS).into());
    if !system.is_empty() {
        fields.insert("system".to_owned(), system.join("\n\n").into());
    }
    if let Some(temperature) = &conversation.temperature {
        let is_higher = temperature.as_f64().is_some_and(|temperature| temperature > MAX_TEMPERATURE);
        let carried = if is_higher { MAX_TEMPERATURE.into() } else { Value::Number(temperature.clone()) };
        fields.insert("temperature".to_owned(), carried);
        if is_higher {
            conversation.dropped.insert(format!("temperature>{MAX_TEMPERATURE}"));
        }
    }
    if let Some(top_p) = &conversation.top_p {
        fields.insert("top_p".to_owned(), Value::Number(top_p.clone()));
    }
    if !conversation.stop.is_empty() {
        fields.insert("stop_sequences".to_owned(), conversation.stop.clone().into());
    }
    if let Some(user) = &conversation.user {
        fields.insert("metadata".to_owned(), json!({"user_id": user}));
    }
    if let Some(AnswerSchema { schema, .. }) = &conversation.answer_schema {
        fields.insert("output_config".to_owned(), json!({"format": {"type": "json_schema", "schema": schema}}));
    }
    if conversation.stream {
        fields.insert("stream".to_owned(), true.into());
    }
    let mut out = Vec::new();
    for (name, value) in &fields {
        push_name(&mut out, name);
        push_json(&mut out, value);
    }
    out
}

/// Takes out what this wire has no place for: words of the system in mid-conversation, which go to the others, and how
/// closely a picture is to be looked at. Both are named.
fn hoist(conversation: &mut Conversation) -> Vec<String> {
    let mut moved = Vec::new();
    let mut detailed = false;
    conversation.messages.retain_mut(|message| match message {
        Message::System(text) => {
            moved.push(std::mem::take(text));
            false
        }
        Message::User(parts) => {
            let asks = |part: &Part| matches!(part, Part::Image { detail: Some(detail), .. } if detail != "auto");
            detailed |= parts.iter().any(asks);
            true
        }
        Message::Assistant { .. } | Message::Result { .. } => true,
    });
    conversation.dropped.extend(detailed.then(|| "image.detail".to_owned()));
    conversation.dropped.extend((!moved.is_empty()).then(|| "place of a system message".to_owned()));
    moved
}

/// The history with neighbours of one role made one message. Empty texts go: providers refuse them.
fn turns(messages: Vec<Message>) -> Vec<(&'static str, Vec<Value>)> {
    let mut turns: Vec<(&'static str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message {
            Message::User(parts) => ("user", parts.into_iter().filter_map(part).collect()),
            Message::Result { call_id, text } => {
                ("user", vec![json!({"type": "tool_result", "tool_use_id": id_of_call(&call_id), "content": text})])
            }
            // It stands in `system` by now.
            Message::System(_) => continue,
            Message::Assistant { text, calls } => {
                ("assistant", part(Part::Text(text)).into_iter().chain(calls.into_iter().map(call)).collect::<Vec<_>>())
            }
        };
        match turns.last_mut() {
            Some((known, all)) if *known == role => all.extend(blocks),
            _ if blocks.is_empty() => {}
            _ => turns.push((role, blocks)),
        }
    }
    turns
}

fn part(part: Part) -> Option<Value> {
    Some(match part {
        Part::Text(text) if text.is_empty() => return None,
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image { url, detail: _ } => json!({"type": "image", "source": source(&url)}),
        Part::Pdf { name, data } => json!({"type": "document", "source": source(&data), "title": name}),
    })
}

fn source(url: &str) -> Value {
    match url.strip_prefix("data:").and_then(|data| data.split_once(";base64,")) {
        Some((media_type, data)) => json!({"type": "base64", "media_type": media_type, "data": data}),
        None => json!({"type": "url", "url": url}),
    }
}

/// Input must be an object here; a text that is none, which only a model that erred can have written, stands in one.
fn call(call: Call) -> Value {
    let Call { id, name, arguments } = call;
    let input = match serde_json::from_str::<Map<String, Value>>(&arguments) {
        Ok(input) => input,
        Err(_) if arguments.trim().is_empty() => Map::new(),
        Err(_) => Map::from_iter([("arguments".to_owned(), arguments.into())]),
    };
    json!({"type": "tool_use", "id": id_of_call(&id), "name": name, "input": input})
}

/// A call's id as this wire takes one. Other providers write other characters too: those are replaced, the same way
/// wherever the id stands, and a digest keeps two ids apart that then look alike.
fn id_of_call(id: &str) -> String {
    let fits = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    if !id.is_empty() && id.chars().all(|letter| fits(&letter)) {
        return id.to_owned();
    }
    let kept: String = id.chars().map(|letter| if fits(&letter) { letter } else { '_' }).collect();
    let digest =
        Sha256::digest(id).into_iter().take(DIGEST_BYTES).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    format!("{kept}_{digest}")
}

#[cfg(test)]
mod tests;
