//! Kept answers as their callers read them again: the response object, and the list of what it was made from.
//!
//! INVARIANT: an answer is told again byte for byte; an item has the same id in every list.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::stored::entries;
use crate::ids;
use crate::wire::json::{Fields, push_json, push_name};

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
    let fields: Fields<'_> = serde_json::from_slice(response).unwrap_or_default();
    let items: Vec<Map<String, Value>> = fields.read("output").unwrap_or_default();
    items.iter().any(|item| {
        item.get("type").is_some_and(|kind| kind == "code_interpreter_call")
            && item.get("outputs").is_none_or(Value::is_null)
    })
}

/// The items of a request's `input`, in the shape of a list: each with an id, messages with parts. `response` is the id
/// of the answer to it.
pub fn input_items(input: &str, response: &str) -> Vec<Value> {
    let list = format!("[{}]", entries(input));
    let items: Vec<Map<String, Value>> = serde_json::from_str(&list).unwrap_or_default();
    let digits = response.strip_prefix(ids::RESPONSE).unwrap_or(response);
    let numbered = items.into_iter().enumerate();
    // Not with our prefix: nothing is found by this id but its place in the list.
    numbered.map(|(place, item)| listed(item, || format!("msg_{digits}_{place}"))).collect()
}

/// The items of an answer, which have ids of their own.
pub fn output_items(output: &str) -> Vec<Value> {
    serde_json::from_str(output).unwrap_or_default()
}

fn listed(mut item: Map<String, Value>, id: impl FnOnce() -> String) -> Value {
    let role = item.get("role").and_then(Value::as_str).map(str::to_owned);
    if let (Some(role), true) = (role, item.get("type").is_none_or(|kind| kind == "message")) {
        item.insert("type".to_owned(), "message".into());
        if let Some(Value::String(text)) = item.get("content") {
            let part = if role == "assistant" {
                json!({"type": "output_text", "text": text, "annotations": []})
            } else {
                json!({"type": "input_text", "text": text})
            };
            item.insert("content".to_owned(), json!([part]));
        }
    }
    if item.get("id").is_none_or(Value::is_null) {
        item.insert("id".to_owned(), id().into());
    }
    if item.get("status").is_none_or(Value::is_null) {
        item.insert("status".to_owned(), "completed".into());
    }
    Value::Object(item)
}

/// A page of a list.
pub fn list(items: &[Value], has_more: bool) -> Vec<u8> {
    let id = |item: Option<&Value>| item.and_then(|item| item.get("id")).cloned().unwrap_or_default();
    let page = json!({
        "object": "list", "data": items, "first_id": id(items.first()), "last_id": id(items.last()),
        "has_more": has_more,
    });
    let mut body = Vec::new();
    push_json(&mut body, &page);
    body
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn every_item_of_a_list_has_an_id_and_a_message_has_parts() {
        let items = input_items(
            r#"[{"role":"user","content":"hi"},{"type":"function_call_output","call_id":"c","output":"x"},
            {"id":"msg_1","role":"assistant","content":"yes"},{"role":"user","content":[{"type":"input_text","text":"a"}]}]"#,
            "resp_otr12",
        );
        assert_eq!(
            items[0],
            json!({"role": "user", "content": [{"type": "input_text", "text": "hi"}],
            "type": "message", "id": "msg_12_0", "status": "completed"})
        );
        assert_eq!((&items[1]["id"], &items[1]["type"]), (&json!("msg_12_1"), &json!("function_call_output")));
        assert_eq!((&items[2]["id"], &items[2]["content"][0]["type"]), (&json!("msg_1"), &json!("output_text")));
        assert_eq!(items[3]["content"], json!([{"type": "input_text", "text": "a"}]));
        assert_eq!(input_items("\"only text\"", "resp_otr1")[0]["content"][0]["text"], "only text");
        assert_eq!(input_items("null", "resp_otr1"), [] as [Value; 0]);
    }
}
