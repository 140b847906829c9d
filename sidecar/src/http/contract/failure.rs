//! What a caller of the contract is told when an operation fails, and what only the log is.
//!
//! INVARIANT: the words say what is wrong and what to change; they quote nothing that was sent.

use std::borrow::Cow;
use std::time::Duration;

use axum::response::Response;
use decision::problem::ProblemKind;
use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::json;

use super::super::Refusal;
use super::json_response;
use crate::sandbox::SandboxError;

/// When to come back to a session that has as many calls as it may.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);
/// What is told of a failure of ours.
const OPAQUE: &str = "the sandbox failed; its log says why";

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A failed operation.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    detail: Cow<'static, str>,
    header: Option<(HeaderName, HeaderValue)>,
    /// For the log.
    pub(super) cause: Option<Cause>,
}

impl Failure {
    fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, detail: detail.into(), header: None, cause: None }
    }

    /// 422: a body, a member or a part that is missing or of a wrong kind.
    pub(super) fn malformed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// 400: something else than what the operation is about.
    pub(super) fn wrong_kind(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// 403: a place outside of the workspace.
    pub(super) fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// 404: there is no directory at a path.
    pub(super) fn no_such_directory() -> Self {
        Self::new(StatusCode::NOT_FOUND, "the workspace has no such directory")
    }

    /// 401: no token, or another one.
    pub(super) fn unauthorized() -> Self {
        let detail = "bring the token of this server: `Authorization: Bearer …`";
        let header = (WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Self { header: Some(header), ..Self::new(StatusCode::UNAUTHORIZED, detail) }
    }

    /// 404: not a path of the contract.
    pub(super) fn no_such_route() -> Self {
        Self::new(StatusCode::NOT_FOUND, "contract v1 has no such path: it begins with /sessions")
    }

    /// 405: a path of the contract, another method.
    pub(super) fn no_such_method(methods: &'static str) -> Self {
        let header = (ALLOW, HeaderValue::from_static(methods));
        Self { header: Some(header), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("here is only {methods}")) }
    }

    /// 503: as many connections as there may be.
    pub(super) fn crowded() -> Self {
        Self::later("the server has as many connections as it may (http.max_connections)", BUSY_RETRY_AFTER)
    }

    /// 503: as many files on their way in as there may be.
    pub(super) fn uploads_full() -> Self {
        Self::later("the server receives as many files at once as it may", BUSY_RETRY_AFTER)
    }

    /// 413: longer than a body, or a file, may be.
    pub(super) fn too_large(limit: u64) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, format!("it is longer than the {limit} bytes there is room for"))
    }

    /// 500: a task of ours is gone.
    pub(super) fn broken_off() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, OPAQUE)
    }

    fn later(detail: impl Into<Cow<'static, str>>, wait: Duration) -> Self {
        let seconds = u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
        let header = (RETRY_AFTER, HeaderValue::from(seconds));
        Self { header: Some(header), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// The answer.
    pub(super) fn render(&self) -> Response {
        let mut response = json_response(self.status, &json!({"detail": self.detail}));
        if let Some((name, value)) = &self.header {
            response.headers_mut().insert(name, value.clone());
        }
        response
    }
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        match error {
            SandboxError::AtCapacity { retry_after } => {
                let detail = "every session is taken (sandbox.max_sessions)";
                Self::later(detail, retry_after.unwrap_or(BUSY_RETRY_AFTER))
            }
            SandboxError::Busy { .. } => Self::later(error.to_string(), BUSY_RETRY_AFTER),
            SandboxError::UnknownSession => {
                Self::new(StatusCode::NOT_FOUND, "there is no such session: it was ended, has expired, or never was")
            }
            SandboxError::UnknownFile => Self::new(StatusCode::NOT_FOUND, error.to_string()),
            SandboxError::Refused { reason } => Self::malformed(reason),
            SandboxError::BadPath { .. } => Self::forbidden(error.to_string()),
            SandboxError::FileTooLarge { limit } => Self::too_large(limit),
            SandboxError::NotServed => Self::new(StatusCode::NOT_IMPLEMENTED, error.to_string()),
            SandboxError::Unauthorized
            | SandboxError::Unreadable(_)
            | SandboxError::TimedOut
            | SandboxError::Unreachable { .. } => {
                Self { cause: Some(error.into()), ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, OPAQUE) }
            }
        }
    }
}

/// What the readers of bodies and forms refuse.
impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let problem = refusal.problem();
        let detail = problem.message.clone();
        match problem.kind {
            ProblemKind::PayloadTooLarge => Self::new(StatusCode::PAYLOAD_TOO_LARGE, detail),
            ProblemKind::Overloaded => Self::later(detail, BUSY_RETRY_AFTER),
            ProblemKind::UnsupportedMediaType => Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail),
            _ => Self::wrong_kind(detail),
        }
    }
}
