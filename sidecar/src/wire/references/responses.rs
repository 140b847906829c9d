//! Files on the Responses wire: `input_file` and `input_image`, in messages, in the outputs of calls, and bare.

use decision::problem::Problem;

use super::{Finder, Shown, Spelled, only, others, quoted};
use crate::wire::json::Fields;

/// Members that are replaced, whatever the part becomes.
const REPLACED: [&str; 6] = ["type", "file_id", "file_url", "file_data", "filename", "image_url"];

pub(super) fn find(fields: &Fields<'_>, finder: &mut Finder<'_>) -> Result<(), Problem> {
    finder.each(fields.get("input"), "input", |finder, text, item, param| {
        match item.read::<String>("type").as_deref() {
            Some("message") | None => finder.each(item.get("content"), &format!("{param}.content"), part),
            Some("function_call_output" | "custom_tool_call_output") => {
                finder.each(item.get("output"), &format!("{param}.output"), part)
            }
            Some("input_file" | "input_image") => {
                let before = finder.parts.len();
                part(finder, text, item, param)?;
                if let Some(part) = finder.since(before) {
                    part.is_bare = true;
                }
                Ok(())
            }
            Some(_) => Ok(()),
        }
    })
}

fn part(finder: &mut Finder<'_>, text: &str, part: &Fields<'_>, param: &str) -> Result<(), Problem> {
    match part.read::<String>("type").as_deref() {
        Some("input_file" | "input_image") => finder.part(part.read("file_id"), text, param, "file_id"),
        _ => Ok(()),
    }
}

pub(super) fn spell(old: &Fields<'_>, shown: Shown<'_>) -> Spelled {
    let file = |name: &str, media_type: &str| {
        let data = format!("data:{media_type};base64,");
        let data = quoted(&data);
        let open = data.strip_suffix('"').unwrap_or(&data);
        Spelled {
            before: format!(r#"{{"type":"input_file","filename":{},"file_data":{open}"#, quoted(name)),
            after: format!(r#""{}}}"#, others(old, &REPLACED)),
        }
    };
    match shown {
        Shown::Nothing => Spelled::default(),
        Shown::Text(text) | Shown::Document { marked: text, .. } => {
            let before =
                format!(r#"{{"type":"input_text","text":{}{}}}"#, quoted(text), only(old, "prompt_cache_breakpoint"));
            Spelled { before, after: String::new() }
        }
        Shown::Image { media_type } => {
            let detail = if old.get("detail").is_none() { r#","detail":"auto""# } else { "" };
            Spelled {
                before: format!(r#"{{"type":"input_image","image_url":"data:{media_type};base64,"#),
                after: format!(r#""{detail}{}}}"#, others(old, &REPLACED)),
            }
        }
        Shown::Pdf { name } => file(name, "application/pdf"),
        Shown::File { name, media_type } => file(name, media_type),
    }
}
