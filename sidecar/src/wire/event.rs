//! What a model's turn and a client's answer consist of, in no wire's words.
//!
//! INVARIANT: blocks come one after another, each closed before the next opens; readers see to it.

use std::ops::Range;

use bytes::Bytes;
use decision::request::CodeTool;
use serde_json::{Map, Value};

use super::usage::Usage;

/// One thing that happened in a model's turn.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEvent {
    /// The model began to answer.
    Opened(Opened),
    /// Something about the block now open.
    Block(BlockEvent),
    /// A sign of life, or an event this gateway does not know: forwarded where the wire is the same.
    Aside(Aside),
    /// The model is done; nothing follows.
    Ended(Ended),
}

/// The beginning of an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Opened {
    /// The model's own id of the answer.
    pub id: Option<String>,
    /// What is known so early of the cost.
    pub usage: Usage,
    /// The wire's own opening object, on the same wire.
    pub raw: Option<Map<String, Value>>,
}

/// One step in the life of a block.
#[derive(Debug, Clone, PartialEq)]
pub enum BlockEvent {
    /// A block opens.
    Start(BlockKind, Option<Raw>),
    /// The open block grows.
    Delta(Delta, Option<Raw>),
    /// The open block is complete.
    Stop(Option<Raw>),
}

/// What a block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockKind {
    /// Words for the person.
    Text,
    /// The model's thinking.
    Reasoning,
    /// A call of a function.
    Call {
        /// The model's id of the call.
        id: String,
        /// Name of the function.
        name: String,
    },
    /// Anything else the wire has; only its bytes are known.
    Other,
}

/// What a block grows by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// More words.
    Text(String),
    /// More thinking.
    Reasoning(String),
    /// A piece of a call's arguments, which are one JSON text once the block is complete.
    Arguments(String),
    /// Anything else; only its bytes are known.
    Other,
}

/// The bytes of the model's own wire, so that what nobody here understands survives on the same wire.
///
/// Streamed: the whole data of the frame. Whole: the complete block, on its `Start`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// One JSON object.
    pub json: Bytes,
    /// Where in it the block's index stands, which the client's count replaces.
    pub index: Option<Range<usize>>,
}

/// A frame outside every block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aside {
    /// A keep-alive.
    Ping,
    /// An event of the wire that is not known here.
    Unknown {
        /// Its name.
        name: Bytes,
        /// Its data.
        data: Bytes,
    },
}

/// The end of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Why the model stopped.
    pub stop: Stop,
    /// What the turn (or, towards the client, the request) cost.
    pub usage: Usage,
    /// The wire's own closing object, on the same wire. Whole: the answer without its content.
    pub raw: Option<Map<String, Value>>,
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It had said everything.
    EndTurn,
    /// It waits for the results of calls.
    ToolUse,
    /// It ran into its token limit.
    MaxTokens,
    /// It wrote a stop sequence, this one if known.
    StopSequence(Option<String>),
    /// It or its provider refused.
    Refusal,
    /// A reason of this wire that has no neutral name.
    Other(String),
}

/// One thing a client is told. `call` numbers the calls of our functions in the whole request from 0.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The answer begins; once.
    Opened(Opened),
    /// A block of the model that is none of our business.
    Block(BlockEvent),
    /// A frame outside every block.
    Aside(Aside),
    /// The model began to write a call.
    CodeStart {
        /// Which call.
        call: usize,
        /// Of which tool.
        tool: CodeTool,
    },
    /// More of its input.
    CodeDelta {
        /// Which call.
        call: usize,
        /// Python source or a shell command itself, unescaped; of the text editor the whole input at once, one JSON
        /// object.
        text: String,
    },
    /// Its input is complete.
    CodeStop {
        /// Which call.
        call: usize,
    },
    /// What became of it.
    CodeResult {
        /// Which call.
        call: usize,
        /// What it did, or why it did not run.
        outcome: CodeOutcome,
    },
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeOutcome {
    /// It ran. A failing program is one of these.
    Ran {
        /// Standard output.
        stdout: String,
        /// Standard error.
        stderr: String,
        /// 0 is success.
        return_code: i32,
        /// What it wrote.
        files: CodeFiles,
    },
    /// The text editor did what it was asked.
    Edited {
        /// What was viewed, or a sentence about a change.
        text: String,
        /// What a view left out; may be empty.
        note: String,
        /// What it came to.
        edit: Edit,
        /// What it wrote.
        files: CodeFiles,
    },
    /// The text editor did not.
    EditFailed {
        /// Why, in a word.
        failure: CodeFailure,
        /// Why, and what to change.
        message: String,
    },
    /// It did not run, or nobody knows how it ended.
    Failed(CodeFailure),
}

/// The files that a call wrote or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeFiles {
    /// Each once.
    pub files: Vec<CodeFile>,
    /// Further ones, which are not stored and whose names are not told or not known.
    pub unnamed: u64,
}

/// A file that a call wrote or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeFile {
    /// Its place in the workspace, fit to be shown.
    pub path: String,
    /// Where it is kept now, or why it is not.
    pub kept: Result<StoredFile, NotKept>,
}

/// A file as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Its id, by which its owner fetches it.
    pub id: String,
    /// Its own name, without a directory.
    pub filename: String,
    /// Its media type.
    pub mime_type: String,
    /// Its size.
    pub size_bytes: u64,
    /// All of its bytes, if it is an image that the answer shows in itself.
    pub image: Option<Bytes>,
}

/// Why a file is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// A call may return so many.
    TooMany {
        /// How many.
        limit: usize,
    },
    /// It has more bytes than there were left for it.
    TooLarge {
        /// How many those were.
        limit: u64,
    },
    /// It is no plain file, changed meanwhile, or the sandbox does not give it.
    Unreadable,
    /// There was no time for it.
    TimedOut,
    /// Its owner's workspace has as many files or bytes as it may have.
    StorageFull,
    /// The store of files failed.
    StorageFailed,
}

impl CodeFiles {
    /// Nothing was written.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.unnamed == 0
    }

    /// Those that are stored, each with its place in the workspace.
    pub fn stored(&self) -> impl Iterator<Item = (&str, &StoredFile)> {
        self.files.iter().filter_map(|file| Some((file.path.as_str(), file.kept.as_ref().ok()?)))
    }
}

impl CodeOutcome {
    /// What the call wrote.
    pub fn files(&self) -> Option<&CodeFiles> {
        match self {
            Self::Ran { files, .. } | Self::Edited { files, .. } => Some(files),
            Self::EditFailed { .. } | Self::Failed(_) => None,
        }
    }
}

/// What an act of the text editor came to, as far as the sandbox says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// A file or a directory was shown; these lines of a file, if it is known which.
    Viewed(Option<ViewedLines>),
    /// A file was written whole.
    Created {
        /// There was one before; unknown is no.
        is_file_update: bool,
    },
    /// A part of a file was replaced.
    Replaced(Option<Hunk>),
}

/// Lines of a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewedLines {
    /// The first one shown.
    pub start: u32,
    /// How many are shown.
    pub count: u32,
    /// How many the file has.
    pub total: u32,
}

/// The place of a replacement, lines counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// First line replaced.
    pub old_start: u32,
    /// Lines replaced.
    pub old_lines: u32,
    /// First line put there.
    pub new_start: u32,
    /// Lines put there.
    pub new_lines: u32,
    /// The old lines with a `-` before each, then the new ones with a `+`; nothing if too long.
    pub lines: Option<Vec<String>>,
}

/// Why a call gave no result; a closed list, each with a name on every wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeFailure {
    /// What the model wrote is no call of the tool; the text says what it must change.
    InvalidInput(&'static str),
    /// The text editor finds no such file.
    FileNotFound,
    /// The sandbox gave no answer.
    Unavailable,
    /// The sandbox, or a limit of this request, takes no more calls.
    TooMany,
    /// No answer within the time granted.
    TimedOut,
}

impl CodeFailure {
    /// The word by which clients know it.
    pub fn code(self) -> &'static str {
        match self {
            Self::InvalidInput(_) => "invalid_tool_input",
            Self::FileNotFound => "file_not_found",
            Self::Unavailable => "unavailable",
            Self::TooMany => "too_many_requests",
            Self::TimedOut => "execution_time_exceeded",
        }
    }
}

impl TurnEvent {
    /// A block's opening without bytes of its wire.
    pub(crate) fn start(kind: BlockKind) -> Self {
        Self::Block(BlockEvent::Start(kind, None))
    }

    /// A delta without bytes of its wire.
    pub(crate) fn delta(delta: Delta) -> Self {
        Self::Block(BlockEvent::Delta(delta, None))
    }

    /// A block's end without bytes of its wire.
    pub(crate) fn stop() -> Self {
        Self::Block(BlockEvent::Stop(None))
    }
}
