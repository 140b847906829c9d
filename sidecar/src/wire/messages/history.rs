//! Blocks of ours that a client echoes, folded into text: no provider knows their ids, and the model must not forget.
//!
//! INVARIANT: what is not ours keeps its bytes, and its place.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::ids;
use crate::wire::json::{Fields, span};
use crate::wire::model_request::Foreign;

/// Folds every block of ours in a list of messages; the very text that came in when there is none.
///
/// A pair becomes one text block where its call stood. A result whose call is gone, or stands in another message, is
/// folded where it stands; a call without a result goes. Thinking of ours goes, for no provider signed it. A message
/// left empty goes too.
///
/// With [`Foreign::Told`] the blocks of a provider's own tools are folded in the same way, and a call of those without a
/// result is told too.
pub fn fold(messages: &RawValue, foreign: Foreign) -> Cow<'_, str> {
    let text = messages.get();
    if !mentions(text, foreign) {
        return Cow::Borrowed(text);
    }
    let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(text) else { return Cow::Borrowed(text) };
    let entries: Vec<Entry<'_>> = list.into_iter().map(|message| Entry::read(message.get(), foreign)).collect();
    if entries.iter().all(|entry| entry.blocks.is_empty()) {
        return Cow::Borrowed(text);
    }
    let pairs = Pairs::find(&entries);
    let mut told = BTreeSet::new();
    let folded = entries.iter().enumerate().filter_map(|(at, entry)| entry.fold(at, &pairs, &mut told));
    Cow::Owned(list_of(folded))
}

/// A message, opened only as far as it holds blocks of ours.
struct Entry<'a> {
    text: &'a str,
    /// Its list of blocks, and those; nothing for a message that is left alone.
    content: &'a str,
    blocks: Vec<Block<'a>>,
}

struct Block<'a> {
    text: &'a str,
    ours: Option<Ours>,
}

enum Ours {
    Half(Half),
    Thought,
}

/// Half of a pair of ours, or of one that is folded like it.
struct Half {
    role: Role,
    id: String,
    /// The tool of a provider's own pair, as far as this half names it.
    foreign: Option<String>,
    /// A call's input, a result's content.
    value: Value,
}

#[derive(PartialEq, Eq)]
enum Role {
    Call,
    Result,
}

impl<'a> Entry<'a> {
    fn read(text: &'a str, foreign: Foreign) -> Self {
        let blocks = |content: &'a RawValue| -> Option<Vec<Block<'a>>> {
            let blocks: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
            Some(blocks.into_iter().map(|block| Block::read(block.get(), foreign)).collect())
        };
        let content = || {
            let fields: Fields<'a> = serde_json::from_str(text).ok()?;
            let content = fields.get("content")?;
            let blocks = blocks(content).filter(|blocks| blocks.iter().any(|block| block.ours.is_some()))?;
            Some((content.get(), blocks))
        };
        let (content, blocks) = mentions(text, foreign).then(content).flatten().unwrap_or_default();
        Self { text, content, blocks }
    }

    /// The message as it goes on; `None` for one with nothing left in it.
    fn fold(&self, at: usize, pairs: &Pairs<'_>, told: &mut BTreeSet<String>) -> Option<Cow<'a, str>> {
        if self.blocks.is_empty() {
            return Some(Cow::Borrowed(self.text));
        }
        let mut kept = self.blocks.iter().filter_map(|block| match &block.ours {
            None => Some(Cow::Borrowed(block.text)),
            Some(Ours::Half(half)) => pairs.told_by(half, at, told).map(Cow::Owned),
            Some(Ours::Thought) => None,
        });
        let kept = kept.next().map(|first| list_of(std::iter::once(first).chain(kept)))?;
        let place = span(self.text.as_bytes(), self.content)?;
        let (before, after) = (self.text.get(..place.start)?, self.text.get(place.end..)?);
        Some(Cow::Owned([before, &kept, after].concat()))
    }
}

impl<'a> Block<'a> {
    fn read(text: &'a str, foreign: Foreign) -> Self {
        let ours = || {
            let mut block: Value = serde_json::from_str(text).ok()?;
            let kind = block.get("type")?.as_str()?;
            let word = |name: &str| block.get(name)?.as_str();
            let (role, id, value) = match kind {
                "thinking" => {
                    let signature = word("signature").filter(|signature| signature.starts_with(ids::THOUGHT));
                    return signature.map(|_| Ours::Thought);
                }
                "server_tool_use" | "mcp_tool_use" => (Role::Call, "id", "input"),
                _ if kind.ends_with("_tool_result") => (Role::Result, "tool_use_id", "content"),
                _ => return None,
            };
            let id = word(id)?.to_owned();
            let is_ours = id.starts_with(ids::SERVER_TOOL_USE);
            if !is_ours && foreign == Foreign::Stays {
                return None;
            }
            let foreign = (!is_ours).then(|| word("name").unwrap_or_default().to_owned());
            Some(Ours::Half(Half {
                role,
                id,
                foreign,
                value: block.get_mut(value).map(Value::take).unwrap_or_default(),
            }))
        };
        Self { text, ours: mentions(text, foreign).then(ours).flatten() }
    }
}

/// The halves by the id of their call, each with the message it stands in.
#[derive(Default)]
struct Pairs<'a> {
    calls: BTreeMap<&'a str, (usize, &'a Value)>,
    results: BTreeMap<&'a str, (usize, &'a Value)>,
}

impl<'a> Pairs<'a> {
    fn find(entries: &'a [Entry<'_>]) -> Self {
        let mut pairs = Self::default();
        for (at, entry) in entries.iter().enumerate() {
            for block in &entry.blocks {
                let Some(Ours::Half(half)) = &block.ours else { continue };
                let halves = match half.role {
                    Role::Call => &mut pairs.calls,
                    Role::Result => &mut pairs.results,
                };
                halves.insert(&half.id, (at, &half.value));
            }
        }
        pairs
    }

    /// The text block that stands for a pair, at the half where its place is.
    fn told_by(&self, half: &Half, at: usize, told: &mut BTreeSet<String>) -> Option<String> {
        let call = self.calls.get(half.id.as_str());
        let Some((stands, result)) = self.results.get(half.id.as_str()) else {
            let name = half.foreign.as_deref()?;
            return Some(text_block(recount_foreign(name, Some(&half.value), None)));
        };
        let together = call.is_some_and(|(call, _)| call == stands);
        let is_place = match half.role {
            Role::Call => together && at == *stands,
            Role::Result => !together,
        };
        if !is_place || !told.insert(half.id.clone()) {
            return None;
        }
        let input = call.map(|(_, input)| *input);
        Some(text_block(match &half.foreign {
            Some(name) => recount_foreign(name, input, Some(result)),
            None => recount(input, result),
        }))
    }
}

fn text_block(text: String) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, Value::from(text))
}

/// Whether a text may hold what is folded. Names of types are written without escapes, by us and by SDKs.
fn mentions(text: &str, foreign: Foreign) -> bool {
    let says = |words: &str| memchr::memmem::find(text.as_bytes(), words.as_bytes()).is_some();
    mentions_ours(text) || foreign == Foreign::Told && (says("_tool_use\"") || says("_tool_result\""))
}

/// An escaped id is none that we wrote, nor that an SDK would write.
fn mentions_ours(text: &str) -> bool {
    let says = |prefix: &str| memchr::memmem::find(text.as_bytes(), prefix.as_bytes()).is_some();
    says(ids::SERVER_TOOL_USE) || says(ids::THOUGHT)
}

/// A JSON list of JSON texts.
fn list_of<'a>(texts: impl Iterator<Item = Cow<'a, str>>) -> String {
    let mut list = "[".to_owned();
    for text in texts {
        if list.len() > 1 {
            list.push(',');
        }
        list.push_str(&text);
    }
    list.push(']');
    list
}

/// What was run and what it gave, for the model to read.
pub(in crate::wire) fn recount(input: Option<&Value>, content: &Value) -> String {
    let mut text = String::new();
    let asked = |name: &str| input.and_then(|input| input.get(name)).and_then(Value::as_str);
    match (asked("code"), asked("command"), asked("path"), input) {
        (Some(code), ..) => push_fenced(&mut text, "I ran this Python code:", "python", code),
        (None, Some(command), None, _) => push_fenced(&mut text, "I ran this command:", "bash", command),
        (None, _, _, Some(Value::Object(input))) if !input.is_empty() => {
            push_fenced(&mut text, "I used the sandbox:", "json", &Value::from(input.clone()).to_string());
        }
        _ => text.push_str("I ran code in the sandbox."),
    }
    // Some clients send the result's object as a list of one.
    let content = content.as_array().and_then(|list| list.first()).unwrap_or(content);
    let word = |name: &str| content.get(name).and_then(Value::as_str).filter(|word| !word.is_empty());
    if let Some(code) = word("error_code") {
        push_line(&mut text, &format!("error: {code}"));
        if let Some(message) = word("error_message") {
            push_line(&mut text, message);
        }
        return text;
    }
    for name in ["stdout", "stderr", "logs", "content"] {
        if let Some(output) = word(name) {
            push_line(&mut text, &format!("{name}:\n{output}"));
        }
    }
    if let Some(code) = content.get("return_code").and_then(Value::as_i64) {
        push_line(&mut text, &format!("return code: {code}"));
    }
    if let Some(is_update) = content.get("is_file_update").and_then(Value::as_bool) {
        push_line(&mut text, if is_update { "The file was written over." } else { "The file was created." });
    }
    let texts = |name: &str| content.get(name).and_then(Value::as_array).into_iter().flatten();
    let changed: Vec<&str> = texts("lines").filter_map(Value::as_str).collect();
    if !changed.is_empty() {
        push_line(&mut text, &format!("changed lines:\n{}", changed.join("\n")));
    }
    for file in texts("content") {
        if let Some(id) = file.get("file_id").and_then(Value::as_str) {
            push_line(&mut text, &format!("file: {id}"));
        }
    }
    text
}

/// What a provider's own tool was asked and gave; an empty name is one that nobody knows.
pub(super) fn recount_foreign(name: &str, input: Option<&Value>, content: Option<&Value>) -> String {
    if let (true, Some(content)) = (name.ends_with("code_execution"), content) {
        return recount(input, content);
    }
    let name = if name.is_empty() { "a tool of the provider" } else { name };
    let input = input.map(Value::to_string).unwrap_or_default();
    let result = content.map(|content| format!("\nresult:\n{}", readable(content))).unwrap_or_default();
    format!("I used {name} with {input}.{result}")
}

/// A result without the parts that only the provider can read.
fn readable(content: &Value) -> String {
    fn strip(value: &Value) -> Value {
        match value {
            Value::Object(map) => map
                .iter()
                .filter(|(name, _)| !name.starts_with("encrypted_"))
                .map(|(name, value)| (name.clone(), strip(value)))
                .collect::<Map<_, _>>()
                .into(),
            Value::Array(list) => list.iter().map(strip).collect::<Vec<_>>().into(),
            other => other.clone(),
        }
    }
    match strip(content) {
        Value::String(text) => text,
        other => other.to_string(),
    }
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
