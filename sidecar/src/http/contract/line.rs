//! The one line in the log of an operation.
//!
//! INVARIANT: it is written once, also for a caller that left; it names no session, no file and no code.

use axum::extract::Request;
use http::{Method, StatusCode};
use tokio::time::Instant;

use super::failure::Failure;
use crate::telemetry::chain;

/// Status of a request whose caller left before it was answered; no caller sees it.
const CALLER_LEFT: u16 = 499;

/// What is known so far.
pub(super) struct Line {
    method: Method,
    pub(super) route: &'static str,
    pub(super) status: StatusCode,
    pub(super) failure: Option<Failure>,
    started: Instant,
}

impl Line {
    pub(super) fn begin(request: &Request) -> Self {
        let status = StatusCode::from_u16(CALLER_LEFT).unwrap_or(StatusCode::BAD_REQUEST);
        let method = request.method().clone();
        Self { method, route: "other", status, failure: None, started: Instant::now() }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let cause = self.failure.as_ref().and_then(|failure| failure.cause.as_deref()).map(|cause| chain(cause));
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    http.method = self.method.as_str(),
                    http.route = self.route,
                    http.status = self.status.as_u16(),
                    duration_ms,
                    error = cause,
                    "contract"
                )
            };
        }
        if self.status.is_server_error() && self.status != StatusCode::SERVICE_UNAVAILABLE {
            line!(error);
        } else if self.route == "/health" {
            line!(debug);
        } else {
            line!(info);
        }
    }
}
