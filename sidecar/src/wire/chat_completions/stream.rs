//! A streamed Chat Completions answer as turn events.
//!
//! INVARIANT: a piece belongs to the call whose index or id it names; one for a call that is over is refused, not guessed
//! about.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::parse_error;
use super::reader::{Said, SaidCall, Turn};
use crate::ids::IdSource;
use crate::wire::event::{Opened, TurnEvent};
use crate::wire::reader::{FrameReader, ReadError};
use crate::wire::sse::Frame;
use crate::wire::usage::Usage;

/// Most calls in one answer, of our tool and of the caller's functions together.
const MAX_CALLS: usize = 1024;

/// Reads a streamed answer, frame by frame.
#[derive(Debug)]
pub struct StreamState {
    turn: Turn,
    opened: bool,
    /// The calls so far, as the turn counts them.
    calls: Vec<CallKey>,
    finish_reason: Option<String>,
    usage: Value,
    ended: bool,
    size: usize,
    limit: usize,
}

/// What a model's pieces know a call by.
#[derive(Debug)]
struct CallKey {
    index: u64,
    id: Option<String>,
}

#[derive(Deserialize)]
struct Chunk {
    id: Option<String>,
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    index: Option<u64>,
    delta: Option<Said>,
    finish_reason: Option<String>,
}

impl FrameReader for StreamState {
    fn frame(&mut self, frame: &Frame, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        if self.ended {
            return Ok(());
        }
        if frame.data.trim_ascii() == b"[DONE]" {
            self.end(events);
            return Ok(());
        }
        self.size = self.size.saturating_add(frame.data.len());
        if self.size > self.limit {
            return Err(ReadError::TooLong { limit: self.limit });
        }
        let chunk: Chunk = serde_json::from_slice(&frame.data)
            .map_err(|_| ReadError::malformed("an event is not JSON, or a field has a wrong shape"))?;
        if chunk.error.is_some_and(|error| !error.is_null()) {
            return Err(ReadError::Provider(Box::new(parse_error(&frame.data))));
        }
        if !std::mem::replace(&mut self.opened, true) {
            events.push(TurnEvent::Opened(Opened { id: chunk.id, usage: Usage::default(), raw: None }));
        }
        if let Some(usage) = chunk.usage.filter(Value::is_object) {
            self.usage = usage;
        }
        // We ask for one choice; whatever else a server sends has no reader.
        let choice = chunk.choices.into_iter().flatten().find(|choice| choice.index.unwrap_or(0) == 0);
        let Some(choice) = choice else { return Ok(()) };
        if let Some(said) = choice.delta {
            self.said(said, events)?;
        }
        if let Some(reason) = choice.finish_reason {
            self.turn.stop(events);
            self.finish_reason = Some(reason);
        }
        Ok(())
    }

    /// Without `[DONE]` that is an end all the same, once the model gave its reason.
    fn closed(&mut self, events: &mut Vec<TurnEvent>) {
        self.end(events);
    }
}

impl StreamState {
    /// A reader of at most `max_answer_bytes`.
    pub fn new(max_answer_bytes: usize, ids: Arc<dyn IdSource>) -> Self {
        Self {
            turn: Turn::new(ids),
            opened: false,
            calls: Vec::new(),
            finish_reason: None,
            usage: Value::Null,
            ended: false,
            size: 0,
            limit: max_answer_bytes,
        }
    }

    /// The turn as an entry of the history.
    pub fn into_history(self) -> Vec<u8> {
        self.turn.into_history()
    }

    fn said(&mut self, said: Said, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        self.turn.reasoning(said.reasoning_content.or(said.reasoning).unwrap_or_default(), events);
        self.turn.text(said.content.unwrap_or_default(), events);
        if let Some(refusal) = said.refusal.filter(|refusal| !refusal.is_empty()) {
            self.turn.refusal(refusal, events);
        }
        for call in said.tool_calls.into_iter().flatten() {
            self.called(call, events)?;
        }
        Ok(())
    }

    /// A piece of a call. Some servers leave out the index, some give every call the index 0 and an id of its own.
    fn called(&mut self, said: SaidCall, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        let mut function = said.function.unwrap_or_default();
        let name = function.name.take().filter(|name| !name.is_empty());
        let id = said.id.filter(|id| !id.is_empty());
        let position = match self.position(said.index, id.as_deref(), name.is_some()) {
            Some(known) => known,
            None if self.calls.len() >= MAX_CALLS => {
                return Err(ReadError::malformed("one answer holds too many calls"));
            }
            None => {
                let name = name.ok_or_else(|| ReadError::malformed("a call begins without a name"))?;
                let next = self.calls.last().map_or(0, |last| last.index.saturating_add(1));
                self.calls.push(CallKey { index: said.index.unwrap_or(next), id: id.clone() });
                self.turn.call(id, name, events)
            }
        };
        self.turn.arguments(position, function.arguments_text(), events)
    }

    /// The call that a piece belongs to; `None` for a new one.
    fn position(&self, index: Option<u64>, id: Option<&str>, named: bool) -> Option<usize> {
        let is_place = |key: &CallKey| index.is_none_or(|index| index == key.index);
        let by_id = |key: &CallKey| is_place(key) && key.id.as_deref() == id;
        if id.is_some()
            && let Some(known) = self.calls.iter().rposition(by_id)
        {
            return Some(known);
        }
        let latest = self.calls.iter().rposition(is_place)?;
        let is_more = match id {
            Some(_) => !named && self.calls.get(latest).is_some_and(|key| key.id.is_none()),
            None => index.is_some() || !named,
        };
        is_more.then_some(latest)
    }

    fn end(&mut self, events: &mut Vec<TurnEvent>) {
        if self.ended {
            return;
        }
        if let Some(reason) = &self.finish_reason {
            self.ended = true;
            self.turn.ended(reason, &self.usage, events);
        }
    }
}

#[cfg(test)]
mod tests;
