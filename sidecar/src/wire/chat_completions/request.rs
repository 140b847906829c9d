//! A neutral request as a Chat Completions request to the model.

use decision::decide::Run;
use serde_json::{Map, Value, json};

use crate::wire::code_tool;
use crate::wire::conversation::{Choice, Conversation, Function, Message, Part};
use crate::wire::json::{push_json, push_name};
use crate::wire::model_request::{CallerSettings, ModelRequest, Prepared};

/// Writes the request. `upstream_model` replaces the model's name.
pub fn emit(conversation: Conversation, run: &Run, upstream_model: Option<&str>) -> Prepared {
    let tool_name = code_tool::free_name(conversation.functions.iter().map(|function| function.name.as_str()));
    let mut request = ModelRequest { history_name: "messages", ..ModelRequest::default() };
    let model = upstream_model.unwrap_or(&conversation.model);
    request.fields = fields(&conversation, model);
    write_tools(&conversation, &tool_name, &mut request);
    let hint = code_tool::hint_text(run, &tool_name);
    let system: Vec<String> = hint.into_iter().chain(conversation.system).collect();
    if !system.is_empty() {
        append(&mut request, &json!({"role": "system", "content": system.join("\n\n")}));
    }
    for message in conversation.messages {
        append(&mut request, &message_entry(message));
    }
    Prepared {
        request,
        tool_name,
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
    if let Some(effort) = &conversation.reasoning_effort {
        fields.insert("reasoning_effort".to_owned(), effort.as_str().into());
    }
    if let Some(schema) = &conversation.answer_schema {
        let format = json!({"name": "answer", "schema": schema, "strict": true});
        fields.insert("response_format".to_owned(), json!({"type": "json_schema", "json_schema": format}));
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

fn write_tools(conversation: &Conversation, tool_name: &str, request: &mut ModelRequest) {
    let own: Vec<Value> = conversation.functions.iter().map(function_entry).collect();
    let ours = code_tool::chat_function(tool_name);
    let all: Vec<Value> = own.iter().cloned().chain([ours]).collect();
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let choice = conversation.choice.as_ref().map(|choice| match choice {
        Choice::Auto => json!("auto"),
        Choice::Any => json!("required"),
        Choice::None => json!("none"),
        Choice::Function(name) => named(name),
        Choice::Code => named(tool_name),
    });
    let later = match conversation.choice {
        Some(Choice::Any | Choice::Code) => Some(json!("auto")),
        _ => choice.clone(),
    };
    let members = |tools: &[Value], choice| tool_members(tools, choice, conversation.parallel_calls);
    request.tools_first = members(&all, choice.as_ref());
    request.tools_later = members(&all, later.as_ref());
    // Not every server heeds `tool_choice: none`, so the tool itself goes.
    request.tools_closing = if own.is_empty() { Vec::new() } else { members(&own, later.as_ref()) };
}

/// With the parallel flag, which providers refuse beside no tools.
fn tool_members(tools: &[Value], choice: Option<&Value>, parallel: Option<bool>) -> Vec<u8> {
    let mut out = Vec::new();
    push_name(&mut out, "tools");
    push_json(&mut out, tools);
    if let Some(choice) = choice {
        push_name(&mut out, "tool_choice");
        push_json(&mut out, choice);
    }
    if let Some(parallel) = parallel {
        push_name(&mut out, "parallel_tool_calls");
        push_json(&mut out, &parallel);
    }
    out
}

fn function_entry(function: &Function) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), function.name.as_str().into());
    if let Some(description) = &function.description {
        entry.insert("description".to_owned(), description.as_str().into());
    }
    entry.insert("parameters".to_owned(), function.schema.clone().into());
    if let Some(strict) = function.strict {
        entry.insert("strict".to_owned(), strict.into());
    }
    json!({"type": "function", "function": entry})
}

fn message_entry(message: Message) -> Value {
    match message {
        Message::User(parts) => json!({"role": "user", "content": user_content(parts)}),
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
            Part::Image(_) | Part::Pdf { .. } => None,
        })
        .collect();
    if let Some(texts) = texts {
        return texts.join("\n\n").into();
    }
    parts
        .into_iter()
        .map(|part| match part {
            Part::Text(text) => json!({"type": "text", "text": text}),
            Part::Image(url) => json!({"type": "image_url", "image_url": {"url": url}}),
            Part::Pdf { name, data } => json!({"type": "file", "file": {"filename": name, "file_data": data}}),
        })
        .collect()
}
