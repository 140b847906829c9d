//! What models are told of files, beside the files.
//!
//! INVARIANT: a file's name stands between quotes of its own, and a file's text between marks that it cannot know.

use serde_json::Value;

use crate::files::FileRecord;

/// Hex digits of a file's id that mark its text: its author wrote it before the id was made.
const MARK_DIGITS: usize = 12;

/// Of one file, where it is named.
pub(super) fn lies_in_directory(name: &str) -> String {
    format!("[file {} lies in the working directory of the code tools]", quoted(name))
}

/// Of files that nothing else tells.
pub(super) fn in_directory(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    format!("Files that lie in the working directory: {}.", names.join(", "))
}

/// A file's text.
pub(super) fn marked(file: &FileRecord, name: &str, text: &str) -> String {
    let digits = file.id.len().saturating_sub(MARK_DIGITS);
    let (name, mark) = (quoted(name), file.id.get(digits..).unwrap_or_default());
    format!("[begin of file {name}, mark {mark}]\n{text}\n[end of file {name}, mark {mark}]")
}

/// What stands behind a text that breaks off.
pub(super) const BROKEN_OFF: &str = "\n[the rest of this file could not be read as text]";

pub(super) fn unreadable(name: &str) -> String {
    format!("[file {} could not be read as text]", quoted(name))
}

pub(super) fn left_out(name: &str) -> String {
    format!("[image {} was left out: this model takes no images]", quoted(name))
}

pub(super) fn quoted(name: &str) -> String {
    Value::from(name).to_string()
}
