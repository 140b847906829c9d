//! Kept answers as their callers read them again: the response object, and the list of what it was made from.
//!
//! INVARIANT: an answer is told again byte for byte; an item has the same id in every list.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ids;
use crate::wire::json::{Fields, each_entry, push_json, push_name};

/// What an item of a list takes beside its own JSON, and the list beside its items.
const ITEM_BYTES: usize = 256;

/// The response object as its caller got it: `output` as it is kept, with those items in the place of others that were
/// shown in another form.
pub fn response(envelope: &str, output: &str, shown: Option<&str>) -> Vec<u8> {
    let items: Vec<&RawValue> = serde_json::from_str(output).unwrap_or_default();
    let shown: BTreeMap<Cow<'_, str>, &RawValue> = shown
        .and_then(|shown| serde_json::from_str::<Fields<'_>>(shown).ok())
        .unwrap_or_default()
        .0
        .into_iter()
        .collect();
    let mut body = envelope.strip_suffix('}').unwrap_or("{").as_bytes().to_vec();
    push_name(&mut body, "output");
    body.push(b'[');
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            body.push(b',');
        }
        let item = shown.get(place.to_string().as_str()).copied().unwrap_or(item);
        body.extend_from_slice(item.get().as_bytes());
    }
    body.extend_from_slice(b"]}");
    body
}

/// Whether a response has code calls whose outputs it does not tell.
pub fn hides_outputs(response: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(rename = "type")]
        kind: Cow<'a, str>,
        #[serde(borrow, default)]
        outputs: Option<&'a RawValue>,
    }
    let fields: Fields<'_> = serde_json::from_slice(response).unwrap_or_default();
    let mut hides = false;
    each_entry(fields.get("output").map_or("", RawValue::get), |item| {
        let item = serde_json::from_str::<Item<'_>>(item.get());
        hides |= item.is_ok_and(|item| item.kind == "code_interpreter_call" && item.outputs.is_none());
    });
    hides
}

/// What is asked of a list of items.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Items of the page, at most.
    pub limit: usize,
    /// Else the newest stand first.
    pub oldest_first: bool,
    /// The item that the page begins behind.
    pub after: Option<&'a str>,
}

/// Finds a page among items that it is shown, the oldest first. Holds one item more than the page has, at most.
#[derive(Debug)]
pub struct Pager<'a> {
    asked: Asked<'a>,
    /// The last that were shown.
    last: VecDeque<Item<'a>>,
    /// The page, once its beginning was seen.
    page: Option<VecDeque<Item<'a>>>,
}

/// An item of a list.
#[derive(Debug, Clone, Copy)]
struct Item<'a> {
    /// As it was sent. A text is a message of the user's.
    json: &'a RawValue,
    /// Of an item of a request's input: the id of the answer, and its place.
    place: Option<(&'a str, usize)>,
}

/// A page of a list.
#[derive(Debug)]
pub struct Page<'a> {
    items: Vec<Item<'a>>,
    has_more: bool,
}

impl<'a> Pager<'a> {
    /// Nothing was shown yet.
    pub fn new(asked: Asked<'a>) -> Self {
        let page = (asked.oldest_first && asked.after.is_none()).then(VecDeque::new);
        Self { asked, last: VecDeque::new(), page }
    }

    /// Shows the items of a request's `input`; `response` is the id of the answer to it.
    pub fn input(&mut self, input: &'a str, response: &'a str) {
        if let Ok(text) = serde_json::from_str::<&RawValue>(input)
            && is_text(text)
        {
            self.see(Item { json: text, place: Some((response, 0)) });
        }
        let mut place = 0;
        each_entry(input, |json| {
            if json.get().starts_with('{') {
                self.see(Item { json, place: Some((response, place)) });
            }
            place += 1;
        });
    }

    /// Shows the items of an answer, which have ids of their own.
    pub fn output(&mut self, output: &'a str) {
        each_entry(output, |json| self.see(Item { json, place: None }));
    }

    fn see(&mut self, item: Item<'a>) {
        let Asked { limit, oldest_first, after } = self.asked;
        let is_named = after.is_some_and(|after| item.id().is_some_and(|id| id == after));
        if oldest_first {
            match &mut self.page {
                Some(page) if page.len() <= limit => page.push_back(item),
                None if is_named => self.page = Some(VecDeque::new()),
                _ => {}
            }
            return;
        }
        if is_named {
            self.page = Some(self.last.clone());
        }
        self.last.push_back(item);
        if self.last.len() > limit.saturating_add(1) {
            self.last.pop_front();
        }
    }

    /// The page; `None` if the item that it begins behind was not shown.
    pub fn page(self) -> Option<Page<'a>> {
        let Asked { limit, oldest_first, after } = self.asked;
        let mut items: Vec<_> = match after {
            None if !oldest_first => self.last,
            _ => self.page?,
        }
        .into();
        if !oldest_first {
            items.reverse();
        }
        let has_more = items.len() > limit;
        items.truncate(limit);
        Some(Page { items, has_more })
    }
}

impl<'a> Item<'a> {
    fn id(&self) -> Option<Cow<'a, str>> {
        #[derive(Deserialize)]
        struct Head<'a> {
            #[serde(borrow, default)]
            id: Option<Cow<'a, str>>,
        }
        let own = serde_json::from_str::<Head<'a>>(self.json.get()).ok().and_then(|head| head.id);
        own.or_else(|| self.place.map(|(response, place)| placed(response, place).into()))
    }

    /// In the shape of a list: with an id, and a message with parts.
    fn push(&self, body: &mut Vec<u8>) {
        let Some((response, place)) = self.place else { return body.extend_from_slice(self.json.get().as_bytes()) };
        let whole = Some(self.json).filter(|json| is_text(json));
        let mut fields: Fields<'_> = serde_json::from_str(self.json.get()).unwrap_or_default();
        let role: Option<String> = fields.read("role").or_else(|| whole.map(|_| "user".to_owned()));
        let kind: Option<String> = fields.read("type");
        let is_message = role.is_some() && (fields.get("type").is_none() || kind.is_some_and(|kind| kind == "message"));
        let text = whole.or_else(|| fields.get("content").filter(|content| is_message && is_text(content)));
        fields.0.retain(|(name, value)| match &**name {
            "type" => !is_message,
            "content" => text.is_none(),
            "id" | "status" => value.get() != "null",
            _ => true,
        });
        body.push(b'{');
        for (name, value) in &fields.0 {
            push_member(body, name, &[value.get()]);
        }
        if whole.is_some() {
            push_member(body, "role", &[r#""user""#]);
        }
        if is_message {
            push_member(body, "type", &[r#""message""#]);
        }
        if let Some(text) = text {
            let [before, after] = if role.is_some_and(|role| role == "assistant") {
                [r#"[{"type":"output_text","text":"#, r#","annotations":[]}]"#]
            } else {
                [r#"[{"type":"input_text","text":"#, "}]"]
            };
            push_member(body, "content", &[before, text.get(), after]);
        }
        if fields.get("id").is_none() {
            push_name(body, "id");
            push_json(body, &placed(response, place));
        }
        if fields.get("status").is_none() {
            push_member(body, "status", &[r#""completed""#]);
        }
        body.push(b'}');
    }
}

impl Page<'_> {
    /// Bytes that it takes as JSON, at most.
    pub fn max_bytes(&self) -> usize {
        // Each id of an end stands there twice.
        let ends = self.items.first().into_iter().chain(self.items.last());
        let lengths = self.items.iter().chain(ends).map(|item| item.json.get().len().saturating_add(ITEM_BYTES));
        lengths.fold(ITEM_BYTES, usize::saturating_add)
    }

    /// As JSON.
    pub fn json(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.max_bytes());
        body.extend_from_slice(br#"{"object":"list","data":["#);
        for (place, item) in self.items.iter().enumerate() {
            if place > 0 {
                body.push(b',');
            }
            item.push(&mut body);
        }
        body.push(b']');
        for (name, item) in [("first_id", self.items.first()), ("last_id", self.items.last())] {
            push_name(&mut body, name);
            push_json(&mut body, &item.and_then(Item::id));
        }
        push_member(&mut body, "has_more", &[if self.has_more { "true" } else { "false" }]);
        body.push(b'}');
        body
    }
}

/// Not with our prefix: nothing is found by this id but its place in the list.
fn placed(response: &str, place: usize) -> String {
    format!("msg_{}_{place}", response.strip_prefix(ids::RESPONSE).unwrap_or(response))
}

fn is_text(json: &RawValue) -> bool {
    json.get().starts_with('"')
}

/// Appends a member whose value is these pieces of JSON.
fn push_member(body: &mut Vec<u8>, name: &str, value: &[&str]) {
    push_name(body, name);
    for piece in value {
        body.extend_from_slice(piece.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_answer_is_told_as_it_was() {
        let told = response(r#"{"id":"r","n":1.0}"#, r#"[{"a": 1},{"b":2},{"c":3}]"#, Some(r#"{"1":{"b":null}}"#));
        assert_eq!(String::from_utf8(told).unwrap(), r#"{"id":"r","n":1.0,"output":[{"a": 1},{"b":null},{"c":3}]}"#);
        assert_eq!(response("{}", "[]", None), br#"{"output":[]}"#);
    }

    #[test]
    fn outputs_that_were_not_shown_are_known() {
        let of = |item: &str| hides_outputs(format!(r#"{{"output":[{{"type":"message"}},{item}]}}"#).as_bytes());
        assert!(of(r#"{"type":"code_interpreter_call","outputs":null}"#));
        assert!(!of(r#"{"type":"code_interpreter_call","outputs":[]}"#));
        assert!(!of(r#"{"type":"reasoning"}"#));
    }

    fn page(inputs: &[&str], outputs: &[&str], asked: Asked<'_>) -> Option<Value> {
        let mut pager = Pager::new(asked);
        for input in inputs {
            pager.input(input, "resp_otr12");
        }
        for output in outputs {
            pager.output(output);
        }
        let page = pager.page()?;
        let json = page.json();
        assert!(json.len() <= page.max_bytes(), "{} of {}", json.len(), page.max_bytes());
        Some(serde_json::from_slice(&json).unwrap())
    }

    fn listed(input: &str) -> Value {
        page(&[input], &[], Asked { limit: 100, oldest_first: true, after: None }).unwrap()["data"].take()
    }

    #[test]
    fn every_item_of_a_list_has_an_id_and_a_message_has_parts() {
        let items = listed(
            r#"[{"role":"user","content":"hi"},{"type":"function_call_output","call_id":"c","output":"x"},
            {"id":"msg_1","role":"assistant","content":"yes"},{"role":"user","content":[{"type":"input_text","text":"a"}]},
            7,{"id":null,"type":"reasoning","role":"user","content":"b","status":null}]"#,
        );
        assert_eq!(
            items[0],
            json!({"role": "user", "content": [{"type": "input_text", "text": "hi"}],
            "type": "message", "id": "msg_12_0", "status": "completed"})
        );
        assert_eq!((&items[1]["id"], &items[1]["type"]), (&json!("msg_12_1"), &json!("function_call_output")));
        assert_eq!((&items[2]["id"], &items[2]["content"][0]["type"]), (&json!("msg_1"), &json!("output_text")));
        assert_eq!(items[3]["content"], json!([{"type": "input_text", "text": "a"}]));
        let other =
            json!({"type": "reasoning", "role": "user", "content": "b", "id": "msg_12_5", "status": "completed"});
        assert_eq!((&items[4], items.as_array().unwrap().len()), (&other, 5));
        let text = listed(r#""only \n text""#);
        assert_eq!((&text[0]["role"], &text[0]["content"][0]["text"]), (&json!("user"), &json!("only \n text")));
        assert_eq!((&text[0]["id"], &text[0]["type"]), (&json!("msg_12_0"), &json!("message")));
        assert_eq!(listed("null"), json!([]));
    }

    #[test]
    fn a_page_holds_no_more_items_than_it_has_wherever_it_begins() {
        let input = format!("[{}]", vec![r#"{"role":"user","content":"x"}"#; 1000].join(","));
        let mut pager = Pager::new(Asked { limit: 2, oldest_first: false, after: Some("msg_12_500") });
        pager.input(&input, "resp_otr12");
        assert!(pager.last.len() <= 3 && pager.page.as_ref().is_some_and(|page| page.len() <= 3), "{pager:?}");
        let ids = |oldest_first, after: Option<&str>| {
            let page = page(&[&input], &[r#"[{"id":"msg_z"}]"#], Asked { limit: 2, oldest_first, after })?;
            let ids: Vec<_> = page["data"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect();
            assert_eq!(
                [&page["first_id"], &page["last_id"]],
                [ids.first().unwrap_or(&Value::Null), ids.last().unwrap_or(&Value::Null)]
            );
            Some(json!([ids, page["has_more"]]))
        };
        assert_eq!(ids(true, None), Some(json!([["msg_12_0", "msg_12_1"], true])));
        assert_eq!(ids(true, Some("msg_12_997")), Some(json!([["msg_12_998", "msg_12_999"], true])));
        assert_eq!(ids(true, Some("msg_12_998")), Some(json!([["msg_12_999", "msg_z"], false])));
        assert_eq!(ids(true, Some("msg_z")), Some(json!([[], false])));
        assert_eq!(ids(false, None), Some(json!([["msg_z", "msg_12_999"], true])));
        assert_eq!(ids(false, Some("msg_12_500")), Some(json!([["msg_12_499", "msg_12_498"], true])));
        assert_eq!(ids(false, Some("msg_12_2")), Some(json!([["msg_12_1", "msg_12_0"], false])));
        assert_eq!(ids(false, Some("msg_12_0")), Some(json!([[], false])));
        assert_eq!([ids(true, Some("msg_no")), ids(false, Some("msg_no"))], [None, None]);
    }
}
