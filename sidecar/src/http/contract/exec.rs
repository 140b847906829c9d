//! One call in a session.
//!
//! INVARIANT: a program that failed is a success; a caller that leaves stops its code.

use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::call::Call;
use super::failure::Failure;
use super::{Contract, json_response};
use crate::ids;
use crate::sandbox::{EditorReport, ExecutionRequest, ExecutionResult, SandboxBackend as _, SessionId};

/// What a body may have beside its texts.
const FRAME_BYTES: u64 = 64 << 10;
/// Texts of a call; an edit replaces one by another.
const MAX_TEXTS: u64 = 2;
/// Bytes that JSON takes at most for one byte of a text.
const ESCAPED: u64 = 6;

#[derive(Serialize)]
struct Answer<'a> {
    tool_use_id: &'a str,
    result_block: Block<'a>,
    execution_time_ms: u64,
    /// Not the contract's: the time that was in force.
    timeout_seconds: u64,
    /// Not the contract's: how the session is kept apart.
    isolation: &'static str,
    /// Not the contract's: what an edit came to, beside its texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    editor_report: Option<&'a EditorReport>,
}

#[derive(Serialize)]
struct Block<'a> {
    r#type: &'static str,
    tool_use_id: &'a str,
    content: Outcome<'a>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    r#type: &'static str,
    stdout: &'a str,
    stderr: &'a str,
    return_code: i32,
    content: Vec<Produced<'a>>,
}

/// A file that the call itself named: a figure. Its id is its path, by which it is asked for.
#[derive(Serialize)]
struct Produced<'a> {
    r#type: &'static str,
    file_id: &'a str,
    filename: &'a str,
}

/// `POST /sessions/{id}/exec`
pub(super) async fn execute(contract: &Contract, id: &SessionId, request: Request) -> Result<Response, Failure> {
    contract.must_know(id)?;
    let limits = contract.sandbox.limits();
    let longest = (limits.code_bytes as u64).saturating_mul(MAX_TEXTS * ESCAPED).saturating_add(FRAME_BYTES);
    let body = contract.body(request, longest).await?;
    let call = Call::read(&body.bytes)?;
    // What was made of the body takes no more room than it did.
    let _share = body.share;
    let longest = limits.wall.as_secs();
    let granted = call.timeout_s.map_or(longest, |asked| asked.min(longest));
    let call_id = call.id.unwrap_or_else(|| contract.ids.mint(ids::SERVER_TOOL_USE));
    let request = ExecutionRequest {
        input: call.input,
        timeout: Duration::from_secs(granted),
        call_id,
        stop: CancellationToken::new(),
    };
    let begun = Instant::now();
    let result = contract.sandbox.execute(id, &request).await?;
    let call_id = &request.call_id;
    let answer = Answer {
        tool_use_id: call_id,
        result_block: Block { r#type: call.tool.result_type(), tool_use_id: call_id, content: content(&result) },
        execution_time_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        timeout_seconds: granted,
        isolation: contract.isolation(),
        editor_report: result.editor.as_ref(),
    };
    Ok(json_response(StatusCode::OK, &answer))
}

fn content(result: &ExecutionResult) -> Outcome<'_> {
    let file = |name| Produced { r#type: "code_execution_output", file_id: name, filename: name };
    Outcome {
        r#type: "code_execution_result",
        stdout: &result.stdout,
        stderr: &result.stderr,
        return_code: result.return_code,
        content: result.files.iter().map(|produced| file(produced.name.as_str())).collect(),
    }
}
