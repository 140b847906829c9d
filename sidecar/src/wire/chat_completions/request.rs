//! A neutral request as a Chat Completions request to the model.

use decision::decide::Run;
use serde_json::{Map, Value, json};

use super::tools::{Words, parallel};
use crate::wire::conversation::{Conversation, Message, Part};
use crate::wire::json::{push_json, push_name};
use crate::wire::model_request::{CallerSettings, ModelRequest, Prepared};
use crate::wire::tools::Tools;

/// Writes the request. `upstream_model` replaces the model's name.
pub fn emit(conversation: Conversation, run: &Run, upstream_model: Option<&str>) -> Prepared {
    let mut tools = Tools::of::<Words>(&conversation, run, &Value::Null);
    tools.beside = conversation.parallel_calls.as_ref().map(parallel).unwrap_or_default();
    let mut request = ModelRequest { history_name: "messages", ..ModelRequest::default() };
    let model = upstream_model.unwrap_or(&conversation.model);
    request.fields = fields(&conversation, model);
    tools.write::<Words>(&mut request);
    let hint = tools.functions.hint(run);
    let system: Vec<String> = hint.into_iter().chain(conversation.system).collect();
    if !system.is_empty() {
        append(&mut request, &json!({"role": "system", "content": system.join("\n\n")}));
    }
    for message in conversation.messages {
        append(&mut request, &message_entry(message));
    }
    Prepared {
        request,
        functions: tools.functions,
        model: conversation.model,
        show: conversation.show,
        dropped: conversation.dropped.into_iter().collect(),
        caller: CallerSettings::default(),
    }
}

fn append(request: &mut ModelRequest, entry: &Value) {
    let mut json = Vec::new();
    push_json(&mut json, entry);
    request.append(&json);
}

fn fields(conversation: &Conversation, model: &str) -> Vec<u8> {
    let mut fields = Map::new();
    fields.insert("model".to_owned(), model.into());
    if let Some(tokens) = conversation.max_tokens {
        fields.insert(max_tokens_field(model).to_owned(), tokens.into());
    }
    let numbers = [("temperature", &conversation.temperature), ("top_p", &conversation.top_p)];
    for (name, number) in numbers {
        if let Some(number) = number {
            fields.insert(name.to_owned(), Value::Number(number.clone()));
        }
    }
    if !conversation.stop.is_empty() {
        fields.insert("stop".to_owned(), conversation.stop.clone().into());
    }
    if let Some(user) = &conversation.user {
        fields.insert("user".to_owned(), user.as_str().into());
    }
    if let Some((_, effort)) = &conversation.reasoning_effort {
        fields.insert("reasoning_effort".to_owned(), effort.as_str().into());
    }
    if let Some(schema) = &conversation.answer_schema {
        let format = json!({"type": "json_schema", "json_schema": schema.members()});
        fields.insert("response_format".to_owned(), format);
    }
    if conversation.stream {
        fields.insert("stream".to_owned(), true.into());
        fields.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    let mut out = Vec::new();
    for (name, value) in &fields {
        push_name(&mut out, name);
        push_json(&mut out, value);
    }
    out
}

/// `max_tokens` is what every compatible server reads (Ollama and older vLLM and llama.cpp read nothing else). OpenAI's
/// own models alone want `max_completion_tokens`, and refuse the old name where they reason.
fn max_tokens_field(model: &str) -> &'static str {
    let name = model.rsplit(['/', ':']).next().unwrap_or(model);
    let mut letters = name.chars();
    let is_o_series = letters.next() == Some('o') && letters.next().is_some_and(|second| second.is_ascii_digit());
    let is_hosted_gpt = name.starts_with("gpt-") && !name.starts_with("gpt-oss");
    if is_o_series || is_hosted_gpt { "max_completion_tokens" } else { "max_tokens" }
}

fn message_entry(message: Message) -> Value {
    match message {
        Message::User(parts) => json!({"role": "user", "content": user_content(parts)}),
        Message::System(text) => json!({"role": "system", "content": text}),
        Message::Result { call_id, text } => json!({"role": "tool", "tool_call_id": call_id, "content": text}),
        Message::Assistant { text, calls } if calls.is_empty() => json!({"role": "assistant", "content": text}),
        Message::Assistant { text, calls } => {
            let calls: Vec<Value> = calls
                .into_iter()
                .map(|call| {
                    let function = json!({"name": call.name, "arguments": call.arguments});
                    json!({"id": call.id, "type": "function", "function": function})
                })
                .collect();
            let text = if text.is_empty() { Value::Null } else { text.into() };
            json!({"role": "assistant", "content": text, "tool_calls": calls})
        }
    }
}

/// Plain text wherever it is nothing but text: many compatible servers know no list.
fn user_content(parts: Vec<Part>) -> Value {
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Image { .. } | Part::Pdf { .. } => None,
        })
        .collect();
    if let Some(texts) = texts {
        return texts.join("\n\n").into();
    }
    parts
        .into_iter()
        .map(|part| match part {
            Part::Text(text) => json!({"type": "text", "text": text}),
            Part::Image { url, detail: None } => json!({"type": "image_url", "image_url": {"url": url}}),
            Part::Image { url, detail } => json!({"type": "image_url", "image_url": {"url": url, "detail": detail}}),
            Part::Pdf { name, data } => json!({"type": "file", "file": {"filename": name, "file_data": data}}),
        })
        .collect()
}
