//! A handler's way to say no: public words, the cause for the log, and where they are rendered.

use std::error::Error;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use decision::format::Vocabulary;
use decision::problem::{Origin, Problem, ProblemKind};
use http::header::CONTENT_RANGE;
use http::{HeaderValue, StatusCode};

use crate::repository::RepositoryError;

/// A problem on its way to the caller. As a response it is a mark that [`super::access`] renders: only there are the
/// vocabulary and the request id known.
#[derive(Debug, Clone)]
pub struct Refusal {
    problem: Problem,
    status: Option<StatusCode>,
    vocabulary: Option<Vocabulary>,
    /// The size of the file of which a range was asked for that it does not have.
    beyond_bytes: Option<u64>,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl Refusal {
    /// Refuses in this vocabulary, whatever the path says.
    pub(super) fn in_vocabulary(problem: Problem, vocabulary: Vocabulary) -> Self {
        Self { vocabulary: Some(vocabulary), ..Self::from(problem) }
    }

    /// The same in this vocabulary, whatever the path says.
    pub(super) fn into_vocabulary(self, vocabulary: Vocabulary) -> Self {
        Self { vocabulary: Some(vocabulary), ..self }
    }

    /// A value that could never take effect, on the control plane: 422.
    pub(super) fn unprocessable(message: impl Into<String>, param: Option<&str>) -> Self {
        let mut problem = Problem::invalid(message);
        problem.param = param.map(str::to_owned);
        Self { status: Some(StatusCode::UNPROCESSABLE_ENTITY), ..Self::from(problem) }
    }

    /// What is to be made is there already, on the control plane: 409.
    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self { status: Some(StatusCode::CONFLICT), ..Self::from(Problem::invalid(message)) }
    }

    /// A range in which a file of this size has nothing: 416.
    pub(super) fn unsatisfiable(size_bytes: u64) -> Self {
        let text = format!("the range begins behind the end of the file, which has {size_bytes} bytes");
        Self {
            status: Some(StatusCode::RANGE_NOT_SATISFIABLE),
            beyond_bytes: Some(size_bytes),
            ..Self::from(Problem::invalid(text).with_param("range"))
        }
    }

    /// A failure of ours: opaque words outside, the cause in the log.
    pub(super) fn internal(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::opaque(Origin::Gateway, cause)
    }

    /// A failure of the database or the file store.
    pub(super) fn storage(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::opaque(Origin::Storage, cause)
    }

    fn opaque(origin: Origin, cause: impl Error + Send + Sync + 'static) -> Self {
        let text = "something failed inside the gateway; the request id finds it in the log";
        Self { cause: Some(Arc::new(cause)), ..Self::from(Problem::new(ProblemKind::Internal, origin, text)) }
    }

    /// Adds the cause, for the log.
    pub(super) fn caused_by(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }

    /// What is wrong.
    pub(super) fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Why, for the log.
    pub(super) fn cause(&self) -> Option<&(dyn Error + Send + Sync)> {
        self.cause.as_deref()
    }

    /// The whole answer.
    pub(super) fn render(&self, vocabulary: Vocabulary, request_id: &str) -> Response {
        let reply = self.problem.reply(self.vocabulary.unwrap_or(vocabulary), request_id);
        let mut response = Response::new(Body::from(reply.body));
        *response.status_mut() = self
            .status
            .or_else(|| StatusCode::from_u16(reply.status).ok())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        for (name, value) in reply.headers {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
        }
        let range = self.beyond_bytes.and_then(|bytes| HeaderValue::try_from(format!("bytes */{bytes}")).ok());
        if let Some(range) = range {
            response.headers_mut().insert(CONTENT_RANGE, range);
        }
        response
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { problem, status: None, vocabulary: None, beyond_bytes: None, cause: None }
    }
}

impl From<RepositoryError> for Refusal {
    fn from(error: RepositoryError) -> Self {
        Self::internal(error)
    }
}

impl From<Arc<RepositoryError>> for Refusal {
    fn from(error: Arc<RepositoryError>) -> Self {
        Self::internal(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response.extensions_mut().insert(self);
        response
    }
}
