//! A caller's Messages request turned into a Messages request to the model: edited, not rebuilt.
//!
//! INVARIANT: members and history the gateway has no business with leave as the bytes they came in.

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::json;
use serde_json::value::RawValue;

use super::history;
use super::tools::{self, Words};
use crate::wire::json::{Fields, inside_array, push_json, push_name};
use crate::wire::model_request::{CallerSettings, Foreign, GATEWAY_FIELDS, ModelRequest, Prepared, Show};

/// Edits a request for a run here. `upstream_model` replaces the model's name.
pub fn edit(body: &[u8], run: &Run, upstream_model: Option<&str>, foreign: Foreign) -> Result<Prepared, Problem> {
    let mut fields: Fields<'_> =
        serde_json::from_slice(body).map_err(|_| Problem::invalid("the body is not a JSON object"))?;
    let (tools, dropped) = tools::read(&mut fields, run)?;
    let mut request = ModelRequest { history_name: "messages", ..ModelRequest::default() };
    let messages =
        fields.take("messages").ok_or_else(|| Problem::invalid("`messages` is missing").with_param("messages"))?;
    let messages = history::fold(messages, foreign);
    let entries =
        inside_array(&messages).ok_or_else(|| Problem::invalid("`messages` is not a list").with_param("messages"))?;
    request.history = entries.as_bytes().to_vec();
    tools.write::<Words>(&mut request);
    let hint = tools.functions.hint(run);
    let system = fields.take("system");
    if let Some(system) = edit_system(system, hint.as_deref()) {
        push_name(&mut request.fields, "system");
        request.fields.extend_from_slice(&system);
    }
    let model: String = fields.read("model").unwrap_or_default();
    for (name, value) in &fields.0 {
        if GATEWAY_FIELDS.contains(&&**name) {
            continue;
        }
        push_name(&mut request.fields, name);
        match upstream_model {
            Some(upstream) if name == "model" => push_json(&mut request.fields, upstream),
            _ => request.fields.extend_from_slice(value.get().as_bytes()),
        }
    }
    Ok(Prepared {
        request,
        functions: tools.functions,
        model,
        show: Show { reasoning: true, ..Show::default() },
        dropped,
        caller: CallerSettings::default(),
    })
}

/// The system text with the hint in front of it.
fn edit_system(system: Option<&RawValue>, hint: Option<&str>) -> Option<Vec<u8>> {
    let Some(hint) = hint else { return system.map(|system| system.get().as_bytes().to_vec()) };
    let mut edited = Vec::new();
    let system = system.map_or("null", |system| system.get().trim());
    match inside_array(system) {
        Some(blocks) => {
            edited.push(b'[');
            push_json(&mut edited, &json!({"type": "text", "text": hint}));
            if !blocks.is_empty() {
                edited.push(b',');
                edited.extend_from_slice(blocks.as_bytes());
            }
            edited.push(b']');
        }
        None => match serde_json::from_str::<Option<String>>(system) {
            Ok(Some(text)) => push_json(&mut edited, &format!("{hint}\n\n{text}")),
            Ok(None) => push_json(&mut edited, hint),
            // Not a shape of this wire: the provider says so better than we could.
            Err(_) => edited.extend_from_slice(system.as_bytes()),
        },
    }
    Some(edited)
}

#[cfg(test)]
mod tests;
