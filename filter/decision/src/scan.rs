//! Reads a JSON request body chunk by chunk and keeps only what a decision needs.
//!
//! INVARIANT: the result does not depend on where the body was split, and no byte is read twice.

mod block;
mod error;
mod lexer;
mod number;
mod schema;
mod text;

pub use error::{ScanError, ScanErrorKind};

use crate::request::RequestView;
use lexer::Lexer;

/// Nesting allowed, the top-level object included.
pub const MAX_DEPTH: u32 = 128;
/// Longest `model`, in bytes.
pub const MAX_MODEL: usize = 256;
/// Longest tool `type`, in bytes. A longer one is no code tool, unless it begins like one: then it is refused.
pub const MAX_TYPE: usize = 128;
/// Longest `name` of a code tool, in bytes.
pub const MAX_NAME: usize = 256;
/// Longest `purpose_hint` of a code tool, in bytes.
pub const MAX_HINT: usize = 8192;
/// Longest id of a container of ours, in bytes.
pub const MAX_CONTAINER: usize = 256;
/// Longest object key where keys are read, in bytes.
pub const MAX_KEY: usize = 1024;
/// Most code tools in one request.
pub const MAX_DECLARATIONS: usize = 128;
/// Most entries of an `allowed_tools` list that a run here honours.
pub const MAX_ALLOWED: usize = 1024;

/// The incremental scanner of one body. It holds what it found and a few bytes of state, never the body.
#[derive(Debug, Default)]
pub struct Scanner {
    lexer: Lexer,
    scanned: u64,
    error: Option<ScanError>,
}

impl Scanner {
    /// A scanner that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes. After an error the rest is ignored.
    pub fn feed(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        if self.error.is_none()
            && let Err(kind) = self.lexer.read(&mut rest)
        {
            let offset = self.scanned.saturating_add(distance(chunk, rest));
            self.error = Some(ScanError { kind: *kind, offset });
        }
        self.scanned = self.scanned.saturating_add(distance(chunk, &[]));
    }

    /// The body is over.
    pub fn finish(self) -> Result<RequestView, ScanError> {
        match self.error {
            Some(error) => Err(error),
            None => self.lexer.finish().map_err(|kind| ScanError { kind: *kind, offset: self.scanned }),
        }
    }

    /// An error is known: more bytes change nothing.
    pub fn failed(&self) -> bool {
        self.error.is_some()
    }

    /// Bytes fed so far.
    pub fn scanned(&self) -> u64 {
        self.scanned
    }
}

/// An error on its way up; boxed, so that the hot loops return in a register.
type Fault = Box<ScanErrorKind>;

/// How many bytes of `chunk` stand before its tail `rest`.
fn distance(chunk: &[u8], rest: &[u8]) -> u64 {
    u64::try_from(chunk.len().saturating_sub(rest.len())).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
