//! What the model is told about an execution, and how a sandbox's answer becomes an outcome.

use super::limits::Limits;
use crate::sandbox::{ExecutionResult, SandboxError};
use crate::wire::code_tool::ERROR_MARK;
use crate::wire::event::{CodeFailure, CodeOutcome};

/// The outcome of an execution, its texts cut to the limit.
pub(super) fn outcome(result: Result<ExecutionResult, SandboxError>, limits: &Limits) -> CodeOutcome {
    match result {
        Ok(ExecutionResult { stdout, stderr, return_code, .. }) => CodeOutcome::Ran {
            stdout: cut(stdout, limits.max_result_bytes),
            stderr: cut(stderr, limits.max_result_bytes),
            return_code,
        },
        Err(error) => CodeOutcome::Failed(failure(&error)),
    }
}

fn failure(error: &SandboxError) -> CodeFailure {
    match error {
        SandboxError::AtCapacity { .. } => CodeFailure::TooMany,
        SandboxError::TimedOut => CodeFailure::TimedOut,
        SandboxError::Refused { .. } => CodeFailure::InvalidInput,
        SandboxError::UnknownSession | SandboxError::Unauthorized | SandboxError::Unreachable { .. } => {
            CodeFailure::Unavailable
        }
    }
}

/// The result as the model reads it, and whether it is an error. Warnings on stderr are none.
pub(super) fn text_for_model(outcome: &CodeOutcome) -> (String, bool) {
    let (stdout, stderr, return_code) = match outcome {
        CodeOutcome::Failed(failure) => return (format!("{ERROR_MARK}{}", failure_words(*failure)), true),
        CodeOutcome::Ran { stdout, stderr, return_code } => (stdout, stderr, *return_code),
    };
    let is_error = return_code != 0;
    let mut text = if is_error { ERROR_MARK.to_owned() } else { String::new() };
    if stdout.is_empty() && stderr.is_empty() {
        text.push_str("The code printed nothing.\n");
    }
    for (name, output) in [("stdout", stdout), ("stderr", stderr)] {
        if !output.is_empty() {
            let line_end = if output.ends_with('\n') { "" } else { "\n" };
            text.extend([name, ":\n", output, line_end]);
        }
    }
    text.extend(["return code: ", &return_code.to_string()]);
    (text, is_error)
}

fn failure_words(failure: CodeFailure) -> &'static str {
    match failure {
        CodeFailure::InvalidInput => {
            "The call was not run: its arguments must be one JSON object of the form {\"code\": \"<Python source>\"} \
             and the code must not be empty or too long."
        }
        CodeFailure::Unavailable => "The code was not run, or its result is lost: the sandbox is unavailable.",
        CodeFailure::TooMany => "The code was not run: too many calls at once. Make fewer calls.",
        CodeFailure::TimedOut => "The code was stopped: it did not finish within the time limit.",
    }
}

/// Cuts on a character's border and says how much there was.
fn cut(mut text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let size = text.len();
    text.truncate(text.floor_char_boundary(limit));
    text.extend(["\n[cut: ", &size.to_string(), " bytes in all]"]);
    text
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(stdout: &str, stderr: &str, return_code: i32, expected: Expect) {
        let result =
            ExecutionResult { stdout: stdout.into(), stderr: stderr.into(), return_code, ..ExecutionResult::default() };
        let limits = Limits { max_result_bytes: 8, ..Limits::default() };
        let (text, is_error) = text_for_model(&outcome(Ok(result), &limits));
        expected.assert_eq(&text);
        assert_eq!(is_error, return_code != 0);
    }

    #[test]
    fn the_model_reads_every_part_under_its_name() {
        check(
            "4\n",
            "",
            0,
            expect![[r"
            stdout:
            4
            return code: 0"]],
        );
        check(
            "",
            "warning",
            0,
            expect![[r"
            stderr:
            warning
            return code: 0"]],
        );
        check(
            "",
            "",
            0,
            expect![[r"
            The code printed nothing.
            return code: 0"]],
        );
        check(
            "a",
            "boom",
            1,
            expect![[r"
            [tool error] stdout:
            a
            stderr:
            boom
            return code: 1"]],
        );
        check(
            "1234567é",
            "",
            0,
            expect![[r"
            stdout:
            1234567
            [cut: 9 bytes in all]
            return code: 0"]],
        );
    }
}
