//! A message that is complete but for its citations: only what follows tells whether it is the last word.
//!
//! INVARIANT: of the model's own bytes nothing changes but the lists of annotations, which grow.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::citation::Citations;
use super::events::{Events, put};
use super::item::{TextItem, bytes};

/// The frames that a provider sends of a text after its last piece, and that have to follow the citations.
const TAIL: [&[u8]; 2] = [b"\"response.output_text.done\"", b"\"response.content_part.done\""];

/// The message, and what of it is not told yet.
#[derive(Debug)]
pub(super) enum Held {
    /// Of a model of another wire.
    Ours(TextItem),
    /// In the model's own bytes, streamed: its place, the frames that end its text, and its last.
    Streamed { index: usize, tail: Vec<Bytes>, done: Bytes },
    /// In the model's own bytes, whole.
    Whole { index: usize, item: Bytes },
}

/// Whether a frame ends a text.
pub(super) fn is_tail(frame: &[u8]) -> bool {
    TAIL.iter().any(|kind| memchr::memmem::find(frame, kind).is_some())
}

impl Held {
    /// Tells the rest, citations in front. The place of the message, and the message as it stays.
    pub(super) fn settle(
        self,
        citations: &mut Citations,
        container: &str,
        last: bool,
        events: &mut Events,
    ) -> Option<(usize, Vec<u8>)> {
        match self {
            Self::Ours(text) => {
                let annotations = citations.of(text.text(), container, last);
                Some(text.stop_message(&annotations, events))
            }
            Self::Streamed { index, tail, done } => {
                let mut frame: Map<String, Value> = serde_json::from_slice(&done).unwrap_or_default();
                let added = frame.get_mut("item").and_then(|item| {
                    let added = annotate(item, citations, container, last)?;
                    added.tell(index, item, events);
                    Some(added)
                });
                for piece in tail {
                    let edited = added.as_ref().and_then(|added| added.in_part(&piece));
                    events.raw(edited.as_deref().unwrap_or(&piece), Some(index));
                }
                let edited = added.map(|_| bytes(&frame));
                events.raw(edited.as_deref().unwrap_or(&done), Some(index));
                Some((index, bytes(frame.get("item")?)))
            }
            Self::Whole { index, item } => {
                let mut edited: Value = serde_json::from_slice(&item).ok()?;
                let added = annotate(&mut edited, citations, container, last);
                Some((index, if added.is_some() { bytes(&edited) } else { item.to_vec() }))
            }
        }
    }
}

/// Annotations that were added to a message.
struct Added {
    /// Which of its parts has them.
    content_index: usize,
    /// How many that part had before.
    before: usize,
    annotations: Vec<Value>,
}

/// Adds to the last text of a message what it cites; `None` for nothing.
fn annotate(item: &mut Value, citations: &mut Citations, container: &str, last: bool) -> Option<Added> {
    let parts = item.get_mut("content")?.as_array_mut()?;
    let is_text = |part: &Value| part.get("type").and_then(Value::as_str) == Some("output_text");
    let content_index = parts.iter().rposition(is_text)?;
    let part = parts.get_mut(content_index)?.as_object_mut()?;
    let annotations = citations.of(part.get("text")?.as_str()?, container, last);
    let before = grow(part, &annotations);
    (!annotations.is_empty()).then_some(Added { content_index, before, annotations })
}

/// Appends to a part's list of annotations; how many there were.
fn grow(part: &mut Map<String, Value>, annotations: &[Value]) -> usize {
    let list = part.entry("annotations").or_insert(Value::Null);
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Some(list) = list.as_array_mut() else { return 0 };
    let before = list.len();
    list.extend_from_slice(annotations);
    before
}

impl Added {
    fn tell(&self, index: usize, item: &Value, events: &mut Events) {
        let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
        tell(&self.annotations, index, id, self.content_index, self.before, events);
    }

    /// The frame that ends the annotated part, with its annotations; `None` for any other frame.
    fn in_part(&self, frame: &Bytes) -> Option<Vec<u8>> {
        let mut frame: Map<String, Value> = serde_json::from_slice(frame).ok()?;
        let of = frame.get("content_index").and_then(Value::as_u64);
        if of.is_some_and(|of| of != self.content_index as u64) {
            return None;
        }
        grow(frame.get_mut("part")?.as_object_mut()?, &self.annotations);
        Some(bytes(&frame))
    }
}

/// One event for each annotation.
pub(super) fn tell(
    annotations: &[Value],
    index: usize,
    item_id: &str,
    content_index: usize,
    before: usize,
    events: &mut Events,
) {
    for (number, annotation) in annotations.iter().enumerate() {
        events.emit("response.output_text.annotation.added", |data| {
            put(data, "output_index", &index);
            put(data, "item_id", item_id);
            put(data, "content_index", &content_index);
            put(data, "annotation_index", &(before + number));
            put(data, "annotation", annotation);
        });
    }
}
