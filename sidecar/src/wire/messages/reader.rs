//! What a model says on the Messages wire, streamed or whole, as turn events; and its turn as history.
//!
//! INVARIANT: a delta belongs to the block now open, or the answer is refused as malformed.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::assistant::{AssistantContent, block_kind};
use super::{parse_error, parse_stop, parse_usage};
use crate::wire::event::{Aside, BlockEvent, BlockKind, Delta, Ended, Opened, Raw, TurnEvent};
use crate::wire::json::{Fields, inside_array, span};
use crate::wire::reader::{FrameReader, ReadError, WholeBody};
use crate::wire::sse::Frame;

/// Reads a streamed answer, frame by frame.
#[derive(Debug)]
pub struct StreamState {
    keep_raw: bool,
    content: AssistantContent,
    /// Index of the open block, as the model counts.
    open: Option<u64>,
    usage: Map<String, Value>,
    /// `message_delta`, once it came.
    closing: Option<Map<String, Value>>,
    ended: bool,
    /// Bytes of all events so far, and the most there may be.
    size: usize,
    limit: usize,
}

/// The members that decide where a frame goes.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    id: Option<String>,
    name: Option<String>,
    text: Option<String>,
    thinking: Option<String>,
}

impl FrameReader for StreamState {
    fn frame(&mut self, frame: &Frame, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        if self.ended {
            return Ok(());
        }
        self.size = self.size.saturating_add(frame.data.len());
        if self.size > self.limit {
            return Err(ReadError::TooLong { limit: self.limit });
        }
        let event: Event<'_> =
            serde_json::from_slice(&frame.data).map_err(|_| ReadError::malformed("an event is not JSON"))?;
        match &*event.kind {
            "message_start" => events.push(self.message_start(event.message)?),
            "content_block_start" => events.push(self.block_start(&event, frame)?),
            "content_block_delta" => events.push(self.block_delta(&event, frame)?),
            "content_block_stop" => {
                self.expect_open(event.index)?;
                self.open = None;
                self.content.stop_block();
                events.push(TurnEvent::Block(BlockEvent::Stop(self.raw(frame, event.index))));
            }
            "message_delta" => self.message_delta(frame)?,
            "message_stop" => events.push(self.message_stop()?),
            "ping" => events.push(TurnEvent::Aside(Aside::Ping)),
            "error" => return Err(ReadError::Provider(Box::new(parse_error(&frame.data)))),
            // Clients go by the name: one that says another thing than the data would be another event to them.
            kind if self.keep_raw && (frame.event.is_empty() || frame.event == kind.as_bytes()) => {
                events.push(TurnEvent::Aside(Aside::Unknown { name: frame.event.clone(), data: frame.data.clone() }));
            }
            _ => {}
        }
        Ok(())
    }
}

impl StreamState {
    /// A reader; `keep_raw` when the client speaks this wire too.
    pub fn new(keep_raw: bool, max_answer_bytes: usize) -> Self {
        Self {
            keep_raw,
            content: AssistantContent::new(max_answer_bytes),
            open: None,
            usage: Map::new(),
            closing: None,
            ended: false,
            size: 0,
            limit: max_answer_bytes,
        }
    }

    /// The turn as an entry of the history.
    pub fn into_history(self) -> Vec<u8> {
        self.content.into_history()
    }

    fn message_start(&mut self, message: Option<&RawValue>) -> Result<TurnEvent, ReadError> {
        let mut message: Map<String, Value> = message
            .and_then(|message| serde_json::from_str(message.get()).ok())
            .ok_or_else(|| ReadError::malformed("message_start holds no message"))?;
        if let Some(Value::Object(usage)) = message.get_mut("usage") {
            self.usage.clone_from(usage);
        }
        Ok(TurnEvent::Opened(Opened {
            id: message.get("id").and_then(Value::as_str).map(str::to_owned),
            usage: parse_usage(&self.usage, self.keep_raw),
            raw: self.keep_raw.then_some(message),
        }))
    }

    fn block_start(&mut self, event: &Event<'_>, frame: &Frame) -> Result<TurnEvent, ReadError> {
        if self.open.is_some() {
            return Err(ReadError::malformed("a block begins before the one before it ended"));
        }
        let block = event.content_block.ok_or_else(|| ReadError::malformed("content_block_start holds no block"))?;
        self.open = Some(parse_index(event.index)?);
        let kind = self.content.start_block(block)?;
        Ok(TurnEvent::Block(BlockEvent::Start(kind, self.raw(frame, event.index))))
    }

    fn block_delta(&mut self, event: &Event<'_>, frame: &Frame) -> Result<TurnEvent, ReadError> {
        self.expect_open(event.index)?;
        let delta = event.delta.ok_or_else(|| ReadError::malformed("content_block_delta holds no delta"))?;
        let delta = self.content.grow_block(delta)?;
        Ok(TurnEvent::Block(BlockEvent::Delta(delta, self.raw(frame, event.index))))
    }

    fn message_delta(&mut self, frame: &Frame) -> Result<(), ReadError> {
        let mut closing: Map<String, Value> =
            serde_json::from_slice(&frame.data).map_err(|_| ReadError::malformed("message_delta is not an object"))?;
        if let Some(Value::Object(usage)) = closing.remove("usage") {
            // Cumulative: what it names overwrites what `message_start` said.
            self.usage.extend(usage.into_iter().filter(|(_, value)| !value.is_null()));
        }
        self.closing = Some(closing);
        Ok(())
    }

    fn message_stop(&mut self) -> Result<TurnEvent, ReadError> {
        if self.open.is_some() {
            return Err(ReadError::malformed("the message ends inside a block"));
        }
        let closing = self.closing.take().ok_or_else(|| ReadError::malformed("the message ends without a reason"))?;
        self.ended = true;
        let delta = closing.get("delta").and_then(Value::as_object);
        let stop = parse_stop(delta);
        let usage = parse_usage(&self.usage, self.keep_raw);
        Ok(TurnEvent::Ended(Ended { stop, usage, raw: self.keep_raw.then_some(closing) }))
    }

    fn expect_open(&self, index: Option<&RawValue>) -> Result<(), ReadError> {
        if self.open == Some(parse_index(index)?) {
            Ok(())
        } else {
            Err(ReadError::malformed("an event belongs to a block that is not open"))
        }
    }

    /// The frame's bytes and where its index stands, if the client gets them.
    fn raw(&self, frame: &Frame, index: Option<&RawValue>) -> Option<Raw> {
        let index = index?.get();
        self.keep_raw.then(|| Raw { json: frame.data.clone(), index: span(&frame.data, index) })
    }
}

fn parse_index(index: Option<&RawValue>) -> Result<u64, ReadError> {
    index
        .and_then(|index| index.get().parse().ok())
        .ok_or_else(|| ReadError::malformed("an event of a block has no index"))
}

/// Reads a whole answer.
#[derive(Debug)]
pub struct WholeReader {
    keep_raw: bool,
    pub(in crate::wire) body: WholeBody,
    /// The blocks, as they came.
    content: Vec<u8>,
}

impl WholeReader {
    /// A reader; `keep_raw` when the client speaks this wire too.
    pub fn new(keep_raw: bool, max_answer_bytes: usize) -> Self {
        Self { keep_raw, body: WholeBody::new(max_answer_bytes), content: Vec::new() }
    }

    /// The body is complete: all events at once.
    pub fn close(&mut self, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        let body = self.body.take()?;
        let mut message: Fields<'_> =
            serde_json::from_slice(&body).map_err(|_| ReadError::malformed("the answer is not a JSON object"))?;
        if message.read::<String>("type").as_deref() == Some("error") {
            return Err(ReadError::Provider(Box::new(parse_error(&body))));
        }
        let content = message.take("content").ok_or_else(|| ReadError::malformed("the message has no content"))?;
        let blocks: Vec<&RawValue> =
            serde_json::from_str(content.get()).map_err(|_| ReadError::malformed("the content is not a list"))?;
        let rest = message.into_map().map_err(|_| ReadError::malformed("the message cannot be read"))?;
        let usage = parse_usage(rest.get("usage").and_then(Value::as_object).unwrap_or(&Map::new()), self.keep_raw);
        let stop = parse_stop(Some(&rest));
        events.push(TurnEvent::Opened(Opened {
            id: rest.get("id").and_then(Value::as_str).map(str::to_owned),
            usage: usage.clone(),
            raw: None,
        }));
        for block in blocks {
            self.block(&body, block, events)?;
        }
        self.content = inside_array(content.get()).unwrap_or_default().as_bytes().to_vec();
        events.push(TurnEvent::Ended(Ended { stop, usage, raw: self.keep_raw.then_some(rest) }));
        Ok(())
    }

    fn block(&self, body: &Bytes, block: &RawValue, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        let mut parsed: Block = serde_json::from_str(block.get())
            .map_err(|_| ReadError::malformed("a content block has no type, or a field of a wrong shape"))?;
        let (text, thinking) = (parsed.text.take(), parsed.thinking.take());
        let kind = block_kind(&parsed.kind, parsed.id, parsed.name);
        let delta = match &kind {
            BlockKind::Text => text.map(Delta::Text),
            BlockKind::Reasoning => thinking.map(Delta::Reasoning),
            BlockKind::Call { .. } => Some(Delta::Arguments(input_of(block))),
            BlockKind::Other => None,
        };
        let raw = self.keep_raw.then(|| Raw { json: body.slice_ref(block.get().as_bytes()), index: None });
        events.push(TurnEvent::Block(BlockEvent::Start(kind, raw)));
        events.extend(delta.map(TurnEvent::delta));
        events.push(TurnEvent::stop());
        Ok(())
    }

    /// The turn as an entry of the history.
    pub fn into_history(self) -> Vec<u8> {
        let mut entry = br#"{"role":"assistant","content":["#.to_vec();
        entry.extend_from_slice(&self.content);
        entry.extend_from_slice(b"]}");
        entry
    }
}

fn input_of(block: &RawValue) -> String {
    let fields: Fields<'_> = serde_json::from_str(block.get()).unwrap_or_default();
    fields.get("input").map_or("{}", RawValue::get).to_owned()
}
