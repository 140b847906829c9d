//! A whole Chat Completions answer, and the turn that both readers of this wire put together.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::{parse_error, parse_stop, parse_usage};
use crate::ids::{CALL, IdSource};
use crate::wire::event::{BlockKind, Delta, Ended, Opened, Stop, TurnEvent};
use crate::wire::json::push_json;
use crate::wire::reader::{ReadError, WholeBody};

/// Reads a whole answer.
#[derive(Debug)]
pub struct WholeReader {
    pub(in crate::wire) body: WholeBody,
    turn: Turn,
}

/// A message or a delta: the same members, all optional.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Said {
    pub(super) content: Option<String>,
    pub(super) reasoning_content: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) tool_calls: Option<Vec<SaidCall>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SaidCall {
    pub(super) index: Option<u64>,
    pub(super) id: Option<String>,
    pub(super) function: Option<SaidFunction>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SaidFunction {
    pub(super) name: Option<String>,
    pub(super) arguments: Option<Value>,
}

impl SaidFunction {
    /// Text as the wire wants it, or an object as some servers send it.
    pub(super) fn arguments_text(&mut self) -> String {
        match self.arguments.take() {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        }
    }
}

/// The model's turn so far.
#[derive(Debug)]
pub(super) struct Turn {
    ids: Arc<dyn IdSource>,
    text: String,
    reasoning: String,
    refused: bool,
    calls: Vec<TurnCall>,
    /// How many of them were told, the open one included; the others wait for its end.
    told: usize,
    open: Option<OpenKind>,
}

#[derive(Debug)]
struct TurnCall {
    id: String,
    name: String,
    arguments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenKind {
    Text,
    Reasoning,
    Call,
}

impl Turn {
    pub(super) fn new(ids: Arc<dyn IdSource>) -> Self {
        Self {
            ids,
            text: String::new(),
            reasoning: String::new(),
            refused: false,
            calls: Vec::new(),
            told: 0,
            open: None,
        }
    }

    pub(super) fn text(&mut self, piece: String, events: &mut Vec<TurnEvent>) {
        if piece.is_empty() {
            return;
        }
        self.open(OpenKind::Text, BlockKind::Text, events);
        self.text.push_str(&piece);
        events.push(TurnEvent::delta(Delta::Text(piece)));
    }

    pub(super) fn refusal(&mut self, piece: String, events: &mut Vec<TurnEvent>) {
        self.refused = true;
        self.text(piece, events);
    }

    pub(super) fn reasoning(&mut self, piece: String, events: &mut Vec<TurnEvent>) {
        if piece.is_empty() {
            return;
        }
        self.open(OpenKind::Reasoning, BlockKind::Reasoning, events);
        self.reasoning.push_str(&piece);
        events.push(TurnEvent::delta(Delta::Reasoning(piece)));
    }

    /// A call begins; gives its position. While the open call still grows, the new one waits.
    pub(super) fn call(&mut self, id: Option<String>, name: String, events: &mut Vec<TurnEvent>) -> usize {
        let waits = self.open == Some(OpenKind::Call) && !self.open_call_is_whole();
        if !waits {
            self.stop(events);
        }
        let position = self.calls.len();
        let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| self.ids.mint(CALL));
        self.calls.push(TurnCall { id, name, arguments: String::new() });
        if !waits {
            self.tell_next(events);
        }
        position
    }

    /// A call grows. Nothing can be added to one whose end was told.
    pub(super) fn arguments(
        &mut self,
        position: usize,
        piece: String,
        events: &mut Vec<TurnEvent>,
    ) -> Result<(), ReadError> {
        if piece.is_empty() {
            return Ok(());
        }
        let is_open = self.open == Some(OpenKind::Call) && position.checked_add(1) == Some(self.told);
        match self.calls.get_mut(position) {
            Some(call) if is_open || position >= self.told => call.arguments.push_str(&piece),
            _ => return Err(ReadError::malformed("a call goes on after its end")),
        }
        if is_open {
            events.push(TurnEvent::delta(Delta::Arguments(piece)));
        }
        Ok(())
    }

    /// Whatever is open ends, and what waited for it is told.
    pub(super) fn stop(&mut self, events: &mut Vec<TurnEvent>) {
        if self.open.take().is_some() {
            events.push(TurnEvent::stop());
        }
        while self.tell_next(events) {
            self.open = None;
            events.push(TurnEvent::stop());
        }
    }

    /// Opens the next call with what it has so far.
    fn tell_next(&mut self, events: &mut Vec<TurnEvent>) -> bool {
        let Some(TurnCall { id, name, arguments }) = self.calls.get(self.told) else { return false };
        self.told += 1;
        self.open = Some(OpenKind::Call);
        events.push(TurnEvent::start(BlockKind::Call { id: id.clone(), name: name.clone() }));
        if !arguments.is_empty() {
            events.push(TurnEvent::delta(Delta::Arguments(arguments.clone())));
        }
        true
    }

    /// Looked at once for every call that is told: where one waits already, the next waits too.
    fn open_call_is_whole(&self) -> bool {
        self.told == self.calls.len()
            && self.calls.last().is_some_and(|call| serde_json::from_str::<IgnoredAny>(&call.arguments).is_ok())
    }

    pub(super) fn ended(&mut self, finish_reason: &str, usage: &Value, events: &mut Vec<TurnEvent>) {
        self.stop(events);
        let stop = match parse_stop(finish_reason, !self.calls.is_empty()) {
            Stop::EndTurn if self.refused => Stop::Refusal,
            stop => stop,
        };
        events.push(TurnEvent::Ended(Ended { stop, usage: parse_usage(usage), raw: None }));
    }

    /// The assistant's message. Thinking goes back under the name that the servers which want it back know.
    pub(super) fn into_history(self) -> Vec<u8> {
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        let text = if self.text.is_empty() { Value::Null } else { self.text.into() };
        message.insert("content".to_owned(), text);
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), self.reasoning.into());
        }
        let calls: Vec<Value> = self
            .calls
            .into_iter()
            .map(|call| {
                // Servers parse the arguments of the history, so what is no object was answered, and goes, as `{}`.
                let is_object = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
                let arguments = if is_object { call.arguments } else { "{}".to_owned() };
                json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
            })
            .collect();
        message.insert("tool_calls".to_owned(), calls.into());
        let mut entry = Vec::new();
        push_json(&mut entry, &message);
        entry
    }

    fn open(&mut self, kind: OpenKind, block: BlockKind, events: &mut Vec<TurnEvent>) {
        if self.open != Some(kind) {
            self.stop(events);
            self.open = Some(kind);
            events.push(TurnEvent::start(block));
        }
    }
}

impl WholeReader {
    /// A reader of at most `max_answer_bytes`.
    pub fn new(max_answer_bytes: usize, ids: Arc<dyn IdSource>) -> Self {
        Self { body: WholeBody::new(max_answer_bytes), turn: Turn::new(ids) }
    }

    /// The body is complete: all events at once.
    pub fn close(&mut self, events: &mut Vec<TurnEvent>) -> Result<(), ReadError> {
        #[derive(Deserialize)]
        struct Answer {
            id: Option<String>,
            choices: Option<Vec<Choice>>,
            #[serde(default)]
            usage: Value,
            error: Option<Value>,
        }
        #[derive(Deserialize)]
        struct Choice {
            message: Option<Said>,
            finish_reason: Option<String>,
        }
        let body = self.body.take();
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|_| ReadError::malformed("the answer is not JSON, or a field has a wrong shape"))?;
        if answer.error.is_some() {
            return Err(ReadError::Provider(Box::new(parse_error(&body))));
        }
        let choice = answer.choices.and_then(|choices| choices.into_iter().next());
        let choice = choice.ok_or_else(|| ReadError::malformed("the answer holds no choice"))?;
        let said = choice.message.unwrap_or_default();
        events.push(TurnEvent::Opened(Opened { id: answer.id, usage: parse_usage(&answer.usage), raw: None }));
        let turn = &mut self.turn;
        turn.reasoning(said.reasoning_content.or(said.reasoning).unwrap_or_default(), events);
        turn.text(said.content.unwrap_or_default(), events);
        if let Some(refusal) = said.refusal {
            turn.refusal(refusal, events);
        }
        for call in said.tool_calls.unwrap_or_default() {
            let mut function = call.function.unwrap_or_default();
            let position = turn.call(call.id, function.name.take().unwrap_or_default(), events);
            turn.arguments(position, function.arguments_text(), events)?;
        }
        turn.ended(&choice.finish_reason.unwrap_or_default(), &answer.usage, events);
        Ok(())
    }

    /// The turn as an entry of the history.
    pub fn into_history(self) -> Vec<u8> {
        self.turn.into_history()
    }
}
