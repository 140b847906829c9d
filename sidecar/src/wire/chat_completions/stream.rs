//! A streamed Chat Completions answer as turn events.
//!
//! INVARIANT: a piece belongs to the call whose index or id it names; one for a call that is over is refused, not guessed
//! about.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::chunk::{Choice, Chunk, Extras, SaidCall};
use super::parse_error;
use super::turn::{Begun, Turn};
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
    keep_raw: bool,
    turn: Turn,
    opened: bool,
    /// The calls so far, as the turn counts them.
    calls: Vec<CallKey>,
    finish_reason: Option<String>,
    usage: Value,
    /// What came with the reason and after it.
    closing: Box<Extras>,
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
        let mut chunk: Chunk = serde_json::from_slice(&frame.data)
            .map_err(|_| ReadError::malformed("an event is not JSON, or a field has a wrong shape"))?;
        if chunk.error.as_ref().is_some_and(|error| !error.is_null()) {
            return Err(ReadError::Provider(Box::new(parse_error(&frame.data))));
        }
        let choice = chunk.take_choice();
        if !std::mem::replace(&mut self.opened, true) {
            let content = choice.as_ref().and_then(|choice| choice.delta.as_ref()?.content.as_ref());
            let raw = self.keep_raw.then(|| chunk.opening(content.map(|_| "".into())));
            events.push(TurnEvent::Opened(Opened { id: chunk.id.take(), usage: Usage::default(), raw }));
        }
        if let Some(usage) = chunk.usage.filter(Value::is_object) {
            self.usage = usage;
        }
        self.choice(choice, chunk.extra, events)
    }

    /// Without `[DONE]` that is an end all the same, once the model gave its reason.
    fn closed(&mut self, events: &mut Vec<TurnEvent>) {
        if self.gave_reason() {
            self.end(events);
        }
    }
}

impl StreamState {
    /// A reader of at most `max_answer_bytes`; `keep_raw` when the client speaks this wire too.
    pub fn new(keep_raw: bool, max_answer_bytes: usize, ids: Arc<dyn IdSource>) -> Self {
        Self {
            keep_raw,
            turn: Turn::new(keep_raw, ids),
            opened: false,
            calls: Vec::new(),
            finish_reason: None,
            usage: Value::Null,
            closing: Box::default(),
            ended: false,
            size: 0,
            limit: max_answer_bytes,
        }
    }

    /// The turn as an entry of the history.
    pub fn into_history(self) -> Vec<u8> {
        self.turn.into_history()
    }

    /// What a chunk says; one without a choice says something of the whole answer.
    fn choice(
        &mut self,
        choice: Option<Choice>,
        chunk: Map<String, Value>,
        events: &mut Vec<TurnEvent>,
    ) -> Result<(), ReadError> {
        let mut extras = Extras { chunk, ..Extras::default() };
        let mut called = false;
        if let Some(choice) = choice {
            let mut said = choice.delta.unwrap_or_default();
            (extras.choice, extras.said) = (choice.extra, std::mem::take(&mut said.extra));
            self.turn.words(&mut said, &mut extras, events);
            for call in said.tool_calls.into_iter().flatten() {
                called = true;
                self.called(call, &mut extras, events)?;
            }
            match choice.finish_reason {
                Some(reason) if reason.is_empty() => {
                    self.finish_reason.get_or_insert(reason);
                }
                Some(reason) => {
                    self.turn.stop(events);
                    self.finish_reason = Some(reason);
                }
                None => {}
            }
        }
        match (called, self.gave_reason()) {
            // A call that took nothing of it along may be ours.
            (true, _) => {}
            (false, true) => self.closing.absorb(extras),
            (false, false) => self.turn.aside(&extras, events),
        }
        Ok(())
    }

    /// Some servers say an empty word in every chunk: more may follow it, and only `[DONE]` makes it the end.
    fn gave_reason(&self) -> bool {
        self.finish_reason.as_ref().is_some_and(|reason| !reason.is_empty())
    }

    /// A piece of a call. Some servers leave out the index, some give every call the index 0 and an id of its own.
    fn called(
        &mut self,
        mut said: SaidCall,
        extras: &mut Extras,
        events: &mut Vec<TurnEvent>,
    ) -> Result<(), ReadError> {
        let name = said.take_name();
        let id = said.id.take().filter(|id| !id.is_empty());
        let position = match self.position(said.index, id.as_deref(), name.is_some()) {
            Some(known) => known,
            None if self.calls.len() >= MAX_CALLS => {
                return Err(ReadError::malformed("one answer holds too many calls"));
            }
            None => {
                let name = name.ok_or_else(|| ReadError::malformed("a call begins without a name"))?;
                let next = self.calls.last().map_or(0, |last| last.index.saturating_add(1));
                self.calls.push(CallKey { index: said.index.unwrap_or(next), id: id.clone() });
                self.turn.call(Begun { id, name, custom: said.is_custom() }, extras, events)
            }
        };
        let arguments = said.take_arguments();
        self.turn.arguments(position, arguments, said.extra, extras, events)
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
            self.turn.ended(reason, &self.usage, std::mem::take(&mut *self.closing), events);
        }
    }
}

#[cfg(test)]
mod tests;
