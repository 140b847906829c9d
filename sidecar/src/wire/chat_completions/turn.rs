//! The model's turn that both readers of this wire put together: events as they come, and the turn as history.
//!
//! INVARIANT: one block is open at a time; a call whose turn has not come waits, whole, until the one before it ended.

use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::chunk::{self, CallHead, Content, Extras, Said};
use super::{parse_stop, parse_usage};
use crate::ids::{CALL, IdSource};
use crate::wire::event::{Aside, BlockEvent, BlockKind, Delta, Ended, Raw, Stop, TurnEvent};
use crate::wire::json::push_json;
use crate::wire::reader::ReadError;

/// Members that a model's server wants to read again where its turn is repeated: signed thinking, under three names.
const REPEATED: &[&str] = &["reasoning_details", "thinking_blocks", "extra_content"];

/// The model's turn so far.
#[derive(Debug)]
pub(super) struct Turn {
    ids: Arc<dyn IdSource>,
    keep_raw: bool,
    text: String,
    reasoning: String,
    refused: bool,
    /// Members of [`REPEATED`].
    repeated: Map<String, Value>,
    calls: Vec<TurnCall>,
    /// How many of them were told, the open one included; the others wait for its end.
    told: usize,
    open: Option<OpenKind>,
}

#[derive(Debug)]
struct TurnCall {
    id: String,
    name: String,
    custom: bool,
    arguments: String,
    extra: Map<String, Value>,
}

/// How a call begins.
pub(super) struct Begun {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) custom: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenKind {
    Text,
    Reasoning,
    Call,
}

impl Turn {
    /// `keep_raw` when the client speaks this wire too.
    pub(super) fn new(keep_raw: bool, ids: Arc<dyn IdSource>) -> Self {
        Self {
            ids,
            keep_raw,
            text: String::new(),
            reasoning: String::new(),
            refused: false,
            repeated: Map::new(),
            calls: Vec::new(),
            told: 0,
            open: None,
        }
    }

    /// Thinking, text and refusal of a message or delta, in this order.
    pub(super) fn words(&mut self, said: &mut Said, extras: &mut Extras, events: &mut Vec<TurnEvent>) {
        for (name, value) in extras.said.iter().filter(|(name, _)| REPEATED.contains(&name.as_str())) {
            grow(self.repeated.entry(name.as_str()).or_insert(Value::Null), value.clone());
        }
        let full = |text: Option<String>| text.filter(|text| !text.is_empty());
        let (text, thoughts) = said.content.take().map(Content::apart).unwrap_or_default();
        let (content, other) = (full(said.reasoning_content.take()), full(said.reasoning.take()));
        let content = content.or_else(|| full(Some(thoughts)));
        let names = [("reasoning_content", &content), ("reasoning", &other)];
        let names: Vec<(&str, &str)> =
            names.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?))).collect();
        if let Some((_, thought)) = names.first() {
            self.open(OpenKind::Reasoning, BlockKind::Reasoning, events);
            self.reasoning.push_str(thought);
            let raw = self.raw_words(&names, extras);
            events.push(TurnEvent::Block(BlockEvent::Delta(Delta::Reasoning((*thought).to_owned()), raw)));
        }
        for (name, piece) in [("content", full(Some(text))), ("refusal", full(said.refusal.take()))] {
            let Some(piece) = piece else { continue };
            self.refused |= name == "refusal";
            self.open(OpenKind::Text, BlockKind::Text, events);
            self.text.push_str(&piece);
            let raw = self.raw_words(&[(name, &piece)], extras);
            events.push(TurnEvent::Block(BlockEvent::Delta(Delta::Text(piece), raw)));
        }
    }

    /// A call begins; gives its position. While the open call still grows, the new one waits.
    pub(super) fn call(&mut self, begun: Begun, extras: &mut Extras, events: &mut Vec<TurnEvent>) -> usize {
        let waits = self.open == Some(OpenKind::Call) && !self.open_call_is_whole();
        if !waits {
            self.stop(events);
        }
        let position = self.calls.len();
        let Begun { id, name, custom } = begun;
        let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| self.ids.mint(CALL));
        self.calls.push(TurnCall { id, name, custom, arguments: String::new(), extra: Map::new() });
        if !waits {
            self.tell_next(&std::mem::take(extras), events);
        }
        position
    }

    /// A call grows, by input and by what else its piece says. Nothing can be added to one whose end was told.
    pub(super) fn arguments(
        &mut self,
        position: usize,
        piece: String,
        extra: Map<String, Value>,
        extras: &mut Extras,
        events: &mut Vec<TurnEvent>,
    ) -> Result<(), ReadError> {
        if piece.is_empty() && extra.is_empty() {
            return Ok(());
        }
        let is_open = self.open == Some(OpenKind::Call) && position.checked_add(1) == Some(self.told);
        let call = match self.calls.get_mut(position) {
            Some(call) if is_open || position >= self.told => call,
            _ => return Err(ReadError::malformed("a call goes on after its end")),
        };
        call.arguments.push_str(&piece);
        if is_open {
            let raw = self.keep_raw.then(|| chunk::call_more(&std::mem::take(extras), call.custom, &piece, &extra));
            events.push(TurnEvent::Block(BlockEvent::Delta(Delta::Arguments(piece), raw)));
        }
        call.extra.extend(extra);
        Ok(())
    }

    /// What a chunk says and nothing else of it carries.
    pub(super) fn aside(&self, extras: &Extras, events: &mut Vec<TurnEvent>) {
        if self.keep_raw && extras.is_news() {
            let data = chunk::words(extras, &[]);
            events.push(TurnEvent::Aside(Aside::Unknown { name: bytes::Bytes::new(), data }));
        }
    }

    /// Whatever is open ends, and what waited for it is told.
    pub(super) fn stop(&mut self, events: &mut Vec<TurnEvent>) {
        if self.open.take().is_some() {
            events.push(TurnEvent::stop());
        }
        while self.tell_next(&Extras::default(), events) {
            self.open = None;
            events.push(TurnEvent::stop());
        }
    }

    /// The end, with what the last chunks said beyond it.
    pub(super) fn ended(&mut self, finish_reason: &str, usage: &Value, closing: Extras, events: &mut Vec<TurnEvent>) {
        self.stop(events);
        let stop = match parse_stop(finish_reason, !self.calls.is_empty()) {
            Stop::EndTurn if self.refused => Stop::Refusal,
            stop => stop,
        };
        let raw = self.keep_raw.then(|| closing.into_closing(finish_reason));
        events.push(TurnEvent::Ended(Ended { stop, usage: parse_usage(usage, self.keep_raw), raw }));
    }

    /// The assistant's message. Thinking goes back under the name that the servers which want it back know.
    pub(super) fn into_history(self) -> Vec<u8> {
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        let text = if self.text.is_empty() { Value::Null } else { self.text.into() };
        message.insert("content".to_owned(), text);
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), self.reasoning.into());
        }
        message.extend(self.repeated);
        let calls: Vec<Value> = self
            .calls
            .into_iter()
            .map(|call| {
                // Servers parse the arguments of the history, so what is no object was answered, and goes, as `{}`.
                let is_object = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
                let arguments = if is_object { call.arguments } else { "{}".to_owned() };
                let mut entry = call.extra;
                entry.insert("id".to_owned(), call.id.into());
                entry.insert("type".to_owned(), "function".into());
                entry.insert("function".to_owned(), json!({"name": call.name, "arguments": arguments}));
                entry.into()
            })
            .collect();
        message.insert("tool_calls".to_owned(), calls.into());
        let mut entry = Vec::new();
        push_json(&mut entry, &message);
        entry
    }

    /// Opens the next call with what it has so far.
    fn tell_next(&mut self, extras: &Extras, events: &mut Vec<TurnEvent>) -> bool {
        let Some(TurnCall { id, name, custom, arguments, extra }) = self.calls.get(self.told) else { return false };
        self.told += 1;
        self.open = Some(OpenKind::Call);
        let raw = self.keep_raw.then(|| chunk::call_start(extras, CallHead { id, name, custom: *custom }, extra));
        let kind = BlockKind::Call { id: id.clone(), name: name.clone() };
        events.push(TurnEvent::Block(BlockEvent::Start(kind, raw)));
        if !arguments.is_empty() {
            let raw = self.keep_raw.then(|| chunk::call_more(&Extras::default(), *custom, arguments, &Map::new()));
            events.push(TurnEvent::Block(BlockEvent::Delta(Delta::Arguments(arguments.clone()), raw)));
        }
        true
    }

    /// Looked at once for every call that is told: where one waits already, the next waits too.
    fn open_call_is_whole(&self) -> bool {
        self.told == self.calls.len()
            && self.calls.last().is_some_and(|call| serde_json::from_str::<IgnoredAny>(&call.arguments).is_ok())
    }

    fn open(&mut self, kind: OpenKind, block: BlockKind, events: &mut Vec<TurnEvent>) {
        if self.open != Some(kind) {
            self.stop(events);
            self.open = Some(kind);
            events.push(TurnEvent::start(block));
        }
    }

    fn raw_words(&self, words: &[(&str, &str)], extras: &mut Extras) -> Option<Raw> {
        self.keep_raw.then(|| Raw { json: chunk::words(&std::mem::take(extras), words), index: None })
    }
}

/// Adds a later piece of a member that nobody here understands: texts and lists grow, objects grow by their members,
/// anything else is the newest.
pub(super) fn grow(known: &mut Value, more: Value) {
    match (&mut *known, more) {
        (_, Value::Null) => {}
        (Value::String(known), Value::String(more)) => known.push_str(&more),
        (Value::Array(known), Value::Array(more)) => known.extend(more),
        (Value::Object(known), Value::Object(more)) => {
            for (name, value) in more {
                grow(known.entry(name).or_insert(Value::Null), value);
            }
        }
        (known, more) => *known = more,
    }
}
