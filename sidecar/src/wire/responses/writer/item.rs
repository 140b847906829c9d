//! The items of an answer that are not in the model's own bytes, from their first event to their last.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::events::{Events, Place, put};
use super::held;
use crate::wire::event::{CodeFiles, CodeOutcome, StoredFile};
use crate::wire::json::push_json;

const ADDED: &str = "response.output_item.added";
const DONE: &str = "response.output_item.done";

/// The item now open, code calls aside.
#[derive(Debug, Default)]
pub(super) enum Open {
    /// None, or one that the client does not see.
    #[default]
    Nothing,
    /// One in the model's own bytes, at this place, with its first frame, and frames of its end that wait for others.
    Raw(usize, Bytes, Vec<Bytes>),
    /// A message in the model's own bytes that is whole already, at this place.
    Whole(usize, Bytes),
    Message(TextItem),
    Reasoning(TextItem),
    Call(CallItem),
}

impl Open {
    /// Ends the item where an error cut it off: its place, and the item as it stays.
    pub(super) fn cut(self, events: &mut Events) -> Option<(usize, Vec<u8>)> {
        const CUT: &str = "incomplete";
        let (index, item) = match self {
            Self::Nothing | Self::Whole(..) => return None,
            Self::Raw(index, first, _) => {
                let mut first: Map<String, Value> = serde_json::from_slice(&first).ok()?;
                let mut item = first.remove("item")?;
                if let Some(status) = item.get_mut("status") {
                    *status = CUT.into();
                }
                (index, bytes(&item))
            }
            Self::Message(TextItem { place, text }) => (place.index, message_item(&place.id, CUT, Some((&text, &[])))),
            Self::Reasoning(TextItem { place, text }) => (place.index, reasoning_item(&place.id, Some(&text))),
            Self::Call(call) => (call.place.index, call.item(CUT)),
        };
        events.item(DONE, index, &item);
        Some((index, item))
    }
}

/// A message, or a summary of thoughts.
#[derive(Debug)]
pub(super) struct TextItem {
    place: Place,
    text: String,
}

impl TextItem {
    pub(super) fn message(place: Place, events: &mut Events) -> Self {
        events.item(ADDED, place.index, &message_item(&place.id, "in_progress", None));
        events.of_item("response.content_part.added", &place, |data| {
            put(data, "content_index", &0);
            put(data, "part", &text_part("", &[]));
        });
        Self { place, text: String::new() }
    }

    pub(super) fn grow_message(&mut self, piece: &str, events: &mut Events) {
        self.text.push_str(piece);
        events.of_item("response.output_text.delta", &self.place, |data| {
            put(data, "content_index", &0);
            put(data, "delta", piece);
            put(data, "logprobs", &[(); 0]);
        });
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Its place, and the item as it stays.
    pub(super) fn stop_message(self, annotations: &[Value], events: &mut Events) -> (usize, Vec<u8>) {
        held::tell(annotations, self.place.index, &self.place.id, 0, 0, events);
        events.of_item("response.output_text.done", &self.place, |data| {
            put(data, "content_index", &0);
            put(data, "text", &self.text);
            put(data, "logprobs", &[(); 0]);
        });
        events.of_item("response.content_part.done", &self.place, |data| {
            put(data, "content_index", &0);
            put(data, "part", &text_part(&self.text, annotations));
        });
        done(&self.place, message_item(&self.place.id, "completed", Some((&self.text, annotations))), events)
    }

    pub(super) fn reasoning(place: Place, events: &mut Events) -> Self {
        events.item(ADDED, place.index, &reasoning_item(&place.id, None));
        events.of_item("response.reasoning_summary_part.added", &place, |data| {
            put(data, "summary_index", &0);
            put(data, "part", &summary_part(""));
        });
        Self { place, text: String::new() }
    }

    pub(super) fn grow_reasoning(&mut self, piece: &str, events: &mut Events) {
        self.text.push_str(piece);
        events.of_item("response.reasoning_summary_text.delta", &self.place, |data| {
            put(data, "summary_index", &0);
            put(data, "delta", piece);
        });
    }

    pub(super) fn stop_reasoning(self, events: &mut Events) -> (usize, Vec<u8>) {
        events.of_item("response.reasoning_summary_text.done", &self.place, |data| {
            put(data, "summary_index", &0);
            put(data, "text", &self.text);
        });
        events.of_item("response.reasoning_summary_part.done", &self.place, |data| {
            put(data, "summary_index", &0);
            put(data, "part", &summary_part(&self.text));
        });
        done(&self.place, reasoning_item(&self.place.id, Some(&self.text)), events)
    }
}

/// A call of one of the client's functions.
#[derive(Debug)]
pub(super) struct CallItem {
    place: Place,
    call_id: String,
    name: String,
    arguments: String,
}

impl CallItem {
    pub(super) fn start(place: Place, call_id: String, name: String, events: &mut Events) -> Self {
        let call = Self { place, call_id, name, arguments: String::new() };
        events.item(ADDED, call.place.index, &call.item("in_progress"));
        call
    }

    pub(super) fn grow(&mut self, piece: &str, events: &mut Events) {
        self.arguments.push_str(piece);
        events.of_item("response.function_call_arguments.delta", &self.place, |data| put(data, "delta", piece));
    }

    pub(super) fn stop(mut self, events: &mut Events) -> (usize, Vec<u8>) {
        if self.arguments.trim().is_empty() {
            self.arguments.push_str("{}");
        }
        events.of_item("response.function_call_arguments.done", &self.place, |data| {
            put(data, "name", &self.name);
            put(data, "arguments", &self.arguments);
        });
        done(&self.place, self.item("completed"), events)
    }

    fn item(&self, status: &str) -> Vec<u8> {
        bytes(&json!({
            "id": self.place.id, "type": "function_call", "status": status, "arguments": self.arguments,
            "call_id": self.call_id, "name": self.name,
        }))
    }
}

/// A code call: its item stays open until its result is there.
#[derive(Debug)]
pub(super) struct CodeItem {
    place: Place,
    container: String,
    code: String,
    shows_outputs: bool,
}

impl CodeItem {
    pub(super) fn start(place: Place, container: String, shows_outputs: bool, events: &mut Events) -> Self {
        let code = Self { place, container, code: String::new(), shows_outputs };
        let outputs = if shows_outputs { json!([]) } else { Value::Null };
        events.item(ADDED, code.place.index, &code.item("in_progress", outputs));
        events.of_item("response.code_interpreter_call.in_progress", &code.place, |_| {});
        code
    }

    pub(super) fn grow(&mut self, piece: &str, events: &mut Events) {
        self.code.push_str(piece);
        events.of_item("response.code_interpreter_call_code.delta", &self.place, |data| put(data, "delta", piece));
    }

    pub(super) fn stop(&self, events: &mut Events) {
        events.of_item("response.code_interpreter_call_code.done", &self.place, |data| put(data, "code", &self.code));
        events.of_item("response.code_interpreter_call.interpreting", &self.place, |_| {});
    }

    /// A program that failed is told by the item's status, a call without an answer by a missing `completed` too. The
    /// place, the item as the client sees it, and another form of it for who keeps it: with its outputs where the client
    /// does not see them, and with the names of images in their place.
    pub(super) fn answer(&self, outcome: CodeOutcome, events: &mut Events) -> (usize, Vec<u8>, Option<Vec<u8>>) {
        let (logs, files, succeeded) = match outcome {
            CodeOutcome::Ran { stdout, stderr, return_code, files } => {
                (Some(stdout + &stderr), files, return_code == 0)
            }
            CodeOutcome::Edited { text, note, edit: _, files } => (Some(text + &note), files, true),
            CodeOutcome::EditFailed { failure: _, message } => (Some(message), CodeFiles::default(), false),
            CodeOutcome::Failed(_) => (None, CodeFiles::default(), false),
        };
        if logs.is_some() {
            events.of_item("response.code_interpreter_call.completed", &self.place, |_| {});
        }
        let status = if succeeded { "completed" } else { "failed" };
        let with = |told: fn(&CodeFiles) -> Vec<Value>| {
            let outputs = logs.as_ref().map(|logs| {
                let logs = (!logs.is_empty()).then(|| json!({"type": "logs", "logs": logs}));
                logs.into_iter().chain(told(&files)).collect::<Vec<Value>>()
            });
            self.item(status, outputs.into())
        };
        let kept = with(names);
        let shown = if self.shows_outputs { with(images) } else { self.item(status, Value::Null) };
        let kept = (kept != shown).then_some(kept);
        let (index, item) = done(&self.place, shown, events);
        (index, item, kept)
    }

    fn item(&self, status: &str, outputs: Value) -> Vec<u8> {
        bytes(&json!({
            "id": self.place.id, "type": "code_interpreter_call", "status": status, "code": self.code,
            "container_id": self.container, "outputs": outputs,
        }))
    }
}

/// The images among the files that code wrote, as clients show them: in themselves, or by their address at this gateway.
fn images(files: &CodeFiles) -> Vec<Value> {
    let image = |(_, stored): (&str, &StoredFile)| {
        let url = match &stored.image {
            Some(bytes) => format!("data:{};base64,{}", stored.mime_type, BASE64_STANDARD.encode(bytes)),
            None => format!("/v1/files/{}/content", stored.id),
        };
        let is_image = stored.image.is_some() || stored.mime_type.starts_with("image/");
        is_image.then(|| json!({"type": "image", "url": url, "file_id": stored.id}))
    };
    files.stored().filter_map(image).collect()
}

/// What a model has to read again of the files that code wrote.
fn names(files: &CodeFiles) -> Vec<Value> {
    let name = |(path, stored): (&str, &StoredFile)| json!({"type": "file", "filename": path, "file_id": stored.id});
    files.stored().map(name).collect()
}

fn done(place: &Place, item: Vec<u8>, events: &mut Events) -> (usize, Vec<u8>) {
    events.item(DONE, place.index, &item);
    (place.index, item)
}

fn message_item(id: &str, status: &str, text: Option<(&str, &[Value])>) -> Vec<u8> {
    let content: Vec<Value> = text.map(|(text, annotations)| text_part(text, annotations)).into_iter().collect();
    bytes(&json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content}))
}

fn text_part(text: &str, annotations: &[Value]) -> Value {
    json!({"type": "output_text", "text": text, "annotations": annotations, "logprobs": []})
}

fn reasoning_item(id: &str, text: Option<&str>) -> Vec<u8> {
    let summary: Vec<Value> = text.map(summary_part).into_iter().collect();
    bytes(&json!({"id": id, "type": "reasoning", "summary": summary}))
}

fn summary_part(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

pub(super) fn bytes(item: &(impl Serialize + ?Sized)) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_json(&mut bytes, item);
    bytes
}
