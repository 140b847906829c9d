//! Where calls of ours that the history does not show stand in it: in front of the caller's calls, their results in front
//! of the caller's results.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{result_block, results_entry};
use crate::ids;
use crate::wire::json::{Fields, replaced};
use crate::wire::past::{PastRun, Shape, is_assistants, with_items};

/// The history of this wire.
pub(in crate::wire) const SHAPE: Shape =
    Shape { history: "messages", system: Some("system"), is_models: is_assistants, shows_run, call_ids, put_back };

fn shows_run(message: &RawValue) -> bool {
    let fields: Fields<'_> = serde_json::from_str(message.get()).unwrap_or_default();
    let blocks: Vec<Fields<'_>> = fields.read("content").unwrap_or_default();
    let is_result = |block: &Fields<'_>| {
        let of: String = block.read("tool_use_id").unwrap_or_default();
        of.starts_with(ids::SERVER_TOOL_USE) && block.get("content").is_some_and(|content| content.get() != "null")
    };
    blocks.iter().any(is_result)
}

fn call_ids(message: &RawValue) -> Vec<String> {
    calls(message.get()).filter_map(|(_, id)| id).collect()
}

/// Positions and ids of the calls among a message's blocks.
fn calls(message: &str) -> impl Iterator<Item = (usize, Option<String>)> {
    let fields: Fields<'_> = serde_json::from_str(message).unwrap_or_default();
    let blocks: Vec<Fields<'_>> = fields.read("content").unwrap_or_default();
    let id = |(at, block): (usize, Fields<'_>)| {
        (block.read::<String>("type")? == "tool_use").then(|| (at, block.read::<String>("id")))
    };
    blocks.into_iter().enumerate().filter_map(id).collect::<Vec<_>>().into_iter()
}

fn put_back(messages: &mut Vec<Cow<'_, str>>, answer: Range<usize>, runs: &[PastRun]) {
    let blocks: Vec<Value> = runs.iter().map(call_block).collect();
    let Range { start, end } = answer;
    for message in messages.iter_mut().take(end).skip(start) {
        let Some((at, _)) = calls(message).next() else { continue };
        let Some(edited) = with_items(message, "content", at, &blocks) else { continue };
        *message = Cow::Owned(edited);
        let next = messages.get_mut(end);
        if let Some((edited, next)) = next.and_then(|next| Some((with_results(next, runs)?, next))) {
            *next = Cow::Owned(edited);
        } else {
            let entry = results_entry(runs.iter().map(|run| &run.result));
            messages.insert(end.min(messages.len()), Cow::Owned(entry));
        }
        return;
    }
}

fn call_block(run: &PastRun) -> Value {
    let input: Map<String, Value> = serde_json::from_str(&run.call.arguments).unwrap_or_default();
    json!({"type": "tool_use", "id": run.call.id, "name": run.call.name, "input": input})
}

/// The user's next message with results in front; `None` when there is no content that could take them.
fn with_results(message: &str, runs: &[PastRun]) -> Option<String> {
    let results: Vec<Value> = runs.iter().map(|run| result_block(&run.result)).collect();
    if let Some(edited) = with_items(message, "content", 0, &results) {
        return Some(edited);
    }
    let fields: Fields<'_> = serde_json::from_str(message).ok()?;
    let content = fields.get("content")?;
    let text: String = serde_json::from_str(content.get()).ok()?;
    let blocks = Value::from([results, vec![json!({"type": "text", "text": text})]].concat());
    String::from_utf8(replaced(message.as_bytes(), content.get(), blocks.to_string().as_bytes())?).ok()
}
