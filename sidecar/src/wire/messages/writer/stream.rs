//! The streamed form: each thing as an event of its own, at once.

use bytes::BytesMut;
use decision::problem::Problem;
use decision::request::CodeTool;
use serde_json::{Map, Value, json};

use super::{check_arguments, code_block, unsigned};
use crate::wire::code_tool;
use crate::wire::event::{BlockEvent, BlockKind, Delta, Raw};
use crate::wire::json::push_json;
use crate::wire::sse::write_frame;

/// Events waiting to be taken, and where the answer stands.
#[derive(Debug, Default)]
pub(super) struct StreamForm {
    pub(super) out: BytesMut,
    /// Index of the open or next block.
    index: u64,
    open: Open,
    /// Kept for its memory.
    scratch: Vec<u8>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Open {
    #[default]
    Nothing,
    /// Any block whose pieces need no attention.
    Plain,
    /// Thinking of a model of another wire.
    Thinking,
    /// A call of the client's from another wire, with its arguments so far.
    Call(String),
    /// A block the client does not see.
    Hidden,
    /// A call of ours; whether some of its input was shown.
    Code { tool: CodeTool, begun: bool },
}

impl StreamForm {
    pub(super) fn message_start(&mut self, message: &Map<String, Value>) {
        self.event("message_start", |data| {
            data.extend_from_slice(br#"{"type":"message_start","message":"#);
            push_json(data, message);
            data.push(b'}');
        });
    }

    pub(super) fn ping(&mut self) {
        write_frame(&mut self.out, b"ping", br#"{"type":"ping"}"#);
    }

    pub(super) fn block(&mut self, event: BlockEvent, show_reasoning: bool) -> Result<(), Problem> {
        match event {
            BlockEvent::Start(_, Some(raw)) => {
                self.open = Open::Plain;
                self.raw("content_block_start", &raw);
            }
            BlockEvent::Start(kind, None) => self.start(kind, show_reasoning),
            BlockEvent::Delta(_, Some(raw)) => self.raw("content_block_delta", &raw),
            BlockEvent::Delta(delta, None) => self.delta(delta),
            BlockEvent::Stop(raw) => match std::mem::take(&mut self.open) {
                Open::Hidden | Open::Nothing => {}
                Open::Call(arguments) => {
                    check_arguments(&arguments)?;
                    self.stop();
                }
                Open::Thinking => {
                    self.block_delta("signature_delta", "signature", &unsigned());
                    self.stop();
                }
                Open::Plain | Open::Code { .. } => match raw {
                    Some(raw) => {
                        self.raw("content_block_stop", &raw);
                        self.index += 1;
                    }
                    None => self.stop(),
                },
            },
        }
        Ok(())
    }

    /// The input grows as JSON of our own making, whatever the model's pieces looked like.
    pub(super) fn code_start(&mut self, id: &str, tool: CodeTool) {
        self.open = Open::Code { tool, begun: false };
        self.start_block(&code_block(id, tool, &Map::new()));
        self.input_delta("");
    }

    pub(super) fn code_delta(&mut self, text: &str) {
        let Open::Code { tool, begun } = &mut self.open else { return };
        let is_next = std::mem::replace(begun, true);
        let Some(member) = code_tool::live_member(*tool) else { return self.input_delta(text) };
        let quoted = Value::from(text).to_string();
        let escaped = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        if is_next {
            self.input_delta(escaped);
        } else {
            self.input_delta(&format!("{{\"{member}\": \"{escaped}"));
        }
    }

    pub(super) fn code_stop(&mut self) {
        let Open::Code { tool, begun } = std::mem::take(&mut self.open) else { return };
        match (code_tool::live_member(tool), begun) {
            (Some(_), true) => self.input_delta("\"}"),
            (Some(member), false) => self.input_delta(&format!("{{\"{member}\": \"\"}}")),
            (None, true) => {}
            (None, false) => self.input_delta("{}"),
        }
        self.stop();
    }

    /// A block that comes at once. One that is open then was cut off by an error, which follows.
    pub(super) fn whole_block(&mut self, block: &[u8]) {
        if !matches!(std::mem::take(&mut self.open), Open::Nothing | Open::Hidden) {
            self.stop();
        }
        let index = self.index;
        self.event("content_block_start", |data| {
            open_event(data, "content_block_start", index);
            data.extend_from_slice(br#","content_block":"#);
            data.extend_from_slice(block);
            data.push(b'}');
        });
        self.stop();
    }

    pub(super) fn finish(&mut self, message_delta: &Map<String, Value>) {
        self.event("message_delta", |data| push_json(data, message_delta));
        write_frame(&mut self.out, b"message_stop", br#"{"type":"message_stop"}"#);
    }

    fn start(&mut self, kind: BlockKind, show_reasoning: bool) {
        let (open, block) = match kind {
            BlockKind::Text => (Open::Plain, json!({"type": "text", "text": ""})),
            BlockKind::Reasoning if show_reasoning => {
                (Open::Thinking, json!({"type": "thinking", "thinking": "", "signature": ""}))
            }
            BlockKind::Call { id, name } => {
                (Open::Call(String::new()), json!({"type": "tool_use", "id": id, "name": name, "input": {}}))
            }
            BlockKind::Reasoning | BlockKind::Other => {
                self.open = Open::Hidden;
                return;
            }
        };
        let is_call = matches!(open, Open::Call(_));
        self.open = open;
        self.start_block(&block);
        if is_call {
            self.input_delta("");
        }
    }

    fn delta(&mut self, delta: Delta) {
        match (delta, &mut self.open) {
            (_, Open::Hidden) | (Delta::Other, _) => {}
            (Delta::Text(text), _) => self.block_delta("text_delta", "text", &text),
            (Delta::Reasoning(text), _) => self.block_delta("thinking_delta", "thinking", &text),
            (Delta::Arguments(piece), open) => {
                if let Open::Call(arguments) = open {
                    arguments.push_str(&piece);
                }
                self.input_delta(&piece);
            }
        }
    }

    fn start_block(&mut self, block: &Value) {
        let index = self.index;
        self.event("content_block_start", |data| {
            open_event(data, "content_block_start", index);
            data.extend_from_slice(br#","content_block":"#);
            push_json(data, block);
            data.push(b'}');
        });
    }

    fn input_delta(&mut self, piece: &str) {
        self.block_delta("input_json_delta", "partial_json", piece);
    }

    fn block_delta(&mut self, kind: &str, field: &str, text: &str) {
        let index = self.index;
        self.event("content_block_delta", |data| {
            open_event(data, "content_block_delta", index);
            data.extend_from_slice(br#","delta":{"type":"#);
            push_json(data, kind);
            data.push(b',');
            push_json(data, field);
            data.push(b':');
            push_json(data, text);
            data.extend_from_slice(b"}}");
        });
    }

    fn stop(&mut self) {
        let index = self.index;
        self.event("content_block_stop", |data| {
            open_event(data, "content_block_stop", index);
            data.push(b'}');
        });
        self.index += 1;
    }

    /// The model's own bytes, with the client's index.
    fn raw(&mut self, name: &str, raw: &Raw) {
        let index = self.index;
        match &raw.index {
            Some(place) if raw.json.get(place.clone()) != Some(index.to_string().as_bytes()) => {
                let (before, after) = (raw.json.slice(..place.start), raw.json.slice(place.end..));
                self.event(name, |data| {
                    data.extend_from_slice(&before);
                    data.extend_from_slice(index.to_string().as_bytes());
                    data.extend_from_slice(&after);
                });
            }
            _ => write_frame(&mut self.out, name.as_bytes(), &raw.json),
        }
    }

    fn event(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.scratch.clear();
        write(&mut self.scratch);
        write_frame(&mut self.out, name.as_bytes(), &self.scratch);
    }
}

/// `{"type":…,"index":…`, still open.
fn open_event(data: &mut Vec<u8>, kind: &str, index: u64) {
    data.extend_from_slice(br#"{"type":"#);
    push_json(data, kind);
    data.extend_from_slice(br#","index":"#);
    push_json(data, &index);
}
