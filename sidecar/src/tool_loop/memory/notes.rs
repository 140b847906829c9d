//! One answer's notes, until it is known whether the caller will come back with results of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::{Memory, size};
use crate::tool_loop::report;
use crate::wire::conversation::Call;
use crate::wire::event::{BlockEvent, BlockKind, ClientEvent, CodeOutcome};
use crate::wire::model_request::CallResult;
use crate::wire::past::{PastRun, Place};

/// Notes of one answer.
pub(in crate::tool_loop) struct Notes {
    memory: Arc<Memory>,
    workspace: String,
    place: Place,
    /// Name the model knows the tool by.
    tool_name: String,
    /// Ids of the caller's calls.
    call_ids: Vec<String>,
    started: BTreeMap<usize, Call>,
    runs: Vec<PastRun>,
    bytes: usize,
}

impl Notes {
    pub(in crate::tool_loop) fn new(memory: Arc<Memory>, workspace: String, place: Place, tool_name: String) -> Self {
        let (call_ids, started, runs) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { memory, workspace, place, tool_name, call_ids, started, runs, bytes: 0 }
    }

    /// Code was started, by the model's call of this id.
    pub(in crate::tool_loop) fn started(&mut self, call: usize, id: String, code: &str) {
        let arguments = json!({"code": code}).to_string();
        self.started.insert(call, Call { id, name: self.tool_name.clone(), arguments });
    }

    /// The caller was told something.
    pub(in crate::tool_loop) fn told(&mut self, event: &ClientEvent) {
        match event {
            ClientEvent::Block(BlockEvent::Start(BlockKind::Call { id, .. }, _)) => self.call_ids.push(id.clone()),
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
        if !self.call_ids.is_empty() && !self.runs.is_empty() {
            self.memory.keep(&self.workspace, self.place, self.call_ids, self.runs);
        }
    }
}
