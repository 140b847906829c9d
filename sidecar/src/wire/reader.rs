//! A model's answer in any wire, streamed or whole: bytes in, turn events out.
//!
//! INVARIANT: the events do not depend on how the bytes were cut.

use std::sync::Arc;

use bytes::Bytes;
use decision::problem::{Origin, Problem, ProblemKind};

use super::event::TurnEvent;
use super::json::has_at_most;
use super::served::ModelWire;
use super::sse::{Frame, FrameTooLong, SseDecoder};
use super::{chat_completions, messages, responses};
use crate::ids::IdSource;

/// Reads one answer of a model.
#[derive(Debug)]
pub enum TurnReader {
    /// Messages, streamed.
    MessagesStream(Frames<messages::StreamState>),
    /// Messages, whole.
    MessagesWhole(messages::WholeReader),
    /// Chat Completions, streamed.
    ChatStream(Frames<chat_completions::StreamState>),
    /// Chat Completions, whole.
    ChatWhole(chat_completions::WholeReader),
    /// Responses, streamed.
    ResponsesStream(Frames<responses::StreamState>),
    /// Responses, whole.
    ResponsesWhole(responses::WholeReader),
}

/// What a reader must know.
#[derive(Debug, Clone)]
pub struct ReaderOptions {
    /// The model's wire.
    pub wire: ModelWire,
    /// The answer is a stream of events.
    pub streamed: bool,
    /// Bytes of the wire go to the client as they are.
    pub keep_raw: bool,
    /// One event, in bytes.
    pub max_frame_bytes: usize,
    /// The whole answer, in bytes.
    pub max_answer_bytes: usize,
    /// For calls to which the model gave no id.
    pub ids: Arc<dyn IdSource>,
}

/// Why an answer cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It does not follow the wire's rules.
    #[error("malformed model answer: {0}")]
    Malformed(&'static str),
    /// It is longer than a limit.
    #[error("the model's answer is longer than {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// It has more values than a limit.
    #[error("a part of the model's answer holds more than {limit} JSON values")]
    TooManyValues {
        /// The limit.
        limit: usize,
    },
    /// The provider broke off with an error of its own.
    #[error("the provider reported an error")]
    Provider(Box<Problem>),
}

impl ReadError {
    pub(super) fn malformed(what: &'static str) -> Self {
        Self::Malformed(what)
    }
}

impl From<FrameTooLong> for ReadError {
    fn from(error: FrameTooLong) -> Self {
        Self::TooLong { limit: error.limit }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Provider(problem) => *problem,
            ReadError::Malformed(_) | ReadError::TooLong { .. } | ReadError::TooManyValues { .. } => {
                Self::new(ProblemKind::UpstreamFailed, Origin::Upstream, error.to_string())
            }
        }
    }
}

impl TurnReader {
    /// The reader of a wire.
    pub fn new(options: ReaderOptions) -> Self {
        let ReaderOptions { wire, streamed, keep_raw, max_frame_bytes, max_answer_bytes, ids } = options;
        match (wire, streamed) {
            (ModelWire::Messages, true) => {
                let state = messages::StreamState::new(keep_raw, max_answer_bytes);
                Self::MessagesStream(Frames::new(state, max_frame_bytes))
            }
            (ModelWire::Messages, false) => Self::MessagesWhole(messages::WholeReader::new(keep_raw, max_answer_bytes)),
            (ModelWire::ChatCompletions, true) => {
                let state = chat_completions::StreamState::new(keep_raw, max_answer_bytes, ids);
                Self::ChatStream(Frames::new(state, max_frame_bytes))
            }
            (ModelWire::ChatCompletions, false) => {
                Self::ChatWhole(chat_completions::WholeReader::new(keep_raw, max_answer_bytes, ids))
            }
            (ModelWire::Responses, true) => {
                let state = responses::StreamState::new(keep_raw, max_answer_bytes);
                Self::ResponsesStream(Frames::new(state, max_frame_bytes))
            }
            (ModelWire::Responses, false) => {
                Self::ResponsesWhole(responses::WholeReader::new(keep_raw, max_answer_bytes))
            }
        }
    }

    /// Takes bytes, appends the events they complete. After an error nothing more may be fed.
    pub fn feed(&mut self, chunk: &[u8], events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        match self {
            Self::MessagesStream(reader) => reader.feed(chunk, events),
            Self::MessagesWhole(reader) => reader.body.feed(chunk),
            Self::ChatStream(reader) => reader.feed(chunk, events),
            Self::ChatWhole(reader) => reader.body.feed(chunk),
            Self::ResponsesStream(reader) => reader.feed(chunk, events),
            Self::ResponsesWhole(reader) => reader.body.feed(chunk),
        }
    }

    /// The bytes ended.
    pub fn close(&mut self, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        match self {
            Self::MessagesStream(reader) => reader.close(events),
            Self::MessagesWhole(reader) => reader.close(events),
            Self::ChatStream(reader) => reader.close(events),
            Self::ChatWhole(reader) => reader.close(events),
            Self::ResponsesStream(reader) => reader.close(events),
            Self::ResponsesWhole(reader) => reader.close(events),
        }
    }

    /// The model's turn as an entry of the history, in its own wire.
    pub fn into_history(self) -> Vec<u8> {
        match self {
            Self::MessagesStream(reader) => reader.state.into_history(),
            Self::MessagesWhole(reader) => reader.into_history(),
            Self::ChatStream(reader) => reader.state.into_history(),
            Self::ChatWhole(reader) => reader.into_history(),
            Self::ResponsesStream(reader) => reader.state.into_history(),
            Self::ResponsesWhole(reader) => reader.into_history(),
        }
    }
}

/// What a wire makes of the frames of a stream.
pub trait FrameReader {
    /// Takes one frame.
    fn frame(&mut self, frame: &Frame, events: &mut Vec<TurnEvent>) -> Result<(), ReadError>;

    /// The bytes ended; nothing to do where a wire has an end of its own.
    fn closed(&mut self, _events: &mut Vec<TurnEvent>) {}
}

/// A streamed answer, cut into frames.
#[derive(Debug)]
pub struct Frames<S> {
    sse: SseDecoder,
    state: S,
}

impl<S: FrameReader> Frames<S> {
    fn new(state: S, max_frame_bytes: usize) -> Self {
        Self { sse: SseDecoder::new(max_frame_bytes), state }
    }

    fn feed(&mut self, chunk: &[u8], events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        let state = &mut self.state;
        self.sse.feed(chunk, |frame| {
            check_values(&frame.data)?;
            state.frame(&frame, events)
        })
    }

    fn close(&mut self, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        let last = self.sse.finish();
        match last.map(|frame| check_values(&frame.data).and_then(|()| self.state.frame(&frame, events))) {
            // Half an event is an answer that broke off, which its missing end will tell.
            None | Some(Ok(()) | Err(ReadError::Malformed(_))) => {}
            Some(Err(error)) => return Err(error),
        }
        self.state.closed(events);
        Ok(())
    }
}

/// Values in one event of a stream, or in a whole answer: read, each takes many times its own bytes.
const MAX_ANSWER_VALUES: usize = 250_000;

fn check_values(json: &[u8]) -> Result<(), ReadError> {
    if has_at_most(json, MAX_ANSWER_VALUES) {
        Ok(())
    } else {
        Err(ReadError::TooManyValues { limit: MAX_ANSWER_VALUES })
    }
}

/// The body of a whole answer, as it comes in.
#[derive(Debug)]
pub(super) struct WholeBody {
    bytes: Vec<u8>,
    limit: usize,
}

impl WholeBody {
    /// At most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    fn feed(&mut self, chunk: &[u8]) -> Result<(), ReadError> {
        if self.bytes.len().saturating_add(chunk.len()) > self.limit {
            return Err(ReadError::TooLong { limit: self.limit });
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// All of it.
    pub(super) fn take(&mut self) -> Result<Bytes, ReadError> {
        check_values(&self.bytes)?;
        Ok(std::mem::take(&mut self.bytes).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SystemIds;

    fn read(wire: ModelWire, streamed: bool, text: &str) -> Result<(), ReadError> {
        let mut reader = TurnReader::new(ReaderOptions {
            wire,
            streamed,
            keep_raw: true,
            max_frame_bytes: 16 << 20,
            max_answer_bytes: 64 << 20,
            ids: Arc::new(SystemIds),
        });
        let mut events = Vec::new();
        reader.feed(text.as_bytes(), &mut events)?;
        reader.close(&mut events)
    }

    #[test]
    fn an_answer_of_very_many_values_is_refused_before_it_is_taken_apart() {
        let many = format!(r#"{{"type":"x","choices":[{}]}}"#, vec!["{}"; MAX_ANSWER_VALUES].join(","));
        let refused = Err(ReadError::TooManyValues { limit: MAX_ANSWER_VALUES });
        for wire in [ModelWire::Messages, ModelWire::ChatCompletions, ModelWire::Responses] {
            assert_eq!(read(wire, true, &format!("data: {many}\n\n")), refused, "{wire:?}");
            assert_eq!(read(wire, true, &format!("data: {many}")), refused, "{wire:?}, without an end");
            assert_eq!(read(wire, false, &many), refused, "{wire:?}");
        }
    }

    #[test]
    fn events_that_say_nothing_count_towards_the_length_of_an_answer() {
        let delta = format!(r#"{{"type":"message_delta","delta":{{}},"usage":{{"x":"{}"}}}}"#, "y".repeat(1 << 20));
        let endless = format!("data: {delta}\n\n").repeat(65);
        assert_eq!(read(ModelWire::Messages, true, &endless), Err(ReadError::TooLong { limit: 64 << 20 }));
    }
}
