//! The events of a streamed answer, counted; for a whole answer there are none.

use bytes::{Bytes, BytesMut};
use serde::Serialize;

use crate::wire::json::{Fields, push_json, push_name};
use crate::wire::sse::write_frame;

/// Events waiting to be taken.
#[derive(Debug)]
pub(super) struct Events {
    out: BytesMut,
    streamed: bool,
    /// Number of the next event.
    sequence: u64,
    /// Kept for its memory.
    scratch: Vec<u8>,
}

/// Where an item stands, and what it is called.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) index: usize,
    pub(super) id: String,
}

impl Events {
    pub(super) fn new(streamed: bool) -> Self {
        Self { out: BytesMut::new(), streamed, sequence: 0, scratch: Vec::new() }
    }

    pub(super) fn is_streamed(&self) -> bool {
        self.streamed
    }

    pub(super) fn take(&mut self) -> Bytes {
        self.out.split().freeze()
    }

    pub(super) fn comment(&mut self) {
        if self.streamed {
            self.out.extend_from_slice(b": keep-alive\n\n");
        }
    }

    /// One event; `members` appends what it says besides its type and number.
    pub(super) fn emit(&mut self, kind: &str, members: impl FnOnce(&mut Vec<u8>)) {
        if !self.streamed {
            return;
        }
        self.scratch.clear();
        self.scratch.push(b'{');
        put(&mut self.scratch, "type", kind);
        put(&mut self.scratch, "sequence_number", &self.sequence);
        members(&mut self.scratch);
        self.scratch.push(b'}');
        write_frame(&mut self.out, kind.as_bytes(), &self.scratch);
        self.sequence += 1;
    }

    /// An event that says where and of which item it is.
    pub(super) fn of_item(&mut self, kind: &str, place: &Place, members: impl FnOnce(&mut Vec<u8>)) {
        self.emit(kind, |data| {
            put(data, "output_index", &place.index);
            put(data, "item_id", &place.id);
            members(data);
        });
    }

    /// `response.output_item.added` or `.done`.
    pub(super) fn item(&mut self, kind: &str, index: usize, item: &[u8]) {
        self.emit(kind, |data| {
            put(data, "output_index", &index);
            push_name(data, "item");
            data.extend_from_slice(item);
        });
    }

    /// An event of the model's own, every member as it came, save for its number and its item's place. What is no JSON
    /// object is left out: it would end the client's stream.
    pub(super) fn raw(&mut self, json: &[u8], index: Option<usize>) {
        let Ok(fields) = serde_json::from_slice::<Fields<'_>>(json) else { return };
        let Some(kind) = fields.read::<String>("type").filter(|_| self.streamed) else { return };
        self.scratch.clear();
        self.scratch.push(b'{');
        for (name, value) in &fields.0 {
            push_name(&mut self.scratch, name);
            match (&**name, index) {
                ("sequence_number", _) => push_json(&mut self.scratch, &self.sequence),
                ("output_index", Some(index)) => push_json(&mut self.scratch, &index),
                _ => self.scratch.extend_from_slice(value.get().as_bytes()),
            }
        }
        if fields.get("sequence_number").is_none() {
            put(&mut self.scratch, "sequence_number", &self.sequence);
        }
        self.scratch.push(b'}');
        write_frame(&mut self.out, kind.as_bytes(), &self.scratch);
        self.sequence += 1;
    }
}

/// Appends a member to the object being written.
pub(super) fn put(data: &mut Vec<u8>, name: &str, value: &(impl Serialize + ?Sized)) {
    push_name(data, name);
    push_json(data, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_model_keep_every_member_and_get_our_numbers() {
        let mut events = Events::new(true);
        events.emit("response.created", |_| {});
        events.raw(br#"{"type":"a","sequence_number": 40,"output_index":7,"x" : 1.0}"#, Some(2));
        events.raw(br#"{"type":"b","output_index":7}"#, None);
        events.raw(b"no JSON", None);
        events.comment();
        let told = events.take();
        let expected = concat!(
            "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0}\n\n",
            "event: a\ndata: {\"type\":\"a\",\"sequence_number\":1,\"output_index\":2,\"x\":1.0}\n\n",
            "event: b\ndata: {\"type\":\"b\",\"output_index\":7,\"sequence_number\":2}\n\n",
            ": keep-alive\n\n",
        );
        assert_eq!(told, expected);
    }

    #[test]
    fn a_whole_answer_has_no_events() {
        let mut events = Events::new(false);
        events.emit("response.created", |_| {});
        events.raw(br#"{"type":"a"}"#, None);
        events.comment();
        assert!(events.take().is_empty());
    }
}
