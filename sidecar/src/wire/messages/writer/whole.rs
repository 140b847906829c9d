//! The whole form: the same blocks, collected into one body.

use decision::problem::Problem;
use decision::request::CodeTool;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{check_arguments, code_block, unsigned};
use crate::wire::code_tool;
use crate::wire::event::{BlockEvent, BlockKind, Delta};
use crate::wire::json::push_json;

/// Blocks so far, and the body once it is complete.
#[derive(Debug, Default)]
pub(super) struct WholeForm {
    pub(super) body: Vec<u8>,
    /// Blocks as JSON, comma between them.
    content: Vec<u8>,
    open: Open,
}

#[derive(Debug, Default)]
enum Open {
    #[default]
    Nothing,
    Text(String),
    Thinking(String),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    Code {
        id: String,
        tool: CodeTool,
        shown: String,
    },
}

impl WholeForm {
    pub(super) fn block(&mut self, event: BlockEvent, show_reasoning: bool) -> Result<(), Problem> {
        match (event, &mut self.open) {
            (BlockEvent::Start(_, Some(raw)), _) => self.push(&raw.json),
            (BlockEvent::Start(kind, None), _) => {
                self.open = match kind {
                    BlockKind::Text => Open::Text(String::new()),
                    BlockKind::Reasoning if show_reasoning => Open::Thinking(String::new()),
                    BlockKind::Call { id, name } => Open::Call { id, name, arguments: String::new() },
                    BlockKind::Reasoning | BlockKind::Other => Open::Nothing,
                };
            }
            (BlockEvent::Delta(Delta::Text(piece), _), Open::Text(text))
            | (BlockEvent::Delta(Delta::Reasoning(piece), _), Open::Thinking(text))
            | (BlockEvent::Delta(Delta::Arguments(piece), _), Open::Call { arguments: text, .. }) => {
                text.push_str(&piece);
            }
            (BlockEvent::Delta(..), _) => {}
            (BlockEvent::Stop(_), _) => self.stop()?,
        }
        Ok(())
    }

    pub(super) fn code_start(&mut self, id: String, tool: CodeTool) {
        self.open = Open::Code { id, tool, shown: String::new() };
    }

    pub(super) fn code_delta(&mut self, more: &str) {
        if let Open::Code { shown, .. } = &mut self.open {
            shown.push_str(more);
        }
    }

    pub(super) fn code_stop(&mut self) {
        if let Open::Code { id, tool, shown } = std::mem::take(&mut self.open) {
            self.push_value(&code_block(&id, tool, &code_tool::shown_input(tool, shown)));
        }
    }

    pub(super) fn finish(&mut self, message: Map<String, Value>) {
        // `content` takes its place among the members without its bytes being parsed.
        let mut body = vec![b'{'];
        let mut has_content = false;
        for (name, value) in &message {
            has_content |= name == "content";
            crate::wire::json::push_name(&mut body, name);
            if name == "content" {
                self.push_content(&mut body);
            } else {
                push_json(&mut body, value);
            }
        }
        if !has_content {
            crate::wire::json::push_name(&mut body, "content");
            self.push_content(&mut body);
        }
        body.push(b'}');
        self.body = body;
    }

    pub(super) fn push(&mut self, block: &[u8]) {
        if !self.content.is_empty() {
            self.content.push(b',');
        }
        self.content.extend_from_slice(block);
    }

    fn push_content(&self, body: &mut Vec<u8>) {
        body.push(b'[');
        body.extend_from_slice(&self.content);
        body.push(b']');
    }

    fn push_value(&mut self, block: &Value) {
        let mut json = Vec::new();
        push_json(&mut json, block);
        self.push(&json);
    }

    fn stop(&mut self) -> Result<(), Problem> {
        match std::mem::take(&mut self.open) {
            Open::Nothing | Open::Code { .. } => {}
            Open::Text(text) => self.push_value(&json!({"type": "text", "text": text})),
            Open::Thinking(text) => {
                self.push_value(&json!({"type": "thinking", "thinking": text, "signature": unsigned()}));
            }
            Open::Call { id, name, arguments } => {
                check_arguments(&arguments)?;
                let input = serde_json::from_str::<&RawValue>(&arguments).map_or("{}", RawValue::get);
                let mut block = Vec::new();
                push_json(&mut block, &json!({"type": "tool_use", "id": id, "name": name}));
                block.pop();
                block.extend_from_slice(br#","input":"#);
                block.extend_from_slice(input.as_bytes());
                block.push(b'}');
                self.push(&block);
            }
        }
        Ok(())
    }
}
