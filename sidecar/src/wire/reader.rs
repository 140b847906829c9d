//! A model's answer in any wire, streamed or whole: bytes in, turn events out.
//!
//! INVARIANT: the events do not depend on how the bytes were cut.

use std::sync::Arc;

use decision::format::ApiFormat;
use decision::problem::{Origin, Problem, ProblemKind};

use super::event::TurnEvent;
use super::sse::FrameTooLong;
use super::{chat_completions, messages};
use crate::ids::IdSource;

/// Reads one answer of a model.
#[derive(Debug)]
pub enum TurnReader {
    /// Messages, streamed.
    MessagesStream(messages::StreamReader),
    /// Messages, whole.
    MessagesWhole(messages::WholeReader),
    /// Chat Completions, streamed.
    ChatStream(chat_completions::StreamReader),
    /// Chat Completions, whole.
    ChatWhole(chat_completions::WholeReader),
}

/// What a reader must know.
#[derive(Debug, Clone)]
pub struct ReaderOptions {
    /// The model's wire.
    pub wire: ApiFormat,
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
            ReadError::Malformed(_) | ReadError::TooLong { .. } => {
                Self::new(ProblemKind::UpstreamFailed, Origin::Upstream, error.to_string())
            }
        }
    }
}

impl TurnReader {
    /// The reader of a wire. `None` for a wire that no model is called in.
    pub fn new(options: ReaderOptions) -> Option<Self> {
        let ReaderOptions { wire, streamed, keep_raw, max_frame_bytes, max_answer_bytes, ids } = options;
        Some(match (wire, streamed) {
            (ApiFormat::Messages, true) => {
                Self::MessagesStream(messages::StreamReader::new(keep_raw, max_frame_bytes, max_answer_bytes))
            }
            (ApiFormat::Messages, false) => Self::MessagesWhole(messages::WholeReader::new(keep_raw, max_answer_bytes)),
            (ApiFormat::ChatCompletions, true) => {
                Self::ChatStream(chat_completions::StreamReader::new(max_frame_bytes, max_answer_bytes, ids))
            }
            (ApiFormat::ChatCompletions, false) => {
                Self::ChatWhole(chat_completions::WholeReader::new(max_answer_bytes, ids))
            }
            (ApiFormat::Responses, _) => return None,
        })
    }

    /// Takes bytes, appends the events they complete. After an error nothing more may be fed.
    pub fn feed(&mut self, chunk: &[u8], events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        match self {
            Self::MessagesStream(reader) => reader.feed(chunk, events),
            Self::MessagesWhole(reader) => reader.feed(chunk),
            Self::ChatStream(reader) => reader.feed(chunk, events),
            Self::ChatWhole(reader) => reader.feed(chunk),
        }
    }

    /// The bytes ended.
    pub fn close(&mut self, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        match self {
            Self::MessagesStream(reader) => reader.close(events),
            Self::MessagesWhole(reader) => reader.close(events),
            Self::ChatStream(reader) => reader.close(events),
            Self::ChatWhole(reader) => reader.close(events),
        }
    }

    /// The model's turn as an entry of the history, in its own wire.
    pub fn into_history(self) -> Vec<u8> {
        match self {
            Self::MessagesStream(reader) => reader.into_history(),
            Self::MessagesWhole(reader) => reader.into_history(),
            Self::ChatStream(reader) => reader.into_history(),
            Self::ChatWhole(reader) => reader.into_history(),
        }
    }
}
