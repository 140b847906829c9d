//! What the caller is told when a model or a sandbox fails, in neutral words.

use std::time::Duration;

use decision::problem::{Origin, Problem, ProblemKind};
use http::{HeaderMap, StatusCode};

use super::files::{SeedError, SeedFault};
use crate::sandbox::SandboxError;
use crate::wire::served::ModelWire;

/// Longest `retry-after` that is handed on, in seconds.
const MAX_RETRY_AFTER_S: u64 = 3600;
/// What a sandbox at capacity is worth waiting for, if it does not say.
const CAPACITY_RETRY_AFTER_S: u32 = 2;

/// A sandbox that gives no session.
pub(super) fn of_sandbox(error: &SandboxError) -> Problem {
    match error {
        SandboxError::AtCapacity { retry_after } => {
            let message = "every sandbox session is taken; try again later";
            let mut problem = Problem::new(ProblemKind::Overloaded, Origin::Sandbox, message);
            problem.retry_after_s = Some(retry_after.map_or(CAPACITY_RETRY_AFTER_S, whole_seconds));
            problem
        }
        SandboxError::UnknownSession
        | SandboxError::Busy { .. }
        | SandboxError::NotServed
        | SandboxError::UnknownFile
        | SandboxError::FileTooLarge { .. }
        | SandboxError::BadPath { .. }
        | SandboxError::Unreadable(_)
        | SandboxError::Refused { .. }
        | SandboxError::Unauthorized
        | SandboxError::TimedOut
        | SandboxError::Unreachable { .. } => {
            let message = "the sandbox that runs this request's code is not available";
            Problem::new(ProblemKind::SandboxFailed, Origin::Sandbox, message)
        }
    }
}

/// A session that has not the files it was to have.
pub(super) fn of_seed(error: &SeedError) -> Problem {
    let why = match &error.cause {
        SeedFault::Source(_) | SeedFault::Sandbox(SandboxError::Unreadable(_)) => "it cannot be read".to_owned(),
        SeedFault::Unkept => "files are switched off (`files.enabled`)".to_owned(),
        SeedFault::TimedOut(limit) => {
            format!("with the others it took longer than {} s (`tool_loop.file_timeout_ms`)", limit.as_secs())
        }
        SeedFault::Sandbox(SandboxError::FileTooLarge { limit }) => {
            format!("the sandbox has room for {limit} bytes: send fewer or smaller files")
        }
        SeedFault::Sandbox(SandboxError::BadPath { .. }) => "the sandbox takes no file of this name".to_owned(),
        SeedFault::Sandbox(SandboxError::NotServed) => "this sandbox takes no files".to_owned(),
        SeedFault::Sandbox(SandboxError::Refused { .. }) => "the sandbox refused it".to_owned(),
        SeedFault::Sandbox(_) => "the sandbox is not available".to_owned(),
    };
    let message = format!("the file `{}` did not get into the sandbox: {why}", error.name);
    Problem::new(ProblemKind::SandboxFailed, Origin::Sandbox, message)
}

/// A model's error answer, in the words it used.
pub(super) fn of_answer(wire: ModelWire, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Problem {
    let mut problem = wire.parse_error(body);
    problem.kind = match status.as_u16() {
        400 | 422 => ProblemKind::InvalidRequest,
        401 => ProblemKind::Unauthenticated,
        403 => ProblemKind::PermissionDenied,
        404 => ProblemKind::NotFound,
        413 => ProblemKind::PayloadTooLarge,
        429 => ProblemKind::RateLimited,
        503 | 529 => ProblemKind::Overloaded,
        408 | 504 => ProblemKind::UpstreamTimedOut,
        _ => ProblemKind::UpstreamFailed,
    };
    problem.retry_after_s = headers
        .get(http::header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok())
        .filter(|seconds| *seconds <= MAX_RETRY_AFTER_S)
        .and_then(|seconds| u32::try_from(seconds).ok());
    problem
}

/// The request took longer than it may.
pub(super) fn deadline(timeout: Duration) -> Problem {
    let message = format!("the request took longer than {} s and was stopped", timeout.as_secs());
    Problem::new(ProblemKind::UpstreamTimedOut, Origin::Gateway, message)
}

/// The conversation of one request has grown too long.
pub(super) fn transcript_too_long(limit: usize) -> Problem {
    let message = format!(
        "code and results of this request have grown past {limit} bytes (`tool_loop.max_transcript_bytes`): ask for less \
         output, or for fewer steps in one request"
    );
    Problem::new(ProblemKind::PayloadTooLarge, Origin::Caller, message)
}

/// Rounded up, for zero would mean "at once".
fn whole_seconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}
