//! What a contract-v1 server is told to run.
//!
//! INVARIANT: names and members are the contract's; nothing is sent that it does not have.

use serde_json::{Value, json};

use crate::sandbox::{EditorCommand, ToolInput};

/// The name of the tool and its input.
pub(super) fn tool_and_input(input: &ToolInput) -> (&'static str, Value) {
    match input {
        ToolInput::Python { code } => ("code_execution", json!({"code": code})),
        ToolInput::Bash { command } => ("bash_code_execution", json!({"command": command})),
        ToolInput::TextEditor(command) => ("text_editor_code_execution", editor(command)),
    }
}

fn editor(command: &EditorCommand) -> Value {
    /// To the end of the file.
    const END: i64 = -1;
    match command {
        EditorCommand::View { path, range: None } => json!({"command": "view", "path": path}),
        EditorCommand::View { path, range: Some(range) } => {
            let last = range.last.map_or(END, i64::from);
            json!({"command": "view", "path": path, "view_range": [range.first, last]})
        }
        EditorCommand::Create { path, text } => json!({"command": "create", "path": path, "file_text": text}),
        EditorCommand::StrReplace { path, old, new } => {
            json!({"command": "str_replace", "path": path, "old_str": old, "new_str": new})
        }
        EditorCommand::UndoEdit { path } => json!({"command": "undo_edit", "path": path}),
        EditorCommand::Insert { path, line, text } => {
            json!({"command": "insert", "path": path, "insert_line": line, "new_str": text})
        }
    }
}
