//! PDF, page by page.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_extract::{Document, Object, PlainTextOutput, output_doc_page};

use super::{Fault, broken};

/// Most pages that are read.
const MAX_PAGES: usize = 10_000;

/// Writes the text of each page. Where the library fails at one, that is said and the next is read; a locked document
/// opens only with the empty password.
pub(super) fn read(bytes: &[u8], out: &mut dyn Write) -> Result<(), Fault> {
    let mut document = Document::load_mem(bytes).map_err(broken)?;
    if document.is_encrypted() {
        document.decrypt("").map_err(broken)?;
    }
    empty_pictures(&mut document);
    let pages: Vec<u32> = document.get_pages().into_keys().take(MAX_PAGES).collect();
    if pages.is_empty() {
        return Err(Fault::Document("no pages".to_owned()));
    }
    for page in pages {
        let mut text = String::new();
        // The library panics at what it does not expect; other pages may be good.
        let read =
            catch_unwind(AssertUnwindSafe(|| output_doc_page(&document, &mut PlainTextOutput::new(&mut text), page)));
        if !matches!(read, Ok(Ok(()))) {
            text.push_str("\n[the rest of this page could not be read]");
        }
        writeln!(out, "{text}\n")?;
        // Whoever waits for the text may have enough, and keeps what is there if a later page takes too long.
        out.flush()?;
    }
    Ok(())
}

/// The library reads the bytes of pictures as if they drew text.
fn empty_pictures(document: &mut Document) {
    for object in document.objects.values_mut() {
        let Object::Stream(stream) = object else { continue };
        if stream.dict.get(b"Subtype").and_then(Object::as_name).is_ok_and(|name| name == b"Image") {
            stream.dict.remove(b"Filter");
            stream.set_content(Vec::new());
        }
    }
}
