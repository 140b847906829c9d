//! A caller's Messages request turned into a Messages request to the model: edited, not rebuilt.
//!
//! INVARIANT: members and history the gateway has no business with leave as the bytes they came in.

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::history;
use crate::wire::code_tool;
use crate::wire::json::{Fields, inside_array, push_json, push_name};
use crate::wire::model_request::{CallerSettings, GATEWAY_FIELDS, ModelRequest, Prepared};

/// Edits a request for a run here. `upstream_model` replaces the model's name.
pub fn edit(body: &[u8], run: &Run, upstream_model: Option<&str>) -> Result<Prepared, Problem> {
    let mut fields: Fields<'_> =
        serde_json::from_slice(body).map_err(|_| Problem::invalid("the body is not a JSON object"))?;
    let tools = Tools::read(&mut fields, run)?;
    let mut request = ModelRequest { history_name: "messages", ..ModelRequest::default() };
    let messages =
        fields.take("messages").ok_or_else(|| Problem::invalid("`messages` is missing").with_param("messages"))?;
    let messages = history::fold(messages);
    let entries =
        inside_array(&messages).ok_or_else(|| Problem::invalid("`messages` is not a list").with_param("messages"))?;
    request.history = entries.as_bytes().to_vec();
    tools.write(&mut request);
    let hint = code_tool::hint_text(run, &tools.name);
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
        tool_name: tools.name,
        model,
        show_reasoning: true,
        dropped: Vec::new(),
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

/// `tools` and `tool_choice`, read.
struct Tools<'a> {
    /// The caller's own.
    kept: Vec<&'a RawValue>,
    /// Name the model knows the code tool by.
    name: String,
    choice: Option<Choice>,
}

struct Choice {
    value: Value,
    /// It is met by a call of the code tool, so later calls are free.
    once: bool,
}

impl<'a> Tools<'a> {
    fn read(fields: &mut Fields<'a>, run: &Run) -> Result<Self, Problem> {
        let list: Vec<&RawValue> = match fields.take("tools") {
            None => Vec::new(),
            Some(tools) => serde_json::from_str(tools.get())
                .map_err(|_| Problem::invalid("`tools` is not a list").with_param("tools"))?,
        };
        let kept: Vec<&RawValue> = list
            .into_iter()
            .enumerate()
            .filter(|(position, _)| !code_tool::is_claimed(run, *position))
            .map(|(_, tool)| tool)
            .collect();
        let names: Vec<String> =
            kept.iter().filter_map(|tool| serde_json::from_str::<Fields<'_>>(tool.get()).ok()?.read("name")).collect();
        let name = code_tool::free_name(names.iter().map(String::as_str));
        let choice = fields.take("tool_choice").and_then(|choice| serde_json::from_str(choice.get()).ok());
        let choice =
            choice.filter(|choice: &Value| !choice.is_null()).map(|choice| retarget(choice, run, &names, &name));
        Ok(Self { kept, name, choice })
    }

    fn write(&self, request: &mut ModelRequest) {
        let mut ours = Vec::new();
        let definition = json!({
            "name": self.name,
            "description": code_tool::DESCRIPTION,
            "input_schema": code_tool::schema(),
        });
        push_json(&mut ours, &definition);
        request.tools_first = self.members(Some(&ours), self.choice.as_ref().map(|choice| choice.value.clone()));
        let later = match &self.choice {
            Some(choice) if choice.once => Some(freed(&choice.value)),
            Some(choice) => Some(choice.value.clone()),
            None => None,
        };
        request.tools_later = self.members(Some(&ours), later.clone());
        request.tools_closing = if self.kept.is_empty() {
            // A history with calls in it needs tools to be declared, so the tool stays and may not be called.
            self.members(Some(&ours), Some(json!({"type": "none"})))
        } else {
            self.members(None, later)
        };
    }

    fn members(&self, ours: Option<&[u8]>, choice: Option<Value>) -> Vec<u8> {
        let mut out = Vec::new();
        push_name(&mut out, "tools");
        out.push(b'[');
        let kept = self.kept.iter().map(|tool| tool.get().as_bytes());
        for (position, tool) in kept.chain(ours).enumerate() {
            if position > 0 {
                out.push(b',');
            }
            out.extend_from_slice(tool);
        }
        out.push(b']');
        if let Some(choice) = choice {
            push_name(&mut out, "tool_choice");
            push_json(&mut out, &choice);
        }
        out
    }
}

/// Points a choice that names a claimed declaration at the tool the model is given.
fn retarget(mut value: Value, run: &Run, names: &[String], tool_name: &str) -> Choice {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let ours = kind == "tool" && !names.contains(&name) && run.claims(Some(&kind), Some(&name));
    if let (true, Value::Object(choice)) = (ours, &mut value) {
        choice.insert("name".to_owned(), tool_name.into());
    }
    Choice { value, once: ours || kind == "any" }
}

/// The choice of later calls: free, with whatever else it says.
fn freed(choice: &Value) -> Value {
    let mut freed = json!({"type": "auto"});
    if let (Some(parallel), Value::Object(freed)) = (choice.get("disable_parallel_tool_use"), &mut freed) {
        freed.insert("disable_parallel_tool_use".to_owned(), parallel.clone());
    }
    freed
}

#[cfg(test)]
mod tests;
