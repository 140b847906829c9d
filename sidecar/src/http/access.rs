//! The outermost layer: request id, vocabulary, the one line in the log, the counters, and the rendering of refusals.
//!
//! INVARIANT: the line is written exactly once, when the body has left or was given up; it never holds bodies, keys,
//! or anything else a caller wrote but the method.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use decision::format::{Endpoint, Vocabulary, classify};
use decision::reason::Reason;
use http::{HeaderMap, StatusCode};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::{Refusal, Services};
use crate::config::SNAPSHOT_PATH;
use crate::ids;
use crate::telemetry::{Metrics, RequestLabels, chain};

/// Longest request id taken from Envoy.
const REQUEST_ID_MAX_CHARS: usize = 64;
const ENVOY_REQUEST_ID: &str = "x-request-id";

/// What is known of a request from its head alone. An extension of every request.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// For the answer and the log.
    pub(super) request_id: Arc<str>,
    /// Whose error words it reads.
    pub(super) vocabulary: Vocabulary,
    /// What its path asks for.
    pub(super) endpoint: Endpoint,
}

/// What a handler found out and the line should say. An extension of a response.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    /// Who runs the code, in one word.
    pub(super) outcome: Option<&'static str>,
    /// Why.
    pub(super) reason: Option<Reason>,
}

/// Wraps every request.
pub(super) async fn observe(State(services): State<Arc<Services>>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let caller = caller(&services, &request);
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| fallback_route(caller.endpoint).to_owned(), |path| path.as_str().to_owned());
    let method = request.method().clone();
    request.extensions_mut().insert(caller.clone());
    services.metrics.request_started();
    // Made before the answer, so that a client that leaves early is counted too.
    let mut line = Line {
        request_id: Arc::clone(&caller.request_id),
        method,
        route,
        status: client_gone(),
        facts: Facts::default(),
        refusal: None,
        started,
        sent_bytes: 0,
        complete: false,
        metrics: services.metrics.clone(),
    };
    let mut response = next.run(request).await;
    line.facts = response.extensions_mut().remove().unwrap_or_default();
    line.refusal = response.extensions_mut().remove();
    if let Some(refusal) = &line.refusal {
        response = refusal.render(caller.vocabulary, &caller.request_id);
    }
    line.status = response.status();
    response.map(|body| Body::new(Observed { body, line }))
}

/// What the log says of a request whose client left before the answer began; no client sees it.
fn client_gone() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

fn caller(services: &Services, request: &Request) -> Caller {
    let path = request.uri().path();
    let endpoint = classify(path.as_bytes(), &services.filter_config.roots);
    let vocabulary = match endpoint {
        Endpoint::Inference(format) => format.vocabulary(),
        Endpoint::Files | Endpoint::Control | Endpoint::Other => by_headers(request.headers()),
    };
    let request_id = request
        .headers()
        .get(ENVOY_REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|id| is_request_id(id))
        .map_or_else(|| services.ids.mint(ids::REQUEST), str::to_owned);
    Caller { request_id: request_id.into(), vocabulary, endpoint }
}

fn by_headers(headers: &HeaderMap) -> Vocabulary {
    if headers.contains_key("anthropic-version") || headers.contains_key("anthropic-beta") {
        Vocabulary::Anthropic
    } else {
        Vocabulary::OpenAi
    }
}

fn is_request_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=REQUEST_ID_MAX_CHARS).contains(&id.len()) && id.bytes().all(fits)
}

fn fallback_route(endpoint: Endpoint) -> &'static str {
    use decision::format::ApiFormat;
    match endpoint {
        Endpoint::Inference(ApiFormat::Messages) => "/v1/messages",
        Endpoint::Inference(ApiFormat::ChatCompletions) => "/v1/chat/completions",
        Endpoint::Inference(ApiFormat::Responses) => "/v1/responses",
        Endpoint::Files => "files",
        Endpoint::Control | Endpoint::Other => "other",
    }
}

/// What machines ask several times a second, when all is well.
fn is_routine(route: &str, status: StatusCode) -> bool {
    let polled = matches!(route, SNAPSHOT_PATH | "/healthz" | "/otari/metrics");
    polled && (status.is_success() || status == StatusCode::NOT_MODIFIED)
}

/// Counts what leaves and writes the line when it is gone.
struct Observed {
    body: Body,
    line: Line,
}

struct Line {
    request_id: Arc<str>,
    method: http::Method,
    route: String,
    status: StatusCode,
    facts: Facts,
    refusal: Option<Refusal>,
    started: Instant,
    sent_bytes: u64,
    complete: bool,
    metrics: Metrics,
}

impl http_body::Body for Observed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.line.sent_bytes = self.line.sent_bytes.saturating_add(bytes);
                self.line.complete = self.body.is_end_stream();
            }
            Poll::Ready(None) => self.line.complete = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let elapsed = self.started.elapsed();
        let labels = RequestLabels::new(&self.route, self.status);
        self.metrics.request_finished(&labels, elapsed);
        if let (Some(outcome), Some(reason)) = (self.facts.outcome, self.facts.reason) {
            self.metrics.decided(outcome, reason.code());
        }
        let problem = self.refusal.as_ref().map(|refusal| format!("{:?}", refusal.problem().kind));
        let origin = self.refusal.as_ref().map(|refusal| format!("{:?}", refusal.problem().origin));
        let cause = self.refusal.as_ref().and_then(Refusal::cause).map(|cause| chain(cause));
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    request.id = &*self.request_id,
                    http.method = self.method.as_str(),
                    http.route = self.route,
                    http.status = self.status.as_u16(),
                    duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
                    sent_bytes = self.sent_bytes,
                    complete = self.complete || self.sent_bytes == 0,
                    decision = self.facts.outcome,
                    reason = self.facts.reason.map(Reason::code),
                    problem,
                    origin,
                    error = cause,
                    "request"
                )
            };
        }
        if self.status.is_server_error() {
            line!(error);
        } else if is_routine(&self.route, self.status) {
            line!(debug);
        } else {
            line!(info);
        }
    }
}
