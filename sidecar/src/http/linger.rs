//! Reading on after an early answer: a connection closed on unread bytes is reset, and the answer in it is lost.
//!
//! INVARIANT: what is read here is kept nowhere, and no longer than `LINGER_TIMEOUT`.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio_util::task::TaskTracker;

/// For a client to read its answer, and to stop sending.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// A request's body; what its reader leaves unread is read to its end in a task of its own.
#[derive(Debug)]
pub(super) struct Lingering {
    /// `None` once dropped.
    body: Option<Incoming>,
    tasks: TaskTracker,
}

impl Lingering {
    /// Lingers in a task of `tasks`.
    pub(super) fn new(body: Incoming, tasks: TaskTracker) -> Self {
        Self { body: Some(body), tasks }
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let unread = self.body.take().filter(|body| !http_body::Body::is_end_stream(body));
        if let Some(mut body) = unread {
            self.tasks.spawn(async move {
                let rest = async { while let Some(Ok(_)) = body.frame().await {} };
                drop(tokio::time::timeout(LINGER_TIMEOUT, rest).await);
            });
        }
    }
}

impl http_body::Body for Lingering {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}
