//! Calls to models, always through Envoy's model listener, which knows the providers and their credentials.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::{HeaderMap, StatusCode};

/// One call to a model.
#[derive(Debug)]
pub struct ModelCall {
    /// Name of the provider in the config's table; becomes `x-otari-provider`.
    pub provider: String,
    /// Path and query, as the provider knows them (`/v1/messages`).
    pub path: String,
    /// Headers besides those the client itself sets (host, content-length, provider, hop secret).
    pub headers: HeaderMap,
    /// The JSON body.
    pub body: Bytes,
}

/// The head of a model's answer, with its body still coming.
pub struct ModelAnswer {
    /// The provider's status.
    pub status: StatusCode,
    /// The provider's headers, hop-by-hop ones removed.
    pub headers: HeaderMap,
    /// The body as it arrives. Dropping it ends the call at the provider.
    pub body: BoxStream<'static, Result<Bytes, UpstreamError>>,
}

impl std::fmt::Debug for ModelAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Why a model gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// Nothing listens there, or the connection broke.
    #[error("the model could not be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No byte for `upstream.idle_timeout_ms`.
    #[error("the model did not answer in time")]
    TimedOut,
}
