//! Where calls of ours that the history does not show stand in it: in the assistant's message, their results behind it.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::result_entry;
use crate::wire::json::Fields;
use crate::wire::past::{PastRun, Shape, is_assistants, with_items};

/// The history of this wire.
pub(in crate::wire) const SHAPE: Shape =
    Shape { history: "messages", system: None, is_models: is_assistants, shows_run: |_| false, call_ids, put_back };

fn call_ids(message: &RawValue) -> Vec<String> {
    let fields: Fields<'_> = serde_json::from_str(message.get()).unwrap_or_default();
    let calls: Vec<Fields<'_>> = fields.read("tool_calls").unwrap_or_default();
    calls.iter().filter_map(|call| call.read("id")).collect()
}

fn put_back(messages: &mut Vec<Cow<'_, str>>, answer: Range<usize>, runs: &[PastRun]) {
    let call = |run: &PastRun| {
        let function = json!({"name": run.call.name, "arguments": run.call.arguments});
        json!({"id": run.call.id, "type": "function", "function": function})
    };
    let calls: Vec<Value> = runs.iter().map(call).collect();
    for at in answer {
        let Some(message) = messages.get_mut(at) else { return };
        if let Some(edited) = with_items(message, "tool_calls", 0, &calls) {
            *message = Cow::Owned(edited);
            let behind = at.saturating_add(1);
            messages.splice(behind..behind, runs.iter().map(|run| Cow::Owned(result_entry(&run.result))));
            return;
        }
    }
}
