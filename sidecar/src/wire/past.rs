//! Calls of ours that a caller's history does not show, put back where they stood in it.
//!
//! A caller whose wire has no place for them gets its own calls alone, and sends those back with their results; others are
//! shown ours and leave them out, or what they gave. The model must read there what it called beside the caller's calls
//! and what that gave, or it would do the same again.
//!
//! INVARIANT: calls go back into the very conversation they grew out of or nowhere. An id alone proves nothing, for some
//! servers count theirs from zero in every conversation: the whole text in front of the answer is compared too.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use decision::decide::Run;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::conversation::Call;
use super::json::{Fields, replaced};
use super::model_request::CallResult;
use super::served::CallerWire;
use super::{chat_completions, messages, responses};

/// Calls of the caller's in one answer that are looked at; an answer with more is not remembered.
pub const MAX_CALL_IDS: usize = 1024;

/// A call of ours and what it gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastRun {
    /// The call, as the model made it.
    pub call: Call,
    /// What the model was told of it.
    pub result: CallResult,
}

/// A place in a conversation: a digest of everything in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place([u8; 32]);

impl Place {
    /// The place with this digest.
    pub fn of_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }
}

/// Who remembers what ran.
pub trait PastRuns {
    /// The calls of ours in the answer that began at this place and held one of these calls of the caller's.
    fn find(&self, call_ids: &HashSet<String>, place: &Place) -> Option<Arc<[PastRun]>>;
}

/// A request whose history is looked through.
#[derive(Debug)]
pub struct Restored {
    /// The body with what was remembered; `None` where nothing was.
    pub body: Option<Vec<u8>>,
    /// Where the answer to this request will stand.
    pub place: Place,
}

/// What a wire knows of its own history.
pub(super) struct Shape {
    /// Member that holds the history.
    pub(super) history: &'static str,
    /// Member that holds the system text, where it is not part of the history.
    pub(super) system: Option<&'static str>,
    /// The model said this entry.
    pub(super) is_models: fn(&RawValue) -> bool,
    /// An entry that the model said shows a call of ours with what it gave.
    pub(super) shows_run: fn(&RawValue) -> bool,
    /// Ids of the caller's calls in an entry.
    pub(super) call_ids: fn(&RawValue) -> Vec<String>,
    /// Puts calls and results into a list of entries, whose answer stands at this range.
    pub(super) put_back: fn(&mut Vec<Cow<'_, str>>, Range<usize>, &[PastRun]),
}

/// Looks through a request's history. `None` for one that is no conversation, or whose answer cannot hold a call of the
/// caller's, so that there is nothing to remember.
pub fn restore(wire: CallerWire, body: &[u8], run: &Run, past: &dyn PastRuns) -> Option<Restored> {
    let fields: Fields<'_> = serde_json::from_slice(body).ok()?;
    if fields.read::<Vec<&RawValue>>("tools")?.len() <= run.claimed.len() {
        return None;
    }
    let shape = match wire {
        CallerWire::Messages => &messages::SHAPE,
        CallerWire::ChatCompletions => &chat_completions::SHAPE,
        CallerWire::Responses => &responses::SHAPE,
    };
    let history = fields.get(shape.history)?;
    let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(history.get()) else {
        return Some(Restored { body: None, place: Way::of_text(shape, &fields)?.place() });
    };
    let mut way = Way::new(shape, &fields);
    let mut found = Vec::new();
    let mut at = 0;
    let entries: Vec<(bool, &RawValue)> = list.iter().map(|entry| ((shape.is_models)(entry), *entry)).collect();
    for said in entries.chunk_by(|(before, _), (after, _)| before == after) {
        let answer: Vec<&RawValue> = said.iter().filter(|(is_models, _)| *is_models).map(|(_, entry)| *entry).collect();
        let place = way.place();
        let ids = answer.iter().flat_map(|entry| (shape.call_ids)(entry)).take(MAX_CALL_IDS).collect();
        if !answer.iter().any(|entry| (shape.shows_run)(entry))
            && let Some(runs) = past.find(&ids, &place)
        {
            found.push((at..at + said.len(), runs));
        }
        at += said.len();
        for (_, entry) in said {
            way.step(entry.get());
        }
    }
    let place = way.place();
    if found.is_empty() {
        return Some(Restored { body: None, place });
    }
    let mut entries: Vec<Cow<'_, str>> = list.into_iter().map(|entry| Cow::Borrowed(entry.get())).collect();
    // From the end, so that the ranges in front stay true.
    for (answer, runs) in found.into_iter().rev() {
        (shape.put_back)(&mut entries, answer, &runs);
    }
    let body = replaced(body, history.get(), format!("[{}]", entries.join(",")).as_bytes());
    Some(Restored { body, place })
}

/// A walk through a conversation.
struct Way(Sha256);

impl Way {
    fn new(shape: &Shape, fields: &Fields<'_>) -> Self {
        let mut way = Self(Sha256::new());
        way.step(shape.system.and_then(|name| fields.get(name)).map_or("null", RawValue::get));
        way
    }

    /// A history of one text is that of one message of the user's.
    fn of_text(shape: &Shape, fields: &Fields<'_>) -> Option<Self> {
        let text: String = fields.read(shape.history)?;
        let mut way = Self::new(shape, fields);
        way.step(&serde_json::json!({"role": "user", "content": text}).to_string());
        Some(way)
    }

    /// JSON texts need nothing between them to be told apart; a comma keeps numbers apart all the same.
    fn step(&mut self, entry: &str) {
        self.0.update(entry);
        self.0.update(b",");
    }

    fn place(&self) -> Place {
        Place::of_digest(self.0.clone().finalize().into())
    }
}

/// An entry of the Messages or Chat Completions wire that the model said.
pub(super) fn is_assistants(entry: &RawValue) -> bool {
    let fields: Option<Fields<'_>> = serde_json::from_str(entry.get()).ok();
    fields.is_some_and(|fields| fields.read::<String>("role").as_deref() == Some("assistant"))
}

/// An entry with more items in the list that one of its members holds; `None` when that is no list.
pub(super) fn with_items(entry: &str, list: &str, at: usize, more: &[Value]) -> Option<String> {
    let fields: Fields<'_> = serde_json::from_str(entry).ok()?;
    let known = fields.get(list)?.get();
    let items: Vec<&RawValue> = serde_json::from_str(known).ok()?;
    let mut items: Vec<Cow<'_, str>> = items.into_iter().map(|item| Cow::Borrowed(item.get())).collect();
    let at = at.min(items.len());
    items.splice(at..at, more.iter().map(|item| Cow::Owned(item.to_string())));
    let edited = replaced(entry.as_bytes(), known, format!("[{}]", items.join(",")).as_bytes())?;
    String::from_utf8(edited).ok()
}

#[cfg(test)]
mod tests;
