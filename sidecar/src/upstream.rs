//! Calls to models, always through Envoy's model listener, which knows the providers and their credentials.
//!
//! INVARIANT: a call is sent once, to the very path it names. No retry, no redirect, no decoding of the answer; dropping
//! the answer ends the call.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use decision::problem::{Origin, Problem, ProblemKind};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

const PATH_CHANGED: &str = "the path or query cannot be sent on as it stands: send it without `.` and `..`, and with \
    quotation marks, braces and all letters that are no ASCII percent-encoded";

pub use reqwest::Body;

/// Where model calls go.
#[derive(Debug, Clone)]
pub enum ModelTarget {
    /// Envoy's model listener on a Unix socket.
    Unix(PathBuf),
    /// `http://…` or `https://…`, without a path of its own unless the mesh wants one in front of `/v1`.
    Url(String),
}

/// How long a model may be silent. Each is a config key under `upstream`.
#[derive(Debug, Clone, Copy)]
pub struct ModelLimits {
    /// Until the connection stands.
    pub connect_timeout: Duration,
    /// From the request to the answer's head. Generous: an unstreamed model thinks before it says anything.
    pub header_timeout: Duration,
    /// Between two reads of the answer's body.
    pub idle_timeout: Duration,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_mins(10),
            idle_timeout: Duration::from_mins(5),
        }
    }
}

/// Sends calls to models over pooled connections.
#[derive(Debug, Clone)]
pub struct ModelClient {
    client: reqwest::Client,
    /// Scheme and authority (and prefix) in front of every path, as the client would write them.
    base: String,
    /// Envoy's model listener routes by the provider's name; a mesh routes as it always does.
    names_provider: bool,
    limits: ModelLimits,
}

/// One call to a model.
#[derive(Debug)]
pub struct ModelCall {
    /// Name of the provider in the config's table; becomes `x-otari-provider` where Envoy is ours.
    pub provider: String,
    /// Path and query, as the provider knows them (`/v1/messages`).
    pub path: String,
    /// Headers besides those the client itself sets (host, content-length, provider); in a mesh the hop's secret is one.
    pub headers: HeaderMap,
    /// The body, whole or as it comes.
    pub body: Body,
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
    /// The path would not reach the provider with the bytes it was decided by.
    #[error("the path cannot be sent as it stands")]
    PathChanged,
    /// No byte for `upstream.idle_timeout_ms`.
    #[error("the model did not answer in time")]
    TimedOut,
}

impl From<&UpstreamError> for Problem {
    fn from(error: &UpstreamError) -> Self {
        let kind = match error {
            UpstreamError::PathChanged => return Self::invalid(PATH_CHANGED),
            UpstreamError::Unreachable(_) => ProblemKind::UpstreamFailed,
            UpstreamError::TimedOut => ProblemKind::UpstreamTimedOut,
        };
        Self::new(kind, Origin::Upstream, error.to_string())
    }
}

impl ModelClient {
    /// A client for one target. Fails when the URL is none or TLS cannot be set up.
    pub fn new(target: ModelTarget, limits: ModelLimits) -> Result<Self, UpstreamError> {
        // Whoever comes first installs it; a second installation is refused and changes nothing.
        drop(rustls::crypto::ring::default_provider().install_default());
        let builder = reqwest::Client::builder()
            .connect_timeout(limits.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .no_proxy()
            .tcp_nodelay(true);
        let names_provider = matches!(target, ModelTarget::Unix(_));
        let (builder, base) = match target {
            ModelTarget::Unix(path) => (builder.http1_only().unix_socket(path), "http://model".to_owned()),
            ModelTarget::Url(url) => (builder, url.trim_end_matches('/').to_owned()),
        };
        let client = builder.build().map_err(unreachable)?;
        let base = reqwest::Url::parse(&base).map_err(unreachable)?.as_str().trim_end_matches('/').to_owned();
        Ok(Self { client, base, names_provider, limits })
    }

    /// Sends one call and waits for the head of the answer.
    pub async fn send(&self, call: ModelCall) -> Result<ModelAnswer, UpstreamError> {
        self.relay(http::Method::POST, call).await
    }

    /// Like [`Self::send`], with the caller's own method.
    pub async fn relay(&self, method: http::Method, call: ModelCall) -> Result<ModelAnswer, UpstreamError> {
        let sent = format!("{}{}", self.base, call.path);
        let url = reqwest::Url::parse(&sent).map_err(|_| UpstreamError::PathChanged)?;
        if url.as_str() != sent {
            return Err(UpstreamError::PathChanged);
        }
        let mut headers = call.headers;
        strip_hop_by_hop(&mut headers);
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        if self.names_provider {
            let provider = HeaderValue::from_str(&call.provider).map_err(unreachable)?;
            headers.insert(HeaderName::from_static(decision::header::PROVIDER), provider);
        }
        let request = self.client.request(method, url).headers(headers).body(call.body);
        let answer = match tokio::time::timeout(self.limits.header_timeout, request.send()).await {
            Err(_) => return Err(UpstreamError::TimedOut),
            Ok(Err(error)) if error.is_timeout() => return Err(UpstreamError::TimedOut),
            Ok(Err(error)) => return Err(unreachable(error)),
            Ok(Ok(answer)) => answer,
        };
        let status = answer.status();
        let mut headers = answer.headers().clone();
        strip_hop_by_hop(&mut headers);
        Ok(ModelAnswer { status, headers, body: patient(answer, self.limits.idle_timeout) })
    }
}

/// The body as a stream that gives up after `idle` without a byte.
fn patient(answer: reqwest::Response, idle: Duration) -> BoxStream<'static, Result<Bytes, UpstreamError>> {
    let chunks = answer.bytes_stream();
    stream::unfold(Some(chunks), move |chunks| async move {
        let mut chunks = chunks?;
        match tokio::time::timeout(idle, chunks.next()).await {
            Err(_) => Some((Err(UpstreamError::TimedOut), None)),
            Ok(None) => None,
            Ok(Some(Err(error))) => Some((Err(unreachable(error)), None)),
            Ok(Some(Ok(chunk))) => Some((Ok(chunk), Some(chunks))),
        }
    })
    .boxed()
}

/// RFC 9110 section 7.6.1: the fixed names, and every name that `connection` lists.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed {
        headers.remove(name);
    }
    for name in [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ] {
        headers.remove(name);
    }
}

fn unreachable(error: impl std::error::Error + Send + Sync + 'static) -> UpstreamError {
    UpstreamError::Unreachable(Box::new(error))
}

#[cfg(test)]
mod tests;
