//! Files on the Messages wire: the source of an image or a document, and uploads into a container.

use decision::problem::Problem;
use serde_json::value::RawValue;

use super::{Finder, Shown, Spelled, object, only, others, quoted};
use crate::wire::json::Fields;

/// Members that are replaced, whatever the block becomes.
const REPLACED: [&str; 3] = ["type", "source", "file_id"];
/// Members that only a document has.
const OF_DOCUMENTS: [&str; 3] = ["title", "context", "citations"];
/// How deep lists of blocks nest: a message's, a result's, a document's.
const MAX_DEPTH: usize = 3;

pub(super) fn find(fields: &Fields<'_>, finder: &mut Finder<'_>) -> Result<(), Problem> {
    finder.each(fields.get("messages"), "messages", |finder, _, message, param| {
        blocks(finder, message.get("content"), &format!("{param}.content"), 1)
    })
}

fn blocks(finder: &mut Finder<'_>, list: Option<&RawValue>, param: &str, depth: usize) -> Result<(), Problem> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    finder.each(list, param, |finder, text, block, param| {
        let source = object(block, "source");
        let inner = |member: &str| format!("{param}.{member}");
        match (block.read::<String>("type").as_deref(), source.read::<String>("type").as_deref()) {
            (Some("image" | "document"), Some("file")) => {
                finder.part(source.read("file_id"), text, param, "source.file_id")
            }
            (Some("document"), Some("content")) => {
                blocks(finder, source.get("content"), &inner("source.content"), depth.saturating_add(1))
            }
            (Some("tool_result"), _) => {
                blocks(finder, block.get("content"), &inner("content"), depth.saturating_add(1))
            }
            (Some("container_upload"), _) => {
                let before = finder.parts.len();
                finder.part(block.read("file_id"), text, param, "file_id")?;
                if let Some(part) = finder.since(before) {
                    part.is_upload = true;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    })
}

pub(super) fn spell(old: &Fields<'_>, shown: Shown<'_>) -> Spelled {
    let bytes = |kind: &str, media_type: &str, members: String| Spelled {
        before: format!(r#"{{"type":"{kind}","source":{{"type":"base64","media_type":{},"data":""#, quoted(media_type)),
        after: format!(r#""}}{members}}}"#),
    };
    let of_document = |name: &str| {
        let title =
            if old.get("title").is_none_or(|title| title.get() == "null") { only_title(name) } else { String::new() };
        let but: &[&str] = if title.is_empty() { &REPLACED } else { &["type", "source", "file_id", "title"] };
        format!("{title}{}", others(old, but))
    };
    match shown {
        Shown::Nothing => Spelled::default(),
        Shown::Text(text) => text_block(text, old),
        Shown::Document { name, text, .. } => Spelled {
            before: format!(
                r#"{{"type":"document","source":{{"type":"text","media_type":"text/plain","data":{}}}{}}}"#,
                quoted(text),
                of_document(name)
            ),
            after: String::new(),
        },
        Shown::Image { media_type } => bytes("image", media_type, others(old, &[REPLACED, OF_DOCUMENTS].concat())),
        Shown::Pdf { name } => bytes("document", "application/pdf", of_document(name)),
        Shown::File { name, media_type } => bytes("document", media_type, of_document(name)),
    }
}

fn text_block(text: &str, old: &Fields<'_>) -> Spelled {
    let before = format!(r#"{{"type":"text","text":{}{}}}"#, quoted(text), only(old, "cache_control"));
    Spelled { before, after: String::new() }
}

fn only_title(name: &str) -> String {
    format!(r#","title":{}"#, quoted(name))
}
