//! The model side of one request: at most one call at a time, from the request to the last byte of the answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use http::{HeaderMap, header};

use super::failure;
use super::limits::Limits;
use crate::ids::IdSource;
use crate::upstream::{ModelAnswer, ModelCall, ModelClient, UpstreamError};
use crate::wire::model_request::{ModelRequest, TurnKind};
use crate::wire::reader::{ReaderOptions, TurnReader};
use crate::wire::served::{ModelWire, Wires};

type Chunks = BoxStream<'static, Result<Bytes, UpstreamError>>;

/// How the model of a request is called.
pub(super) struct ModelSide {
    pub(super) client: ModelClient,
    pub(super) provider: String,
    pub(super) wires: Wires,
    pub(super) headers: HeaderMap,
    pub(super) request: ModelRequest,
    pub(super) streamed: bool,
    pub(super) limits: Limits,
    pub(super) ids: Arc<dyn IdSource>,
    pub(super) call: Call,
}

/// Where the call stands.
pub(super) enum Call {
    None,
    Opening(BoxFuture<'static, Result<ModelAnswer, UpstreamError>>),
    /// The chunks are `None` once they ended; the reader stays, for its turn may have to be repeated.
    Reading(Box<TurnReader>, Option<Chunks>),
}

/// Something that happened at the model.
pub(super) enum Happened {
    Answered(Result<ModelAnswer, UpstreamError>),
    Said(Result<Bytes, UpstreamError>),
    Closed,
}

impl ModelSide {
    /// Sends the request as it now stands.
    pub(super) fn open(&mut self, kind: TurnKind) {
        let call = ModelCall {
            provider: self.provider.clone(),
            path: self.wires.model.path().to_owned(),
            headers: self.headers.clone(),
            body: self.request.body(kind).into(),
        };
        let client = self.client.clone();
        self.call = Call::Opening(async move { client.send(call).await }.boxed());
    }

    /// Begins to read an answer. Refuses one that has another form than was asked for.
    pub(super) fn read(&mut self, answer: ModelAnswer) -> Result<(), &'static str> {
        let kind = answer.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_stream = kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream");
        let is_json = kind.to_ascii_lowercase().contains("json");
        if answer.headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err("the model's answer is compressed although none was asked for");
        }
        if is_stream && !self.streamed {
            return Err("the model answered with a stream although none was asked for");
        }
        // A server that ignores `stream` answers whole; its answer is read as such, and told as a stream.
        let streamed = self.streamed && !is_json;
        let reader = TurnReader::new(ReaderOptions {
            wire: self.wires.model,
            streamed,
            keep_raw: self.wires.are_same() && streamed == self.streamed,
            max_frame_bytes: self.limits.max_frame_bytes,
            max_answer_bytes: self.limits.max_answer_bytes,
            ids: Arc::clone(&self.ids),
        });
        self.call = Call::Reading(Box::new(reader), Some(answer.body));
        Ok(())
    }

    /// Waits for the next thing to happen; for ever when no call is open. Safe to drop and call again.
    pub(super) async fn happened(&mut self) -> Happened {
        match &mut self.call {
            Call::None => std::future::pending().await,
            Call::Opening(answer) => {
                let answer = answer.await;
                self.call = Call::None;
                Happened::Answered(answer)
            }
            Call::Reading(_, chunks) => {
                let next = match chunks {
                    Some(open) => open.next().await,
                    None => std::future::pending().await,
                };
                if !matches!(next, Some(Ok(_))) {
                    *chunks = None;
                }
                next.map_or(Happened::Closed, Happened::Said)
            }
        }
    }

    /// Gives up the rest of an answer; what was read of it stays.
    pub(super) fn stop_reading(&mut self) {
        if let Call::Reading(_, chunks) = &mut self.call {
            *chunks = None;
        }
    }

    /// The turn that was read, as history. Its connection is kept if the answer's last bytes are here already.
    pub(super) fn take_history(&mut self) -> Vec<u8> {
        match std::mem::replace(&mut self.call, Call::None) {
            Call::Reading(reader, chunks) => {
                if let Some(mut chunks) = chunks {
                    drop(chunks.next().now_or_never());
                }
                reader.into_history()
            }
            Call::None | Call::Opening(_) => Vec::new(),
        }
    }

    /// Reads the rest of a finished answer, so that its connection can serve again.
    pub(super) async fn drain(&mut self, patience: Duration) {
        if let Call::Reading(_, Some(mut chunks)) = std::mem::replace(&mut self.call, Call::None) {
            let rest = async { while let Some(Ok(_)) = chunks.next().await {} };
            drop(tokio::time::timeout(patience, rest).await);
        }
    }
}

/// The body of an error answer, as far as it comes within the limits.
pub(super) async fn read_error(answer: ModelAnswer, limits: &Limits) -> Bytes {
    let mut body = Vec::new();
    let mut chunks = answer.body;
    let reading = async {
        while let Some(Ok(chunk)) = chunks.next().await {
            if body.len().saturating_add(chunk.len()) > limits.max_error_bytes {
                break;
            }
            body.extend_from_slice(&chunk);
        }
    };
    drop(tokio::time::timeout(limits.drain_timeout, reading).await);
    body.into()
}

/// An error answer in neutral words.
pub(super) async fn problem_of(wire: ModelWire, answer: ModelAnswer, limits: &Limits) -> decision::problem::Problem {
    let (status, headers) = (answer.status, answer.headers.clone());
    let body = read_error(answer, limits).await;
    failure::of_answer(wire, status, &headers, &body)
}
