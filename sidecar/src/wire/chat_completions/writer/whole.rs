//! The whole form: what a client of the stream would put together, as one body.

use serde_json::{Map, Value, json};

use super::Head;
use crate::wire::chat_completions::chunk::Extras;
use crate::wire::chat_completions::turn::grow;
use crate::wire::json::push_json;

/// The message so far, and the body once it is complete.
#[derive(Debug, Default)]
pub(super) struct WholeForm {
    pub(super) body: Vec<u8>,
    head: Head,
    /// Members of the message, of its choice and beside it.
    seen: Extras,
    calls: Vec<Value>,
}

impl WholeForm {
    pub(super) fn open(&mut self, head: Head) {
        self.head = head;
    }

    /// Takes a chunk without its head. `begins`: its call is a new one.
    pub(super) fn absorb(&mut self, tail: &[u8], begins: bool) {
        let (mut more, _) = Extras::of(serde_json::from_slice(tail).unwrap_or_default());
        if let Some(Value::Array(calls)) = more.said.shift_remove("tool_calls") {
            for mut call in calls {
                if let Value::Object(call) = &mut call {
                    call.shift_remove("index");
                }
                match self.calls.last_mut() {
                    Some(last) if !begins => grow(last, call),
                    _ => self.calls.push(call),
                }
            }
        }
        for (known, more) in
            [(&mut self.seen.chunk, more.chunk), (&mut self.seen.choice, more.choice), (&mut self.seen.said, more.said)]
        {
            for (name, value) in more {
                grow(known.entry(name).or_insert(Value::Null), value);
            }
        }
    }

    pub(super) fn finish(&mut self, extras: Extras, reason: &str, usage: &Map<String, Value>) {
        let Head { id, created, model, beside } = std::mem::take(&mut self.head);
        let mut seen = beside;
        seen.absorb(std::mem::take(&mut self.seen));
        seen.absorb(extras);
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        for name in ["content", "refusal"] {
            message.insert(name.to_owned(), seen.said.shift_remove(name).unwrap_or_default());
        }
        message.append(&mut seen.said);
        if !self.calls.is_empty() {
            message.insert("tool_calls".to_owned(), std::mem::take(&mut self.calls).into());
        }
        let mut choice = Map::new();
        choice.insert("index".to_owned(), 0.into());
        choice.insert("message".to_owned(), message.into());
        choice.insert("logprobs".to_owned(), seen.choice.shift_remove("logprobs").unwrap_or_default());
        choice.append(&mut seen.choice);
        choice.insert("finish_reason".to_owned(), reason.into());
        let mut answer = Map::new();
        let model = Value::from(model);
        for (name, value) in
            [("id", id.into()), ("object", json!("chat.completion")), ("created", created), ("model", model)]
        {
            answer.insert(name.to_owned(), value);
        }
        answer.insert("choices".to_owned(), vec![Value::from(choice)].into());
        answer.insert("usage".to_owned(), usage.clone().into());
        answer.append(&mut seen.chunk);
        push_json(&mut self.body, &answer);
    }
}
