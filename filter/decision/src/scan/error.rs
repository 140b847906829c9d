//! Why a body cannot be decided on, and how to tell the caller.

use std::fmt;

use super::{MAX_DECLARATIONS, MAX_DEPTH, MAX_KEY};
use crate::problem::Problem;

/// Why a body cannot be decided on, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanError {
    /// What is wrong.
    pub kind: ScanErrorKind,
    /// Offset of the first byte that cannot be part of a good body.
    pub offset: u64,
}

/// What is wrong with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanErrorKind {
    /// Nothing but blanks.
    Empty,
    /// A byte order mark before the first value.
    ByteOrderMark,
    /// A byte that JSON does not allow there.
    UnexpectedByte,
    /// The body stops in the middle.
    UnexpectedEnd,
    /// Something follows the top-level object.
    TrailingData,
    /// The top-level value is no object.
    NotAnObject,
    /// Nested deeper than [`MAX_DEPTH`].
    TooDeep,
    /// An escape that JSON does not know, or half a surrogate pair in a text we read.
    InvalidEscape,
    /// Invalid UTF-8 in a key or in a text we read.
    InvalidUtf8,
    /// An unescaped control character in a key or in a text we read.
    ControlCharacter,
    /// A key we read stands twice in one object.
    DuplicateKey(String),
    /// A key, or the type of a tool, that some would read as the one we know, which stands here.
    Misspelled {
        /// Path of the parameter.
        param: String,
        /// How it is spelled.
        expected: String,
    },
    /// A key longer than [`MAX_KEY`], where keys are read.
    KeyTooLong,
    /// A text we read is longer than its limit.
    ValueTooLong {
        /// Path of the parameter.
        param: String,
        /// Its limit in bytes.
        limit: usize,
    },
    /// A value of the wrong JSON type.
    WrongType {
        /// Path of the parameter.
        param: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// More than [`MAX_DECLARATIONS`] code tools.
    TooManyDeclarations,
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.offset;
        match &self.kind {
            ScanErrorKind::Empty => write!(f, "the body is empty: send a JSON object"),
            ScanErrorKind::ByteOrderMark => {
                write!(f, "the body starts with a byte order mark: send plain UTF-8 without it")
            }
            ScanErrorKind::UnexpectedByte => {
                write!(f, "the body is not valid JSON: unexpected byte at offset {offset}")
            }
            ScanErrorKind::UnexpectedEnd => {
                write!(f, "the body is not valid JSON: it ends too early, at {offset} bytes")
            }
            ScanErrorKind::TrailingData => {
                write!(
                    f,
                    "the body goes on after its JSON object, at offset {offset}: send one object and nothing else"
                )
            }
            ScanErrorKind::NotAnObject => write!(f, "the body must be a JSON object"),
            ScanErrorKind::TooDeep => {
                write!(f, "the body is nested deeper than {MAX_DEPTH} levels, at offset {offset}: flatten it")
            }
            ScanErrorKind::InvalidEscape => {
                write!(f, "the body is not valid JSON: invalid escape in a string at offset {offset}")
            }
            ScanErrorKind::InvalidUtf8 => write!(f, "the body is not valid JSON: invalid UTF-8 at offset {offset}"),
            ScanErrorKind::ControlCharacter => {
                write!(f, "the body is not valid JSON: unescaped control character at offset {offset}")
            }
            ScanErrorKind::DuplicateKey(key) => write!(f, "`{key}` stands twice in the same object: send it once"),
            ScanErrorKind::Misspelled { param, expected } => {
                write!(
                    f,
                    "`{param}` could be read as `{expected}`, but is not spelled so: spell it exactly, or leave it out"
                )
            }
            ScanErrorKind::KeyTooLong => {
                write!(f, "a key of the body is longer than {MAX_KEY} bytes, at offset {offset}")
            }
            ScanErrorKind::ValueTooLong { param, limit } => {
                write!(f, "`{param}` is longer than {limit} bytes: shorten it")
            }
            ScanErrorKind::WrongType { param, expected } => write!(f, "`{param}` must be {expected}"),
            ScanErrorKind::TooManyDeclarations => {
                write!(f, "`tools` declares code execution more than {MAX_DECLARATIONS} times: declare it once")
            }
        }
    }
}

impl std::error::Error for ScanError {}

impl From<&ScanError> for Problem {
    fn from(error: &ScanError) -> Self {
        let problem = Self::invalid(error.to_string());
        match &error.kind {
            ScanErrorKind::DuplicateKey(param)
            | ScanErrorKind::Misspelled { param, .. }
            | ScanErrorKind::ValueTooLong { param, .. } => problem.with_param(param.clone()),
            ScanErrorKind::WrongType { param, .. } => problem.with_param(*param),
            ScanErrorKind::TooManyDeclarations => problem.with_param("tools"),
            _ => problem,
        }
    }
}
