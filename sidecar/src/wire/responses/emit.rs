//! A neutral request as a Responses request to the model.
//!
//! INVARIANT: the provider is asked to keep nothing; the whole history stands in every call.

use decision::decide::Run;
use serde_json::{Map, Value, json};

use super::tools::Words;
use crate::wire::conversation::{Conversation, Message, Part};
use crate::wire::json::{push_json, push_name};
use crate::wire::model_request::{CallerSettings, ModelRequest, Prepared};
use crate::wire::tools::Tools;

/// Writes the request. `upstream_model` replaces the model's name.
pub fn emit(mut conversation: Conversation, run: &Run, upstream_model: Option<&str>) -> Prepared {
    let tools = Tools::of::<Words>(&conversation, run, &Value::Null);
    let mut request = ModelRequest { history_name: "input", ..ModelRequest::default() };
    if !conversation.stop.is_empty() {
        // This wire has no such thing.
        conversation.dropped.insert("stop_sequences".to_owned());
    }
    let hint = tools.functions.hint(run);
    let system: Vec<String> = hint.into_iter().chain(conversation.system.take()).collect();
    for (name, value) in &fields(&conversation, upstream_model, &system) {
        push_name(&mut request.fields, name);
        push_json(&mut request.fields, value);
    }
    tools.write::<Words>(&mut request);
    for message in conversation.messages {
        append_message(&mut request, message);
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

fn fields(conversation: &Conversation, upstream_model: Option<&str>, system: &[String]) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    put("model", Some(upstream_model.unwrap_or(&conversation.model).into()));
    put("instructions", (!system.is_empty()).then(|| system.join("\n\n").into()));
    put("max_output_tokens", conversation.max_tokens.map(Value::from));
    put("temperature", conversation.temperature.clone().map(Value::Number));
    put("top_p", conversation.top_p.clone().map(Value::Number));
    put("user", conversation.user.as_deref().map(Value::from));
    put("parallel_tool_calls", conversation.parallel_calls.map(Value::from));
    let format = conversation.answer_schema.as_ref().map(|schema| {
        let mut format = Map::from_iter([("type".to_owned(), "json_schema".into())]);
        format.extend(schema.members());
        format
    });
    put("text", format.map(|format| json!({"format": format})));
    let effort = conversation.reasoning_effort.as_ref().map(|(_, effort)| effort.as_str());
    if conversation.show.reasoning || effort.is_some() {
        let summary = conversation.show.reasoning.then_some(("summary", "auto"));
        let reasoning: Map<String, Value> = effort
            .map(|effort| ("effort", effort))
            .into_iter()
            .chain(summary)
            .map(|(name, word)| (name.to_owned(), word.into()))
            .collect();
        put("reasoning", Some(reasoning.into()));
        // Who keeps nothing gets the model's thinking sealed, and gives it back with the next call.
        put("include", Some(json!(["reasoning.encrypted_content"])));
    }
    put("store", Some(false.into()));
    put("stream", conversation.stream.then_some(true.into()));
    fields
}

fn append_message(request: &mut ModelRequest, message: Message) {
    let mut append = |entry: Value| {
        let mut json = Vec::new();
        push_json(&mut json, &entry);
        request.append(&json);
    };
    match message {
        Message::User(parts) => append(json!({"role": "user", "content": user_content(parts)})),
        Message::System(text) => append(json!({"role": "developer", "content": text})),
        Message::Result { call_id, text } => {
            append(json!({"type": "function_call_output", "call_id": call_id, "output": text}));
        }
        Message::Assistant { text, calls } => {
            if !text.is_empty() {
                append(json!({"role": "assistant", "content": text}));
            }
            for call in calls {
                append(json!({
                    "type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments,
                }));
            }
        }
    }
}

/// Plain text wherever it is nothing but one text.
fn user_content(parts: Vec<Part>) -> Value {
    if let [Part::Text(text)] = parts.as_slice() {
        return text.as_str().into();
    }
    parts
        .into_iter()
        .map(|part| match part {
            Part::Text(text) => json!({"type": "input_text", "text": text}),
            Part::Image { url, detail } => {
                json!({"type": "input_image", "detail": detail.as_deref().unwrap_or("auto"), "image_url": url})
            }
            Part::Pdf { name, data } => json!({"type": "input_file", "filename": name, "file_data": data}),
        })
        .collect()
}

#[cfg(test)]
mod tests;
