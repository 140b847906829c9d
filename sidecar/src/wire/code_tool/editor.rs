//! The arguments of the text editor, once they are whole.
//!
//! INVARIANT: what runs is what is shown; a member that the command does not have is in neither.

use serde_json::{Map, Value};

use super::CodeInput;
use crate::wire::event::CodeFailure;
use crate::wire::json::take_text;

/// What the editor can do, in contract v1's words.
pub(super) const COMMANDS: [&str; 3] = ["view", "create", "str_replace"];

const NOT_AN_OBJECT: &str =
    "its arguments must be one JSON object with at least `command` and `path`, and not too long";
const UNKNOWN_COMMAND: &str = "`command` must be view, create or str_replace";
const NO_PATH: &str = "`path` must be a text that is not empty";
const NO_TEXT: &str = "`file_text` must be there and a text";
const NO_OLD: &str = "`old_str` must be there and a text that is not empty";
const NO_NEW: &str = "`new_str` must be a text";
const NO_RANGE: &str = "`view_range` must be two whole numbers, the first at least 1, the second not below it or -1";

/// The members of a command; of one that is unknown all that there are.
fn members(command: Option<&str>) -> &'static [&'static str] {
    match command {
        Some("view") => &["command", "path", "view_range"],
        Some("create") => &["command", "path", "file_text"],
        Some("str_replace") => &["command", "path", "old_str", "new_str"],
        _ => &["command", "path", "view_range", "file_text", "old_str", "new_str"],
    }
}

/// The input as it is shown, one JSON object whatever the model wrote, and what it asks for.
pub(super) fn read(raw: &str) -> (String, Result<CodeInput, CodeFailure>) {
    let Ok(mut input) = serde_json::from_str::<Map<String, Value>>(raw) else {
        return ("{}".to_owned(), Err(CodeFailure::InvalidInput(NOT_AN_OBJECT)));
    };
    let known = members(input.get("command").and_then(Value::as_str));
    input.retain(|name, value| known.contains(&&**name) && !value.is_null());
    let shown = serde_json::to_string(&input).unwrap_or_else(|_| "{}".to_owned());
    (shown, command(input).map_err(CodeFailure::InvalidInput))
}

fn command(mut input: Map<String, Value>) -> Result<CodeInput, &'static str> {
    let command = take_text(&mut input, "command").ok_or(UNKNOWN_COMMAND)?;
    let path = take_text(&mut input, "path").filter(|path| !path.is_empty());
    match &*command {
        "view" => {
            let lines = input.get("view_range").map(|range| lines(range).ok_or(NO_RANGE)).transpose()?;
            Ok(CodeInput::View { path: path.ok_or(NO_PATH)?, lines })
        }
        "create" => {
            let text = take_text(&mut input, "file_text").ok_or(NO_TEXT)?;
            Ok(CodeInput::Create { path: path.ok_or(NO_PATH)?, text })
        }
        "str_replace" => {
            let old = take_text(&mut input, "old_str").filter(|old| !old.is_empty()).ok_or(NO_OLD)?;
            // Models leave it out to delete.
            let new = match input.remove("new_str") {
                None => String::new(),
                Some(Value::String(new)) => new,
                Some(_) => return Err(NO_NEW),
            };
            Ok(CodeInput::StrReplace { path: path.ok_or(NO_PATH)?, old, new })
        }
        _ => Err(UNKNOWN_COMMAND),
    }
}

fn lines(range: &Value) -> Option<(u32, Option<u32>)> {
    let [first, last] = range.as_array()?.as_slice() else { return None };
    let first = u32::try_from(first.as_u64()?).ok().filter(|first| *first > 0)?;
    if last.as_i64() == Some(-1) {
        return Some((first, None));
    }
    let last = u32::try_from(last.as_u64()?).ok().filter(|last| *last >= first)?;
    Some((first, Some(last)))
}
