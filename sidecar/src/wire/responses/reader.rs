//! What a model says on the Responses wire, streamed or whole, as turn events; and its turn as history.
//!
//! INVARIANT: an item is one block; items that overlap are told one after another, in the order they began.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::items::{BETWEEN_PARTS, Items, block_kind, refuses, said};
use super::{parse_error, parse_usage};
use crate::wire::event::{Aside, BlockEvent, BlockKind, Delta, Ended, Opened, Raw, Stop, TurnEvent};
use crate::wire::json::{Fields, push_json};
use crate::wire::reader::{FrameReader, ReadError, WholeBody};
use crate::wire::sse::Frame;
use crate::wire::usage::Usage;

/// Most items that may be open at a time.
const MAX_OPEN_ITEMS: usize = 256;

/// Reads a streamed answer, frame by frame.
#[derive(Debug)]
pub struct StreamState {
    turn: Turn,
    opened: bool,
    /// Items that are not told to their end; the first is told as it comes, the others wait.
    open: VecDeque<OpenItem>,
    ended: bool,
    size: usize,
    limit: usize,
}

/// What both forms share.
#[derive(Debug)]
struct Turn {
    keep_raw: bool,
    items: Items,
    called: bool,
    refused: bool,
}

#[derive(Debug)]
struct OpenItem {
    index: u64,
    kind: BlockKind,
    /// Its block was opened: at once if the client gets the bytes, else with its first words.
    begun: bool,
    /// Some of its text or arguments came.
    said: bool,
    /// What waits for the items before it.
    waiting: Vec<TurnEvent>,
    done: bool,
}

/// The members that decide where a frame goes.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: Cow<'a, str>,
    output_index: Option<u64>,
    summary_index: Option<u64>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

impl FrameReader for StreamState {
    fn frame(&mut self, frame: &Frame, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        if self.ended || frame.data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        self.size = self.size.saturating_add(frame.data.len());
        if self.size > self.limit {
            return Err(ReadError::TooLong { limit: self.limit });
        }
        let event: Event<'_> = serde_json::from_slice(&frame.data)
            .map_err(|_| ReadError::malformed("an event is not JSON, or has no type"))?;
        match &*event.kind {
            "error" | "response.failed" => return Err(ReadError::Provider(Box::new(parse_error(&frame.data)))),
            "response.created" | "response.queued" | "response.in_progress" => self.open(event.response, events),
            "response.output_item.added" => {
                self.open(None, events);
                let item = event.item.ok_or_else(|| ReadError::malformed("an added item is missing"))?;
                self.added(event.output_index, item, self.raw(&frame.data), events)?;
            }
            "response.output_item.done" => {
                let item = event.item.ok_or_else(|| ReadError::malformed("a finished item is missing"))?;
                self.done(event.output_index, item, self.raw(&frame.data), events)?;
            }
            "response.completed" | "response.incomplete" => {
                self.open(None, events);
                let response = event.response.ok_or_else(|| ReadError::malformed("the last event has no response"))?;
                self.end(response, events)?;
            }
            "keepalive" => events.push(TurnEvent::Aside(Aside::Ping)),
            _ => self.grown(&event, frame, events),
        }
        Ok(())
    }
}

impl StreamState {
    /// A reader; `keep_raw` when the client speaks this wire too.
    pub fn new(keep_raw: bool, max_answer_bytes: usize) -> Self {
        Self {
            turn: Turn::new(keep_raw),
            opened: false,
            open: VecDeque::new(),
            ended: false,
            size: 0,
            limit: max_answer_bytes,
        }
    }

    /// The turn as entries of the history.
    pub fn into_history(self) -> Vec<u8> {
        self.turn.items.into_history()
    }

    fn open(&mut self, response: Option<&RawValue>, events: &mut Vec<TurnEvent>) {
        if std::mem::replace(&mut self.opened, true) {
            return;
        }
        let response: Option<Map<String, Value>> =
            response.and_then(|response| serde_json::from_str(response.get()).ok());
        let id = response.as_ref().and_then(|response| super::word(response, "id")).map(str::to_owned);
        let raw = response.filter(|_| self.turn.keep_raw);
        events.push(TurnEvent::Opened(Opened { id, usage: Usage::default(), raw }));
    }

    fn added(
        &mut self,
        index: Option<u64>,
        item: &RawValue,
        raw: Option<Raw>,
        events: &mut Vec<TurnEvent>,
    ) -> Result<(), ReadError> {
        if self.open.len() >= MAX_OPEN_ITEMS {
            return Err(ReadError::malformed("too many items are open at a time"));
        }
        let kind = block_kind(&as_item(item)?)?;
        self.turn.called |= matches!(kind, BlockKind::Call { .. });
        // Words open their block themselves where the bytes are not kept: an item may turn out to say nothing.
        let begun = self.turn.keep_raw || matches!(kind, BlockKind::Call { .. });
        let index = index.unwrap_or_default();
        let item = OpenItem { index, kind: kind.clone(), begun, said: false, waiting: Vec::new(), done: false };
        self.open.push_back(item);
        if begun {
            self.tell(self.open.len().saturating_sub(1), BlockEvent::Start(kind, raw), events);
        }
        Ok(())
    }

    /// The open item that an event means. Servers are found that count the index wrong; then it is the newest.
    fn position(&self, index: Option<u64>) -> Option<usize> {
        let meant = |item: &OpenItem| !item.done && Some(item.index) == index;
        self.open.iter().position(meant).or_else(|| self.open.iter().rposition(|item| !item.done))
    }

    fn grown(&mut self, event: &Event<'_>, frame: &Frame, events: &mut Vec<TurnEvent>) {
        let raw = self.raw(&frame.data);
        let Some(position) = event.output_index.and_then(|index| self.position(Some(index))) else {
            // Before the opening event an SDK takes nothing.
            if raw.is_some() && event.output_index.is_none() && self.opened {
                let aside = Aside::Unknown { name: frame.event.clone(), data: frame.data.clone() };
                events.push(TurnEvent::Aside(aside));
            }
            return;
        };
        let text = || event.delta.and_then(|delta| serde_json::from_str::<String>(delta.get()).ok());
        let delta = match &*event.kind {
            "response.output_text.delta" => text().map(Delta::Text),
            "response.refusal.delta" => {
                self.turn.refused = true;
                text().map(Delta::Text)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => text().map(Delta::Reasoning),
            "response.function_call_arguments.delta" => text().map(Delta::Arguments),
            "response.reasoning_summary_part.added" if raw.is_none() && event.summary_index.unwrap_or(0) > 0 => {
                Some(Delta::Reasoning(BETWEEN_PARTS.to_owned()))
            }
            _ => None,
        };
        match (delta, raw) {
            (Some(delta), raw) => self.say(position, delta, raw, events),
            (None, Some(raw)) => self.tell(position, BlockEvent::Delta(Delta::Other, Some(raw)), events),
            (None, None) => {}
        }
    }

    fn done(
        &mut self,
        index: Option<u64>,
        item: &RawValue,
        raw: Option<Raw>,
        events: &mut Vec<TurnEvent>,
    ) -> Result<(), ReadError> {
        let Some(position) = self.position(index) else {
            return Err(ReadError::malformed("an item ends that was never added"));
        };
        let whole = as_item(item)?;
        self.turn.refused |= refuses(&whole);
        let Some(open) = self.open.get(position) else { return Ok(()) };
        if let (false, Some(all)) = (open.said, said(&open.kind, &whole)) {
            // No piece of it came, or none that is known here: the machine needs it, the client's bytes have it.
            self.say(position, all, None, events);
        }
        self.turn.items.push(item.get(), whole);
        if self.open.get(position).is_some_and(|open| open.begun) {
            self.tell(position, BlockEvent::Stop(raw), events);
        }
        if let Some(open) = self.open.get_mut(position) {
            open.done = true;
        }
        while let Some(first) = self.open.front_mut() {
            events.append(&mut first.waiting);
            if !first.done {
                break;
            }
            self.open.pop_front();
        }
        Ok(())
    }

    fn say(&mut self, position: usize, delta: Delta, raw: Option<Raw>, events: &mut Vec<TurnEvent>) {
        let Some(open) = self.open.get_mut(position) else { return };
        open.said = true;
        if !std::mem::replace(&mut open.begun, true) {
            let start = BlockEvent::Start(open.kind.clone(), None);
            self.tell(position, start, events);
        }
        self.tell(position, BlockEvent::Delta(delta, raw), events);
    }

    /// At once for the first of the open items; the others wait.
    fn tell(&mut self, position: usize, event: BlockEvent, events: &mut Vec<TurnEvent>) {
        match self.open.get_mut(position) {
            Some(waits) if position > 0 => waits.waiting.push(TurnEvent::Block(event)),
            _ => events.push(TurnEvent::Block(event)),
        }
    }

    fn end(&mut self, response: &RawValue, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        let mut response: Fields<'_> =
            serde_json::from_str(response.get()).map_err(|_| ReadError::malformed("the response is not an object"))?;
        let output = response.take("output");
        self.close_open(output, events)?;
        events.push(self.turn.end(response)?);
        self.ended = true;
        Ok(())
    }

    /// An item whose end was not told, as where the token limit cut it, ends as the whole output has it.
    fn close_open(&mut self, output: Option<&RawValue>, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        if self.open.is_empty() {
            return Ok(());
        }
        let output: Vec<&RawValue> =
            output.and_then(|output| serde_json::from_str(output.get()).ok()).unwrap_or_default();
        let open: Vec<u64> = self.open.iter().filter(|item| !item.done).map(|item| item.index).collect();
        for index in open {
            let item = usize::try_from(index).ok().and_then(|index| output.get(index));
            let item = item.ok_or_else(|| ReadError::malformed("the answer ends inside an item"))?;
            let mut frame = br#"{"type":"response.output_item.done","output_index":"#.to_vec();
            push_json(&mut frame, &index);
            frame.extend_from_slice(br#","item":"#);
            frame.extend_from_slice(item.get().as_bytes());
            frame.push(b'}');
            self.done(Some(index), item, self.raw(&frame.into()), events)?;
        }
        Ok(())
    }

    /// The frame's bytes, if the client gets them.
    fn raw(&self, data: &Bytes) -> Option<Raw> {
        self.turn.keep_raw.then(|| Raw { json: data.clone(), index: None })
    }
}

impl Turn {
    fn new(keep_raw: bool) -> Self {
        Self { keep_raw, items: Items::default(), called: false, refused: false }
    }

    /// Takes the response object, without its output.
    fn end(&mut self, response: Fields<'_>) -> Result<TurnEvent, ReadError> {
        let response = response.into_map().map_err(|_| ReadError::malformed("the response cannot be read"))?;
        self.items.stored = response.get("store") == Some(&Value::Bool(true));
        let usage = parse_usage(response.get("usage").unwrap_or(&Value::Null), self.keep_raw);
        let reason = response.get("incomplete_details").and_then(|details| details.get("reason"));
        let stop = match reason.and_then(Value::as_str) {
            Some("max_output_tokens") => Stop::MaxTokens,
            Some("content_filter") => Stop::Refusal,
            // A word of no vocabulary would break a strict client of another wire.
            Some(other) if self.keep_raw => Stop::Other(other.to_owned()),
            _ if self.called => Stop::ToolUse,
            _ if self.refused => Stop::Refusal,
            _ => Stop::EndTurn,
        };
        Ok(TurnEvent::Ended(Ended { stop, usage, raw: self.keep_raw.then_some(response) }))
    }
}

fn as_item(item: &RawValue) -> Result<Map<String, Value>, ReadError> {
    serde_json::from_str(item.get()).map_err(|_| ReadError::malformed("an item is not an object"))
}

/// Reads a whole answer.
#[derive(Debug)]
pub struct WholeReader {
    pub(in crate::wire) body: WholeBody,
    turn: Turn,
}

impl WholeReader {
    /// A reader; `keep_raw` when the client speaks this wire too.
    pub fn new(keep_raw: bool, max_answer_bytes: usize) -> Self {
        Self { body: WholeBody::new(max_answer_bytes), turn: Turn::new(keep_raw) }
    }

    /// The body is complete: all events at once.
    pub fn close(&mut self, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        let body = self.body.take()?;
        let mut response: Fields<'_> =
            serde_json::from_slice(&body).map_err(|_| ReadError::malformed("the answer is not a JSON object"))?;
        if response.read::<Value>("error").is_some_and(|error| !error.is_null()) {
            return Err(ReadError::Provider(Box::new(parse_error(&body))));
        }
        let output = response.take("output").ok_or_else(|| ReadError::malformed("the response has no output"))?;
        let output: Vec<&RawValue> =
            serde_json::from_str(output.get()).map_err(|_| ReadError::malformed("the output is not a list"))?;
        events.push(TurnEvent::Opened(Opened { id: response.read("id"), usage: Usage::default(), raw: None }));
        for item in output {
            self.item(&body, item, events)?;
        }
        events.push(self.turn.end(response)?);
        Ok(())
    }

    fn item(&mut self, body: &Bytes, json: &RawValue, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        let item = as_item(json)?;
        let kind = block_kind(&item)?;
        let said = said(&kind, &item);
        let turn = &mut self.turn;
        turn.called |= matches!(kind, BlockKind::Call { .. });
        turn.refused |= refuses(&item);
        turn.items.push(json.get(), item);
        if turn.keep_raw || said.is_some() || matches!(kind, BlockKind::Call { .. }) {
            let raw = turn.keep_raw.then(|| Raw { json: body.slice_ref(json.get().as_bytes()), index: None });
            events.push(TurnEvent::Block(BlockEvent::Start(kind, raw)));
            events.extend(said.map(TurnEvent::delta));
            events.push(TurnEvent::stop());
        }
        Ok(())
    }

    /// The turn as entries of the history.
    pub fn into_history(self) -> Vec<u8> {
        self.turn.items.into_history()
    }
}

#[cfg(test)]
mod tests;
