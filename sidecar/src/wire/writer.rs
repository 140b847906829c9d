//! The one answer a client gets, in its own wire, streamed or whole: client events in, bytes out.

use std::sync::Arc;

use bytes::Bytes;
use decision::problem::Problem;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::chat_completions::ChatWriter;
use super::event::{ClientEvent, Ended};
use super::messages::MessagesWriter;
use super::model_request::Show;
use super::responses::ResponsesWriter;
use super::responses::stored::Kept;
use super::served::CallerWire;
use crate::clock::Clock;
use crate::ids::IdSource;

/// Writes one answer.
#[derive(Debug)]
pub enum ClientWriter {
    /// Anthropic Messages.
    Messages(Box<MessagesWriter>),
    /// OpenAI Chat Completions.
    ChatCompletions(Box<ChatWriter>),
    /// OpenAI Responses.
    Responses(Box<ResponsesWriter>),
}

/// What a writer must know.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// The caller's wire.
    pub wire: CallerWire,
    /// Events as they come, or one body.
    pub streamed: bool,
    /// Show runs in the wire's own blocks.
    pub native: bool,
    /// What the caller asked to see.
    pub show: Show,
    /// Members of the request that the answer repeats or follows.
    pub settings: Map<String, Value>,
    /// Somebody keeps the answer; for the wire whose answers say so.
    pub kept: bool,
    /// The container that the run goes on with; without, one is named when code begins.
    pub container: Option<String>,
    /// Model name the caller asked for.
    pub model: String,
    /// For errors.
    pub request_id: String,
    /// For the ids of what the gateway adds.
    pub ids: Arc<dyn IdSource>,
    /// For the times that stand in it.
    pub clock: Arc<dyn Clock>,
}

impl ClientWriter {
    /// The writer of a wire.
    pub fn new(options: WriterOptions) -> Self {
        match options.wire {
            CallerWire::Messages => Self::Messages(Box::new(MessagesWriter::new(options))),
            CallerWire::ChatCompletions => Self::ChatCompletions(Box::new(ChatWriter::new(options))),
            CallerWire::Responses => Self::Responses(Box::new(ResponsesWriter::new(options))),
        }
    }

    /// Whether it shows images that code drew in itself.
    pub fn shows_images(&self) -> bool {
        match self {
            Self::Messages(_) | Self::ChatCompletions(_) => false,
            Self::Responses(writer) => writer.shows_images(),
        }
    }

    /// Tells the client one thing. An error means that the model's words cannot be told in this wire.
    pub fn write(&mut self, event: ClientEvent) -> Result<(), Problem> {
        match self {
            Self::Messages(writer) => writer.write(event),
            Self::ChatCompletions(writer) => writer.write(event),
            Self::Responses(writer) => {
                writer.write(event);
                Ok(())
            }
        }
    }

    /// The container that the client is told of, by now.
    pub fn container(&self) -> Option<&str> {
        match self {
            Self::Messages(writer) => writer.container(),
            Self::ChatCompletions(_) => None,
            Self::Responses(writer) => writer.container(),
        }
    }

    /// Until when it is kept; for the wire whose answers say so. Without, it ends with the answer.
    pub fn container_expires(&mut self, at: Timestamp) {
        if let Self::Messages(writer) = self {
            writer.container_expires(at);
        }
    }

    /// Something the client ignores, that keeps proxies and SDKs from giving up.
    pub fn keep_alive(&mut self) {
        match self {
            Self::Messages(writer) => writer.keep_alive(),
            Self::ChatCompletions(writer) => writer.keep_alive(),
            Self::Responses(writer) => writer.keep_alive(),
        }
    }

    /// The regular end.
    pub fn finish(&mut self, ended: Ended) {
        match self {
            Self::Messages(writer) => writer.finish(ended),
            Self::ChatCompletions(writer) => writer.finish(ended),
            Self::Responses(writer) => writer.finish(ended),
        }
    }

    /// The end by an error. Only for a stream: a whole answer has a status for that.
    pub fn fail(&mut self, problem: &Problem) {
        match self {
            Self::Messages(writer) => writer.fail(problem),
            Self::ChatCompletions(writer) => writer.fail(problem),
            Self::Responses(writer) => writer.fail(problem),
        }
    }

    /// The answer for who keeps it, after its regular end; `None` where nobody does.
    pub fn kept(&self) -> Option<Kept> {
        match self {
            Self::Messages(_) | Self::ChatCompletions(_) => None,
            Self::Responses(writer) => writer.kept(),
        }
    }

    /// The bytes since the last time. A whole answer has none before its end.
    pub fn take(&mut self) -> Bytes {
        match self {
            Self::Messages(writer) => writer.take(),
            Self::ChatCompletions(writer) => writer.take(),
            Self::Responses(writer) => writer.take(),
        }
    }
}
