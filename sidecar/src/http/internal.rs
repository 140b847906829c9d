//! What only the filter, the operator and a curious caller ask for: snapshot, metrics, explanations.
//!
//! INVARIANT: the snapshot has no public route; nothing else here is answered, or read, without a credential.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use decision::config::IdentityConfig;
use decision::problem::{Origin, Problem, ProblemKind};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

use super::fetch;
use super::{Refusal, Services, credential};

/// Longest case that is explained; it holds a config, a snapshot and a request.
const EXPLAIN_MAX_BYTES: u64 = 4 << 20;

/// The policy snapshot, or 304 if the filter has it. A stale one is not given out: the filter must see it grow old.
pub(super) async fn snapshot(State(services): State<Arc<Services>>, headers: HeaderMap) -> Result<Response, Refusal> {
    let mut current = services.policy.current();
    if !current.is_fresh() {
        services.policy.refresh().await?;
        current = services.policy.current();
    }
    let etag = current.etag();
    let known = headers.get_all(IF_NONE_MATCH).iter().any(|value| names(value, &etag));
    let mut response = if known {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        json_bytes(StatusCode::OK, current.published().into())
    };
    let etag = HeaderValue::from_str(&etag).map_err(Refusal::internal)?;
    response.headers_mut().insert(ETAG, etag);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Prometheus text, for the admin: the counters are of all workspaces together.
pub(super) async fn metrics(State(services): State<Arc<Services>>, headers: HeaderMap) -> Result<Response, Refusal> {
    credential::require_master_key(&services, &headers)?;
    services.metrics.observe_policy(services.policy.current().version(), services.policy.sandbox_available());
    services.metrics.observe_bodies(services.bodies.held_bytes());
    let mut response = Response::new(Body::from(services.metrics.render().map_err(Refusal::internal)?));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// What the decision would be; reads nothing but the case. Where callers have no keys, only if `explain` opens it.
pub(super) async fn explain(State(services): State<Arc<Services>>, request: Request) -> Result<Response, Refusal> {
    if matches!(services.filter_config.identity, IdentityConfig::None) && !services.filter_config.explain {
        let text = "explanations are off: set `explain: true` in the gateway's configuration";
        return Err(Problem::new(ProblemKind::PermissionDenied, Origin::Caller, text).into());
    }
    credential::require_any_key(&services, request.headers()).await?;
    let limits = services.body_limits(EXPLAIN_MAX_BYTES);
    let case = fetch::whole(request.into_body(), limits, fetch::unseen).await?;
    Ok(json_bytes(StatusCode::OK, decision::explain::explain(&case.bytes).into()))
}

/// A JSON answer.
pub(super) fn json_response(status: StatusCode, value: &Value) -> Response {
    json_bytes(status, Body::from(value.to_string()))
}

pub(super) fn json_bytes(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Whether an `if-none-match` value names this tag; quotes and weakness do not matter, `*` is not ours to honour.
fn names(value: &HeaderValue, etag: &str) -> bool {
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").trim_matches('"').to_owned();
    value.to_str().is_ok_and(|list| list.split(',').any(|tag| bare(tag) == bare(etag)))
}
