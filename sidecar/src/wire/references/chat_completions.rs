//! Files on the Chat Completions wire: the part `file`, and `image_url` with an id for the URL.

use decision::problem::Problem;

use super::{Finder, Shown, Spelled, object, only, others, quoted};
use crate::wire::json::Fields;

/// Members that are replaced, whatever the part becomes.
const REPLACED: [&str; 4] = ["type", "file", "image_url", "file_id"];

pub(super) fn find(fields: &Fields<'_>, finder: &mut Finder<'_>) -> Result<(), Problem> {
    finder.each(fields.get("messages"), "messages", |finder, _, message, param| {
        finder.each(message.get("content"), &format!("{param}.content"), |finder, text, part, param| {
            let kind: Option<String> = part.read("type");
            let Some(kind @ ("file" | "image_url")) = kind.as_deref() else { return Ok(()) };
            match object(part, kind).read("file_id") {
                Some(id) => finder.part(Some(id), text, param, &format!("{kind}.file_id")),
                None => finder.part(part.read("file_id"), text, param, "file_id"),
            }
        })
    })
}

pub(super) fn spell(old: &Fields<'_>, shown: Shown<'_>) -> Spelled {
    let bytes =
        |before: String, inner: String| Spelled { before, after: format!(r#""{inner}}}{}}}"#, others(old, &REPLACED)) };
    let file = |name: &str, media_type: &str| {
        let data = format!("data:{media_type};base64,");
        let data = quoted(&data);
        let open = data.strip_suffix('"').unwrap_or(&data);
        bytes(format!(r#"{{"type":"file","file":{{"filename":{},"file_data":{open}"#, quoted(name)), String::new())
    };
    match shown {
        Shown::Nothing => Spelled::default(),
        Shown::Text(text) | Shown::Document { marked: text, .. } => {
            let before = format!(r#"{{"type":"text","text":{}{}}}"#, quoted(text), only(old, "cache_control"));
            Spelled { before, after: String::new() }
        }
        Shown::Image { media_type } => {
            let settings = others(&object(old, "image_url"), &["url", "file_id"]);
            bytes(format!(r#"{{"type":"image_url","image_url":{{"url":"data:{media_type};base64,"#), settings)
        }
        Shown::Pdf { name } => file(name, "application/pdf"),
        Shown::File { name, media_type } => file(name, media_type),
    }
}
