//! The items of a model's turn: what each is in neutral words, and how the next call repeats them.
//!
//! INVARIANT: an item goes back as it came, unless its provider could not read it again.

use serde_json::{Map, Value};

use super::word;
use crate::wire::event::{BlockKind, Delta};
use crate::wire::json::push_json;
use crate::wire::reader::ReadError;

/// Between parts of one item that no other wire keeps apart.
pub(super) const BETWEEN_PARTS: &str = "\n\n";

/// Items that wait for an answer of the client's, besides function calls.
const CLIENT_CALLS: &[&str] =
    &["apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "mcp_approval_request"];

/// What an item is.
pub(super) fn block_kind(item: &Map<String, Value>) -> Result<BlockKind, ReadError> {
    let kind = word(item, "type").ok_or_else(|| ReadError::malformed("an output item has no type"))?;
    let id = || word(item, "call_id").or_else(|| word(item, "id")).filter(|id| !id.is_empty()).map(str::to_owned);
    Ok(match kind {
        "message" => BlockKind::Text,
        "reasoning" => BlockKind::Reasoning,
        "function_call" => {
            let name = word(item, "name").filter(|name| !name.is_empty()).map(str::to_owned);
            let (Some(id), Some(name)) = (id(), name) else {
                return Err(ReadError::malformed("a function call has no id or no name"));
            };
            BlockKind::Call { id, name: full_name(item, name) }
        }
        // Named by its type: a call of another kind is never one of our tool.
        _ if CLIENT_CALLS.contains(&kind) || is_local_shell(item) => {
            BlockKind::Call { id: id().unwrap_or_default(), name: kind.to_owned() }
        }
        _ => BlockKind::Other,
    })
}

/// A function's name behind that of its namespace, if it stands in one: only a caller's does, whatever its own name is.
pub(super) fn full_name(item: &Map<String, Value>, name: String) -> String {
    match word(item, "namespace").filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => format!("{namespace}.{name}"),
        None => name,
    }
}

/// A hosted shell is the provider's business, a local one the client's.
fn is_local_shell(item: &Map<String, Value>) -> bool {
    word(item, "type") == Some("shell_call")
        && item.get("environment").and_then(|environment| environment.get("type")) == Some(&Value::from("local"))
}

/// All that a complete item says, as one delta.
pub(super) fn said(kind: &BlockKind, item: &Map<String, Value>) -> Option<Delta> {
    let delta = match kind {
        BlockKind::Text => Delta::Text(texts(item, "content").concat()),
        BlockKind::Reasoning => {
            let mut parts = texts(item, "summary");
            if parts.is_empty() {
                parts = texts(item, "content");
            }
            Delta::Reasoning(parts.join(BETWEEN_PARTS))
        }
        BlockKind::Call { .. } => Delta::Arguments(arguments(item)),
        BlockKind::Other => return None,
    };
    let is_empty = match &delta {
        Delta::Text(text) | Delta::Reasoning(text) | Delta::Arguments(text) => text.is_empty(),
        Delta::Other => true,
    };
    (!is_empty).then_some(delta)
}

/// A part of the message says that the model will not.
pub(super) fn refuses(item: &Map<String, Value>) -> bool {
    let parts = item.get("content").and_then(Value::as_array);
    parts.into_iter().flatten().any(|part| part.get("type") == Some(&Value::from("refusal")))
}

fn texts<'a>(item: &'a Map<String, Value>, name: &str) -> Vec<&'a str> {
    let parts = item.get(name).and_then(Value::as_array);
    let text = |part: &'a Value| part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str);
    parts.into_iter().flatten().filter_map(text).collect()
}

/// Text as the wire wants it, or an object as some servers send it.
fn arguments(item: &Map<String, Value>) -> String {
    match item.get("arguments") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// The complete items of a turn.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// Each as JSON, with what it was read as.
    complete: Vec<(String, Map<String, Value>)>,
    /// The provider keeps this answer, so it knows its items by their ids.
    pub(super) stored: bool,
}

impl Items {
    pub(super) fn push(&mut self, json: &str, item: Map<String, Value>) {
        self.complete.push((json.to_owned(), item));
    }

    /// The items as entries of the history.
    ///
    /// A provider that keeps no answers cannot look up a reasoning item that is nothing but an id. Such an item stays
    /// out, and then the others leave their ids behind, for by its id a call would ask for its reasoning.
    pub(super) fn into_history(self) -> Vec<u8> {
        let stored = self.stored;
        let forgotten = |item: &Map<String, Value>| {
            let has = |name: &str| item.get(name).is_some_and(|value| !is_empty(value));
            !stored && word(item, "type") == Some("reasoning") && !has("encrypted_content") && !has("content")
        };
        let some_forgotten = self.complete.iter().any(|(_, item)| forgotten(item));
        let mut entries = Vec::new();
        for (json, mut item) in self.complete {
            if forgotten(&item) {
                continue;
            }
            if !entries.is_empty() {
                entries.push(b',');
            }
            let mut changed = some_forgotten && item.shift_remove("id").is_some();
            changed |= repair_arguments(&mut item);
            if changed {
                push_json(&mut entries, &item);
            } else {
                entries.extend_from_slice(json.as_bytes());
            }
        }
        entries
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Servers parse the arguments of the history, so what is no object was answered, and goes, as `{}`.
fn repair_arguments(item: &mut Map<String, Value>) -> bool {
    if word(item, "type") != Some("function_call") {
        return false;
    }
    let is_object = word(item, "arguments").is_some_and(|text| serde_json::from_str::<Map<_, _>>(text).is_ok());
    if !is_object {
        let repaired = match item.get("arguments") {
            Some(Value::Object(object)) => Value::Object(object.clone()).to_string(),
            _ => "{}".to_owned(),
        };
        item.insert("arguments".to_owned(), repaired.into());
    }
    !is_object
}
