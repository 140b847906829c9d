//! Reading a request's body within limits of size and patience.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use decision::problem::{Origin, Problem, ProblemKind};
use http_body_util::BodyExt;

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
    /// What all bodies may take together.
    pub(super) budget: &'a BodyBudget,
}

/// A whole body, with its share of the budget.
#[derive(Debug)]
pub(super) struct Fetched {
    /// The body.
    pub(super) bytes: Bytes,
    /// To be kept as long as the bytes, or what was made of them.
    pub(super) share: Share,
}

/// Reads a whole body, showing each piece to `look` as it comes.
pub(super) async fn whole(
    mut body: Body,
    limits: BodyLimits<'_>,
    mut look: impl FnMut(&[u8]),
) -> Result<Fetched, Refusal> {
    let announced = http_body::Body::size_hint(&body).exact().unwrap_or(0);
    if announced > limits.max_bytes {
        return Err(too_large(limits.max_bytes));
    }
    let room = usize::try_from(announced).unwrap_or(RESERVE_MAX_BYTES).min(RESERVE_MAX_BYTES);
    let mut share = limits.budget.share();
    let mut whole = BytesMut::with_capacity(room);
    loop {
        let frame = match tokio::time::timeout(limits.patience, body.frame()).await {
            Ok(None) => return Ok(Fetched { bytes: whole.freeze(), share }),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(Refusal::from(broken()).caused_by(error)),
            Err(_) => return Err(broken().into()),
        };
        // Trailers mean nothing here.
        let Ok(piece) = frame.into_data() else { continue };
        let bytes = (whole.len() as u64).saturating_add(piece.len() as u64);
        if bytes > limits.max_bytes {
            return Err(too_large(limits.max_bytes));
        }
        share.grow(bytes)?;
        look(&piece);
        whole.extend_from_slice(&piece);
    }
}

fn too_large(max_bytes: u64) -> Refusal {
    let text = format!("the request body is longer than {max_bytes} bytes");
    Problem::new(ProblemKind::PayloadTooLarge, Origin::Caller, text).into()
}

fn broken() -> Problem {
    Problem::invalid("the request body did not arrive completely")
}
