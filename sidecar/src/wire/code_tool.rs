//! The functions that a model is given in place of the caller's code tools: their names, what they take, what they say
//! of themselves.
//!
//! INVARIANT: no function of ours has the name of one of the caller's, and each is one tool that policy and declaration
//! allow.

mod argument;
mod editor;

use std::collections::HashSet;

use decision::decide::Run;
use decision::request::CodeTool;
use serde_json::{Map, Value, json};

use super::conversation::Function;

pub use argument::{Argument, Finished};

/// In front of the text of a result that is no success, for wires and models that know no other mark.
pub const ERROR_MARK: &str = "[tool error] ";

/// The member that holds Python source.
const CODE: &str = "code";
/// The member that holds a command for the shell.
const COMMAND: &str = "command";

/// What a model asks of one of the functions, checked. No insertion: only declarations of Anthropic's bring the text
/// editor, and no block of Anthropic's can show one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeInput {
    /// Python source.
    Python(String),
    /// A command for a fresh shell.
    Bash(String),
    /// Shows a file or a directory.
    View {
        /// Which.
        path: String,
        /// The first line shown, from 1, and the last; all lines if absent.
        lines: Option<(u32, Option<u32>)>,
    },
    /// Writes a file.
    Create {
        /// Which.
        path: String,
        /// All of its text.
        text: String,
    },
    /// Replaces a text that stands in a file once.
    StrReplace {
        /// Which.
        path: String,
        /// What stands there.
        old: String,
        /// What is to stand there.
        new: String,
    },
}

/// Our functions in one request: each tool and the name that the model knows it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Functions(Vec<(CodeTool, String)>);

impl Functions {
    /// One for each tool of the run, under names that none of the caller's own has.
    pub fn of<'a>(run: &Run, taken: impl Iterator<Item = &'a str>) -> Self {
        let taken: HashSet<&str> = taken.collect();
        Self(run.tools.iter().map(|tool| (*tool, free_name(tool.word(), &taken))).collect())
    }

    /// The tool behind a name; `None` for functions of the caller's.
    pub fn tool(&self, name: &str) -> Option<CodeTool> {
        self.0.iter().find(|(_, known)| known == name).map(|(tool, _)| *tool)
    }

    /// The name of a tool.
    pub fn name(&self, tool: CodeTool) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == tool).map(|(_, name)| name.as_str())
    }

    /// The names, in the order in which they are declared.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, name)| name.as_str())
    }

    /// What the model is told of each.
    pub fn definitions(&self) -> impl Iterator<Item = Function> {
        self.0.iter().map(|(tool, name)| Function {
            name: name.clone(),
            description: Some(description(*tool).to_owned()),
            schema: schema(*tool),
            strict: None,
        })
    }

    /// The purpose hint as it stands beside the system text.
    pub fn hint(&self, run: &Run) -> Option<String> {
        let hint = run.purpose_hint.as_deref()?.trim();
        let names = self.names().collect::<Vec<_>>().join(", ");
        (!hint.is_empty()).then(|| format!("When to use the tools of this gateway:\n- {names}: {hint}"))
    }
}

/// What the model is told a tool does.
pub fn description(tool: CodeTool) -> &'static str {
    match tool {
        CodeTool::Python => {
            "Runs Python code in an isolated interpreter and gives back its standard output, \
standard error and return code. Variables, imports and files stay in place between calls of the same request. \
There is no network. Only what the code prints is seen, so print every result that matters. Files that it writes in the \
working directory go to the user if the result lists them, each with its id. Prefer running code \
to working things out in your head whenever numbers, dates, data or files are involved."
        }
        CodeTool::Bash => {
            "Runs a command line with bash in an isolated workspace and gives back its standard output, \
standard error and return code. Files stay in place between calls of the same request and are shared with the other \
tools of this workspace; variables and the working directory do not, for each call has a shell of its own. There is \
no network and nobody to answer a prompt. Files that it writes in the workspace go to the user if the result lists \
them, each with its id."
        }
        CodeTool::TextEditor => {
            "Views, creates and edits text files in an isolated workspace that it shares with the other tools. \
`view` shows a file, or lists a directory; `create` writes a whole file, over one that is there; `str_replace` \
replaces a text that stands in the file exactly once."
        }
    }
}

/// JSON schema of a tool's arguments.
fn schema(tool: CodeTool) -> Map<String, Value> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let (properties, required) = match tool {
        CodeTool::Python => (json!({CODE: text("Python source code to run.")}), json!([CODE])),
        CodeTool::Bash => (json!({COMMAND: text("Command line for bash.")}), json!([COMMAND])),
        CodeTool::TextEditor => (
            json!({
                "command": {"type": "string", "enum": editor::COMMANDS, "description": "What to do."},
                "path": text("File or directory, relative to the workspace."),
                "view_range": {
                    "type": "array", "items": {"type": "integer"},
                    "description": "For `view` of a file: first and last line, counted from 1; -1 is the last of all.",
                },
                "file_text": text("For `create`: the text of the file."),
                "old_str": text("For `str_replace`: the text that stands there now, white space and all."),
                "new_str": text("For `str_replace`: the text to put in its place; empty to delete."),
            }),
            json!(["command", "path"]),
        ),
    };
    [
        ("type", "object".into()),
        ("properties", properties),
        ("required", required),
        ("additionalProperties", false.into()),
    ]
    .into_iter()
    .map(|(name, value): (&str, Value)| (name.to_owned(), value))
    .collect()
}

/// The one member of a tool's input whose text is shown as it is written; `None` for an input shown whole, as JSON.
pub fn live_member(tool: CodeTool) -> Option<&'static str> {
    match tool {
        CodeTool::Python => Some(CODE),
        CodeTool::Bash => Some(COMMAND),
        CodeTool::TextEditor => None,
    }
}

/// The input of a call, from the text that its client was shown.
pub fn shown_input(tool: CodeTool, shown: String) -> Map<String, Value> {
    match live_member(tool) {
        Some(member) => Map::from_iter([(member.to_owned(), shown.into())]),
        None => serde_json::from_str(&shown).unwrap_or_default(),
    }
}

/// A name that none of the caller's own functions has.
fn free_name(word: &str, taken: &HashSet<&str>) -> String {
    if !taken.contains(word) {
        return word.to_owned();
    }
    // One more candidate than there are names that could be in the way.
    let mut candidates = (1..=taken.len().saturating_add(1)).map(|n| format!("otari_{word}_{n}"));
    candidates.find(|name| !taken.contains(&**name)).unwrap_or_else(|| format!("otari_{word}"))
}

/// Is the tool at this position one of the claimed?
pub fn is_claimed(run: &Run, position: usize) -> bool {
    run.claimed.iter().any(|declaration| usize::try_from(declaration.index).is_ok_and(|index| index == position))
}

#[cfg(test)]
mod tests;
