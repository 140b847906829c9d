//! Sessions: opened, told of, ended.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::call::{Members, whole_seconds};
use super::failure::Failure;
use super::{Contract, json_response};
use crate::sandbox::process::SessionInfo;
use crate::sandbox::{SandboxBackend as _, SandboxError, SessionId, SessionSpec};

/// Longest body that asks for a session.
const MAX_BODY_BYTES: u64 = 64 << 10;

/// `POST /sessions`
pub(super) async fn create(contract: &Contract, request: Request) -> Result<Response, Failure> {
    let body = contract.body(request, MAX_BODY_BYTES).await?;
    let spec = spec(&body.bytes)?;
    let (told, hears) = oneshot::channel();
    let sandbox = std::sync::Arc::clone(&contract.sandbox);
    // A session that is half made must not be dropped, and one that nobody hears of must not stay.
    contract.tasks.spawn(async move {
        let opened = sandbox.create_session(&spec).await.map(|granted| granted.id);
        if let Err(Ok(id)) = told.send(opened)
            && let Err(error) = sandbox.destroy_session(&id).await
        {
            tracing::warn!(%error, "a session that nobody waited for could not be destroyed");
        }
    });
    let id = hears.await.map_err(|_| Failure::broken_off())??;
    let info = contract.sandbox.session(&id).ok_or(SandboxError::UnknownSession)?;
    Ok(json_response(StatusCode::CREATED, &handle(&id, info)))
}

/// `GET /sessions/{id}`
pub(super) fn tell(contract: &Contract, id: &SessionId) -> Result<Response, Failure> {
    let info = contract.sandbox.session(id).ok_or(SandboxError::UnknownSession)?;
    Ok(json_response(StatusCode::OK, &handle(id, info)))
}

/// `DELETE /sessions/{id}`; of one that is gone already too.
pub(super) async fn destroy(contract: &Contract, id: SessionId) -> Result<Response, Failure> {
    let sandbox = std::sync::Arc::clone(&contract.sandbox);
    // Once begun it is done, also for a caller that left.
    let ended = contract.tasks.spawn(async move { sandbox.destroy_session(&id).await });
    ended.await.map_err(|_| Failure::broken_off())??;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// What a new session is asked to be. No body asks for nothing; what is not known here means nothing.
fn spec(body: &[u8]) -> Result<SessionSpec, Failure> {
    if matches!(body.trim_ascii(), b"" | b"null") {
        return Ok(SessionSpec::default());
    }
    let members = Members::read(body)?;
    let time = |name: &'static str| whole_seconds(name, members.get(name)).map(|time| time.map(Duration::from_secs));
    Ok(SessionSpec {
        idle_timeout: time("idle_timeout_seconds")?,
        max_lifetime: time("max_lifetime_seconds")?,
        ..SessionSpec::default()
    })
}

fn handle(id: &SessionId, info: SessionInfo) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since the epoch are far below 2^53")]
    let seconds = |epoch_ms: i64| epoch_ms as f64 / 1000.0;
    json!({
        "session_id": id.0,
        // Whole seconds are the contract's; one that is told must not be more than what is kept.
        "idle_timeout_seconds": info.idle_timeout.as_secs(),
        "max_lifetime_seconds": info.max_lifetime.as_secs(),
        "created_at": seconds(info.created_at_ms),
        "last_activity_at": seconds(info.last_activity_at_ms),
    })
}
