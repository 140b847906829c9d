//! The messages of a Chat Completions request, one by one.

use std::collections::BTreeSet;

use decision::problem::Problem;
use serde_json::{Map, Value, json};

use super::take_text;
use crate::wire::conversation::{Call, Message, Part};

/// Parts of one message that stand next to each other stay apart.
const BETWEEN_TEXTS: &str = "\n\n";

/// Reads messages; gathers the system's, and remembers what it had to leave out.
#[derive(Debug, Default)]
pub(super) struct ContentReader {
    /// Texts of the system and of the developer, which are one, from before the conversation began.
    pub(super) system: Vec<String>,
    pub(super) dropped: BTreeSet<String>,
}

impl ContentReader {
    pub(super) fn messages(&mut self, messages: Vec<Value>) -> Result<Vec<Message>, Problem> {
        let mut out = Vec::new();
        for (position, message) in messages.into_iter().enumerate() {
            let param = format!("messages[{position}]");
            let Value::Object(mut message) = message else {
                return Err(Problem::invalid(format!("`{param}` is not an object")).with_param(param));
            };
            if message.remove("name").is_some_and(|name| !name.is_null()) {
                self.dropped.insert("messages.name".to_owned());
            }
            let content = message.remove("content").unwrap_or_default();
            let content_param = format!("{param}.content");
            match take_text(&mut message, "role").as_deref() {
                Some("system" | "developer") => {
                    let text = full(only_text(content, &content_param)?);
                    if out.is_empty() {
                        self.system.extend(text);
                    } else {
                        out.extend(text.into_iter().map(Message::System));
                    }
                }
                Some("user") => out.push(Message::User(user(content, &content_param)?)),
                Some("assistant") => out.push(self.assistant(message, content, &param)?),
                Some("tool") => {
                    let Some(call_id) = take_text(&mut message, "tool_call_id") else {
                        let param = format!("{param}.tool_call_id");
                        return Err(Problem::invalid(format!("`{param}` is missing")).with_param(param));
                    };
                    out.push(Message::Result { call_id, text: only_text(content, &content_param)? });
                }
                Some("function") => return Err(old_form(&param, "role")),
                _ => {
                    let message = format!("`{param}.role` must be system, developer, user, assistant or tool");
                    return Err(Problem::invalid(message).with_param(format!("{param}.role")));
                }
            }
        }
        Ok(out)
    }

    fn assistant(&mut self, mut message: Map<String, Value>, content: Value, param: &str) -> Result<Message, Problem> {
        if message.get("function_call").is_some_and(|call| !call.is_null()) {
            return Err(old_form(param, "function_call"));
        }
        let mut texts = full(only_text(content, &format!("{param}.content"))?);
        texts.extend(take_text(&mut message, "refusal").filter(|refusal| !refusal.is_empty()));
        let calls = match message.remove("tool_calls") {
            Some(Value::Array(calls)) => calls,
            _ => Vec::new(),
        };
        let call = |(position, call): (usize, Value)| read_call(call, &format!("{param}.tool_calls[{position}]"));
        let calls: Vec<Call> = calls.into_iter().enumerate().map(call).collect::<Result<_, _>>()?;
        for name in ["audio", "reasoning", "reasoning_content"] {
            if message.get(name).is_some_and(|value| !value.is_null()) {
                self.dropped.insert(format!("messages.{name}"));
            }
        }
        Ok(Message::Assistant { text: texts.join(BETWEEN_TEXTS), calls })
    }
}

fn user(content: Value, param: &str) -> Result<Vec<Part>, Problem> {
    let parts = match content {
        Value::String(text) => return Ok(vec![Part::Text(text)]),
        Value::Array(parts) => parts,
        _ => return Err(Problem::invalid(format!("`{param}` is neither text nor a list")).with_param(param)),
    };
    let part = |(position, one): (usize, Value)| part(one, &format!("{param}[{position}]"));
    parts.into_iter().enumerate().map(part).collect()
}

fn part(part: Value, param: &str) -> Result<Part, Problem> {
    let mut part = as_map(part, param)?;
    let kind = take_text(&mut part, "type").unwrap_or_default();
    match kind.as_str() {
        "text" => Ok(Part::Text(take_text(&mut part, "text").unwrap_or_default())),
        "image_url" => {
            let mut image = as_map(part.remove("image_url").unwrap_or_default(), &format!("{param}.image_url"))?;
            let detail = take_text(&mut image, "detail");
            let url = take_text(&mut image, "url").unwrap_or_default();
            let is_data = url.starts_with("data:image/") && url.contains(";base64,");
            if is_data || url.starts_with("https://") || url.starts_with("http://") {
                return Ok(Part::Image { url, detail });
            }
            let param = format!("{param}.image_url.url");
            let message = format!("`{param}` must be an https URL or a base64 `data:image/` URL");
            Err(Problem::invalid(message).with_param(param))
        }
        "file" => {
            let mut file = as_map(part.remove("file").unwrap_or_default(), &format!("{param}.file"))?;
            let data =
                take_text(&mut file, "file_data").filter(|data| data.starts_with("data:application/pdf;base64,"));
            let name = take_text(&mut file, "filename").unwrap_or_else(|| "document.pdf".to_owned());
            data.map(|data| Part::Pdf { name, data }).ok_or_else(|| {
                let param = format!("{param}.file");
                let message = format!(
                    "`{param}` cannot be carried to this model, which takes a PDF as \
                     `file_data: data:application/pdf;base64,…` and other files as text"
                );
                Problem::invalid(message).with_param(param)
            })
        }
        kind => {
            let message = format!("`{param}.type` is `{kind}`, which cannot be carried to this model");
            Err(Problem::invalid(message).with_param(format!("{param}.type")))
        }
    }
}

/// A call of a function, or of a tool whose input is free text.
fn read_call(call: Value, param: &str) -> Result<Call, Problem> {
    let mut call = as_map(call, param)?;
    let id = take_text(&mut call, "id").unwrap_or_default();
    if let Some(Value::Object(mut custom)) = call.remove("custom") {
        let arguments = json!({"input": custom.remove("input")}).to_string();
        return Ok(Call { id, name: take_text(&mut custom, "name").unwrap_or_default(), arguments });
    }
    let mut function = as_map(call.remove("function").unwrap_or_default(), &format!("{param}.function"))?;
    let name = take_text(&mut function, "name").unwrap_or_default();
    Ok(Call { id, name, arguments: take_text(&mut function, "arguments").unwrap_or_default() })
}

fn only_text(content: Value, param: &str) -> Result<String, Problem> {
    let parts = match content {
        Value::Null => return Ok(String::new()),
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        _ => return Err(Problem::invalid(format!("`{param}` is neither text nor a list")).with_param(param)),
    };
    let mut texts = Vec::new();
    for (position, part) in parts.into_iter().enumerate() {
        let param = format!("{param}[{position}]");
        let mut part = as_map(part, &param)?;
        let text = match take_text(&mut part, "type").as_deref() {
            Some("text") => take_text(&mut part, "text"),
            Some("refusal") => take_text(&mut part, "refusal"),
            _ => return Err(Problem::invalid(format!("`{param}` is not a text part")).with_param(param)),
        };
        texts.extend(text);
    }
    Ok(texts.join(BETWEEN_TEXTS))
}

fn full(text: String) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { vec![text] }
}

fn old_form(param: &str, member: &str) -> Problem {
    let param = format!("{param}.{member}");
    let message = format!("`{param}` is the old form of a call: use `tool_calls`, and messages of the role `tool`");
    Problem::invalid(message).with_param(param)
}

fn as_map(value: Value, param: &str) -> Result<Map<String, Value>, Problem> {
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(Problem::invalid(format!("`{param}` is not an object")).with_param(param)),
    }
}
