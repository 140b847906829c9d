//! Files that a code tool's container is to hold, `container: {"type": "auto", "file_ids": […]}`, and where in an input
//! they can be shown instead.

use std::ops::Range;

use decision::problem::Problem;
use decision::request::Keyword;
use serde_json::value::RawValue;

use super::{Finder, object, own_id};
use crate::wire::json::{Fields, inside_array, span};

/// The list of one tool.
#[derive(Debug)]
pub struct ContainerFiles {
    /// Ids of ours, each with where it stands.
    pub ids: Vec<(String, String)>,
    /// Where the first id stands that is none of ours, if there is one.
    pub foreign: Option<String>,
    /// The list without ours.
    pub(super) kept: String,
    pub(super) place: Range<usize>,
}

/// Where files can be shown that stand in no message, as parts of a list.
#[derive(Debug)]
pub(super) struct Opening {
    /// What is replaced; empty where nothing is.
    pub(super) place: Range<usize>,
    /// What stands in front of the parts.
    pub(super) before: String,
    /// And behind them.
    pub(super) after: String,
}

/// The lists that name one of ours.
pub(super) fn find(fields: &Fields<'_>, finder: &mut Finder<'_>) -> Result<Vec<ContainerFiles>, Problem> {
    let mut found = Vec::new();
    finder.each(fields.get("tools"), "tools", |finder, _, tool, param| {
        if tool.read::<String>("type").as_deref().and_then(Keyword::parse).is_none() {
            return Ok(());
        }
        let Some(list) = object(tool, "container").get("file_ids") else { return Ok(()) };
        found.extend(read(list, &format!("{param}.container.file_ids"), finder)?);
        Ok(())
    })?;
    Ok(found)
}

fn read(list: &RawValue, param: &str, finder: &mut Finder<'_>) -> Result<Option<ContainerFiles>, Problem> {
    let Ok(entries) = serde_json::from_str::<Vec<&RawValue>>(list.get()) else { return Ok(None) };
    let Some(place) = span(finder.body, list.get()) else { return Ok(None) };
    let (mut ids, mut kept, mut foreign) = (Vec::new(), Vec::new(), None);
    for (position, entry) in entries.into_iter().enumerate() {
        let param = format!("{param}[{position}]");
        if let Some(id) = serde_json::from_str::<String>(entry.get()).ok().as_deref().and_then(own_id) {
            finder.count(&param)?;
            ids.push((id, param));
        } else {
            foreign.get_or_insert(param);
            kept.push(entry.get());
        }
    }
    let kept = format!("[{}]", kept.join(","));
    Ok((!ids.is_empty()).then_some(ContainerFiles { ids, foreign, kept, place }))
}

/// In front of the first thing that the user says: what follows later changes nothing there, and caches stay good.
pub(super) fn opening(fields: &Fields<'_>, body: &[u8]) -> Option<Opening> {
    let input = fields.get("input")?;
    if is_text(input) {
        return Some(Opening {
            place: span(body, input.get())?,
            before: r#"[{"role":"user","content":["#.to_owned(),
            after: format!(",{}]}}]", text_part(input)),
        });
    }
    let items: Vec<&RawValue> = serde_json::from_str(input.get()).ok()?;
    let content = items.iter().find_map(|item| {
        let item: Fields<'_> = serde_json::from_str(item.get()).ok()?;
        (item.read::<String>("role")? == "user").then(|| item.get("content")).flatten()
    });
    let Some(content) = content else {
        // Nobody has said anything yet.
        let end = span(body, input.get())?.end.checked_sub(1)?;
        let comma = if items.is_empty() { "" } else { "," };
        let before = format!(r#"{comma}{{"role":"user","content":["#);
        return Some(Opening { place: end..end, before, after: "]}".to_owned() });
    };
    let place = span(body, content.get())?;
    if is_text(content) {
        return Some(Opening { place, before: "[".to_owned(), after: format!(",{}]", text_part(content)) });
    }
    let parts = inside_array(content.get())?;
    let start = place.start.checked_add(1)?;
    let after = if parts.is_empty() { "" } else { "," };
    Some(Opening { place: start..start, before: String::new(), after: after.to_owned() })
}

fn is_text(value: &RawValue) -> bool {
    value.get().starts_with('"')
}

fn text_part(text: &RawValue) -> String {
    format!(r#"{{"type":"input_text","text":{}}}"#, text.get())
}
