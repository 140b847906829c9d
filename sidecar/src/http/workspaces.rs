//! Workspaces and their code-execution policies; for the admin alone.
//!
//! INVARIANT: a change is in this process's snapshot before its answer leaves, and a value that could never take
//! effect is refused rather than stored.

mod policy_body;

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use decision::problem::{Origin, Problem, ProblemKind};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::fetch;
use super::internal::json_response;
use super::{Refusal, Services, credential};
use crate::repository::{PolicyFields, StoredPolicy, Workspace};

/// Longest body of an admin request.
const BODY_MAX_BYTES: u64 = 64 << 10;
/// Longest name of a workspace.
const ID_MAX_CHARS: usize = 64;
/// Workspaces in one answer.
const PAGE_SIZE: u32 = 100;

type IdPath = Result<Path<String>, PathRejection>;

/// `GET /v1/workspaces[?after=ID]`: one page, in order of names.
pub(super) async fn list(State(services): State<Arc<Services>>, request: Request) -> Result<Response, Refusal> {
    credential::require_master_key(&services, request.headers())?;
    let query = request.uri().query().unwrap_or_default();
    let after = query.split('&').find_map(|pair| pair.strip_prefix("after=")).unwrap_or_default();
    let mut page = services.repository.workspaces(after, PAGE_SIZE + 1).await?;
    let has_more = page.len() > PAGE_SIZE as usize;
    page.truncate(PAGE_SIZE as usize);
    let data: Vec<Value> = page.iter().map(workspace_json).collect();
    Ok(json_response(StatusCode::OK, &json!({"object": "list", "data": data, "has_more": has_more})))
}

/// `POST /v1/workspaces {id}`.
pub(super) async fn create(State(services): State<Arc<Services>>, request: Request) -> Result<Response, Refusal> {
    credential::require_master_key(&services, request.headers())?;
    let body = read_json(&services, request).await?;
    let Some(id) = body.get("id").and_then(Value::as_str).filter(|id| is_workspace_id(id)) else {
        let text = format!("`id` names the workspace: write up to {ID_MAX_CHARS} letters, digits, `_`, `-` and `.`");
        return Err(Refusal::unprocessable(text, Some("id")));
    };
    if !services.repository.create_workspace(id).await? {
        return Err(Refusal::conflict(format!("there is a workspace `{id}` already: choose another id")));
    }
    let made = services.repository.workspace(id).await?.ok_or_else(|| unknown_workspace(id))?;
    Ok(json_response(StatusCode::CREATED, &workspace_json(&made)))
}

/// `GET /v1/workspaces/{id}/code-execution-policy`.
pub(super) async fn get_policy(
    State(services): State<Arc<Services>>,
    id: IdPath,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    credential::require_master_key(&services, &headers)?;
    let id = known_workspace(&services, id).await?;
    answer(&services, &id).await
}

/// `PUT`: replaces the policy whole; what is left out is cleared.
pub(super) async fn put_policy(
    State(services): State<Arc<Services>>,
    id: IdPath,
    request: Request,
) -> Result<Response, Refusal> {
    credential::require_master_key(&services, request.headers())?;
    let id = known_workspace(&services, id).await?;
    let body = read_json(&services, request).await?;
    let bounds = policy_body::Bounds {
        exec_timeout_s: services.exec_timeout_s,
        allowed_images: services.policy.allowed_images(),
    };
    let fields = policy_body::parse(&body, bounds)?;
    if !services.repository.put_policy(&id, &fields).await? {
        return Err(unknown_workspace(&id));
    }
    services.policy.refresh().await?;
    answer(&services, &id).await
}

/// `DELETE`: clears the policy; none is fine.
pub(super) async fn delete_policy(
    State(services): State<Arc<Services>>,
    id: IdPath,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    credential::require_master_key(&services, &headers)?;
    let id = known_workspace(&services, id).await?;
    services.repository.delete_policy(&id).await?;
    services.policy.refresh().await?;
    answer(&services, &id).await
}

async fn answer(services: &Services, id: &str) -> Result<Response, Refusal> {
    let policy = services.repository.policy(id).await?;
    Ok(json_response(StatusCode::OK, &policy_json(services, id, policy.as_ref())))
}

fn policy_json(services: &Services, id: &str, policy: Option<&StoredPolicy>) -> Value {
    let unset = PolicyFields {
        enabled: true,
        executor: None,
        max_iterations: None,
        exec_timeout_s: None,
        default_purpose_hint: None,
        image: None,
        tools: None,
    };
    let fields = policy.map_or(&unset, |policy| &policy.fields);
    let sandbox = services.policy.sandbox_available();
    json!({
        "workspace_id": id,
        "configured": policy.is_some(),
        "enabled": fields.enabled,
        "executor": fields.executor,
        "max_iterations": fields.max_iterations,
        "exec_timeout_s": fields.exec_timeout_s,
        "default_purpose_hint": fields.default_purpose_hint,
        "image": fields.image,
        "tools": fields.tools,
        "sandbox_configured": sandbox,
        "allowed_images": services.policy.allowed_images(),
        "available_tools": if sandbox { policy_body::SERVED } else { &[] },
        "created_at": policy.map(|policy| time(policy.created_at_ms)),
        "updated_at": policy.map(|policy| time(policy.updated_at_ms)),
    })
}

fn workspace_json(workspace: &Workspace) -> Value {
    json!({"id": workspace.id, "object": "workspace", "created_at": time(workspace.created_at_ms)})
}

fn time(milliseconds: i64) -> Option<String> {
    Timestamp::from_millisecond(milliseconds).ok().map(|time| time.to_string())
}

async fn known_workspace(services: &Services, id: IdPath) -> Result<String, Refusal> {
    let Ok(Path(id)) = id else { return Err(unknown_workspace("?")) };
    if !is_workspace_id(&id) || services.repository.workspace(&id).await?.is_none() {
        return Err(unknown_workspace(&id));
    }
    Ok(id)
}

async fn read_json(services: &Services, request: Request) -> Result<Value, Refusal> {
    let body = fetch::whole(request.into_body(), services.body_limits(BODY_MAX_BYTES), fetch::unseen).await?;
    match serde_json::from_slice(&body.bytes) {
        Ok(Value::Object(map)) => Ok(Value::Object(map)),
        Ok(_) => Err(Problem::invalid("the request body must be a JSON object").into()),
        Err(error) => Err(Problem::invalid(format!("the request body is not JSON: {error}")).into()),
    }
}

fn is_workspace_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=ID_MAX_CHARS).contains(&id.len()) && id.bytes().all(fits)
}

fn unknown_workspace(id: &str) -> Refusal {
    let id: String = id.chars().take(ID_MAX_CHARS).collect();
    let text = format!("there is no workspace `{id}`: `GET /v1/workspaces` lists them");
    Problem::new(ProblemKind::NotFound, Origin::Caller, text).with_code("workspace_not_found").into()
}
