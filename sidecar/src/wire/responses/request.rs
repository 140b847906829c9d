//! A caller's Responses request turned into a Responses request to the model: edited, not rebuilt.
//!
//! INVARIANT: members and items the gateway has no business with leave as the bytes they came in.
//!
//! `previous_response_id` stands in every call of the request: the provider puts its stored answer in front, and what
//! came since is repeated each time.

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::history;
use super::tools::{self, Words};
use crate::wire::json::{Fields, inside_array, push_json, push_name};
use crate::wire::model_request::{CallerSettings, Foreign, GATEWAY_FIELDS, ModelRequest, Prepared, Show};

/// Values of `include` that mean the hosted interpreter and nothing else.
const OUR_INCLUDES: &[&str] = &["code_interpreter_call.outputs"];

/// Edits a request for a run here. `upstream_model` replaces the model's name.
pub fn edit(body: &[u8], run: &Run, upstream_model: Option<&str>, foreign: Foreign) -> Result<Prepared, Problem> {
    let mut fields: Fields<'_> = serde_json::from_slice(body).map_err(super::not_an_object)?;
    let tools = tools::read(&mut fields, run)?;
    let mut request = ModelRequest { history_name: "input", ..ModelRequest::default() };
    let mut dropped = Vec::new();
    if let Some(input) = fields.take("input") {
        let folded = history::fold(input, foreign)?;
        request.history = entries(&folded.input)?;
        dropped.extend(folded.dropped);
    }
    tools.write::<Words>(&mut request);
    let instructions = fields.take("instructions");
    let hint = tools.functions.hint(run);
    if let Some(instructions) = edit_instructions(instructions, hint.as_deref()) {
        push_name(&mut request.fields, "instructions");
        request.fields.extend_from_slice(&instructions);
    }
    let model: String = fields.read("model").unwrap_or_default();
    for (name, value) in &fields.0 {
        if GATEWAY_FIELDS.contains(&&**name) {
            continue;
        }
        let include = (name == "include").then(|| edit_include(value)).flatten();
        if include.as_ref().is_some_and(Vec::is_empty) {
            continue;
        }
        push_name(&mut request.fields, name);
        match (upstream_model, include) {
            (_, Some(include)) => push_json(&mut request.fields, &include),
            (Some(upstream), None) if name == "model" => push_json(&mut request.fields, upstream),
            _ => request.fields.extend_from_slice(value.get().as_bytes()),
        }
    }
    let functions = tools.functions;
    let caller = CallerSettings::default();
    Ok(Prepared { request, functions, model, show: Show { reasoning: true, ..Show::default() }, dropped, caller })
}

/// The input's items, without brackets. A text is one message of the user's.
fn entries(input: &str) -> Result<Vec<u8>, Problem> {
    if let Some(items) = inside_array(input) {
        return Ok(items.as_bytes().to_vec());
    }
    let mut entries = Vec::new();
    match serde_json::from_str::<Option<String>>(input) {
        Ok(Some(text)) => push_json(&mut entries, &json!({"role": "user", "content": text})),
        Ok(None) => {}
        Err(_) => return Err(Problem::invalid("`input` is neither text nor a list").with_param("input")),
    }
    Ok(entries)
}

/// The instructions with the hint in front of them.
fn edit_instructions(instructions: Option<&RawValue>, hint: Option<&str>) -> Option<Vec<u8>> {
    let Some(hint) = hint else { return instructions.map(|text| text.get().as_bytes().to_vec()) };
    let mut edited = Vec::new();
    match instructions.map(|text| serde_json::from_str::<Option<String>>(text.get())) {
        None | Some(Ok(None)) => push_json(&mut edited, hint),
        Some(Ok(Some(text))) => push_json(&mut edited, &format!("{hint}\n\n{text}")),
        // Not a shape of this wire: the provider says so better than we could.
        Some(Err(_)) => edited.extend_from_slice(instructions?.get().as_bytes()),
    }
    Some(edited)
}

/// What is left of `include` for the model; `None` where it says nothing of ours.
fn edit_include(include: &RawValue) -> Option<Vec<Value>> {
    let mut values: Vec<Value> = serde_json::from_str(include.get()).ok()?;
    let before = values.len();
    values.retain(|value| !value.as_str().is_some_and(|value| OUR_INCLUDES.contains(&value)));
    (values.len() < before).then_some(values)
}

#[cfg(test)]
mod tests;
