//! The two changes a relayed body may see.
//!
//! INVARIANT: every byte outside the changed values stays.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use decision::problem::Problem;
use serde_json::Value;

use crate::http::Refusal;
use crate::wire::json::{Fields, span};
use crate::wire::messages;

/// Puts another name in the place of the top-level `model`, and with `folds` plain history in the place of answers of
/// ours, which no provider knows. A body that needs neither is given back as it is.
pub(super) fn edit(body: Bytes, model: Option<&str>, folds: bool) -> Result<Bytes, Refusal> {
    if model.is_none() && !folds {
        return Ok(body);
    }
    let fields: Fields<'_> = serde_json::from_slice(&body).map_err(not_json)?;
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    if let Some(name) = model {
        let place = fields.get("model").and_then(|old| span(&body, old.get()));
        let place =
            place.ok_or_else(|| Problem::invalid("`model` is missing in the request body").with_param("model"))?;
        changes.push((place, Value::from(name).to_string()));
    }
    if let Some(messages) = fields.get("messages").filter(|_| folds)
        && let Cow::Owned(folded) = messages::fold(messages)
        && let Some(place) = span(&body, messages.get())
    {
        changes.push((place, folded));
    }
    if changes.is_empty() {
        return Ok(body);
    }
    changes.sort_unstable_by_key(|(place, _)| place.start);
    let mut edited = BytesMut::with_capacity(body.len() + changes.iter().map(|(_, new)| new.len()).sum::<usize>());
    let mut copied = 0;
    for (place, new) in &changes {
        edited.extend_from_slice(body.get(copied..place.start).unwrap_or_default());
        edited.extend_from_slice(new.as_bytes());
        copied = place.end;
    }
    edited.extend_from_slice(body.get(copied..).unwrap_or_default());
    Ok(edited.freeze())
}

fn not_json(error: serde_json::Error) -> Refusal {
    Refusal::from(Problem::invalid("the request body is not JSON this gateway can read")).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &'static str, model: Option<&str>, expected: &str) {
        let edited = edit(Bytes::from_static(body.as_bytes()), model, true).unwrap();
        assert_eq!(std::str::from_utf8(&edited).unwrap(), expected);
    }

    #[test]
    fn only_the_name_and_what_is_ours_change() {
        check(
            r#"{ "x": 1.50, "model" : "a:b","n":{"model":1} }"#,
            Some("b\"c"),
            r#"{ "x": 1.50, "model" : "b\"c","n":{"model":1} }"#,
        );
        let body = r#"{ "messages":[ {"content":[{"type":"x_tool_result","tool_use_id":"otari_srvtoolu_1"} ],"n": 1e2}], "model" : "a" }"#;
        let told = r#"[{"content":[{"type":"text","text":"I ran code in the sandbox."}],"n": 1e2}]"#;
        check(body, None, &format!(r#"{{ "messages":{told}, "model" : "a" }}"#));
        check(body, Some("b"), &format!(r#"{{ "messages":{told}, "model" : "b" }}"#));
    }

    #[test]
    fn a_body_that_needs_no_edit_is_given_back() {
        let body = Bytes::from_static(br#"{"messages": [ ]}"#);
        for folds in [true, false] {
            assert_eq!(edit(body.clone(), None, folds).unwrap().as_ptr(), body.as_ptr());
        }
    }

    #[test]
    fn a_body_without_a_model_is_refused() {
        assert!(edit(Bytes::from_static(b"{}"), Some("b"), false).is_err());
    }
}
