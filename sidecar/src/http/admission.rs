//! Who may call at all: Envoy, which proves itself by the hop secret; and anybody who asks for health. When every
//! connection is taken: health and the policy snapshot alone.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use decision::header;
use decision::problem::{Origin, Problem, ProblemKind};
use http::Method;

use super::credential::is_secret;
use super::listener::Reserved;
use super::{Refusal, Services};
use crate::config::SNAPSHOT_PATH;

const REFUSED: &str = "this listener serves the gateway's own Envoy only: send requests to the public address";

/// Lets a request on if it may be here.
pub(super) async fn admit(State(services): State<Arc<Services>>, request: Request, next: Next) -> Response {
    let is_health = request.method() == Method::GET && request.uri().path() == "/healthz";
    if is_health || came_through_envoy(&services, &request) {
        let is_urgent = is_health || request.uri().path() == SNAPSHOT_PATH;
        if request.extensions().get::<Reserved>().is_some() && !is_urgent {
            return Refusal::from(crowded()).into_response();
        }
        return next.run(request).await;
    }
    Refusal::from(Problem::new(ProblemKind::PermissionDenied, Origin::Caller, REFUSED)).into_response()
}

fn crowded() -> Problem {
    Problem::busy("the gateway serves as many requests as it may (http.max_connections): try again")
}

fn came_through_envoy(services: &Services, request: &Request) -> bool {
    let mut values = request.headers().get_all(header::HOP).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => is_secret(value.as_bytes(), &services.hop_secret),
        _ => false,
    }
}
