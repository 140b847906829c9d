//! Requests that go on from answers this gateway kept: what they name, and the input with it in its place.
//!
//! INVARIANT: what is not ours stays as it came; a stored answer of a provider is the provider's to find.

use std::borrow::Cow;
use std::collections::BTreeMap;

use decision::problem::Problem;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::history::TOLD;
use crate::ids;
use crate::wire::json::{Fields, inside_array, push_json, push_name};

/// What a body takes for an `input` that it did not have.
const FRAME_BYTES: usize = 64;
/// References that are looked up for one request.
pub const MAX_REFERENCES: usize = 1024;

/// What a request names of answers that this gateway gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Its `previous_response_id`, if that is ours.
    pub previous: Option<String>,
    /// Ids of its `item_reference` entries that are ours, in their order.
    pub items: Vec<String>,
}

/// A request with its history in full.
#[derive(Debug)]
pub struct Expanded {
    /// The body.
    pub body: Vec<u8>,
    /// The request's own input, its references replaced: a JSON array.
    pub input: String,
}

/// An answer of ours, as it is kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its id.
    pub id: String,
    /// Its items, as a JSON array.
    pub output: String,
    /// Ids of those items that no other answer can have.
    pub item_ids: Vec<String>,
    /// The response object as its caller got it, without its items, as JSON.
    pub envelope: String,
    /// Items that the caller got in another form, by their place: a JSON object, if there are any.
    pub shown: Option<String>,
}

impl Kept {
    /// An answer of these items, each with the form in which it was shown if that is another.
    pub fn new<'a>(
        id: String,
        envelope: &Map<String, Value>,
        items: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Self {
        let mut shown = vec![b'{'];
        let keep = |(place, (item, told)): (usize, (&'a [u8], Option<&'a [u8]>))| {
            if let Some(told) = told {
                push_name(&mut shown, &place.to_string());
                shown.extend_from_slice(told);
            }
            String::from_utf8_lossy(item)
        };
        let items: Vec<_> = items.enumerate().map(keep).collect();
        shown.push(b'}');
        let shown = Some(String::from_utf8_lossy(&shown).into_owned()).filter(|shown| shown != "{}");
        let envelope = envelope.iter().filter(|(name, _)| *name != "output");
        let mut object = vec![b'{'];
        for (name, value) in envelope {
            push_name(&mut object, name);
            push_json(&mut object, value);
        }
        object.push(b'}');
        let envelope = String::from_utf8_lossy(&object).into_owned();
        let id_of = |item: &Cow<'_, str>| Some(serde_json::from_str::<Reference<'_>>(item).ok()?.id?.into_owned());
        let item_ids = items.iter().filter_map(id_of).filter(|id| is_ours(id) && ids::is_plain(id)).collect();
        Self { id, output: format!("[{}]", items.join(",")), item_ids, envelope, shown }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reference<'a> {
    #[serde(rename = "type")]
    kind: Option<Cow<'a, str>>,
    role: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
}

impl Reference<'_> {
    /// Nothing but an id; the wire takes it without its type too.
    fn is_one(&self) -> bool {
        match self.kind.as_deref() {
            None => self.role.is_none() && self.id.is_some(),
            Some(kind) => kind == "item_reference",
        }
    }
}

/// Looks for what is ours. An error when there is more of it than is looked up.
pub fn references(body: &[u8]) -> Result<References, Problem> {
    let mut named = References::default();
    let Ok(fields) = serde_json::from_slice::<Fields<'_>>(body) else { return Ok(named) };
    named.previous = fields.read::<String>("previous_response_id").filter(|id| id.starts_with(ids::RESPONSE));
    for item in fields.read::<Vec<&RawValue>>("input").unwrap_or_default() {
        if let Some(id) = reference(item).filter(|id| is_ours(id)) {
            named.items.push(id.into_owned());
        }
    }
    if named.items.len() > MAX_REFERENCES {
        let message = format!("`input` refers to more than {MAX_REFERENCES} items: send the items themselves");
        return Err(Problem::invalid(message).with_param("input"));
    }
    Ok(named)
}

fn is_ours(id: &str) -> bool {
    id.starts_with(ids::CODE_INTERPRETER_CALL) || TOLD.iter().any(|prefix| id.starts_with(prefix))
}

fn reference<'a>(item: &'a RawValue) -> Option<Cow<'a, str>> {
    let head: Reference<'a> = serde_json::from_str(item.get()).ok()?;
    if head.is_one() { head.id } else { None }
}

/// A request's `input`, as JSON.
pub fn input(body: &[u8]) -> Option<String> {
    let fields: Fields<'_> = serde_json::from_slice(body).ok()?;
    Some(fields.get("input")?.get().to_owned())
}

/// The items of a kept `input` or `output`, as JSON without brackets; nothing where there are none.
pub fn entries(json: &str) -> Cow<'_, str> {
    if let Some(items) = inside_array(json) {
        return Cow::Borrowed(items);
    }
    let text: Option<String> = serde_json::from_str(json).unwrap_or_default();
    text.map_or(Cow::Borrowed(""), |text| Cow::Owned(json!({"role": "user", "content": text}).to_string()))
}

/// The items of a kept `output` by their ids.
pub fn items_by_id(output: &str) -> BTreeMap<String, String> {
    let items: Vec<&RawValue> = serde_json::from_str(output).unwrap_or_default();
    let id = |item: &RawValue| Some(serde_json::from_str::<Reference<'_>>(item.get()).ok()?.id?.into_owned());
    items.into_iter().filter_map(|item| Some((id(item)?, item.get().to_owned()))).collect()
}

/// Puts the kept items in the place of their references, `history` (items without brackets) in front of all, and
/// `previous` in the place of the answer that was named. `None` if that would make the body longer than by `max_added`
/// bytes: one item may be named a million times. `room` is asked for the bytes of what is made, before it is.
pub fn expand(
    body: &[u8],
    history: &[Cow<'_, str>],
    previous: Option<&str>,
    items: &BTreeMap<String, String>,
    max_added: usize,
    room: &mut dyn FnMut(usize) -> Result<(), Problem>,
) -> Result<Option<Expanded>, Problem> {
    let fields: Fields<'_> = serde_json::from_slice(body).map_err(super::not_an_object)?;
    let input = fields.get("input").map_or("[]", RawValue::get);
    let before = joined(history).map(str::len).sum::<usize>().saturating_add(",".len());
    let own = match serde_json::from_str::<Vec<&RawValue>>(input) {
        Ok(list) => {
            let mut added: usize = history.iter().map(|said| said.len()).sum();
            let mut parts = Vec::with_capacity(list.len());
            for item in list {
                let known = reference(item).and_then(|id| items.get(id.as_ref()));
                added = added.saturating_add(known.map_or(0, String::len));
                if added > max_added {
                    return Ok(None);
                }
                parts.push(Cow::Borrowed(known.map_or_else(|| item.get(), String::as_str)));
            }
            parts
        }
        Err(_) => Some(entries(input)).filter(|entry| !entry.is_empty()).into_iter().collect(),
    };
    let previous = previous.map(|previous| Value::from(previous).to_string()).unwrap_or_default();
    let input_len = "[]".len().saturating_add(joined(&own).map(str::len).sum());
    let kept_len = body.len().saturating_sub(input.len()).saturating_add(FRAME_BYTES);
    let body_len = [kept_len, previous.len(), before, input_len].into_iter().fold(0, usize::saturating_add);
    room(body_len.saturating_add(input_len))?;
    let mut body = Vec::with_capacity(body_len);
    body.push(b'{');
    for (name, value) in &fields.0 {
        let value = match &**name {
            "input" => continue,
            "previous_response_id" if previous.is_empty() => continue,
            "previous_response_id" => &previous,
            _ => value.get(),
        };
        push_name(&mut body, name);
        body.extend_from_slice(value.as_bytes());
    }
    push_name(&mut body, "input");
    body.push(b'[');
    for piece in joined(history.iter().chain(&own)) {
        body.extend_from_slice(piece.as_bytes());
    }
    body.extend_from_slice(b"]}");
    let mut input = String::with_capacity(input_len);
    input.push('[');
    input.extend(joined(&own));
    input.push(']');
    Ok(Some(Expanded { body, input }))
}

/// The parts with commas between them.
fn joined<'a>(parts: impl IntoIterator<Item = &'a Cow<'a, str>>) -> impl Iterator<Item = &'a str> {
    parts.into_iter().enumerate().flat_map(|(place, part)| [if place > 0 { "," } else { "" }, part.as_ref()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "msg_otr1";

    #[test]
    fn what_is_ours_is_found_and_nothing_else() {
        let body = r#"{"previous_response_id":"resp_otr1","input":[{"type":"item_reference","id":"msg_otr1"},
            {"id":"otari_ci_2"},{"type":"item_reference","id":"msg_provider"},{"type":"message","id":"msg_otr3"},
            {"role":"user","content":"msg_otr4"}]}"#;
        let named = references(body.as_bytes()).unwrap();
        assert_eq!(named.previous.as_deref(), Some("resp_otr1"));
        assert_eq!(named.items, [OURS, "otari_ci_2"]);
        let foreign = br#"{"previous_response_id":"resp_1","input":"msg_otr1"}"#;
        assert_eq!(references(foreign).unwrap(), References::default());
    }

    #[test]
    fn more_references_than_are_looked_up_are_refused() {
        let list = vec![r#"{"id":"msg_otr1"}"#; MAX_REFERENCES + 1].join(",");
        let refused = references(format!(r#"{{"input":[{list}]}}"#).as_bytes()).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some("input"));
    }

    /// What is made, of which no more bytes are made than there was room asked for.
    fn made(
        body: &[u8],
        history: &[&str],
        previous: Option<&str>,
        items: &BTreeMap<String, String>,
        max_added: usize,
    ) -> Option<Expanded> {
        let history: Vec<_> = history.iter().map(|&said| Cow::Borrowed(said)).collect();
        let mut asked = 0;
        let mut room = |bytes| {
            asked = bytes;
            Ok(())
        };
        let expanded = expand(body, &history, previous, items, max_added, &mut room).unwrap()?;
        let taken = expanded.body.capacity() + expanded.input.capacity();
        assert!(taken <= asked, "{taken} of {asked}");
        let refused = expand(body, &history, previous, items, max_added, &mut |_| Err(Problem::bodies_full()));
        assert_eq!(refused.unwrap_err(), Problem::bodies_full());
        Some(expanded)
    }

    #[test]
    fn the_history_stands_in_front_and_each_item_in_the_place_of_its_reference() {
        let items = BTreeMap::from([(OURS.to_owned(), r#"{"type":"message","id":"msg_otr1"}"#.to_owned())]);
        let body = br#"{"model": "m", "previous_response_id":"resp_otr1","input":[ {"id":"msg_otr1"}, {"role" : "user"}], "x": 1.0}"#;
        let expanded =
            made(body, &[r#"{"role":"user"}"#, r#"{"role":"user","content":"before"}"#], None, &items, 100).unwrap();
        assert_eq!(
            String::from_utf8(expanded.body).unwrap(),
            r#"{"model":"m","x":1.0,"input":[{"role":"user"},{"role":"user","content":"before"},{"type":"message","id":"msg_otr1"},{"role" : "user"}]}"#
        );
        assert_eq!(expanded.input, r#"[{"type":"message","id":"msg_otr1"},{"role" : "user"}]"#);
    }

    #[test]
    fn an_item_named_often_does_not_grow_the_body_beyond_its_limit() {
        // A provider's item in an answer of ours, so that no count of our own ids bounds it.
        let items = BTreeMap::from([("rs_1".to_owned(), format!(r#"{{"id":"rs_1","text":"{}"}}"#, "x".repeat(1000)))]);
        let named = |times: usize| format!(r#"{{"input":[{}]}}"#, vec![r#"{"id":"rs_1"}"#; times].join(","));
        let expanded = |times| made(named(times).as_bytes(), &[], None, &items, 10_000);
        assert!(expanded(9).is_some_and(|expanded| expanded.body.len() > 9_000));
        assert!(expanded(10).is_none());
        assert!(expanded(100_000).is_none());
    }

    #[test]
    fn a_text_is_one_message_and_a_providers_answer_is_named_on() {
        let body = br#"{"previous_response_id":"resp_otr1","input":"hi"}"#;
        let expanded = made(body, &[], Some("resp_9"), &BTreeMap::new(), 0).unwrap();
        assert_eq!(
            String::from_utf8(expanded.body).unwrap(),
            r#"{"previous_response_id":"resp_9","input":[{"role":"user","content":"hi"}]}"#
        );
        let alone = made(br#"{"previous_response_id":"resp_otr1"}"#, &["{}"], None, &BTreeMap::new(), 2).unwrap();
        assert_eq!(String::from_utf8(alone.body).unwrap(), r#"{"input":[{}]}"#);
        assert_eq!(entries("null"), "");
        assert_eq!(entries(" [ {} ] "), "{}");
    }
}
