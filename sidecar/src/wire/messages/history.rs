//! Blocks of ours that a client echoes, folded into text: no provider knows their ids, and the model must not forget.
//!
//! INVARIANT: blocks that are not ours stay as they are, and where they are.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::ids;

/// Folds every block of ours in a Messages request; tells whether there was one.
///
/// A pair becomes one text block where its call stood. A result whose call is gone, or stands in another message, is
/// folded where it stands; a call without a result goes. A message left empty goes too.
pub fn fold_minted(body: &mut Value) -> bool {
    match body.get_mut("messages") {
        Some(Value::Array(messages)) => fold_messages(messages),
        _ => false,
    }
}

/// The same for the list of messages alone.
pub(super) fn fold_messages(messages: &mut Vec<Value>) -> bool {
    let minted = Minted::find(messages);
    if minted.calls.is_empty() && minted.results.is_empty() {
        return false;
    }
    let mut told = BTreeSet::new();
    let mut position = 0;
    messages.retain_mut(|message| {
        let here = position;
        position += 1;
        let Some(Value::Array(content)) = message.get_mut("content") else { return true };
        let before = content.len();
        let blocks = std::mem::take(content);
        *content = blocks.into_iter().filter_map(|block| minted.fold(block, here, &mut told)).collect();
        before == 0 || !content.is_empty()
    });
    true
}

/// Every block of ours in a history, by the id of its call.
#[derive(Default)]
struct Minted {
    calls: BTreeMap<String, Half>,
    results: BTreeMap<String, Half>,
}

/// Half of a pair.
struct Half {
    /// Which message it stands in.
    message: usize,
    /// A call's input, a result's content.
    value: Value,
}

impl Minted {
    fn find(messages: &[Value]) -> Self {
        let mut minted = Self::default();
        for (message, content) in messages.iter().enumerate().filter_map(|(at, m)| Some((at, m.get("content")?))) {
            for block in content.as_array().into_iter().flatten() {
                let half = |field: &str| Half { message, value: block.get(field).cloned().unwrap_or_default() };
                match role_of(block) {
                    Some((Role::Call, id)) => drop(minted.calls.insert(id.to_owned(), half("input"))),
                    Some((Role::Result, id)) => drop(minted.results.insert(id.to_owned(), half("content"))),
                    None => {}
                }
            }
        }
        minted
    }

    /// What a block becomes; `None` for one that goes.
    fn fold(&self, block: Value, message: usize, told: &mut BTreeSet<String>) -> Option<Value> {
        let (role, id) = match role_of(&block) {
            None => return Some(block),
            Some((role, id)) => (role, id.to_owned()),
        };
        let (call, result) = (self.calls.get(&id), self.results.get(&id)?);
        let together = call.is_some_and(|call| call.message == result.message);
        let is_place = match role {
            Role::Call => together && message == result.message,
            Role::Result => !together,
        };
        if !is_place || !told.insert(id) {
            return None;
        }
        let mut text = Map::new();
        text.insert("type".to_owned(), "text".into());
        text.insert("text".to_owned(), recount(call.map(|call| &call.value), &result.value).into());
        Some(text.into())
    }
}

enum Role {
    Call,
    Result,
}

/// Whether a block is ours, and which half.
fn role_of(block: &Value) -> Option<(Role, &str)> {
    let kind = block.get("type")?.as_str()?;
    let (role, field) = match kind {
        "server_tool_use" => (Role::Call, "id"),
        _ if kind.ends_with("_tool_result") => (Role::Result, "tool_use_id"),
        _ => return None,
    };
    let id = block.get(field)?.as_str()?;
    id.starts_with(ids::SERVER_TOOL_USE).then_some((role, id))
}

/// What was run and what it gave, for the model to read.
pub(super) fn recount(input: Option<&Value>, content: &Value) -> String {
    let mut text = String::new();
    match input.and_then(|input| input.get("code")).and_then(Value::as_str) {
        Some(code) => push_fenced(&mut text, "I ran this Python code:", "python", code),
        None => match input {
            Some(Value::Object(input)) if !input.is_empty() => {
                push_fenced(&mut text, "I used the sandbox:", "json", &Value::from(input.clone()).to_string());
            }
            _ => text.push_str("I ran code in the sandbox."),
        },
    }
    // Some clients send the result's object as a list of one.
    let content = content.as_array().and_then(|list| list.first()).unwrap_or(content);
    let word = |name: &str| content.get(name).and_then(Value::as_str).filter(|word| !word.is_empty());
    if let Some(code) = word("error_code") {
        push_line(&mut text, &format!("error: {code}"));
        return text;
    }
    for name in ["stdout", "stderr"] {
        if let Some(output) = word(name) {
            push_line(&mut text, &format!("{name}:\n{output}"));
        }
    }
    if let Some(code) = content.get("return_code").and_then(Value::as_i64) {
        push_line(&mut text, &format!("return code: {code}"));
    }
    for file in content.get("content").and_then(Value::as_array).into_iter().flatten() {
        if let Some(id) = file.get("file_id").and_then(Value::as_str) {
            push_line(&mut text, &format!("file: {id}"));
        }
    }
    text
}

fn push_line(text: &mut String, line: &str) {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line.trim_end_matches('\n'));
}

fn push_fenced(text: &mut String, head: &str, language: &str, body: &str) {
    let mut fence = "```".to_owned();
    while body.contains(&fence) {
        fence.push('`');
    }
    let body = body.trim_end_matches('\n');
    text.extend([head, "\n", &fence, language, "\n", body, "\n", &fence]);
}

#[cfg(test)]
mod tests;
