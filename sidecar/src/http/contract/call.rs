//! Reads what a call asks for.
//!
//! INVARIANT: a body is never taken apart further than into its members, whatever it nests; a member the contract does not
//! have means nothing, one that it demands must be there and of its kind.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::failure::Failure;
use crate::sandbox::{EditorCommand, ToolInput, ViewRange};

/// Longest id of a call.
const MAX_ID_BYTES: usize = 256;
/// Members of an object that are looked at; more are refused.
const MAX_MEMBERS: usize = 64;
const TOOLS: &str = "`tool` must be code_execution, bash_code_execution or text_editor_code_execution";

/// The tools of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Python,
    Bash,
    TextEditor,
}

/// One call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) tool: Tool,
    pub(super) input: ToolInput,
    /// What the caller grants the code.
    pub(super) timeout_s: Option<u64>,
    pub(super) id: Option<String>,
}

/// The members of a JSON object as they were sent; those that are null are not there.
#[derive(Debug)]
pub(super) struct Members<'a>(HashMap<String, &'a RawValue>);

impl Tool {
    /// Type of the block that tells the result.
    pub(super) fn result_type(self) -> &'static str {
        match self {
            Self::Python => "code_execution_tool_result",
            Self::Bash => "bash_code_execution_tool_result",
            Self::TextEditor => "text_editor_code_execution_tool_result",
        }
    }
}

impl Call {
    pub(super) fn read(body: &[u8]) -> Result<Self, Failure> {
        let members = Members::read(body)?;
        let tool = match &*members.text("tool")? {
            "code_execution" => Tool::Python,
            "bash_code_execution" => Tool::Bash,
            "text_editor_code_execution" => Tool::TextEditor,
            _ => return Err(Failure::wrong_kind(TOOLS)),
        };
        let input = members.get("input").ok_or_else(|| Failure::malformed("`input` is missing"))?;
        let input = Members::read(input.get().as_bytes())
            .map_err(|_| Failure::malformed("`input` must be an object in which no member comes twice"))?;
        let input = match tool {
            Tool::Python => ToolInput::Python { code: input.filled("code")? },
            Tool::Bash => ToolInput::Bash { command: input.filled("command")? },
            Tool::TextEditor => ToolInput::TextEditor(editor(&input)?),
        };
        let id = members.get("tool_use_id").map(|_| members.filled("tool_use_id")).transpose()?;
        if id.as_ref().is_some_and(|id| id.len() > MAX_ID_BYTES) {
            return Err(Failure::malformed(format!("`tool_use_id` has at most {MAX_ID_BYTES} bytes")));
        }
        let timeout_s = whole_seconds("timeout_seconds", members.get("timeout_seconds"))?;
        Ok(Self { tool, input, timeout_s, id })
    }
}

fn editor(input: &Members<'_>) -> Result<EditorCommand, Failure> {
    let command = input.text("command")?;
    let path = input.filled("path");
    Ok(match &*command {
        "view" => EditorCommand::View { path: path?, range: input.get("view_range").map(view_range).transpose()? },
        "create" => EditorCommand::Create { path: path?, text: input.text("file_text")? },
        "str_replace" => {
            let new = input.get("new_str").map(|_| input.text("new_str")).transpose()?;
            // Models leave it out to delete.
            EditorCommand::StrReplace { path: path?, old: input.filled("old_str")?, new: new.unwrap_or_default() }
        }
        "insert" => {
            let line = input.get("insert_line").and_then(whole).and_then(|line| u32::try_from(line).ok());
            let line = line.ok_or_else(|| Failure::malformed("`insert_line` must be a whole number of at least 0"))?;
            EditorCommand::Insert { path: path?, line, text: input.text("new_str")? }
        }
        "undo_edit" => EditorCommand::UndoEdit { path: path? },
        _ => return Err(Failure::malformed("`command` must be view, create, str_replace, insert or undo_edit")),
    })
}

fn view_range(range: &RawValue) -> Result<ViewRange, Failure> {
    let wrong = || {
        Failure::malformed(
            "`view_range` must be two whole numbers, the first at least 1, the second not below it or -1",
        )
    };
    let [first, last] = serde_json::from_str::<[&RawValue; 2]>(range.get()).map_err(|_| wrong())?;
    let line = |raw: &RawValue| whole(raw).and_then(|line| u32::try_from(line).ok());
    let first = line(first).filter(|first| *first > 0).ok_or_else(wrong)?;
    if number(last) == Some(-1.0) {
        return Ok(ViewRange { first, last: None });
    }
    let last = line(last).filter(|last| *last >= first).ok_or_else(wrong)?;
    Ok(ViewRange { first, last: Some(last) })
}

impl<'a> Members<'a> {
    /// Reads an object, and no further.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Failure> {
        serde_json::from_slice(body).map_err(|_| {
            let text = format!(
                "the body must be one JSON object with at most {MAX_MEMBERS} members, none of which comes twice"
            );
            Failure::malformed(text)
        })
    }

    /// A member that is there.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.get(name).copied()
    }

    /// A member that must be there and a text.
    fn text(&self, name: &'static str) -> Result<String, Failure> {
        let text = self.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok());
        text.ok_or_else(|| Failure::malformed(format!("`{name}` must be there and a text")))
    }

    /// A member that must be there and a text that is not empty.
    fn filled(&self, name: &'static str) -> Result<String, Failure> {
        let text = self.text(name).ok().filter(|text| !text.is_empty());
        text.ok_or_else(|| Failure::malformed(format!("`{name}` must be there and a text that is not empty")))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = HashMap::new();
                let mut count = 0;
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    count += 1;
                    if count > MAX_MEMBERS || members.insert(name, value).is_some() {
                        return Err(A::Error::custom("too many members"));
                    }
                }
                members.retain(|_, value| value.get() != "null");
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// A number of seconds that may be left out; 30.0 is whole too, as in JSON Schema.
pub(super) fn whole_seconds(name: &'static str, raw: Option<&RawValue>) -> Result<Option<u64>, Failure> {
    let wrong = || Failure::malformed(format!("`{name}` must be a whole number of at least 1"));
    raw.map(|raw| whole(raw).filter(|seconds| *seconds > 0).ok_or_else(wrong)).transpose()
}

/// A whole number that is not negative; one beyond all bounds is the largest.
fn whole(raw: &RawValue) -> Option<u64> {
    let number = number(raw).filter(|number| *number >= 0.0 && number.fract() == 0.0)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and not negative; it saturates")]
    Some(number as u64)
}

fn number(raw: &RawValue) -> Option<f64> {
    serde_json::from_str(raw.get()).ok()
}

#[cfg(test)]
mod tests;
