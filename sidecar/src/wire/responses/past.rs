//! Where calls of ours that the input does not show stand in it: in front of the caller's calls, their outputs behind the
//! answer.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::json;
use serde_json::value::RawValue;

use super::history::is_models;
use super::result_entry;
use crate::ids;
use crate::wire::json::Fields;
use crate::wire::past::{PastRun, Shape};

/// The history of this wire.
pub(in crate::wire) const SHAPE: Shape =
    Shape { history: "input", system: Some("instructions"), is_models, shows_run, call_ids, put_back };

/// Most clients do not ask for `outputs`, and then an item tells the code alone.
fn shows_run(item: &RawValue) -> bool {
    let fields: Fields<'_> = serde_json::from_str(item.get()).unwrap_or_default();
    let id: String = fields.read("id").unwrap_or_default();
    let outputs: Vec<&RawValue> = fields.read("outputs").unwrap_or_default();
    id.starts_with(ids::CODE_INTERPRETER_CALL) && !outputs.is_empty()
}

fn call_ids(item: &RawValue) -> Vec<String> {
    call_id(item.get()).into_iter().collect()
}

/// The id of an item that calls a function of the caller's.
fn call_id(item: &str) -> Option<String> {
    let fields: Fields<'_> = serde_json::from_str(item).ok()?;
    fields.read::<String>("type")?.ends_with("_call").then(|| fields.read("call_id")).flatten()
}

fn put_back(items: &mut Vec<Cow<'_, str>>, answer: Range<usize>, runs: &[PastRun]) {
    let first = answer.clone().find(|at| items.get(*at).is_some_and(|item| call_id(item).is_some()));
    let (Some(first), true) = (first, answer.end <= items.len()) else { return };
    let output = |run: &PastRun| Cow::Owned(result_entry(&run.result));
    items.splice(answer.end..answer.end, runs.iter().map(output));
    let call = |run: &PastRun| {
        let (id, name, arguments) = (&run.call.id, &run.call.name, &run.call.arguments);
        Cow::Owned(json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments}).to_string())
    };
    items.splice(first..first, runs.iter().map(call));
}
