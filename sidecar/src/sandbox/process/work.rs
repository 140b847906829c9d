//! What an interpreter is given to do at a time: one call, or shell commands side by side.

use std::borrow::Cow;

use crate::sandbox::{EditorCommand, ToolInput};

/// Shell commands of one session that run at the same time, at most.
pub(super) const SHELLS_AT_ONCE: usize = 8;

/// What is to be done until the interpreter answers.
#[derive(Debug)]
pub(super) enum Work<'a> {
    /// A cell.
    Python(&'a str),
    /// Commands, each in a shell of its own; at most [`SHELLS_AT_ONCE`].
    Shells(Vec<&'a str>),
    /// An act of the editor.
    Edit(&'a EditorCommand),
}

impl<'a> Work<'a> {
    /// The work of one call.
    pub(super) fn of(input: &'a ToolInput) -> Self {
        match input {
            ToolInput::Python { code } => Self::Python(code),
            ToolInput::Bash { command } => Self::Shells(vec![command]),
            ToolInput::TextEditor(command) => Self::Edit(command),
        }
    }

    /// The work of several calls side by side; `None` unless all are commands, and no more than may run at once.
    pub(super) fn together(inputs: impl Iterator<Item = &'a ToolInput>) -> Option<Self> {
        let command = |input: &'a ToolInput| match input {
            ToolInput::Bash { command } => Some(command.as_str()),
            ToolInput::Python { .. } | ToolInput::TextEditor(_) => None,
        };
        let commands = inputs.map(command).collect::<Option<Vec<_>>>()?;
        (1..=SHELLS_AT_ONCE).contains(&commands.len()).then_some(Self::Shells(commands))
    }

    /// How many calls it is.
    pub(super) fn calls(&self) -> usize {
        match self {
            Self::Python(_) | Self::Edit(_) => 1,
            Self::Shells(commands) => commands.len(),
        }
    }

    /// As the driver reads it: what is to be done, then what it needs; a number that is not given is an empty text.
    pub(super) fn texts(&self) -> Vec<Cow<'a, str>> {
        let number = |number: Option<u32>| Cow::from(number.map_or_else(String::new, |number| number.to_string()));
        match self {
            Self::Python(code) => vec!["python".into(), (*code).into()],
            Self::Shells(commands) => std::iter::once("bash").chain(commands.iter().copied()).map(Cow::from).collect(),
            Self::Edit(EditorCommand::View { path, range }) => {
                let last = range.and_then(|range| range.last);
                vec!["view".into(), path.into(), number(range.map(|range| range.first)), number(last)]
            }
            Self::Edit(EditorCommand::Create { path, text }) => vec!["create".into(), path.into(), text.into()],
            Self::Edit(EditorCommand::StrReplace { path, old, new }) => {
                vec!["str_replace".into(), path.into(), old.into(), new.into()]
            }
            Self::Edit(EditorCommand::UndoEdit { path }) => vec!["undo_edit".into(), path.into()],
            Self::Edit(EditorCommand::Insert { path, line, text }) => {
                vec!["insert".into(), path.into(), number(Some(*line)), text.into()]
            }
        }
    }
}
