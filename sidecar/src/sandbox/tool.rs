//! What a session can be asked to run, and what the text editor reports of its work besides text.
//!
//! INVARIANT: every text of an input is within [`ToolInput::check`]'s limits before it reaches an embedded session.

use serde::{Deserialize, Serialize};

/// Longest command: what the kernel takes as one argument of a program, its end mark aside.
const MAX_COMMAND_BYTES: usize = (128 << 10) - 1;
/// Longest path, as the kernel has it.
const MAX_PATH_BYTES: usize = 4095;
/// Longest account of an edit, each line counted with the quotes and the comma around it; the driver keeps to it too.
const MAX_HUNK_BYTES: usize = 32 << 10;

/// A tool of contract v1 with what it is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolInput {
    /// `code_execution`: Python in the session's interpreter, which keeps its variables between calls.
    Python {
        /// Source text.
        code: String,
    },
    /// `bash_code_execution`: a fresh shell in the workspace.
    Bash {
        /// What `bash -c` is given.
        command: String,
    },
    /// `text_editor_code_execution`.
    TextEditor(EditorCommand),
}

/// One act of the text editor. A path is relative to the workspace, or absolute and inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditorCommand {
    /// Shows a text file, or lists a directory two levels deep.
    View {
        /// File or directory.
        path: String,
        /// The lines to show of a file; all if absent.
        range: Option<ViewRange>,
    },
    /// Writes a file, over the one that may be there; directories above it are made.
    Create {
        /// The file.
        path: String,
        /// All of its text.
        text: String,
    },
    /// Replaces the one place in a file where `old` stands.
    StrReplace {
        /// The file.
        path: String,
        /// What stands there; not empty.
        old: String,
        /// What is to stand there; empty deletes.
        new: String,
    },
    /// Puts lines between the lines of a file.
    Insert {
        /// The file.
        path: String,
        /// The line after which they go, counted from 1; 0 is before the first.
        line: u32,
        /// The lines; a missing line end is added where one is needed.
        text: String,
    },
    /// Takes back the last act that changed a file, if nothing else changed it since and it is remembered: the last 64 of a
    /// session's interpreter are.
    UndoEdit {
        /// The file.
        path: String,
    },
}

/// Lines of a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewRange {
    /// The first line shown.
    pub first: u32,
    /// The last line shown; the file's last if absent or beyond it.
    pub last: Option<u32>,
}

/// What an act of the text editor came to. Texts are in [`super::ExecutionResult`]: `stdout` has the content a view
/// shows, or a sentence about a change; `stderr` says why an act failed, or what a view left out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EditorReport {
    /// `stdout` is these lines of a text file, unnumbered, with their own line ends.
    Viewed {
        /// Number of the first line shown, from 1.
        start_line: u32,
        /// Lines shown.
        num_lines: u32,
        /// Lines of the whole file.
        total_lines: u32,
    },
    /// `stdout` is the list of a directory, one path a line, directories with a `/` at the end.
    Listed {
        /// Entries shown.
        entries: u32,
    },
    /// A file was written whole.
    Created {
        /// Whether there was one before.
        is_file_update: bool,
    },
    /// Lines of a file were replaced; an insertion replaces none.
    Edited {
        /// First line replaced, by the old count.
        old_start: u32,
        /// Lines replaced.
        old_lines: u32,
        /// First line put there, by the new count.
        new_start: u32,
        /// Lines put there.
        new_lines: u32,
        /// The old lines with a `-` before each, then the new ones with a `+`, without line ends. `None` if too long.
        lines: Option<Vec<String>>,
    },
    /// Nothing was changed.
    Failed(EditorFault),
}

/// Why an act of the text editor failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EditorFault {
    /// There is no such file or directory.
    FileNotFound,
    /// The act cannot be done as asked; `stderr` says what to change.
    InvalidInput,
    /// The system refused: no permission, no space, no memory.
    Unavailable,
}

impl ToolInput {
    /// Whether this call and one that stands next to it may run at the same time, in whatever order. Two commands may, each
    /// in a shell of its own; Python and the editor share one interpreter, and build on what came before.
    pub fn may_overlap(&self, next: &Self) -> bool {
        matches!((self, next), (Self::Bash { .. }, Self::Bash { .. }))
    }

    /// Checks lengths. `limit` is `sandbox.max_code_bytes`, for each text. The error never quotes the text.
    pub(super) fn check(&self, limit: usize) -> Result<(), String> {
        let texts: &[(&str, &str, usize)] = match self {
            Self::Python { code } => &[("code", code, limit)],
            Self::Bash { command } => &[("command", command, limit.min(MAX_COMMAND_BYTES))],
            Self::TextEditor(command) => match command {
                EditorCommand::View { path, .. } | EditorCommand::UndoEdit { path } => {
                    &[("path", path, MAX_PATH_BYTES)]
                }
                EditorCommand::Create { path, text } => {
                    &[("path", path, MAX_PATH_BYTES), ("text of the file", text, limit)]
                }
                EditorCommand::StrReplace { path, old, new } => {
                    &[("path", path, MAX_PATH_BYTES), ("old text", old, limit), ("new text", new, limit)]
                }
                EditorCommand::Insert { path, text, .. } => {
                    &[("path", path, MAX_PATH_BYTES), ("inserted text", text, limit)]
                }
            },
        };
        match texts.iter().find(|(_, text, limit)| text.len() > *limit) {
            Some((name, text, limit)) => Err(format!("the {name} has {} bytes, the limit is {limit}", text.len())),
            None => Ok(()),
        }
    }
}

impl EditorCommand {
    /// Whether `report` is one that this act can come to, and no longer than one may be.
    pub(super) fn can_end_in(&self, report: &EditorReport) -> bool {
        match report {
            EditorReport::Failed(_) => true,
            EditorReport::Viewed { .. } => matches!(self, Self::View { .. }),
            EditorReport::Listed { .. } => matches!(self, Self::View { range: None, .. }),
            EditorReport::Created { .. } => matches!(self, Self::Create { .. }),
            EditorReport::Edited { lines, .. } => {
                let bytes: usize = lines.iter().flatten().map(|line| line.len() + r#""","#.len()).sum();
                bytes <= MAX_HUNK_BYTES
                    && matches!(self, Self::StrReplace { .. } | Self::Insert { .. } | Self::UndoEdit { .. })
            }
        }
    }
}

#[cfg(test)]
mod tests;
