//! The items of an input, one by one.

use std::collections::BTreeSet;

use decision::problem::Problem;
use serde_json::{Map, Value, json};

use super::super::history::{recount_foreign, recount_item};
use super::super::word;
use super::take_text;
use crate::wire::conversation::{Call, Conversation, Message, Part};

/// Texts that stand next to each other stay apart.
const BETWEEN_TEXTS: &str = "\n\n";

/// Reads items and remembers what it had to leave out.
#[derive(Debug, Default)]
pub(super) struct ItemReader {
    /// System text at the beginning.
    system: Vec<String>,
    messages: Vec<Message>,
    /// Pictures and documents of results, which follow them.
    more: Vec<Part>,
    dropped: BTreeSet<String>,
}

impl ItemReader {
    pub(super) fn user_text(&mut self, text: String) {
        self.user(vec![Part::Text(text)]);
    }

    pub(super) fn items(&mut self, items: Vec<Value>) -> Result<(), Problem> {
        for (position, item) in items.into_iter().enumerate() {
            let param = format!("input[{position}]");
            let Value::Object(item) = item else {
                return Err(Problem::invalid(format!("`{param}` is not an object")).with_param(param));
            };
            self.item(item, &param)?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self, conversation: &mut Conversation) {
        self.tell_more();
        let system: Vec<String> = conversation.system.take().into_iter().chain(self.system).collect();
        conversation.system = (!system.is_empty()).then(|| system.join(BETWEEN_TEXTS));
        conversation.messages = self.messages;
        conversation.dropped.extend(self.dropped);
    }

    fn item(&mut self, mut item: Map<String, Value>, param: &str) -> Result<(), Problem> {
        let kind = word(&item, "type").map(str::to_owned);
        let kind = kind.unwrap_or_else(|| {
            let by_shape = if item.contains_key("role") { "message" } else { "item_reference" };
            by_shape.to_owned()
        });
        match kind.as_str() {
            "message" => self.message(item, param)?,
            "function_call" => {
                let arguments = match item.remove("arguments") {
                    Some(Value::String(text)) => text,
                    Some(object @ Value::Object(_)) => object.to_string(),
                    _ => "{}".to_owned(),
                };
                let name = take_text(&mut item, "name").unwrap_or_default();
                // Other wires have no namespaces, and allow no dot in a name.
                let namespace = take_text(&mut item, "namespace").filter(|namespace| !namespace.is_empty());
                let name = namespace.map_or_else(|| name.clone(), |namespace| format!("{namespace}_{name}"));
                self.called(Call { id: call_id(&mut item), name, arguments });
            }
            "custom_tool_call" => {
                let input = take_text(&mut item, "input").unwrap_or_default();
                let name = take_text(&mut item, "name").unwrap_or_default();
                self.called(Call { id: call_id(&mut item), name, arguments: json!({"input": input}).to_string() });
            }
            "function_call_output" | "custom_tool_call_output" => self.result(item, param)?,
            "reasoning" => {
                self.dropped.insert("reasoning".to_owned());
            }
            "mcp_list_tools" => {
                self.dropped.insert("mcp_list_tools".to_owned());
            }
            // Another provider's tools: the model reads what they did.
            "code_interpreter_call" => self.said(&recount_item(&item)),
            _ if kind.ends_with("_call")
                || kind.ends_with("_output")
                || kind.starts_with("mcp_")
                || kind == "program" =>
            {
                self.said(&recount_foreign(item));
            }
            "item_reference" => {
                let message = format!(
                    "`{param}` refers to an item that this model's provider does not keep: send the item itself, as \
                     SDKs do when `store` is false"
                );
                return Err(Problem::invalid(message).with_param(param));
            }
            _ => {
                let message = format!("`{param}.type` is `{kind}`, which cannot be carried to this model");
                return Err(Problem::invalid(message).with_param(format!("{param}.type")));
            }
        }
        Ok(())
    }

    fn message(&mut self, mut item: Map<String, Value>, param: &str) -> Result<(), Problem> {
        let content = format!("{param}.content");
        let parts = parts(item.remove("content"), &content)?;
        match word(&item, "role") {
            Some("user") => self.user(parts),
            Some("assistant") => self.said(&only_text(parts, &content)?),
            Some("system" | "developer") => {
                let text = only_text(parts, &content)?;
                if self.messages.is_empty() {
                    self.system.push(text);
                } else {
                    self.tell_more();
                    self.messages.push(Message::System(text));
                }
            }
            _ => {
                let message = format!("`{param}.role` must be user, assistant, system or developer");
                return Err(Problem::invalid(message).with_param(format!("{param}.role")));
            }
        }
        Ok(())
    }

    fn user(&mut self, mut parts: Vec<Part>) {
        parts.splice(..0, std::mem::take(&mut self.more));
        if !parts.is_empty() {
            self.messages.push(Message::User(parts));
        }
    }

    /// What the model said between two results is one message: its calls must stand together, right before them.
    fn assistant(&mut self, add: impl FnOnce(&mut String, &mut Vec<Call>)) {
        self.tell_more();
        if let Some(Message::Assistant { text, calls }) = self.messages.last_mut() {
            add(text, calls);
            return;
        }
        let (mut text, mut calls) = (String::new(), Vec::new());
        add(&mut text, &mut calls);
        self.messages.push(Message::Assistant { text, calls });
    }

    fn said(&mut self, more: &str) {
        if more.is_empty() {
            return;
        }
        self.assistant(|text, _| {
            if !text.is_empty() {
                text.push_str(BETWEEN_TEXTS);
            }
            text.push_str(more);
        });
    }

    fn called(&mut self, call: Call) {
        self.assistant(|_, calls| calls.push(call));
    }

    fn result(&mut self, mut item: Map<String, Value>, param: &str) -> Result<(), Problem> {
        let call_id = call_id(&mut item);
        let param = format!("{param}.output");
        let mut texts = Vec::new();
        let before = self.more.len();
        for part in parts(item.remove("output"), &param)? {
            match part {
                Part::Text(text) => texts.push(text),
                other => self.more.push(other),
            }
        }
        if self.more.len() > before {
            texts.push("(more of this result follows in the next message)".to_owned());
        }
        self.messages.push(Message::Result { call_id, text: texts.join(BETWEEN_TEXTS) });
        Ok(())
    }

    fn tell_more(&mut self) {
        if !self.more.is_empty() {
            self.user(Vec::new());
        }
    }
}

fn call_id(item: &mut Map<String, Value>) -> String {
    take_text(item, "call_id").or_else(|| take_text(item, "id")).unwrap_or_default()
}

fn parts(content: Option<Value>, param: &str) -> Result<Vec<Part>, Problem> {
    let list = match content {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![Part::Text(text)]),
        Some(Value::Array(list)) => list,
        Some(_) => {
            return Err(Problem::invalid(format!("`{param}` is neither text nor a list")).with_param(param));
        }
    };
    let mut parts = Vec::new();
    for (position, entry) in list.into_iter().enumerate() {
        let param = format!("{param}[{position}]");
        let Value::Object(entry) = entry else {
            return Err(Problem::invalid(format!("`{param}` is not an object")).with_param(param));
        };
        parts.extend(part(entry, &param)?);
    }
    Ok(parts)
}

fn part(mut entry: Map<String, Value>, param: &str) -> Result<Option<Part>, Problem> {
    let refuse = |message: String| Err(Problem::invalid(message).with_param(param));
    match take_text(&mut entry, "type").as_deref() {
        Some("input_text" | "output_text" | "text") => {
            Ok(take_text(&mut entry, "text").filter(|text| !text.is_empty()).map(Part::Text))
        }
        Some("refusal") => Ok(take_text(&mut entry, "refusal").map(Part::Text)),
        Some("input_image") => match take_text(&mut entry, "image_url") {
            Some(url) => Ok(Some(Part::Image { url, detail: take_text(&mut entry, "detail") })),
            None => refuse(format!("`{param}` must have an `image_url`, as a URL or a data URL, for this model")),
        },
        Some("input_file") => {
            let name = take_text(&mut entry, "filename").unwrap_or_else(|| "document.pdf".to_owned());
            match take_text(&mut entry, "file_data") {
                Some(data) if data.starts_with("data:application/pdf;base64,") => Ok(Some(Part::Pdf { name, data })),
                Some(data) if !data.starts_with("data:") && name.to_ascii_lowercase().ends_with(".pdf") => {
                    Ok(Some(Part::Pdf { name, data: format!("data:application/pdf;base64,{data}") }))
                }
                _ => refuse(format!("`{param}` must have `file_data` with a base64 PDF for this model")),
            }
        }
        kind => {
            refuse(format!("`{param}.type` is `{}`, which cannot be carried to this model", kind.unwrap_or("missing")))
        }
    }
}

fn only_text(parts: Vec<Part>, param: &str) -> Result<String, Problem> {
    let mut texts = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) => texts.push(text),
            Part::Image { .. } | Part::Pdf { .. } => {
                return Err(Problem::invalid(format!("`{param}` may hold only text here")).with_param(param));
            }
        }
    }
    Ok(texts.join(BETWEEN_TEXTS))
}
