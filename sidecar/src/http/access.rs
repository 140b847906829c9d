//! The outermost layer: request id, vocabulary, the one line in the log, the counters, and the rendering of refusals.
//!
//! INVARIANT: the line is written exactly once, when the body has left or was given up; it never holds bodies, keys,
//! or anything else a caller wrote but the method.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use decision::format::{Endpoint, Vocabulary, classify};
use decision::header;
use decision::identity::request_id;
use decision::reason::Reason;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, StatusCode, Uri};
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::Instant;

use super::{Refusal, Services};
use crate::config::SNAPSHOT_PATH;
use crate::ids;
use crate::telemetry::{Metrics, RequestLabels, chain};
use crate::tool_loop::Tally;

/// What is known of a request from its head alone. An extension of every request.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// For the answer and the log.
    pub(super) request_id: Arc<str>,
    /// Whose error words it reads.
    pub(super) vocabulary: Vocabulary,
    /// What its path asks for.
    pub(super) endpoint: Endpoint,
    /// Path and query as they came; routes under a root see what stands behind it.
    pub(super) uri: Uri,
    /// For the log.
    pub(super) notes: Arc<Notes>,
}

/// What handlers find out and the line says. Shared, for a client may leave before there is an answer.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Who runs the code, in one word, and why.
    decision: OnceLock<(&'static str, Reason)>,
    /// The file it was about.
    file: OnceLock<String>,
    /// Bytes of that file that have arrived.
    received_bytes: AtomicU64,
    /// What the tool loop did.
    pub(super) tally: Arc<Tally>,
}

impl Notes {
    /// The request was decided; only the first time counts.
    pub(super) fn decided(&self, outcome: &'static str, reason: Reason) {
        self.decision.set((outcome, reason)).ok();
    }

    /// The request is about the file of this id, which exists; only the first time counts.
    pub(super) fn file(&self, id: &str) {
        self.file.set(id.to_owned()).ok();
    }

    /// So many bytes of a file have arrived.
    pub(super) fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// With its last byte.
    Complete,
    /// Its client left.
    Cancelled,
    /// It had begun, and failed.
    Broken,
}

impl End {
    fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Broken => "broken",
        }
    }
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
        notes: Arc::clone(&caller.notes),
        refusal: None,
        started,
        sent_bytes: 0,
        promised_bytes: None,
        end: End::Cancelled,
        metrics: services.metrics.clone(),
    };
    let mut response = next.run(request).await;
    line.refusal = response.extensions_mut().remove();
    if let Some(refusal) = &line.refusal {
        response = refusal.render(caller.vocabulary, &caller.request_id);
    }
    if caller.endpoint.is_files() {
        name_for_both_vendors(&mut response, &caller.request_id);
    }
    line.status = response.status();
    let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    line.promised_bytes = length;
    if response.body().is_end_stream() || line.method == http::Method::HEAD {
        line.end = End::Complete;
    }
    response.map(|body| Body::new(Observed { body, line }))
}

/// Where both vendors have the path, each one's clients look for the request's id under a name of their own.
fn name_for_both_vendors(response: &mut Response, request_id: &str) {
    let Ok(id) = HeaderValue::from_str(request_id) else { return };
    for vocabulary in [Vocabulary::Anthropic, Vocabulary::OpenAi] {
        response.headers_mut().insert(vocabulary.request_id_header(), id.clone());
    }
}

/// What the log says of a request whose client left before the answer began; no client sees it.
fn client_gone() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

fn caller(services: &Services, request: &Request) -> Caller {
    let path = request.uri().path();
    let endpoint = classify(path.as_bytes(), &services.filter_config.roots);
    let vocabulary = Vocabulary::of(endpoint, |name| request.headers().contains_key(name));
    let request_id = request
        .headers()
        .get(header::REQUEST_ID)
        .and_then(|value| request_id(value.as_bytes()))
        .map_or_else(|| services.ids.mint(ids::REQUEST), str::to_owned);
    let uri = request.uri().clone();
    Caller { request_id: request_id.into(), vocabulary, endpoint, uri, notes: Arc::default() }
}

fn fallback_route(endpoint: Endpoint) -> &'static str {
    use decision::format::ApiFormat;
    match endpoint {
        Endpoint::Inference(ApiFormat::Messages) => "/v1/messages",
        Endpoint::Inference(ApiFormat::ChatCompletions) => "/v1/chat/completions",
        Endpoint::Inference(ApiFormat::Responses) => "/v1/responses",
        Endpoint::TokenCount(_) => "/v1/messages/count_tokens",
        Endpoint::Files => "files",
        Endpoint::Control | Endpoint::Uninspected | Endpoint::Other | Endpoint::Misspelled(_) => "other",
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
    notes: Arc<Notes>,
    refusal: Option<Refusal>,
    started: Instant,
    sent_bytes: u64,
    /// Its `content-length`: nobody asks for an end behind the last of them.
    promised_bytes: Option<u64>,
    end: End,
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
                if self.body.is_end_stream() || self.line.promised_bytes == Some(self.line.sent_bytes) {
                    self.line.end = End::Complete;
                }
            }
            Poll::Ready(None) => self.line.end = End::Complete,
            Poll::Ready(Some(Err(_))) => self.line.end = End::Broken,
            Poll::Pending => {}
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
        let tally = &self.notes.tally;
        // A stream says so itself when it fails, and then ends like any other.
        let end = if self.end == End::Complete && tally.failure().is_some() { End::Broken } else { self.end };
        self.metrics.request_finished(&RequestLabels::new(&self.route, self.status, end.word()), elapsed);
        self.metrics.looped(tally.turns(), tally.code_runs());
        let decision = self.notes.decision.get();
        let received_bytes = Some(self.notes.received_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0);
        if let Some((outcome, reason)) = decision {
            self.metrics.decided(outcome, reason.code());
        }
        let problem = self.refusal.as_ref().map(|refusal| refusal.problem().kind).or(tally.failure());
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
                    received_bytes,
                    file.id = self.notes.file.get(),
                    end = end.word(),
                    decision = decision.map(|(outcome, _)| *outcome),
                    reason = decision.map(|(_, reason)| reason.code()),
                    turns = decision.map(|_| tally.turns()),
                    code_runs = decision.map(|_| tally.code_runs()),
                    problem = problem.map(|kind| format!("{kind:?}")),
                    origin,
                    error = cause,
                    "request"
                )
            };
        }
        if self.status.is_server_error() {
            line!(error);
        } else if end == End::Broken {
            line!(warn);
        } else if is_routine(&self.route, self.status) {
            line!(debug);
        } else {
            line!(info);
        }
    }
}
