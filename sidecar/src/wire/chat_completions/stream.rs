//! A streamed Chat Completions answer as turn events.
//!
//! INVARIANT: calls come one after another; pieces of a call that is already closed are refused, not guessed about.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::parse_error;
use super::reader::{Said, SaidCall, Turn};
use crate::ids::IdSource;
use crate::wire::event::{Opened, TurnEvent};
use crate::wire::reader::ReadError;
use crate::wire::sse::{Frame, SseDecoder};
use crate::wire::usage::Usage;

/// Reads a streamed answer.
#[derive(Debug)]
pub struct StreamReader {
    sse: SseDecoder,
    state: StreamState,
}

#[derive(Debug)]
struct StreamState {
    turn: Turn,
    opened: bool,
    /// Index and id of the call being written.
    call: Option<(u64, Option<String>)>,
    finish_reason: Option<String>,
    usage: Value,
    ended: bool,
    size: usize,
    limit: usize,
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

impl StreamReader {
    /// A reader with limits on one event and on the whole answer.
    pub fn new(max_frame_bytes: usize, max_answer_bytes: usize, ids: Arc<dyn IdSource>) -> Self {
        let state = StreamState {
            turn: Turn::new(ids),
            opened: false,
            call: None,
            finish_reason: None,
            usage: Value::Null,
            ended: false,
            size: 0,
            limit: max_answer_bytes,
        };
        Self { sse: SseDecoder::new(max_frame_bytes), state }
    }

    /// Takes bytes, appends the events they complete.
    pub fn feed(&mut self, chunk: &[u8], events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        let state = &mut self.state;
        self.sse.feed(chunk, |frame| state.frame(&frame, events))
    }

    /// The bytes ended. Without `[DONE]` that is an end all the same, once the model gave its reason.
    pub fn close(&mut self, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        match self.sse.finish().map(|frame| self.state.frame(&frame, events)) {
            // Half an event is an answer that broke off, which its missing end will tell.
            None | Some(Ok(()) | Err(ReadError::Malformed(_))) => {}
            Some(Err(error)) => return Err(error),
        }
        self.state.end(events);
        Ok(())
    }

    /// The turn as an entry of the history.
    pub fn into_history(self) -> Vec<u8> {
        self.state.turn.into_history()
    }
}

impl StreamState {
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
        let is_more = match &self.call {
            None => false,
            Some((index, known)) => {
                let same_place = said.index.is_none_or(|said| said == *index);
                let same_id = id.is_none() || id == *known || (known.is_none() && name.is_none());
                same_place && same_id && !(said.index.is_none() && name.is_some() && id.is_none())
            }
        };
        if !is_more {
            let index =
                said.index.unwrap_or_else(|| self.call.as_ref().map_or(0, |(index, _)| index.saturating_add(1)));
            if self.call.as_ref().is_some_and(|(known, _)| index < *known) {
                return Err(ReadError::malformed("the pieces of several calls are mixed up"));
            }
            let name = name.ok_or_else(|| ReadError::malformed("a call begins without a name"))?;
            self.turn.call(id.clone(), name, events);
            self.call = Some((index, id));
        }
        self.turn.arguments(function.arguments_text(), events);
        Ok(())
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
