//! A long answer that counts against the budget of bodies until it has left.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use decision::problem::Problem;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body::{Frame, SizeHint};

use super::budget::Share;

/// Bytes handed to the connection at once; those alone it may keep beside what is counted.
const PIECE_BYTES: usize = 64 << 10;

/// JSON on its way out, and its share.
#[derive(Debug)]
pub(super) struct Held {
    left: Bytes,
    _share: Share,
}

impl Held {
    /// Takes the room for it.
    pub(super) fn new(json: impl Into<Bytes>, mut share: Share) -> Result<Self, Problem> {
        let left = json.into();
        share.grow(left.len() as u64)?;
        Ok(Self { left, _share: share })
    }

    /// The answer.
    pub(super) fn response(self) -> Response {
        let mut response = Response::new(Body::new(self));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.left.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.left.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}
