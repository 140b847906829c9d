//! `multipart/form-data`, part by part, while it arrives.
//!
//! INVARIANT: whatever a client sends, no more is held than one piece of its body and [`PART_HEAD_MAX_BYTES`]; and no
//! more is read than somebody asks for.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use decision::problem::{Origin, Problem, ProblemKind};
use futures_util::{Stream, StreamExt as _, stream};
use http::header::{CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use multer::{Field, Multipart};
use tokio::time::Instant;

use super::super::Refusal;
use super::disposition::Disposition;
use super::parameters::Parameters;
use crate::ids;

/// Bytes of a body in which no part begins and no content comes: what stands before the first part, the head of a part.
const PART_HEAD_MAX_BYTES: u64 = 16 << 10;
/// Parts of one form; what we know has a handful.
const MAX_PARTS: usize = 16;
/// Longest value of a part that is no file.
const TEXT_MAX_BYTES: usize = 1024;
/// Transfer encodings (RFC 2045) that change nothing; some clients name one. RFC 7578, section 4.7 takes out the others.
const PLAIN_ENCODINGS: [&[u8]; 3] = [b"binary", b"8bit", b"7bit"];
/// Longest boundary (RFC 2046, section 5.1.1).
const BOUNDARY_MAX_BYTES: usize = 70;

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Patience {
    /// Longest silence.
    pub(in crate::http) silence: Duration,
    /// Longest time of a whole form.
    pub(in crate::http) deadline: Duration,
}

/// A form that is being read.
#[derive(Debug)]
pub(in crate::http) struct Form {
    parts: Multipart<'static>,
    seen: usize,
    /// Bytes handed to the parser since it last gave something back.
    unclaimed: Arc<AtomicU64>,
}

/// One part of it. The next one can be had when this is gone.
#[derive(Debug)]
pub(in crate::http) struct Part<'f> {
    /// What it says about itself.
    pub(in crate::http) disposition: Disposition,
    /// Its own `Content-Type`.
    pub(in crate::http) media_type: Option<Vec<u8>>,
    content: Field<'static>,
    form: &'f Form,
}

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    /// The client was silent for too long, or took too long in all.
    #[error("the request body took too long")]
    TooSlow,
    /// No part, or a part without an end of its head.
    #[error("no part begins within {PART_HEAD_MAX_BYTES} bytes")]
    HeadTooLong,
    /// The connection broke.
    #[error("the request body broke off")]
    Broken(#[source] axum::Error),
}

impl Form {
    /// Begins to read. Refuses what is no form.
    pub(in crate::http) fn begin(headers: &HeaderMap, body: Body, patience: Patience) -> Result<Self, Refusal> {
        refuse_encoded(headers)?;
        let boundary = boundary(headers)?;
        let unclaimed = Arc::new(AtomicU64::new(0));
        let pieces = OneByOne { pieces: pieces(body, patience), rests: false, unclaimed: Arc::clone(&unclaimed) };
        Ok(Self { parts: Multipart::new(pieces, boundary), seen: 0, unclaimed })
    }

    /// The next part; `None` after the last.
    pub(in crate::http) async fn next(&mut self) -> Result<Option<Part<'_>>, Refusal> {
        let Some(content) = self.parts.next_field().await.map_err(refused)? else { return Ok(None) };
        self.unclaimed.store(0, Ordering::Relaxed);
        self.seen += 1;
        if self.seen > MAX_PARTS {
            return Err(Problem::invalid(format!("the form has more than {MAX_PARTS} parts: send one file")).into());
        }
        let header = |name| content.headers().get(name).map(HeaderValue::as_bytes);
        let disposition = Disposition::read(header(CONTENT_DISPOSITION)).map_err(|error| {
            let text = format!("the `Content-Disposition` of a part cannot be read: {error}");
            Refusal::from(Problem::invalid(text))
        })?;
        let encoding =
            content.headers().get("content-transfer-encoding").map_or(&b"binary"[..], |value| value.as_bytes());
        if !PLAIN_ENCODINGS.iter().any(|plain| encoding.trim_ascii().eq_ignore_ascii_case(plain)) {
            let text = "a part has a `Content-Transfer-Encoding`, which a form over HTTP does not have: send the bytes as they are";
            return Err(Problem::invalid(text).into());
        }
        let media_type = header(CONTENT_TYPE).map(<[u8]>::to_vec);
        Ok(Some(Part { disposition, media_type, content, form: self }))
    }
}

impl Part<'_> {
    /// The next bytes of its content; `None` at its end. A piece is empty now and then.
    pub(in crate::http) async fn piece(&mut self) -> Result<Option<Bytes>, Refusal> {
        let piece = self.content.next().await.transpose().map_err(refused)?;
        self.form.unclaimed.store(0, Ordering::Relaxed);
        Ok(piece)
    }

    /// The whole content of a part that is no file.
    pub(in crate::http) async fn text(mut self) -> Result<String, Refusal> {
        let mut text = Vec::new();
        while let Some(piece) = self.piece().await? {
            text.extend_from_slice(&piece);
            if text.len() > TEXT_MAX_BYTES {
                return Err(self.odd(&format!("is longer than {TEXT_MAX_BYTES} bytes")));
            }
        }
        String::from_utf8(text).map_err(|_| self.odd("is not UTF-8"))
    }

    fn odd(&self, what: &str) -> Refusal {
        let field = ids::shown(&self.disposition.field);
        Problem::invalid(format!("the field `{field}` {what}")).with_param(field).into()
    }
}

/// What nobody here decodes is not to be kept as if it were the file.
fn refuse_encoded(headers: &HeaderMap) -> Result<(), Problem> {
    let coded = |value: &[u8]| !value.is_empty() && !value.eq_ignore_ascii_case(b"identity");
    if headers.get_all(CONTENT_ENCODING).iter().any(|value| coded(value.as_bytes().trim_ascii())) {
        let text = "the upload has a `Content-Encoding`: send it without";
        return Err(Problem::new(ProblemKind::UnsupportedMediaType, Origin::Caller, text));
    }
    Ok(())
}

fn boundary(headers: &HeaderMap) -> Result<String, Problem> {
    let refused = || {
        let text = "an upload is a form: send `Content-Type: multipart/form-data` with its `boundary`, and the file in a \
                    part `file`";
        Problem::invalid(text)
    };
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (types.next(), types.next()) else { return Err(refused()) };
    let parameters = Parameters::read(value.as_bytes()).map_err(|_| refused())?;
    if !parameters.word.eq_ignore_ascii_case(b"multipart/form-data") {
        return Err(refused());
    }
    let boundary = parameters.get("boundary").and_then(|boundary| std::str::from_utf8(boundary).ok());
    let fits = |boundary: &&str| (1..=BOUNDARY_MAX_BYTES).contains(&boundary.len()) && !boundary.contains(['\r', '\n']);
    boundary.filter(fits).map(str::to_owned).ok_or_else(refused)
}

/// The body as it comes. The clock of a silence runs only while somebody waits for the client.
fn pieces(body: Body, patience: Patience) -> stream::BoxStream<'static, Result<Bytes, BodyError>> {
    let deadline = Instant::now() + patience.deadline;
    let next = move |mut body: Body| async move {
        loop {
            let end = deadline.min(Instant::now() + patience.silence);
            return match tokio::time::timeout_at(end, body.frame()).await {
                Ok(None) => None,
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => Some((Ok(piece), body)),
                    // Trailers mean nothing here.
                    Err(_) => continue,
                },
                Ok(Some(Err(error))) => Some((Err(BodyError::Broken(error)), body)),
                Err(_) => Some((Err(BodyError::TooSlow), body)),
            };
        }
    };
    stream::unfold(body, next).boxed()
}

/// Gives one piece for each look at it. The parser would otherwise take, and keep, all that is there.
struct OneByOne<S> {
    pieces: S,
    /// The last look gave a piece.
    rests: bool,
    unclaimed: Arc<AtomicU64>,
}

impl<S: Stream<Item = Result<Bytes, BodyError>> + Unpin> Stream for OneByOne<S> {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.rests) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.unclaimed.load(Ordering::Relaxed) > PART_HEAD_MAX_BYTES {
            return Poll::Ready(Some(Err(BodyError::HeadTooLong)));
        }
        let polled = self.pieces.poll_next_unpin(cx);
        if let Poll::Ready(Some(Ok(piece))) = &polled {
            self.rests = true;
            self.unclaimed.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        polled
    }
}

/// What the parser, or the body below it, says: always about the request.
fn refused(error: multer::Error) -> Refusal {
    let problem = match &error {
        multer::Error::StreamReadFailed(below) => match below.downcast_ref::<BodyError>() {
            Some(BodyError::HeadTooLong) => {
                Problem::invalid(format!("the form is malformed: no part begins within {PART_HEAD_MAX_BYTES} bytes"))
            }
            Some(BodyError::TooSlow | BodyError::Broken(_)) | None => {
                Problem::invalid("the upload did not arrive completely, or took too long: send it again")
            }
        },
        multer::Error::ReadHeaderFailed(_)
        | multer::Error::DecodeHeaderName { .. }
        | multer::Error::DecodeHeaderValue { .. }
        | multer::Error::IncompleteHeaders => {
            Problem::invalid("the headers of a part cannot be read: names must not hold control characters")
        }
        _ => Problem::invalid("the form is malformed, or ends before its closing boundary"),
    };
    Refusal::from(problem).caused_by(error)
}

#[cfg(test)]
mod tests;
