//! The scanner on any bytes: it answers, its answer does not depend on the cut, and no declaration is overlooked.
#![no_main]

use decision::request::{Keyword, RequestView};
use decision::scan::{ScanError, Scanner};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|data: (u8, &[u8])| {
    let (chunk_bytes, body) = data;
    let whole = scan(body, body.len().max(1));
    assert_eq!(scan(body, usize::from(chunk_bytes).max(1)), whole);
    // A DOM takes the last of two keys that stand twice; the scanner refuses them. Where both read, they agree.
    if let (Ok(dom), Ok(view)) = (serde_json::from_slice::<Value>(body), whole) {
        assert_eq!(view.declarations.len(), declared(&dom));
        assert_eq!(view.model.as_deref(), dom["model"].as_str());
    }
});

fn scan(body: &[u8], chunk_bytes: usize) -> Result<RequestView, ScanError> {
    let mut scanner = Scanner::new();
    for chunk in body.chunks(chunk_bytes) {
        scanner.feed(chunk);
    }
    scanner.finish()
}

fn declared(dom: &Value) -> usize {
    let tools = dom["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    tools.iter().filter_map(|tool| tool.get("type")?.as_str()).filter_map(Keyword::parse).count()
}
