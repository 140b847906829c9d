//! What the model is told about an execution, and how a sandbox's answer becomes an outcome.

use std::borrow::Cow;

use super::limits::Limits;
use crate::sandbox::{EditorCommand, EditorFault, EditorReport, ExecutionResult, SandboxError, ToolInput};
use crate::wire::code_tool::ERROR_MARK;
use crate::wire::event::{CodeFailure, CodeFiles, CodeOutcome, Edit, Hunk, NotKept, ViewedLines};

/// Return code of what was stopped at its time limit.
const STOPPED: i32 = 124;
/// Return code of what was killed with its session.
const KILLED: i32 = 137;
/// What the model is told, behind the last result, before the call that has no functions of ours any more.
pub(super) const NO_MORE_CODE: &str =
    "\n\n[sandbox] No more code can be run for this answer: the limit is reached. Answer with what there is.";
/// What the model is told of an input that the sandbox did not take.
const REFUSED: &str = "the sandbox takes no such input; it may be too long";

/// The outcome of an execution, its texts cut to the limit.
pub(super) fn outcome(
    input: &ToolInput,
    result: Result<ExecutionResult, SandboxError>,
    files: CodeFiles,
    limits: &Limits,
) -> CodeOutcome {
    let ExecutionResult { stdout, stderr, return_code, editor, files: _ } = match result {
        Ok(result) => result,
        Err(error) => return CodeOutcome::Failed(failure(&error)),
    };
    let (stdout, stderr) = (cut(stdout, limits.max_result_bytes), cut(stderr, limits.max_result_bytes));
    let ToolInput::TextEditor(command) = input else { return CodeOutcome::Ran { stdout, stderr, return_code, files } };
    match edit(command, editor, return_code) {
        Ok(edit) => CodeOutcome::Edited { text: stdout, note: stderr, edit, files },
        Err(failure) => {
            let message = [stderr, stdout].into_iter().find(|text| !text.trim().is_empty());
            let message =
                message.map_or_else(|| failure_words(failure).into_owned(), |text| text.trim_end().to_owned());
            CodeOutcome::EditFailed { failure, message }
        }
    }
}

/// What an act came to. A contract-v1 server gives no report, only a return code.
fn edit(command: &EditorCommand, report: Option<EditorReport>, return_code: i32) -> Result<Edit, CodeFailure> {
    Ok(match (report, command) {
        (Some(EditorReport::Failed(EditorFault::FileNotFound)), _) => return Err(CodeFailure::FileNotFound),
        (Some(EditorReport::Failed(EditorFault::InvalidInput)), _) => return Err(CodeFailure::InvalidInput(REFUSED)),
        (Some(EditorReport::Failed(EditorFault::Unavailable)), _) => return Err(CodeFailure::Unavailable),
        (Some(EditorReport::Viewed { start_line, num_lines, total_lines }), _) => {
            Edit::Viewed(Some(ViewedLines { start: start_line, count: num_lines, total: total_lines }))
        }
        (Some(EditorReport::Listed { .. }), _) => Edit::Viewed(None),
        (Some(EditorReport::Created { is_file_update }), _) => Edit::Created { is_file_update },
        (Some(EditorReport::Edited { old_start, old_lines, new_start, new_lines, lines }), _) => {
            Edit::Replaced(Some(Hunk { old_start, old_lines, new_start, new_lines, lines }))
        }
        (None, _) if return_code == STOPPED => return Err(CodeFailure::TimedOut),
        (None, _) if return_code == KILLED => return Err(CodeFailure::Unavailable),
        (None, _) if return_code != 0 => return Err(CodeFailure::InvalidInput(REFUSED)),
        (None, EditorCommand::View { .. }) => Edit::Viewed(None),
        (None, EditorCommand::Create { .. }) => Edit::Created { is_file_update: false },
        (None, EditorCommand::StrReplace { .. } | EditorCommand::Insert { .. } | EditorCommand::UndoEdit { .. }) => {
            Edit::Replaced(None)
        }
    })
}

fn failure(error: &SandboxError) -> CodeFailure {
    match error {
        SandboxError::AtCapacity { .. } | SandboxError::Busy { .. } => CodeFailure::TooMany,
        SandboxError::TimedOut => CodeFailure::TimedOut,
        SandboxError::Refused { .. } => CodeFailure::InvalidInput(REFUSED),
        SandboxError::UnknownSession
        | SandboxError::Unauthorized
        | SandboxError::NotServed
        | SandboxError::UnknownFile
        | SandboxError::FileTooLarge { .. }
        | SandboxError::BadPath { .. }
        | SandboxError::Unreadable(_)
        | SandboxError::Unreachable { .. } => CodeFailure::Unavailable,
    }
}

/// The result as the model reads it, and whether it is an error. Warnings on stderr are none.
pub(super) fn text_for_model(outcome: &CodeOutcome) -> (String, bool) {
    let (stdout, stderr, return_code, files) = match outcome {
        CodeOutcome::Failed(failure) => return (format!("{ERROR_MARK}{}", failure_words(*failure)), true),
        CodeOutcome::EditFailed { message, .. } => return (format!("{ERROR_MARK}{message}"), true),
        CodeOutcome::Edited { text, note, edit, files } => {
            let mut told = edited(text, note, edit);
            tell_files(&mut told, files);
            return (told, false);
        }
        CodeOutcome::Ran { stdout, stderr, return_code, files } => (stdout, stderr, *return_code, files),
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
    tell_files(&mut text, files);
    (text, is_error)
}

/// The files that a call wrote, each with the id by which the user gets it.
fn tell_files(text: &mut String, files: &CodeFiles) {
    if files.is_empty() {
        return;
    }
    let line_end = if text.ends_with('\n') { "" } else { "\n" };
    text.extend([line_end, "files:"]);
    for file in &files.files {
        text.extend(["\n- ", &file.path]);
        match &file.kept {
            Ok(stored) => text.extend([" (file_id: ", &stored.id, ", ", &stored.size_bytes.to_string(), " bytes)"]),
            Err(reason) => text.extend([" (not kept: ", &not_kept(*reason), ")"]),
        }
    }
    if files.unnamed > 0 {
        text.extend(["\n- and ", &files.unnamed.to_string(), " more, not kept: too many, or too deep in directories"]);
    }
}

fn not_kept(reason: NotKept) -> Cow<'static, str> {
    Cow::Borrowed(match reason {
        NotKept::TooMany { limit } => return format!("a call may return {limit} files").into(),
        NotKept::TooLarge { limit } => {
            return format!("it has more than the {limit} bytes that were left for it").into();
        }
        NotKept::Unreadable => "it cannot be read",
        NotKept::TimedOut => "there was no time left for it",
        NotKept::StorageFull => "the user's storage is full",
        NotKept::StorageFailed => "the file store failed",
    })
}

/// A view in part is told with the numbers of its lines, which do not stand in it.
fn edited(text: &str, note: &str, edit: &Edit) -> String {
    let mut told = String::new();
    if let Edit::Viewed(Some(ViewedLines { start, count, total })) = edit
        && count < total
    {
        let last = start.saturating_add(*count).saturating_sub(1);
        told.extend(["lines ", &start.to_string(), " to ", &last.to_string(), " of ", &total.to_string(), ":\n"]);
    }
    let seen = if text.is_empty() { "There is nothing in it." } else { text };
    told.push_str(seen);
    if !note.is_empty() {
        let line_end = if told.ends_with('\n') { "" } else { "\n" };
        told.extend([line_end, note]);
    }
    told
}

fn failure_words(failure: CodeFailure) -> Cow<'static, str> {
    Cow::Borrowed(match failure {
        CodeFailure::InvalidInput(what) => return format!("The call was not run: {what}.").into(),
        CodeFailure::FileNotFound => "There is no such file or directory.",
        CodeFailure::Unavailable => "The code was not run, or its result is lost: the sandbox is unavailable.",
        CodeFailure::TooMany => "The code was not run: too many calls at once. Make fewer calls.",
        CodeFailure::TimedOut => "The code was stopped: it did not finish within the time limit.",
    })
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
    use crate::wire::event::{CodeFile, StoredFile};

    fn check(stdout: &str, stderr: &str, return_code: i32, expected: Expect) {
        let result =
            ExecutionResult { stdout: stdout.into(), stderr: stderr.into(), return_code, ..ExecutionResult::default() };
        let limits = Limits { max_result_bytes: 8, ..Limits::default() };
        let input = ToolInput::Python { code: String::new() };
        let (text, is_error) = text_for_model(&outcome(&input, Ok(result), CodeFiles::default(), &limits));
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

    #[test]
    fn files_are_told_with_their_ids_or_why_they_have_none() {
        let stored = StoredFile {
            id: "file-otr1".to_owned(),
            filename: "a.csv".to_owned(),
            mime_type: "text/csv".to_owned(),
            size_bytes: 7,
            image: None,
        };
        let reasons = [
            NotKept::TooMany { limit: 20 },
            NotKept::TooLarge { limit: 9 },
            NotKept::Unreadable,
            NotKept::TimedOut,
            NotKept::StorageFull,
            NotKept::StorageFailed,
        ];
        let kept = [Ok(stored)].into_iter().chain(reasons.map(Err)).enumerate();
        let files = kept.map(|(number, kept)| CodeFile { path: format!("d/{number}.csv"), kept }).collect();
        let files = CodeFiles { files, unnamed: 3 };
        let input = ToolInput::Python { code: String::new() };
        let ran = outcome(&input, Ok(ended("x", "", 0, None)), files.clone(), &Limits::default());
        expect![[r"
            stdout:
            x
            return code: 0
            files:
            - d/0.csv (file_id: file-otr1, 7 bytes)
            - d/1.csv (not kept: a call may return 20 files)
            - d/2.csv (not kept: it has more than the 9 bytes that were left for it)
            - d/3.csv (not kept: it cannot be read)
            - d/4.csv (not kept: there was no time left for it)
            - d/5.csv (not kept: the user's storage is full)
            - d/6.csv (not kept: the file store failed)
            - and 3 more, not kept: too many, or too deep in directories"]]
        .assert_eq(&text_for_model(&ran).0);
        let files = CodeFiles { unnamed: 0, files: files.files.into_iter().take(1).collect() };
        let created = EditorReport::Created { is_file_update: false };
        let create = EditorCommand::Create { path: "d/0.csv".to_owned(), text: String::new() };
        let result = Ok(ended("The file was created.", "", 0, Some(created)));
        let edited = outcome(&ToolInput::TextEditor(create), result, files, &Limits::default());
        expect![[r"
            The file was created.
            files:
            - d/0.csv (file_id: file-otr1, 7 bytes)"]]
        .assert_eq(&text_for_model(&edited).0);
    }

    /// What the model reads of an act of the editor, and what the outcome is.
    fn check_edit(command: EditorCommand, result: ExecutionResult, expected: Expect) -> CodeOutcome {
        let outcome = outcome(&ToolInput::TextEditor(command), Ok(result), CodeFiles::default(), &Limits::default());
        let (text, is_error) = text_for_model(&outcome);
        expected.assert_eq(&text);
        assert_eq!(is_error, !matches!(outcome, CodeOutcome::Edited { .. }));
        outcome
    }

    fn ended(stdout: &str, stderr: &str, return_code: i32, editor: Option<EditorReport>) -> ExecutionResult {
        ExecutionResult { stdout: stdout.into(), stderr: stderr.into(), return_code, editor, files: Vec::new() }
    }

    fn view() -> EditorCommand {
        EditorCommand::View { path: "a".to_owned(), range: None }
    }

    #[test]
    fn a_view_in_part_is_told_with_its_place() {
        let part = EditorReport::Viewed { start_line: 2, num_lines: 2, total_lines: 9 };
        check_edit(
            view(),
            ended("b\nc\n", "The view was cut.", 0, Some(part)),
            expect![[r"
                lines 2 to 3 of 9:
                b
                c
                The view was cut."]],
        );
        let all = EditorReport::Viewed { start_line: 1, num_lines: 1, total_lines: 1 };
        check_edit(view(), ended("b", "", 0, Some(all)), expect!["b"]);
        check_edit(
            view(),
            ended("", "", 0, Some(EditorReport::Listed { entries: 0 })),
            expect!["There is nothing in it."],
        );
    }

    #[test]
    fn an_act_that_failed_says_why() {
        let missing = Some(EditorReport::Failed(EditorFault::FileNotFound));
        let outcome =
            check_edit(view(), ended("", "no such file: a\n", 1, missing), expect!["[tool error] no such file: a"]);
        assert!(matches!(outcome, CodeOutcome::EditFailed { failure: CodeFailure::FileNotFound, .. }), "{outcome:?}");
        let stopped = check_edit(
            view(),
            ended("", "", STOPPED, None),
            expect!["[tool error] The code was stopped: it did not finish within the time limit."],
        );
        assert!(matches!(stopped, CodeOutcome::EditFailed { failure: CodeFailure::TimedOut, .. }), "{stopped:?}");
        let killed = outcome_of(ended("", "", KILLED, None));
        assert!(matches!(killed, CodeOutcome::EditFailed { failure: CodeFailure::Unavailable, .. }), "{killed:?}");
    }

    fn outcome_of(result: ExecutionResult) -> CodeOutcome {
        outcome(&ToolInput::TextEditor(view()), Ok(result), CodeFiles::default(), &Limits::default())
    }

    #[test]
    fn a_server_that_gives_no_report_is_taken_by_its_return_code() {
        let create = EditorCommand::Create { path: "a".to_owned(), text: String::new() };
        let created = check_edit(create, ended("File created", "", 0, None), expect!["File created"]);
        let expected = Edit::Created { is_file_update: false };
        assert!(matches!(created, CodeOutcome::Edited { edit, .. } if edit == expected));
        let refused = check_edit(view(), ended("not text", "", 1, None), expect!["[tool error] not text"]);
        assert!(
            matches!(refused, CodeOutcome::EditFailed { failure: CodeFailure::InvalidInput(_), .. }),
            "{refused:?}"
        );
        assert!(matches!(outcome_of(ended("b", "", 0, None)), CodeOutcome::Edited { edit: Edit::Viewed(None), .. }));
    }
}
