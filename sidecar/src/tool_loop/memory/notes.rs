//! One answer's notes, until it is known whether the caller will come back with results of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use decision::request::CodeTool;
use serde_json::Value;

use super::{Memory, size};
use crate::tool_loop::report;
use crate::wire::code_tool::{self, Functions};
use crate::wire::conversation::Call;
use crate::wire::event::{BlockEvent, BlockKind, ClientEvent, CodeOutcome};
use crate::wire::model_request::CallResult;
use crate::wire::past::{MAX_CALL_IDS, PastRun, Place};

/// Notes of one answer.
pub(in crate::tool_loop) struct Notes {
    memory: Arc<Memory>,
    workspace: String,
    place: Place,
    /// Names the model knows the tools by.
    functions: Functions,
    /// Ids of the caller's calls.
    call_ids: Vec<String>,
    /// Calls of ours: the tool, and what was written of its input.
    written: BTreeMap<usize, (CodeTool, String)>,
    started: BTreeMap<usize, Call>,
    runs: Vec<PastRun>,
    bytes: usize,
}

impl Notes {
    pub(in crate::tool_loop) fn new(
        memory: Arc<Memory>,
        workspace: String,
        place: Place,
        functions: Functions,
    ) -> Self {
        let (call_ids, written, started) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { memory, workspace, place, functions, call_ids, written, started, runs: Vec::new(), bytes: 0 }
    }

    /// A call of ours was started, by the model's call of this id.
    pub(in crate::tool_loop) fn started(&mut self, call: usize, id: String) {
        let Some((tool, shown)) = self.written.remove(&call) else { return };
        let name = self.functions.name(tool).unwrap_or_default().to_owned();
        let arguments = Value::from(code_tool::shown_input(tool, shown)).to_string();
        self.started.insert(call, Call { id, name, arguments });
    }

    /// The caller was told something.
    pub(in crate::tool_loop) fn told(&mut self, event: &ClientEvent) {
        match event {
            ClientEvent::Block(BlockEvent::Start(BlockKind::Call { id, .. }, _))
                if self.call_ids.len() <= MAX_CALL_IDS =>
            {
                self.call_ids.push(id.clone());
            }
            ClientEvent::CodeStart { call, tool } => {
                self.written.insert(*call, (*tool, String::new()));
            }
            ClientEvent::CodeDelta { call, text } => {
                if let Some((_, shown)) = self.written.get_mut(call) {
                    shown.push_str(text);
                }
            }
            ClientEvent::CodeResult { call, outcome } => self.ran(*call, outcome),
            _ => {}
        }
    }

    fn ran(&mut self, call: usize, outcome: &CodeOutcome) {
        let Some(call) = self.started.remove(&call) else { return };
        // Counted on even where nothing is noted any more: half of what ran is worse than nothing.
        let (text, is_error) = report::text_for_model(outcome);
        let run = PastRun { result: CallResult { call_id: call.id.clone(), text, is_error }, call };
        self.bytes = self.bytes.saturating_add(size(&run));
        if self.bytes > self.memory.limits.largest() {
            self.runs.clear();
        } else {
            self.runs.push(run);
        }
    }

    /// The answer came to its regular end.
    pub(in crate::tool_loop) fn keep(self) {
        if (1..=MAX_CALL_IDS).contains(&self.call_ids.len()) && !self.runs.is_empty() {
            self.memory.keep(&self.workspace, self.place, self.call_ids, self.runs);
        }
    }
}
