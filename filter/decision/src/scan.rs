//! Reads a JSON request body chunk by chunk and keeps only what a decision needs.
//!
//! INVARIANT: the result does not depend on where the body was split, and no byte is read twice.

use crate::problem::Problem;
use crate::request::RequestView;

/// Nesting allowed, the top-level object included.
pub const MAX_DEPTH: u32 = 128;
/// Longest `model`, in bytes.
pub const MAX_MODEL: usize = 256;
/// Longest tool `type`, in bytes.
pub const MAX_TYPE: usize = 128;
/// Longest tool `name`, in bytes.
pub const MAX_NAME: usize = 256;
/// Longest `purpose_hint`, in bytes.
pub const MAX_HINT: usize = 8192;
/// Longest container id, in bytes.
pub const MAX_CONTAINER: usize = 256;
/// Longest object key where keys are read, in bytes.
pub const MAX_KEY: usize = 1024;
/// Most code tools in one request.
pub const MAX_DECLARATIONS: usize = 128;
/// Most entries of an `allowed_tools` list.
pub const MAX_ALLOWED: usize = 1024;

/// The incremental scanner of one body.
#[derive(Debug, Default)]
pub struct Scanner {}

/// Why a body cannot be decided on, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanError {
    /// What is wrong.
    pub kind: ScanErrorKind,
    /// Byte offset at which it showed.
    pub offset: u64,
}

/// What is wrong with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanErrorKind {
    /// No byte but blanks.
    Empty,
}

impl Scanner {
    /// A scanner that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes. After an error the rest is ignored.
    pub fn feed(&mut self, _chunk: &[u8]) {}

    /// The body is over.
    pub fn finish(self) -> Result<RequestView, ScanError> {
        Ok(RequestView::default())
    }

    /// An error is known: more bytes change nothing.
    pub fn failed(&self) -> bool {
        false
    }
}

impl From<&ScanError> for Problem {
    fn from(_error: &ScanError) -> Self {
        Self::invalid("the request body is not valid JSON")
    }
}
