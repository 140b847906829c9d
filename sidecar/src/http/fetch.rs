//! Reading a request's body within limits of size and patience, held or passed on.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use decision::problem::{Origin, Problem, ProblemKind};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Instant, Sleep};

use super::Refusal;
use super::budget::{BodyBudget, Share};

/// Room made at once for a body whose length is announced; more comes as it arrives.
const RESERVE_MAX_BYTES: usize = 1 << 20;

/// How much and how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyLimits<'a> {
    /// Longest body.
    pub(super) max_bytes: u64,
    /// Longest silence.
    pub(super) patience: Duration,
    /// Longest time in all: a byte now and then does not hold a connection for ever.
    pub(super) deadline: Duration,
    /// What all bodies may take together.
    pub(super) budget: &'a BodyBudget,
}

/// A body that is passed on as it comes, within the same limits of time.
pub(super) struct Flowing {
    /// Never contended: it makes of a body that one task reads one that may be shared.
    body: Mutex<Body>,
    patience: Duration,
    deadline: Instant,
    /// When the patience ends, or the deadline before it.
    end: Pin<Box<Sleep>>,
}

/// The client was too slow.
#[derive(Debug, thiserror::Error)]
#[error("the request body took too long")]
struct TooSlow;

/// A whole body, with its share of the budget.
#[derive(Debug)]
pub(super) struct Fetched {
    /// The body.
    pub(super) bytes: Bytes,
    /// To be kept as long as the bytes, or what was made of them.
    pub(super) share: Share,
}

/// Reads a whole body, showing each piece to `look` as it comes, which may have seen enough: then the rest stays unread.
pub(super) async fn whole(
    mut body: Body,
    limits: BodyLimits<'_>,
    mut look: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<Fetched, Refusal> {
    let announced = http_body::Body::size_hint(&body).exact().unwrap_or(0);
    if announced > limits.max_bytes {
        return Err(too_large(limits.max_bytes));
    }
    let room = usize::try_from(announced).unwrap_or(RESERVE_MAX_BYTES).min(RESERVE_MAX_BYTES);
    let mut share = limits.budget.share();
    let mut whole = BytesMut::with_capacity(room);
    let deadline = Instant::now() + limits.deadline;
    loop {
        let end = deadline.min(Instant::now() + limits.patience);
        let frame = match tokio::time::timeout_at(end, body.frame()).await {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(Refusal::from(broken()).caused_by(error)),
            Err(_) => return Err(Refusal::from(broken()).caused_by(TooSlow)),
        };
        // Trailers mean nothing here.
        let Ok(piece) = frame.into_data() else { continue };
        let bytes = (whole.len() as u64).saturating_add(piece.len() as u64);
        if look(&piece).is_break() {
            break;
        }
        if bytes > limits.max_bytes {
            return Err(too_large(limits.max_bytes));
        }
        share.grow(bytes)?;
        whole.extend_from_slice(&piece);
    }
    Ok(Fetched { bytes: whole.freeze(), share })
}

/// For bodies that nobody looks into.
pub(super) fn unseen(_: &[u8]) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

impl Flowing {
    /// Starts the clock.
    pub(super) fn new(body: Body, limits: BodyLimits<'_>) -> Self {
        let (patience, now) = (limits.patience, Instant::now());
        let deadline = now + limits.deadline;
        let end = Box::pin(tokio::time::sleep_until(deadline.min(now + patience)));
        Self { body: Mutex::new(body), patience, deadline, end }
    }

    fn body(&self) -> std::sync::MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl http_body::Body for Flowing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let body = this.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let polled = Pin::new(body).poll_frame(cx);
        if polled.is_ready() {
            let end = this.deadline.min(Instant::now() + this.patience);
            this.end.as_mut().reset(end);
            return polled;
        }
        this.end.as_mut().poll(cx).map(|()| Some(Err(axum::Error::new(TooSlow))))
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&*self.body())
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&*self.body())
    }
}

fn too_large(max_bytes: u64) -> Refusal {
    let text = format!("the request body is longer than {max_bytes} bytes");
    Problem::new(ProblemKind::PayloadTooLarge, Origin::Caller, text).into()
}

fn broken() -> Problem {
    Problem::invalid("the request body did not arrive completely, or took too long")
}
