//! The streamed form: chunks as the model says them, under one head.

use bytes::BytesMut;
use decision::format::Vocabulary;
use decision::problem::Problem;
use serde_json::{Map, Value};

use super::Head;
use crate::wire::chat_completions::chunk::{self, Extras};
use crate::wire::event::Raw;
use crate::wire::json::{push_json, push_name};
use crate::wire::sse::write_frame;

/// Chunks not yet taken, and what the next one needs.
#[derive(Debug)]
pub(super) struct StreamForm {
    pub(super) out: BytesMut,
    /// The members that every chunk begins with, brace included.
    head: Vec<u8>,
    beside: Extras,
    /// The client asked for the usage.
    usage: bool,
    /// Calls of the caller's functions so far.
    calls: u64,
    request_id: String,
    /// Kept for its memory.
    scratch: Vec<u8>,
}

impl StreamForm {
    pub(super) fn new(usage: bool, request_id: String) -> Self {
        Self {
            out: BytesMut::new(),
            head: Vec::new(),
            beside: Extras::default(),
            usage,
            calls: 0,
            request_id,
            scratch: Vec::new(),
        }
    }

    pub(super) fn open(&mut self, head: Head, content: &Value) {
        self.head = b"{".to_vec();
        let members = [
            ("id", head.id.into()),
            ("object", "chat.completion.chunk".into()),
            ("created", head.created),
            ("model", Value::from(head.model)),
        ];
        for (name, value) in members {
            push_name(&mut self.head, name);
            push_json(&mut self.head, &value);
        }
        self.beside = head.beside;
        let first = chunk::tail(&self.beside, None, |delta| {
            for (name, value) in [("role", &"assistant".into()), ("content", content)] {
                push_name(delta, name);
                push_json(delta, value);
            }
        });
        self.chunk(&first);
    }

    /// A chunk under the client's head.
    pub(super) fn chunk(&mut self, tail: &[u8]) {
        self.write(&[tail]);
    }

    /// A chunk of a call, with the client's index.
    pub(super) fn call(&mut self, raw: &Raw, begins: bool) {
        self.calls = self.calls.saturating_add(begins.into());
        let index = self.calls.saturating_sub(1).to_string();
        let place = raw.index.clone().unwrap_or_default();
        let (before, after) = (raw.json.slice(..place.start), raw.json.slice(place.end..));
        self.write(&[&before, index.as_bytes(), &after]);
    }

    pub(super) fn comment(&mut self) {
        self.out.extend_from_slice(b": keep-alive\n\n");
    }

    pub(super) fn finish(&mut self, extras: Extras, reason: &str, usage: &Map<String, Value>) {
        let mut all = self.beside.clone();
        all.absorb(extras);
        let last = chunk::tail(&all, Some(reason), |_| {});
        self.chunk(&last);
        if self.usage {
            let mut data = self.head.clone();
            for (name, value) in &self.beside.chunk {
                push_name(&mut data, name);
                push_json(&mut data, value);
            }
            push_name(&mut data, "choices");
            data.extend_from_slice(b"[]");
            push_name(&mut data, "usage");
            push_json(&mut data, usage);
            data.push(b'}');
            write_frame(&mut self.out, b"", &data);
        }
        self.done();
    }

    pub(super) fn fail(&mut self, problem: &Problem) {
        let mut data = Vec::new();
        push_json(&mut data, &problem.body(Vocabulary::OpenAi, &self.request_id));
        write_frame(&mut self.out, b"", &data);
        self.done();
    }

    fn done(&mut self) {
        write_frame(&mut self.out, b"", b"[DONE]");
    }

    /// Head and tail, the tail in pieces, as one frame.
    fn write(&mut self, tail: &[&[u8]]) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.head);
        for (position, piece) in tail.iter().enumerate() {
            // The tail is an object of its own: its members follow those of the head.
            match piece.strip_prefix(b"{") {
                Some(members) if position == 0 => {
                    self.scratch.push(b',');
                    self.scratch.extend_from_slice(members);
                }
                _ => self.scratch.extend_from_slice(piece),
            }
        }
        if self.usage {
            self.scratch.pop();
            self.scratch.extend_from_slice(br#","usage":null}"#);
        }
        write_frame(&mut self.out, b"", &self.scratch);
    }
}
