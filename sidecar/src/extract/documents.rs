//! The text of one document, by the library that knows its kind.
//!
//! INVARIANT: runs in the jail of [`super::child`] alone, for documents are hostile and the libraries may panic, loop and
//! take all memory there is. Text is written as it is found, so that what came before such an end is not lost.

mod html;
mod office;
mod pdf;
mod sheets;

use std::io::{self, Write};

use super::Document;

/// Why there is no text, or no more of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// Nobody reads any more.
    #[error("the text could not be written")]
    Output(#[from] io::Error),
    /// The document is broken, locked, or not of its kind.
    #[error("the document cannot be read: {0}")]
    Document(String),
}

/// Writes the text of a document.
pub(super) fn read(kind: Document, bytes: Vec<u8>, out: &mut dyn Write) -> Result<(), Fault> {
    match kind {
        Document::Pdf => pdf::read(&bytes, out),
        Document::Html => html::read(&bytes, out),
        Document::Office => office::read(bytes, out),
    }
}

fn broken(error: impl std::fmt::Display) -> Fault {
    Fault::Document(error.to_string())
}

#[cfg(test)]
mod tests;
