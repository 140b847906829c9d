//! Items of ours that a client echoes: no provider knows their ids, and the model must not forget what it did.
//!
//! INVARIANT: what is not ours keeps its bytes, and its place; but in an answer that a code call of ours is part of, the
//! provider's items are tied by their ids to calls that it will not find, so reasoning goes and the others lose the id.

use std::borrow::Cow;
use std::collections::BTreeSet;

use decision::problem::Problem;
use decision::request::OWN_FILES;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::word;
use crate::ids;
use crate::wire::messages::recount;
use crate::wire::model_request::Foreign;

/// Prefixes of the ids of items that this gateway told in place of a model of another wire.
pub(super) const TOLD: [&str; 3] = [ids::MESSAGE, ids::REASONING, ids::FUNCTION_CALL];

const CODE_CALL: &str = "code_interpreter_call";
/// The tools of a server, which a model of another provider cannot call.
const TOOL_LIST: &str = "mcp_list_tools";
/// Items of tools that the provider itself runs. What a client runs has an answer of its own, and stays.
const HOSTED: [&str; 6] =
    [CODE_CALL, "file_search_call", "image_generation_call", "mcp_call", TOOL_LIST, "web_search_call"];

/// Members of a provider's own item that say nothing to another model, or are too long to.
const UNREADABLE: &[&str] = &["encrypted_content", "id", "result", "status"];

/// An input without items of ours.
#[derive(Debug)]
pub struct Folded<'a> {
    /// The list, as JSON; the very text that came in when nothing of it is ours.
    pub input: Cow<'a, str>,
    /// What had to be left out.
    pub dropped: BTreeSet<String>,
}

enum Fate {
    Stays,
    Becomes(Value),
    Goes,
}

/// The members that tell whose item it is.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head<'a> {
    #[serde(rename = "type")]
    kind: Option<Cow<'a, str>>,
    role: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
}

/// Folds every item of ours: a code call becomes an assistant's message that recounts it, other items lose the id.
///
/// A reference to a code call of ours is left out and named: its client will have kept the answer's text, which told
/// the result. A reference to words of ours is refused: what is kept was put in its place before (`stored`).
///
/// With [`Foreign::Told`] what a provider's own tools did is told in a message, too.
pub fn fold(input: &RawValue, foreign: Foreign) -> Result<Folded<'_>, Problem> {
    let text = input.get();
    let mut dropped = BTreeSet::new();
    let untouched = Folded { input: Cow::Borrowed(text), dropped: BTreeSet::new() };
    let says = |kind: &str| memchr::memmem::find(text.as_bytes(), kind.as_bytes()).is_some();
    let mentions_theirs = || foreign == Foreign::Told && HOSTED.iter().any(|kind| says(kind));
    if !(mentions_ours(text) || mentions_theirs()) {
        return Ok(untouched);
    }
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) else { return Ok(untouched) };
    let mut folded = "[".to_owned();
    let beside_ours = beside_ours(&items);
    for ((position, item), beside_ours) in items.into_iter().enumerate().zip(beside_ours) {
        let told = if foreign == Foreign::Told { told(item.get(), &mut dropped) } else { None };
        let fate = told.map_or_else(|| fate(item.get(), position, beside_ours, &mut dropped), Ok)?;
        let kept = match fate {
            Fate::Stays => Cow::Borrowed(item.get()),
            Fate::Becomes(other) => Cow::Owned(other.to_string()),
            Fate::Goes => continue,
        };
        if folded.len() > 1 {
            folded.push(',');
        }
        folded.push_str(&kept);
    }
    folded.push(']');
    Ok(Folded { input: Cow::Owned(folded), dropped })
}

/// Which items stand in one answer with a code call of ours: nothing of the client's between them.
fn beside_ours(items: &[&RawValue]) -> Vec<bool> {
    let heads: Vec<Head<'_>> = items.iter().map(|item| serde_json::from_str(item.get()).unwrap_or_default()).collect();
    let answers = heads.chunk_by(|before, after| before.is_models() == after.is_models());
    answers.flat_map(|answer| std::iter::repeat_n(answer.iter().any(Head::is_our_code), answer.len())).collect()
}

/// Did the model say this item?
pub(super) fn is_models(item: &RawValue) -> bool {
    serde_json::from_str::<Head<'_>>(item.get()).unwrap_or_default().is_models()
}

impl Head<'_> {
    fn is_models(&self) -> bool {
        match self.kind.as_deref() {
            Some("message") | None => self.role.as_deref() == Some("assistant"),
            Some("reasoning") => true,
            Some(kind) => kind.ends_with("_call"),
        }
    }

    fn is_our_code(&self) -> bool {
        self.kind.as_deref() == Some(CODE_CALL)
            && self.id.as_deref().is_some_and(|id| id.starts_with(ids::CODE_INTERPRETER_CALL))
    }
}

/// What becomes of an item of a provider's own tools for a model of another provider; `None` for any other item.
fn told(text: &str, dropped: &mut BTreeSet<String>) -> Option<Fate> {
    let head: Head<'_> = serde_json::from_str(text).unwrap_or_default();
    let kind = head.kind.as_deref().filter(|kind| HOSTED.contains(kind) && !head.is_our_code())?;
    let item: Map<String, Value> = serde_json::from_str(text).ok()?;
    if kind == TOOL_LIST {
        dropped.insert(TOOL_LIST.to_owned());
        return Some(Fate::Goes);
    }
    let text = if kind == CODE_CALL { recount_item(&item) } else { recount_foreign(item) };
    Some(Fate::Becomes(said(&text)))
}

/// What a provider's own tool did, for a model that does not know it.
pub(super) fn recount_foreign(mut item: Map<String, Value>) -> String {
    item.retain(|name, _| !UNREADABLE.contains(&name.as_str()));
    format!("I used a tool of the provider: {}", Value::from(item))
}

fn said(text: &str) -> Value {
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    json!({"type": "message", "role": "assistant", "content": content})
}

fn fate(text: &str, position: usize, beside_ours: bool, dropped: &mut BTreeSet<String>) -> Result<Fate, Problem> {
    if !beside_ours && !mentions_ours(text) {
        return Ok(Fate::Stays);
    }
    let Ok(mut item) = serde_json::from_str::<Map<String, Value>>(text) else { return Ok(Fate::Stays) };
    let has_cited = fold_citations(&mut item);
    let id = word(&item, "id").unwrap_or_default().to_owned();
    let is_code = id.starts_with(ids::CODE_INTERPRETER_CALL);
    let is_told = TOLD.iter().any(|prefix| id.starts_with(prefix));
    let kind = word(&item, "type").unwrap_or(if item.contains_key("role") { "message" } else { "item_reference" });
    let is_tied = beside_ours && matches!(kind, "message" | "function_call" | "custom_tool_call" | "reasoning");
    if !is_code && !is_told && !is_tied {
        return Ok(if has_cited { Fate::Becomes(item.into()) } else { Fate::Stays });
    }
    Ok(match (kind, is_code) {
        ("code_interpreter_call", true) => Fate::Becomes(said(&recount_item(&item))),
        ("item_reference", true) => {
            dropped.insert(format!("input[{position}]"));
            Fate::Goes
        }
        ("item_reference", false) => {
            let message = format!(
                "`input[{position}]` refers to an item that this gateway does not keep, or no longer: send the item \
                 itself, as SDKs do when `store` is false"
            );
            return Err(Problem::invalid(message).with_param(format!("input[{position}]")));
        }
        ("reasoning", false) => {
            dropped.insert("reasoning".to_owned());
            Fate::Goes
        }
        (_, false) => {
            item.shift_remove("id");
            Fate::Becomes(item.into())
        }
        (_, true) => Fate::Stays,
    })
}

/// Turns citations of files of ours in a message into words: no provider knows the files, and the model may need them.
fn fold_citations(item: &mut Map<String, Value>) -> bool {
    let mut is_changed = false;
    let parts = item.get_mut("content").and_then(Value::as_array_mut);
    for part in parts.into_iter().flatten().filter_map(Value::as_object_mut) {
        let Some(annotations) = part.get_mut("annotations").and_then(Value::as_array_mut) else { continue };
        let mut files: Vec<(String, String)> = Vec::new();
        annotations.retain(|annotation| {
            let word = |name: &str| annotation.get(name).and_then(Value::as_str);
            let ours = word("file_id").and_then(ids::out_of_container);
            let Some(id) = ours else { return true };
            files.push((word("filename").unwrap_or("file").to_owned(), id));
            false
        });
        if files.is_empty() {
            continue;
        }
        is_changed = true;
        let mut text = word(part, "text").unwrap_or_default().to_owned();
        for (name, id) in files {
            if !text.contains(&id) {
                push_file(&mut text, &name, &id);
            }
        }
        part.insert("text".to_owned(), text.into());
    }
    is_changed
}

fn push_file(text: &mut String, name: &str, id: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.extend(["file: ", name, " (file_id: ", id, ")"]);
}

/// What a code call did, whoever ran it; any of its members may be missing or null.
pub(super) fn recount_item(item: &Map<String, Value>) -> String {
    let outputs = item.get("outputs").and_then(Value::as_array);
    let logs: Vec<&str> =
        outputs.into_iter().flatten().filter_map(|output| output.get("logs").and_then(Value::as_str)).collect();
    let input = word(item, "code").filter(|code| !code.is_empty()).map(|code| json!({"code": code}));
    let mut text = recount(input.as_ref(), &json!({"logs": logs.concat()}));
    for output in outputs.into_iter().flatten() {
        let word = |name: &str| output.get(name).and_then(Value::as_str);
        if let Some(id) = word("file_id") {
            push_file(&mut text, word("filename").unwrap_or("an image"), id);
        }
    }
    if let Some(status @ ("failed" | "incomplete")) = word(item, "status") {
        text.push_str("\nstatus: ");
        text.push_str(status);
    }
    text
}

/// An escaped id is none that we wrote, nor that an SDK would write.
fn mentions_ours(text: &str) -> bool {
    let says = |needle: &str| memchr::memmem::find(text.as_bytes(), needle.as_bytes()).is_some();
    says(ids::CODE_INTERPRETER_CALL) || says(OWN_FILES[1]) || TOLD.iter().any(|prefix| says(prefix))
}

#[cfg(test)]
mod tests;
