//! `GET /healthz`: ready when the database answers and the sandbox is what the config promises.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;

use super::Services;
use super::internal::json_response;
use crate::telemetry::chain;

/// Answers 200 or 503 with what is wrong; open to everybody, so it says no more than that.
pub(super) async fn health(State(services): State<Arc<Services>>) -> Response {
    let database = match services.repository.ping().await {
        Ok(()) => true,
        Err(error) => {
            tracing::error!(error = %chain(&error), "the database does not answer");
            false
        }
    };
    let policy = services.policy.current().is_fresh();
    let ready = database && policy;
    let sandbox = services.sandbox.as_ref().map(|sandbox| sandbox.capability());
    let sandbox = sandbox.map_or_else(|| json!("none"), |capability| json!(capability));
    let body = json!({
        "status": if ready { "ok" } else { "unavailable" },
        "database": if database { "ok" } else { "unreachable" },
        "policy": if policy { "ok" } else { "stale" },
        "sandbox": sandbox,
    });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json_response(status, &body).into_response()
}
