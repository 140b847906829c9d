//! `GET /v1/tools`: which tools of ours a request may declare.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use decision::policy::Preference;
use http::{HeaderMap, StatusCode};
use serde_json::json;

use super::internal::json_response;
use super::{Refusal, Services, credential};

/// Both tools, whether or not they are there.
pub(super) async fn list(State(services): State<Arc<Services>>, headers: HeaderMap) -> Result<Response, Refusal> {
    credential::require_any_key(&services, &headers).await?;
    let available = services.policy.sandbox_available();
    let mut accepted = vec!["otari_code_execution"];
    if available && services.policy.default_executor() != Preference::Provider {
        accepted.extend(["code_execution", "code_interpreter", "code_execution_<date>"]);
    }
    let body = json!({
        "object": "list",
        "data": [
            {
                "id": "otari_code_execution",
                "object": "tool",
                "description": "Runs Python in a sandbox of this gateway; variables and files live as long as the request.",
                "available": available,
                "accepted_types": accepted,
                "input_schema": {
                    "type": "object",
                    "properties": {"code": {"type": "string", "description": "Python source text."}},
                    "required": ["code"],
                },
                "example": {"type": "otari_code_execution"},
            },
            {
                "id": "otari_web_search",
                "object": "tool",
                "description": "Web search; this gateway does not serve it.",
                "available": false,
                "accepted_types": ["otari_web_search"],
                "input_schema": {
                    "type": "object",
                    "properties": {"query": {"type": "string"}},
                    "required": ["query"],
                },
                "example": {"type": "otari_web_search"},
            },
        ],
    });
    Ok(json_response(StatusCode::OK, &body))
}
