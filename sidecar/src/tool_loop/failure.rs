//! What the caller is told when a model or a sandbox fails, in neutral words.

use std::time::Duration;

use decision::problem::{Origin, Problem, ProblemKind};
use http::{HeaderMap, StatusCode, header};
use jiff::fmt::rfc2822;

use super::files::{SeedError, SeedFault};
use crate::sandbox::SandboxError;
use crate::wire::served::ModelWire;

/// Longest `retry-after` that is handed on.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);
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
        401 => ProblemKind::Unauthenticated,
        // No credit left is nothing that another try could mend either.
        402 | 403 => ProblemKind::PermissionDenied,
        404 => ProblemKind::NotFound,
        413 => ProblemKind::PayloadTooLarge,
        429 => ProblemKind::RateLimited,
        503 | 529 => ProblemKind::Overloaded,
        408 | 504 => ProblemKind::UpstreamTimedOut,
        // Something else stood in the way at that moment.
        409 | 423 | 425 => ProblemKind::UpstreamFailed,
        400..500 => ProblemKind::InvalidRequest,
        _ => ProblemKind::UpstreamFailed,
    };
    problem.retry_after_s = retry_after(headers).filter(|wait| *wait <= MAX_RETRY_AFTER).map(whole_seconds);
    problem.side_effects |= word(headers, "x-should-retry") == Some("false");
    problem
}

/// When a provider says to come back: in milliseconds, in seconds, or at a time by its own clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    if let Some(milliseconds) = word(headers, "retry-after-ms").and_then(|text| text.parse().ok()) {
        return Some(Duration::from_millis(milliseconds));
    }
    let asked = word(headers, header::RETRY_AFTER.as_str())?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let time = |text: &str| rfc2822::parse(text).ok().map(|time| time.timestamp());
    let wait = time(asked)?.duration_since(time(word(headers, header::DATE.as_str())?)?);
    Some(wait.unsigned_abs()).filter(|_| !wait.is_negative())
}

fn word<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16, headers: &[(&'static str, &'static str)]) -> Problem {
        let headers = headers
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), header::HeaderValue::from_static(value)));
        let status = StatusCode::from_u16(status).unwrap();
        of_answer(ModelWire::ChatCompletions, status, &headers.collect(), b"{}")
    }

    #[test]
    fn what_another_try_cannot_mend_is_not_worth_one() {
        use ProblemKind::{InvalidRequest, PermissionDenied, UpstreamFailed, UpstreamTimedOut};
        for (status, kind) in [
            (400, InvalidRequest),
            (402, PermissionDenied),
            (405, InvalidRequest),
            (406, InvalidRequest),
            (408, UpstreamTimedOut),
            (409, UpstreamFailed),
            (410, InvalidRequest),
            (415, InvalidRequest),
            (422, InvalidRequest),
            (425, UpstreamFailed),
            (451, InvalidRequest),
            (302, UpstreamFailed),
            (500, UpstreamFailed),
        ] {
            assert_eq!(problem(status, &[]).kind, kind, "{status}");
        }
    }

    #[test]
    fn a_wait_is_handed_on_in_whole_seconds_however_it_was_said() {
        const NOW: (&str, &str) = ("date", "Mon, 30 Nov 2026 18:00:00 GMT");
        for (headers, wait) in [
            (&[("retry-after", "7")][..], Some(7)),
            (&[("retry-after", " 7 ")], Some(7)),
            (&[("retry-after-ms", "1200")], Some(2)),
            (&[("retry-after-ms", "10"), ("retry-after", "30")], Some(1)),
            (&[("retry-after", "Mon, 30 Nov 2026 18:01:30 GMT"), NOW], Some(90)),
            (&[("retry-after", "Mon, 30 Nov 2026 17:59:59 GMT"), NOW], None),
            (&[("retry-after", "Mon, 30 Nov 2026 18:01:30 GMT")], None),
            (&[("retry-after", "soon"), NOW], None),
            (&[("retry-after", "3600")], Some(3600)),
            (&[("retry-after", "3601")], None),
            (&[], None),
        ] {
            assert_eq!(problem(429, headers).retry_after_s, wait, "{headers:?}");
        }
    }

    #[test]
    fn a_provider_that_wants_no_other_try_is_heard() {
        assert!(problem(500, &[("x-should-retry", "false")]).side_effects);
        assert!(!problem(500, &[("x-should-retry", "true")]).side_effects);
        assert!(!problem(500, &[]).side_effects);
    }
}
