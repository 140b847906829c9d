//! One container: told of, and ended.
//!
//! INVARIANT: whose containers a caller sees is settled by [`credential::identify`] alone, and whatever it does not see is
//! the same 404.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use decision::problem::{Origin, Problem, ProblemKind};
use http::StatusCode;
use serde_json::{Value, json};

use super::super::internal::json_response;
use super::super::{Refusal, Services, credential};
use super::not_found;
use crate::containers::ContainerError;
use crate::ids::shown;
use crate::repository::ContainerRow;

type IdPath = Result<Path<String>, PathRejection>;

/// All are called so: nobody named them.
const NAME: &str = "auto";
/// When to come back for one that is in use.
const BUSY_RETRY_AFTER_S: u32 = 1;
const MS_PER_S: i64 = 1000;
const MS_PER_MINUTE: i64 = 60_000;

/// `GET /v1/containers/{container}`
pub(super) async fn tell(
    State(services): State<Arc<Services>>,
    id: IdPath,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let owner = credential::identify(&services, &head).await?;
    let id = named(id);
    let containers = services.containers.as_ref().ok_or_else(|| not_found(&id))?;
    let row = containers.find(&owner, &id).await.map_err(|error| refused(error, &id))?;
    Ok(json_response(StatusCode::OK, &object(&row)))
}

/// `DELETE /v1/containers/{container}`; its processes have ended when this answers.
pub(super) async fn delete(
    State(services): State<Arc<Services>>,
    id: IdPath,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let owner = credential::identify(&services, &head).await?;
    let id = named(id);
    let containers = services.containers.as_ref().ok_or_else(|| not_found(&id))?;
    containers.delete(&owner, &id).await.map_err(|error| refused(error, &id))?;
    Ok(json_response(StatusCode::OK, &json!({"id": id, "object": "container.deleted", "deleted": true})))
}

/// The id in the path, decoded once. One that is no text is an id that nobody has.
fn named(id: IdPath) -> String {
    id.map(|Path(id)| id).unwrap_or_default()
}

fn object(row: &ContainerRow) -> Value {
    // Whole minutes are the vendor's; one that is told must not be more than what is kept.
    let minutes = row.idle_ms.div_euclid(MS_PER_MINUTE);
    json!({
        "id": row.id,
        "object": "container",
        "name": NAME,
        "created_at": row.created_at_ms.div_euclid(MS_PER_S),
        "status": "running",
        "expires_after": {"anchor": "last_active_at", "minutes": minutes},
        "last_active_at": row.used_at_ms.div_euclid(MS_PER_S),
    })
}

fn refused(error: ContainerError, id: &str) -> Refusal {
    match error {
        ContainerError::Unknown => not_found(id).into(),
        ContainerError::Busy { .. } => {
            let text = format!("the container `{}` is in use by a request: delete it when that has ended", shown(id));
            let problem = Problem::new(ProblemKind::Conflict, Origin::Caller, text).with_code("container_in_use");
            Problem { retry_after_s: Some(BUSY_RETRY_AFTER_S), ..problem }.into()
        }
        ContainerError::Sandbox(_) => {
            let text = "the sandbox that has this container does not answer: try again";
            Refusal::from(Problem::new(ProblemKind::SandboxFailed, Origin::Sandbox, text)).caused_by(error)
        }
        ContainerError::Repository(_) => Refusal::storage(error),
    }
}
