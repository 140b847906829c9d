//! The block that tells what became of a call, in the tool's own family of types.
//!
//! INVARIANT: the newest SDKs accept every block under strict validation; members that some require are there, if null.

use decision::request::CodeTool;
use serde_json::{Value, json};

use crate::wire::event::{CodeFailure, CodeOutcome, Edit, Hunk};

/// The block of the call with this id. `file_ids`: what it wrote, which only the result of a program has a place for.
pub(super) fn block(id: &str, tool: CodeTool, outcome: CodeOutcome, file_ids: Vec<String>) -> Value {
    let output = |id: String| json!({"type": format!("{}_output", tool.word()), "file_id": id});
    let content = match outcome {
        CodeOutcome::Ran { stdout, stderr, return_code, files: _ } => json!({
            "type": format!("{}_result", tool.word()),
            "stdout": stdout, "stderr": stderr, "return_code": return_code,
            "content": file_ids.into_iter().map(output).collect::<Vec<Value>>(),
        }),
        CodeOutcome::Edited { text, note: _, edit, files: _ } => edited(text, edit),
        CodeOutcome::EditFailed { failure, message } => error(tool, failure, Some(&message)),
        CodeOutcome::Failed(failure @ CodeFailure::InvalidInput(what)) => error(tool, failure, Some(what)),
        CodeOutcome::Failed(failure) => error(tool, failure, None),
    };
    json!({"type": format!("{}_tool_result", tool.word()), "tool_use_id": id, "content": content})
}

fn error(tool: CodeTool, failure: CodeFailure, message: Option<&str>) -> Value {
    let mut error = json!({"type": format!("{}_tool_result_error", tool.word()), "error_code": failure.code()});
    // Only the text editor's error has a place for words.
    if let (CodeTool::TextEditor, Value::Object(error)) = (tool, &mut error) {
        error.insert("error_message".to_owned(), message.into());
    }
    error
}

fn edited(text: String, edit: Edit) -> Value {
    match edit {
        Edit::Viewed(lines) => json!({
            "type": "text_editor_code_execution_view_result", "content": text, "file_type": "text",
            "num_lines": lines.map(|lines| lines.count), "start_line": lines.map(|lines| lines.start),
            "total_lines": lines.map(|lines| lines.total),
        }),
        Edit::Created { is_file_update } => {
            json!({"type": "text_editor_code_execution_create_result", "is_file_update": is_file_update})
        }
        Edit::Replaced(hunk) => {
            let number = |pick: fn(&Hunk) -> u32| hunk.as_ref().map(pick);
            json!({
                "type": "text_editor_code_execution_str_replace_result",
                "old_start": number(|hunk| hunk.old_start), "old_lines": number(|hunk| hunk.old_lines),
                "new_start": number(|hunk| hunk.new_start), "new_lines": number(|hunk| hunk.new_lines),
                "lines": hunk.as_ref().and_then(|hunk| hunk.lines.as_ref()),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::event::CodeFiles;

    fn content(tool: CodeTool, outcome: CodeOutcome) -> Value {
        let block = block("otari_srvtoolu_1", tool, outcome, vec!["file-otr1".to_owned()]);
        assert_eq!(
            (&block["type"], &block["tool_use_id"]),
            (&json!(format!("{}_tool_result", tool.word())), &json!("otari_srvtoolu_1"))
        );
        block["content"].clone()
    }

    #[test]
    fn a_program_is_told_in_the_words_of_its_tool() {
        let (stdout, stderr) = ("a".to_owned(), "b".to_owned());
        let ran = CodeOutcome::Ran { stdout, stderr, return_code: 3, files: CodeFiles::default() };
        for (tool, kind) in [(CodeTool::Python, "code_execution"), (CodeTool::Bash, "bash_code_execution")] {
            let content_of = json!([{"type": format!("{kind}_output"), "file_id": "file-otr1"}]);
            let expected = json!({"type": format!("{kind}_result"), "stdout": "a", "stderr": "b", "return_code": 3,
                "content": content_of});
            assert_eq!(content(tool, ran.clone()), expected);
        }
        let failed = CodeOutcome::Failed(CodeFailure::TimedOut);
        let expected =
            json!({"type": "bash_code_execution_tool_result_error", "error_code": "execution_time_exceeded"});
        assert_eq!(content(CodeTool::Bash, failed), expected);
    }

    #[test]
    fn what_the_editor_does_not_know_is_null_and_there() {
        let edited = |edit| {
            let (text, note) = ("t".to_owned(), String::new());
            content(CodeTool::TextEditor, CodeOutcome::Edited { text, note, edit, files: CodeFiles::default() })
        };
        let expected = json!({"type": "text_editor_code_execution_view_result", "content": "t", "file_type": "text",
            "num_lines": null, "start_line": null, "total_lines": null});
        assert_eq!(edited(Edit::Viewed(None)), expected);
        let expected = json!({"type": "text_editor_code_execution_str_replace_result", "lines": null,
            "old_start": null, "old_lines": null, "new_start": null, "new_lines": null});
        assert_eq!(edited(Edit::Replaced(None)), expected);
        let expected = json!({"type": "text_editor_code_execution_create_result", "is_file_update": true});
        assert_eq!(edited(Edit::Created { is_file_update: true }), expected);
        let error = |code, message| json!({"type": "text_editor_code_execution_tool_result_error", "error_code": code, "error_message": message});
        let failed =
            CodeOutcome::EditFailed { failure: CodeFailure::FileNotFound, message: "no such file: a".to_owned() };
        assert_eq!(content(CodeTool::TextEditor, failed), error("file_not_found", Some("no such file: a")));
        let failed = CodeOutcome::Failed(CodeFailure::InvalidInput("`path` is missing"));
        assert_eq!(content(CodeTool::TextEditor, failed), error("invalid_tool_input", Some("`path` is missing")));
        let failed = CodeOutcome::Failed(CodeFailure::TooMany);
        assert_eq!(content(CodeTool::TextEditor, failed), error("too_many_requests", None));
    }
}
