//! A whole Chat Completions answer as turn events.
//!
//! INVARIANT: it is read as if it had come in one chunk of a stream.

use std::sync::Arc;

use super::chunk::{Chunk, Extras};
use super::turn::{Begun, Turn};
use super::{parse_error, parse_usage};
use crate::ids::IdSource;
use crate::wire::event::{Opened, TurnEvent};
use crate::wire::reader::{ReadError, WholeBody};

/// Reads a whole answer.
#[derive(Debug)]
pub struct WholeReader {
    keep_raw: bool,
    pub(in crate::wire) body: WholeBody,
    turn: Turn,
}

impl WholeReader {
    /// A reader of at most `max_answer_bytes`; `keep_raw` when the client speaks this wire too.
    pub fn new(keep_raw: bool, max_answer_bytes: usize, ids: Arc<dyn IdSource>) -> Self {
        Self { keep_raw, body: WholeBody::new(max_answer_bytes), turn: Turn::new(keep_raw, ids) }
    }

    /// The body is complete: all events at once.
    pub fn close(&mut self, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        let body = self.body.take()?;
        let mut answer: Chunk = serde_json::from_slice(&body)
            .map_err(|_| ReadError::malformed("the answer is not JSON, or a field has a wrong shape"))?;
        if answer.error.as_ref().is_some_and(|error| !error.is_null()) {
            return Err(ReadError::Provider(Box::new(parse_error(&body))));
        }
        let choice = answer.take_choice().ok_or_else(|| ReadError::malformed("the answer holds no choice"))?;
        let mut said = choice.message.unwrap_or_default();
        let usage = answer.usage.take().unwrap_or_default();
        let content = said.content.as_ref().map(|_| "".into());
        events.push(TurnEvent::Opened(Opened {
            usage: parse_usage(&usage, self.keep_raw),
            raw: self.keep_raw.then(|| answer.opening(content)),
            id: answer.id.take(),
        }));
        let closing = Extras { chunk: answer.extra, ..Extras::default() };
        let said_extra = std::mem::take(&mut said.extra);
        let mut extras = Extras { choice: choice.extra, said: said_extra, ..Extras::default() };
        self.turn.words(&mut said, &mut extras, events);
        let calls = said.tool_calls.unwrap_or_default();
        let called = !calls.is_empty();
        for mut call in calls {
            let begun =
                Begun { id: call.id.take(), name: call.take_name().unwrap_or_default(), custom: call.is_custom() };
            let position = self.turn.call(begun, &mut extras, events);
            let arguments = call.take_arguments();
            self.turn.arguments(position, arguments, call.extra, &mut extras, events)?;
        }
        if !called {
            self.turn.aside(&extras, events);
        }
        self.turn.ended(&choice.finish_reason.unwrap_or_default(), &usage, closing, events);
        Ok(())
    }

    /// The turn as an entry of the history.
    pub fn into_history(self) -> Vec<u8> {
        self.turn.into_history()
    }
}
