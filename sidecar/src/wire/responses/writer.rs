//! The answer on the Responses wire, as OpenAI with its hosted interpreter would give it.
//!
//! INVARIANT: one response id; `sequence_number` and `output_index` without gaps; the output of the last event holds
//! what was told, item by item; a code call shown is a code call answered.

mod answer;
mod citation;
mod events;
mod held;
mod item;

use std::collections::BTreeMap;

use bytes::Bytes;
use decision::format::Vocabulary;
use decision::problem::Problem;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use self::answer::{Answer, response_json};
use self::citation::Citations;
use self::events::{Events, Place, put};
use self::held::Held;
use self::item::{CallItem, CodeItem, Open, TextItem};
use crate::ids;
use crate::wire::event::{Aside, BlockEvent, BlockKind, ClientEvent, CodeOutcome, Delta, Ended, Raw};
use crate::wire::json::Fields;
use crate::wire::responses::stored::Kept;
use crate::wire::writer::WriterOptions;

/// Writes one answer.
#[derive(Debug)]
pub struct ResponsesWriter {
    answer: Answer,
    events: Events,
    /// The items by output index; nothing where one is not complete.
    output: Vec<Option<Vec<u8>>>,
    open: Open,
    /// A message that waits for what follows it.
    held: Option<Held>,
    /// Files that code wrote; stays empty where the client sees none of the code.
    citations: Citations,
    /// The code calls, by number.
    codes: Vec<CodeItem>,
    /// Items with what their shown form leaves out, by output index, for an answer that is kept.
    full: BTreeMap<usize, Vec<u8>>,
    native: bool,
    show_reasoning: bool,
    opened: bool,
    /// The whole answer, once it is complete.
    body: Vec<u8>,
    /// The last response object, without its items.
    closed: Option<Map<String, Value>>,
}

impl ResponsesWriter {
    /// A writer of either form.
    pub fn new(options: WriterOptions) -> Self {
        let (native, show_reasoning) = (options.native, options.show.reasoning);
        Self {
            events: Events::new(options.streamed),
            answer: Answer::new(options),
            output: Vec::new(),
            open: Open::Nothing,
            held: None,
            citations: Citations::default(),
            codes: Vec::new(),
            full: BTreeMap::new(),
            native,
            show_reasoning,
            opened: false,
            body: Vec::new(),
            closed: None,
        }
    }

    /// Whether it shows images that code drew.
    pub fn shows_images(&self) -> bool {
        self.native && self.answer.shows_outputs()
    }

    /// Tells the client one thing.
    pub fn write(&mut self, event: ClientEvent) {
        if !matches!(event, ClientEvent::Aside(_)) {
            self.settle(!matches!(event, ClientEvent::CodeStart { .. }));
        }
        match event {
            ClientEvent::Opened(opened) => self.open(opened.raw),
            ClientEvent::Block(event) => self.block(event),
            ClientEvent::Aside(Aside::Ping) => self.keep_alive(),
            ClientEvent::Aside(Aside::Unknown { name: _, data }) => self.events.raw(&data, None),
            _ if !self.native => {}
            // The wire has one kind of item for code that ran: a shell command, or the editor's input, is its code.
            ClientEvent::CodeStart { call, tool: _ } => {
                debug_assert_eq!(self.codes.len(), call, "calls start in order");
                let place = self.reserve(ids::CODE_INTERPRETER_CALL);
                let code =
                    CodeItem::start(place, self.answer.container(), self.answer.shows_outputs(), &mut self.events);
                self.codes.push(code);
            }
            ClientEvent::CodeDelta { call, text } => {
                if let Some(open) = self.codes.get_mut(call) {
                    open.grow(&text, &mut self.events);
                }
            }
            ClientEvent::CodeStop { call } => {
                if let Some(open) = self.codes.get(call) {
                    open.stop(&mut self.events);
                }
            }
            ClientEvent::CodeResult { call, outcome } => self.code_result(call, outcome),
        }
    }

    /// A comment: SDKs of this wire take any event with data for one of the model's.
    pub fn keep_alive(&mut self) {
        self.events.comment();
    }

    /// The regular end.
    pub fn finish(&mut self, ended: Ended) {
        self.settle(true);
        self.open(None);
        let (kind, response) = self.answer.close(ended);
        if self.events.is_streamed() {
            let output = &self.output;
            self.events.emit(kind, |data| put_response(data, &response, output));
        } else {
            self.body = response_json(&response, &self.output);
        }
        self.closed = Some(response);
    }

    /// The end by an error: the error event that SDKs raise, then the response that failed.
    pub fn fail(&mut self, problem: &Problem) {
        self.settle(true);
        self.open(None);
        if let Some((index, item)) = std::mem::take(&mut self.open).cut(&mut self.events) {
            self.complete(index, item);
        }
        let mut error = problem.body(Vocabulary::OpenAi, "");
        if let Some(error) = error.get_mut("error").and_then(Value::as_object_mut)
            && error.get("code").is_none_or(Value::is_null)
        {
            // Some SDKs take only a word here.
            error.insert("code".to_owned(), problem.error_type(Vocabulary::OpenAi).into());
        }
        self.events.emit("error", |data| put(data, "error", error.get("error").unwrap_or(&Value::Null)));
        let response = self.answer.failed(problem);
        let output = &self.output;
        self.events.emit("response.failed", |data| put_response(data, &response, output));
    }

    /// The bytes since the last time.
    pub fn take(&mut self) -> Bytes {
        if self.events.is_streamed() { self.events.take() } else { std::mem::take(&mut self.body).into() }
    }

    /// The answer for who keeps it; `None` if nobody does, or if it has no regular end.
    pub fn kept(&self) -> Option<Kept> {
        let envelope = self.closed.as_ref().filter(|_| self.answer.is_kept())?;
        let form = |(index, item)| match self.full.get(&index) {
            Some(full) => (full.as_slice(), Some(item)),
            None => (item, None),
        };
        let items = self.output.iter().enumerate().filter_map(|(index, item)| Some((index, item.as_deref()?)));
        Some(Kept::new(self.answer.id().to_owned(), envelope, items.map(form)))
    }

    fn open(&mut self, raw: Option<Map<String, Value>>) {
        if std::mem::replace(&mut self.opened, true) {
            return;
        }
        let response = self.answer.open(raw);
        for kind in ["response.created", "response.in_progress"] {
            self.events.emit(kind, |data| put_response(data, &response, &[]));
        }
    }

    fn block(&mut self, event: BlockEvent) {
        match event {
            BlockEvent::Start(kind, Some(raw)) => self.start_raw(&kind, raw),
            BlockEvent::Start(kind, None) => self.start(kind),
            BlockEvent::Delta(_, Some(raw)) => self.grow_raw(raw),
            BlockEvent::Delta(delta, None) => self.grow(&delta),
            BlockEvent::Stop(raw) => self.stop(raw.as_ref()),
        }
    }

    /// An item in the model's own bytes: streamed, its first frame; whole, all of it.
    fn start_raw(&mut self, kind: &BlockKind, raw: Raw) {
        let index = self.output.len();
        if self.events.is_streamed() {
            self.output.push(None);
            self.events.raw(&raw.json, Some(index));
            self.open = Open::Raw(index, raw.json, Vec::new());
            return;
        }
        self.output.push(Some(raw.json.to_vec()));
        self.open = Open::Nothing;
        if *kind == BlockKind::Text && !self.citations.is_empty() {
            self.open = Open::Whole(index, raw.json);
        }
    }

    /// A further frame of it. The end of a text waits: citations stand in front of it.
    fn grow_raw(&mut self, raw: Raw) {
        let Open::Raw(index, _, tail) = &mut self.open else { return };
        if !self.citations.is_empty() && held::is_tail(&raw.json) {
            tail.push(raw.json);
            return;
        }
        for frame in tail.drain(..).chain([raw.json]) {
            self.events.raw(&frame, Some(*index));
        }
    }

    fn start(&mut self, kind: BlockKind) {
        self.open = match kind {
            BlockKind::Text => Open::Message(TextItem::message(self.reserve(ids::MESSAGE), &mut self.events)),
            BlockKind::Reasoning if self.show_reasoning => {
                Open::Reasoning(TextItem::reasoning(self.reserve(ids::REASONING), &mut self.events))
            }
            BlockKind::Call { id, name } => {
                Open::Call(CallItem::start(self.reserve(ids::FUNCTION_CALL), id, name, &mut self.events))
            }
            BlockKind::Reasoning | BlockKind::Other => Open::Nothing,
        };
    }

    fn grow(&mut self, delta: &Delta) {
        match (delta, &mut self.open) {
            (Delta::Text(piece), Open::Message(text)) => text.grow_message(piece, &mut self.events),
            (Delta::Reasoning(piece), Open::Reasoning(text)) => text.grow_reasoning(piece, &mut self.events),
            (Delta::Arguments(piece), Open::Call(call)) => call.grow(piece, &mut self.events),
            // In the model's own bytes, the last frame says what no piece did.
            _ => {}
        }
    }

    fn stop(&mut self, raw: Option<&Raw>) {
        let complete = match std::mem::take(&mut self.open) {
            Open::Nothing => return,
            Open::Raw(index, _, tail) => {
                let Some(raw) = raw else { return };
                if !tail.is_empty() || (!self.citations.is_empty() && is_message(&raw.json)) {
                    self.held = Some(Held::Streamed { index, tail, done: raw.json.clone() });
                    return;
                }
                self.events.raw(&raw.json, Some(index));
                let fields: Option<Fields<'_>> = serde_json::from_slice(&raw.json).ok();
                fields.and_then(|fields| Some((index, fields.get("item").map(RawValue::get)?.as_bytes().to_vec())))
            }
            Open::Whole(index, item) => {
                self.held = Some(Held::Whole { index, item });
                return;
            }
            Open::Message(text) if !self.citations.is_empty() => {
                self.held = Some(Held::Ours(text));
                return;
            }
            Open::Message(text) => Some(text.stop_message(&[], &mut self.events)),
            Open::Reasoning(text) => Some(text.stop_reasoning(&mut self.events)),
            Open::Call(call) => Some(call.stop(&mut self.events)),
        };
        if let Some((index, item)) = complete {
            self.complete(index, item);
        }
    }

    fn code_result(&mut self, call: usize, outcome: CodeOutcome) {
        let Some(code) = self.codes.get(call) else { return };
        if let Some(files) = outcome.files() {
            self.citations.add(files);
        }
        let (index, item, full) = code.answer(outcome, &mut self.events);
        self.complete(index, item);
        if let Some(full) = full.filter(|_| self.answer.is_kept()) {
            self.full.insert(index, full);
        }
    }

    /// Ends the message that waits. `last`: no code follows it.
    fn settle(&mut self, last: bool) {
        let Some(held) = self.held.take() else { return };
        let container = self.answer.container();
        if let Some((index, item)) = held.settle(&mut self.citations, &container, last, &mut self.events) {
            self.complete(index, item);
        }
    }

    fn reserve(&mut self, prefix: &str) -> Place {
        let index = self.output.len();
        self.output.push(None);
        Place { index, id: self.answer.mint(prefix) }
    }

    fn complete(&mut self, index: usize, item: Vec<u8>) {
        if let Some(place) = self.output.get_mut(index) {
            *place = Some(item);
        }
    }
}

/// Whether the frame that ends an item ends a message.
fn is_message(frame: &[u8]) -> bool {
    let fields: Fields<'_> = serde_json::from_slice(frame).unwrap_or_default();
    let item: Fields<'_> = fields.read("item").unwrap_or_default();
    item.read::<String>("type").as_deref() == Some("message")
}

fn put_response(data: &mut Vec<u8>, response: &Map<String, Value>, output: &[Option<Vec<u8>>]) {
    data.extend_from_slice(br#","response":"#);
    data.extend_from_slice(&response_json(response, output));
}
