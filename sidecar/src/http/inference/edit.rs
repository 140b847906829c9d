//! The two changes a relayed body may see.
//!
//! INVARIANT: every byte outside the changed values stays.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use bytes::Bytes;
use decision::format::ApiFormat;
use decision::problem::Problem;
use serde_json::Value;

use crate::http::Refusal;
use crate::wire::json::{Fields, span};
use crate::wire::model_request::Foreign;
use crate::wire::splice::Splice;
use crate::wire::{messages, responses};

/// A body as its provider can read it.
#[derive(Debug)]
pub(super) struct Edited {
    pub(super) body: Bytes,
    /// What had to be left out, by parameter.
    pub(super) dropped: BTreeSet<String>,
}

/// Puts another name in the place of the top-level `model`, and plain history in the place of answers of ours, which no
/// provider knows, where `folds` names the wire. A body that needs neither is given back as it is.
pub(super) fn edit(body: Bytes, model: Option<&str>, folds: Option<ApiFormat>) -> Result<Edited, Refusal> {
    let mut dropped = BTreeSet::new();
    if model.is_none() && folds.is_none() {
        return Ok(Edited { body, dropped });
    }
    let fields: Fields<'_> = serde_json::from_slice(&body).map_err(not_json)?;
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    if let Some(name) = model {
        let place = fields.get("model").and_then(|old| span(&body, old.get()));
        let place =
            place.ok_or_else(|| Problem::invalid("`model` is missing in the request body").with_param("model"))?;
        changes.push((place, Value::from(name).to_string()));
    }
    if let Some((history, Cow::Owned(folded))) = folds.and_then(|wire| fold(&fields, wire, &mut dropped)).transpose()?
        && let Some(place) = span(&body, history)
    {
        changes.push((place, folded));
    }
    if changes.is_empty() {
        return Ok(Edited { body, dropped });
    }
    changes.sort_unstable_by_key(|(place, _)| place.start);
    let mut splice = Splice::new(&body, changes.iter().map(|(_, new)| new.len()).sum());
    for (place, new) in &changes {
        splice.replace(place).extend_from_slice(new.as_bytes());
    }
    Ok(Edited { body: splice.finish().into(), dropped })
}

/// The history and what it becomes.
fn fold<'a>(
    fields: &Fields<'a>,
    wire: ApiFormat,
    dropped: &mut BTreeSet<String>,
) -> Option<Result<(&'a str, Cow<'a, str>), Problem>> {
    match wire {
        ApiFormat::Messages => {
            fields.get("messages").map(|history| Ok((history.get(), messages::fold(history, Foreign::Stays))))
        }
        ApiFormat::Responses => {
            let history = fields.get("input")?;
            Some(responses::fold(history, Foreign::Stays).map(|folded| {
                dropped.extend(folded.dropped);
                (history.get(), folded.input)
            }))
        }
        // Nothing of ours stands in a history of this wire.
        ApiFormat::ChatCompletions => None,
    }
}

fn not_json(error: serde_json::Error) -> Refusal {
    Refusal::from(Problem::invalid("the request body is not JSON this gateway can read")).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &'static str, model: Option<&str>, expected: &str) {
        let edited = edit(Bytes::from_static(body.as_bytes()), model, Some(ApiFormat::Messages)).unwrap().body;
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
    fn a_code_call_of_ours_becomes_words_on_the_responses_wire_too() {
        let body =
            r#"{ "input":[ {"type":"code_interpreter_call","id":"otari_ci_1","code":"1+1"}, {"role" : "user"}]}"#;
        let edited = edit(Bytes::from_static(body.as_bytes()), None, Some(ApiFormat::Responses)).unwrap().body;
        let edited = std::str::from_utf8(&edited).unwrap();
        assert!(edited.starts_with(r#"{ "input":[{"type":"message","role":"assistant","content":["#), "{edited}");
        assert!(edited.contains("1+1") && edited.ends_with(r#",{"role" : "user"}]}"#), "{edited}");
        assert!(!edited.contains("otari_ci_"), "{edited}");
    }

    #[test]
    fn a_body_that_needs_no_edit_is_given_back() {
        let body = Bytes::from_static(br#"{"messages": [ ]}"#);
        for folds in [Some(ApiFormat::Messages), Some(ApiFormat::Responses), None] {
            assert_eq!(edit(body.clone(), None, folds).unwrap().body.as_ptr(), body.as_ptr());
        }
    }

    #[test]
    fn what_a_fold_leaves_out_is_named() {
        let body = br#"{"input":[{"type":"item_reference","id":"otari_ci_1"},{"role":"user","content":"on"}]}"#;
        let edited = edit(Bytes::from_static(body), None, Some(ApiFormat::Responses)).unwrap();
        assert_eq!(edited.body, r#"{"input":[{"role":"user","content":"on"}]}"#);
        assert_eq!(edited.dropped.into_iter().collect::<Vec<_>>(), ["input[0]"]);
    }

    #[test]
    fn a_body_without_a_model_is_refused() {
        assert!(edit(Bytes::from_static(b"{}"), Some("b"), None).is_err());
    }
}
