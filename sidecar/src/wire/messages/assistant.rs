//! A streamed turn of the model put together again, as the next model call must repeat it.
//!
//! INVARIANT: blocks keep their order and every field they came with, thinking and its signature among them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::wire::event::{BlockKind, Delta};
use crate::wire::json::push_json;
use crate::wire::reader::ReadError;

/// The content blocks so far.
#[derive(Debug)]
pub(super) struct AssistantContent {
    /// Complete blocks as JSON, comma between them.
    blocks: Vec<u8>,
    open: Option<OpenBlock>,
    /// Bytes taken so far.
    size: usize,
    limit: usize,
}

#[derive(Debug)]
struct OpenBlock {
    block: Map<String, Value>,
    /// Text, thinking, or a call's arguments: whatever grows by pieces.
    text: String,
    grows: Option<&'static str>,
}

#[derive(Deserialize)]
struct Grown<'a> {
    #[serde(rename = "type")]
    kind: Cow<'a, str>,
    text: Option<String>,
    thinking: Option<String>,
    partial_json: Option<String>,
    signature: Option<String>,
    citation: Option<Value>,
}

impl AssistantContent {
    pub(super) fn new(limit: usize) -> Self {
        Self { blocks: Vec::new(), open: None, size: 0, limit }
    }

    /// Takes a block's opening and says what it is.
    pub(super) fn start_block(&mut self, block: &RawValue) -> Result<BlockKind, ReadError> {
        self.count(block.get().len())?;
        let block: Map<String, Value> =
            serde_json::from_str(block.get()).map_err(|_| ReadError::malformed("a content block is not an object"))?;
        let word = |name: &str| block.get(name).and_then(Value::as_str).map(str::to_owned);
        let kind = word("type").ok_or_else(|| ReadError::malformed("a content block has no type"))?;
        let kind = block_kind(&kind, word("id"), word("name"));
        self.open = Some(OpenBlock { block, text: String::new(), grows: None });
        Ok(kind)
    }

    /// Takes a delta and says what it is.
    pub(super) fn grow_block(&mut self, delta: &RawValue) -> Result<Delta, ReadError> {
        self.count(delta.get().len())?;
        let grown: Grown<'_> = serde_json::from_str(delta.get())
            .map_err(|_| ReadError::malformed("a delta has no type, or a field of a wrong shape"))?;
        let Some(open) = &mut self.open else { return Ok(Delta::Other) };
        Ok(match &*grown.kind {
            "text_delta" => Delta::Text(open.push("text", grown.text.unwrap_or_default())),
            "thinking_delta" => Delta::Reasoning(open.push("thinking", grown.thinking.unwrap_or_default())),
            "input_json_delta" => Delta::Arguments(open.push("input", grown.partial_json.unwrap_or_default())),
            "signature_delta" => {
                open.block.insert("signature".to_owned(), grown.signature.unwrap_or_default().into());
                Delta::Other
            }
            "citations_delta" => {
                match (open.block.get_mut("citations"), grown.citation) {
                    (Some(Value::Array(known)), Some(citation)) => known.push(citation),
                    (_, Some(citation)) => {
                        open.block.insert("citations".to_owned(), vec![citation].into());
                    }
                    (_, None) => {}
                }
                Delta::Other
            }
            "compaction_delta" => {
                open.assign(delta)?;
                Delta::Other
            }
            // A kind that nobody knows may add to a member or replace it. Half a value would look like a whole one, so
            // the block stays as it began.
            _ => Delta::Other,
        })
    }

    pub(super) fn stop_block(&mut self) {
        let Some(block) = self.open.take().and_then(OpenBlock::close) else { return };
        if !self.blocks.is_empty() {
            self.blocks.push(b',');
        }
        push_json(&mut self.blocks, &block);
    }

    /// The assistant's message.
    pub(super) fn into_history(self) -> Vec<u8> {
        let mut entry = br#"{"role":"assistant","content":["#.to_vec();
        entry.extend_from_slice(&self.blocks);
        entry.extend_from_slice(b"]}");
        entry
    }

    fn count(&mut self, more: usize) -> Result<(), ReadError> {
        self.size = self.size.saturating_add(more);
        if self.size > self.limit { Err(ReadError::TooLong { limit: self.limit }) } else { Ok(()) }
    }
}

/// What a block is, by its members of these names.
pub(super) fn block_kind(kind: &str, id: Option<String>, name: Option<String>) -> BlockKind {
    match (kind, id, name) {
        ("text", ..) => BlockKind::Text,
        ("thinking", ..) => BlockKind::Reasoning,
        ("tool_use", Some(id), Some(name)) => BlockKind::Call { id, name },
        _ => BlockKind::Other,
    }
}

impl OpenBlock {
    fn push(&mut self, grows: &'static str, piece: String) -> String {
        self.grows = Some(grows);
        self.text.push_str(&piece);
        piece
    }

    /// Takes the members of a delta that holds their final values; null says that there are none.
    fn assign(&mut self, delta: &RawValue) -> Result<(), ReadError> {
        let mut members: Map<String, Value> =
            serde_json::from_str(delta.get()).map_err(|_| ReadError::malformed("a delta is not an object"))?;
        members.remove("type");
        self.block.extend(members);
        Ok(())
    }

    /// The whole block; `None` for an empty text, which providers refuse in a history.
    fn close(mut self) -> Option<Map<String, Value>> {
        match self.grows {
            Some("input") if !self.text.trim().is_empty() => {
                // Arguments that are no object were answered with an error; the history needs an object all the same.
                let input = serde_json::from_str::<Map<String, Value>>(&self.text).unwrap_or_default();
                self.block.insert("input".to_owned(), input.into());
            }
            Some(field @ ("text" | "thinking")) => {
                let known = self.block.get(field).and_then(Value::as_str).unwrap_or_default();
                let whole = format!("{known}{}", self.text);
                self.block.insert(field.to_owned(), whole.into());
            }
            _ => {}
        }
        let is_empty_text = self.block.get("type").and_then(Value::as_str) == Some("text")
            && self.block.get("text").and_then(Value::as_str).is_none_or(str::is_empty);
        (!is_empty_text).then_some(self.block)
    }
}
