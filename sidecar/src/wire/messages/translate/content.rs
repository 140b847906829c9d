//! The content blocks of a Messages request, one by one.

use std::collections::BTreeSet;

use decision::problem::Problem;
use serde_json::{Map, Value};

use super::super::history::recount_foreign;
use super::take_text;
use crate::wire::code_tool::ERROR_MARK;
use crate::wire::conversation::{Call, Message, Part};

/// Reads content and remembers what it had to leave out.
#[derive(Debug, Default)]
pub(super) struct ContentReader {
    pub(super) dropped: BTreeSet<String>,
}

/// Text blocks that stand next to each other stay apart.
const BETWEEN_TEXTS: &str = "\n\n";

impl ContentReader {
    pub(super) fn system(system: Value) -> Result<String, Problem> {
        match system {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text),
            Value::Array(blocks) => only_text(blocks, "system"),
            _ => Err(Problem::invalid("`system` is neither text nor a list of text blocks").with_param("system")),
        }
    }

    pub(super) fn messages(&mut self, messages: Vec<Value>) -> Result<Vec<Message>, Problem> {
        let mut out = Vec::new();
        // Calls of providers' own tools, whose results come later as text.
        let mut server_calls = Map::new();
        for (position, message) in messages.into_iter().enumerate() {
            let param = format!("messages[{position}]");
            let Value::Object(mut message) = message else {
                return Err(Problem::invalid(format!("`{param}` is not an object")).with_param(param));
            };
            let blocks = match message.remove("content") {
                Some(Value::String(text)) => vec![text_block(text)],
                Some(Value::Array(blocks)) => blocks,
                _ => {
                    let message = format!("`{param}.content` is neither text nor a list");
                    return Err(Problem::invalid(message).with_param(format!("{param}.content")));
                }
            };
            match take_text(&mut message, "role").as_deref() {
                Some("user") => self.user(blocks, &param, &mut out)?,
                Some("assistant") => out.push(self.assistant(blocks, &param, &mut server_calls)?),
                Some("system") => out.push(Message::System(only_text(blocks, &param)?)),
                _ => {
                    let message = format!("`{param}.role` must be user or assistant");
                    return Err(Problem::invalid(message).with_param(format!("{param}.role")));
                }
            }
        }
        if !server_calls.is_empty() {
            self.dropped.insert("server_tool_use without a result".to_owned());
        }
        Ok(out)
    }

    /// Results first: a model of another wire wants them right after its calls.
    fn user(&mut self, blocks: Vec<Value>, param: &str, out: &mut Vec<Message>) -> Result<(), Problem> {
        let mut parts = Vec::new();
        let mut result_parts = Vec::new();
        for (position, block) in blocks.into_iter().enumerate() {
            let param = format!("{param}.content[{position}]");
            let mut block = as_block(block, &param)?;
            if kind_of(&block) != "tool_result" {
                self.part(block, &param, &mut parts)?;
                continue;
            }
            let call_id = take_text(&mut block, "tool_use_id").unwrap_or_default();
            let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
            let before = result_parts.len();
            let mut text = self.result_text(block, &param, &mut result_parts)?;
            if result_parts.len() > before {
                let note = "(more of this result follows in the next message)";
                text = if text.is_empty() { note.to_owned() } else { format!("{text}\n{note}") };
            }
            if is_error {
                text = format!("{ERROR_MARK}{text}");
            }
            out.push(Message::Result { call_id, text });
        }
        result_parts.append(&mut parts);
        if !result_parts.is_empty() {
            out.push(Message::User(result_parts));
        }
        Ok(())
    }

    /// A result's text; its pictures and documents go to `more`.
    fn result_text(
        &mut self,
        mut block: Map<String, Value>,
        param: &str,
        more: &mut Vec<Part>,
    ) -> Result<String, Problem> {
        let blocks = match block.remove("content") {
            None | Some(Value::Null) => return Ok(String::new()),
            Some(Value::String(text)) => return Ok(text),
            Some(Value::Array(blocks)) => blocks,
            Some(_) => return Err(Problem::invalid(format!("`{param}.content` is neither text nor a list"))),
        };
        let mut texts = Vec::new();
        for (position, block) in blocks.into_iter().enumerate() {
            let param = format!("{param}.content[{position}]");
            let mut parts = Vec::new();
            self.part(as_block(block, &param)?, &param, &mut parts)?;
            for part in parts {
                match part {
                    Part::Text(text) => texts.push(text),
                    other => more.push(other),
                }
            }
        }
        Ok(texts.join(BETWEEN_TEXTS))
    }

    fn part(&mut self, mut block: Map<String, Value>, param: &str, parts: &mut Vec<Part>) -> Result<(), Problem> {
        match kind_of(&block) {
            "text" => {
                self.note_citations(&block);
                parts.extend(take_text(&mut block, "text").filter(|text| !text.is_empty()).map(Part::Text));
            }
            "image" => parts.push(Part::Image { url: image_url(&mut block, param)?, detail: None }),
            "document" => self.document(block, param, parts)?,
            "search_result" => {
                let (title, source) = (take_text(&mut block, "title"), take_text(&mut block, "source"));
                let blocks = block.remove("content").and_then(into_list).unwrap_or_default();
                let text = only_text(blocks, param)?;
                let head = [title, source].into_iter().flatten().collect::<Vec<_>>().join(", ");
                parts.push(Part::Text(format!("[search result: {head}]\n{text}")));
            }
            kind => {
                let message = format!("`{param}.type` is `{kind}`, which cannot be carried to this model");
                return Err(Problem::invalid(message).with_param(format!("{param}.type")));
            }
        }
        Ok(())
    }

    fn document(&mut self, mut block: Map<String, Value>, param: &str, parts: &mut Vec<Part>) -> Result<(), Problem> {
        let title = take_text(&mut block, "title");
        if block.get("citations").is_some_and(|citations| citations.get("enabled") == Some(&Value::Bool(true))) {
            self.dropped.insert("citations".to_owned());
        }
        let head = match (&title, take_text(&mut block, "context")) {
            (Some(title), Some(context)) => format!("[document: {title}, {context}]\n"),
            (Some(title), None) => format!("[document: {title}]\n"),
            (None, Some(context)) => format!("[document: {context}]\n"),
            (None, None) => String::new(),
        };
        let mut source = block.remove("source").and_then(into_map).unwrap_or_default();
        let data = take_text(&mut source, "data");
        let media_type = take_text(&mut source, "media_type");
        match (take_text(&mut source, "type").as_deref(), data, media_type.as_deref()) {
            (Some("text"), Some(text), _) => parts.push(Part::Text(format!("{head}{text}"))),
            (Some("base64"), Some(data), Some("application/pdf")) => {
                let name = title.unwrap_or_else(|| "document.pdf".to_owned());
                let name = if name.contains('.') { name } else { format!("{name}.pdf") };
                parts.push(Part::Pdf { name, data: format!("data:application/pdf;base64,{data}") });
            }
            (Some("content"), ..) => {
                let blocks = match source.remove("content") {
                    Some(Value::String(text)) => vec![text_block(text)],
                    other => other.and_then(into_list).unwrap_or_default(),
                };
                if !head.is_empty() {
                    parts.push(Part::Text(head));
                }
                for (position, block) in blocks.into_iter().enumerate() {
                    let param = format!("{param}.source.content[{position}]");
                    let block = as_block(block, &param)?;
                    if kind_of(&block) == "document" {
                        return Err(
                            Problem::invalid(format!("`{param}`: a document within a document")).with_param(param)
                        );
                    }
                    self.part(block, &param, parts)?;
                }
            }
            (kind, ..) => {
                let kind = kind.unwrap_or("missing");
                let message =
                    format!("`{param}.source.type` is `{kind}`; this model takes documents as text or as a base64 PDF");
                return Err(Problem::invalid(message).with_param(format!("{param}.source")));
            }
        }
        Ok(())
    }

    fn assistant(
        &mut self,
        blocks: Vec<Value>,
        param: &str,
        server_calls: &mut Map<String, Value>,
    ) -> Result<Message, Problem> {
        let mut texts = Vec::new();
        let mut calls = Vec::new();
        for (position, block) in blocks.into_iter().enumerate() {
            let param = format!("{param}.content[{position}]");
            let mut block = as_block(block, &param)?;
            let kind = kind_of(&block).to_owned();
            match kind.as_str() {
                "text" => texts.extend(take_text(&mut block, "text").filter(|text| !text.is_empty())),
                "tool_use" => calls.push(Call {
                    id: take_text(&mut block, "id").unwrap_or_default(),
                    name: take_text(&mut block, "name").unwrap_or_default(),
                    arguments: block
                        .remove("input")
                        .filter(Value::is_object)
                        .unwrap_or_else(|| Map::new().into())
                        .to_string(),
                }),
                "thinking" | "redacted_thinking" => {
                    self.dropped.insert("thinking".to_owned());
                }
                // Another provider's tools: the model reads what they did.
                "server_tool_use" | "mcp_tool_use" => {
                    let id = take_text(&mut block, "id").unwrap_or_default();
                    server_calls.insert(id, block.into());
                }
                _ if kind.ends_with("_tool_result") => {
                    let id = take_text(&mut block, "tool_use_id").unwrap_or_default();
                    let content = block.remove("content").unwrap_or_default();
                    let call = server_calls.remove(&id).unwrap_or_default();
                    let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
                    texts.push(recount_foreign(name, call.get("input"), Some(&content)));
                }
                _ => {
                    self.dropped.insert(format!("{kind} block"));
                }
            }
        }
        Ok(Message::Assistant { text: texts.join(BETWEEN_TEXTS), calls })
    }

    fn note_citations(&mut self, block: &Map<String, Value>) {
        if block.get("citations").and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
            self.dropped.insert("citations".to_owned());
        }
    }
}

fn only_text(blocks: Vec<Value>, param: &str) -> Result<String, Problem> {
    let mut texts = Vec::new();
    for (position, block) in blocks.into_iter().enumerate() {
        let param = format!("{param}[{position}]");
        let mut block = as_block(block, &param)?;
        if kind_of(&block) != "text" {
            return Err(Problem::invalid(format!("`{param}` is not a text block")).with_param(param));
        }
        texts.extend(take_text(&mut block, "text"));
    }
    Ok(texts.join(BETWEEN_TEXTS))
}

fn image_url(block: &mut Map<String, Value>, param: &str) -> Result<String, Problem> {
    let mut source = block.remove("source").and_then(into_map).unwrap_or_default();
    let kind = take_text(&mut source, "type");
    match (kind.as_deref(), take_text(&mut source, "media_type"), take_text(&mut source, "data")) {
        (Some("base64"), Some(media_type), Some(data)) => return Ok(format!("data:{media_type};base64,{data}")),
        (Some("url"), ..) => {
            if let Some(url) = take_text(&mut source, "url") {
                return Ok(url);
            }
        }
        _ => {}
    }
    let message = format!("`{param}.source` must be a base64 image or a URL for this model");
    Err(Problem::invalid(message).with_param(format!("{param}.source")))
}

fn kind_of(block: &Map<String, Value>) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn as_block(block: Value, param: &str) -> Result<Map<String, Value>, Problem> {
    into_map(block).ok_or_else(|| Problem::invalid(format!("`{param}` is not an object")).with_param(param))
}

fn into_map(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

fn into_list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(list) => Some(list),
        _ => None,
    }
}

fn text_block(text: String) -> Value {
    Map::from_iter([("type".to_owned(), "text".into()), ("text".to_owned(), text.into())]).into()
}
