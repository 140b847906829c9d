//! `tools` and `tool_choice` of a request that keeps its wire.

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::emit::code_function;
use crate::wire::code_tool;
use crate::wire::json::{Fields, push_json, push_name};
use crate::wire::model_request::ModelRequest;

/// Both, read.
pub(super) struct Tools<'a> {
    /// The caller's own.
    kept: Vec<&'a RawValue>,
    /// Name the model knows the code tool by.
    pub(super) name: String,
    choice: Option<Choice>,
}

struct Choice {
    value: Value,
    /// It is met by a call of the code tool, so later calls are free.
    once: bool,
}

impl<'a> Tools<'a> {
    pub(super) fn read(fields: &mut Fields<'a>, run: &Run) -> Result<Self, Problem> {
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

    pub(super) fn write(&self, request: &mut ModelRequest) {
        let mut ours = Vec::new();
        push_json(&mut ours, &code_function(&self.name));
        request.tools_first = self.members(Some(&ours), self.choice.as_ref().map(|choice| choice.value.clone()));
        let later = match &self.choice {
            Some(choice) if choice.once => Some(freed(&choice.value)),
            Some(choice) => Some(choice.value.clone()),
            None => None,
        };
        request.tools_later = self.members(Some(&ours), later.clone());
        // Not every server heeds `tool_choice: none`, so the tool itself goes.
        request.tools_closing = if self.kept.is_empty() {
            Vec::new()
        } else {
            self.members(None, later.map(|choice| without(choice, &self.name)))
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
    if value == "required" {
        return Choice { value, once: true };
    }
    let ours = json!({"type": "function", "name": tool_name});
    if is_claimed(&value, run, names) {
        return Choice { value: ours, once: true };
    }
    let mut once = false;
    if value.get("type").and_then(Value::as_str) == Some("allowed_tools") {
        once = value.get("mode").and_then(Value::as_str) == Some("required");
        if let Some(Value::Array(allowed)) = value.get_mut("tools") {
            let before = allowed.len();
            allowed.retain(|entry| !is_claimed(entry, run, names));
            // Several declarations are one tool.
            if allowed.len() < before {
                allowed.push(ours);
            }
        }
    }
    Choice { value, once }
}

/// Does a choice, or an entry of an allow-list, mean a claimed declaration?
pub(in crate::wire::responses) fn is_claimed(choice: &Value, run: &Run, names: &[String]) -> bool {
    let (kind, name) = (choice.get("type").and_then(Value::as_str), choice.get("name").and_then(Value::as_str));
    kind.is_some() && run.claims(kind, name) && !name.is_some_and(|name| names.iter().any(|known| known == name))
}

/// The choice of later calls: free, with whatever else it says.
fn freed(choice: &Value) -> Value {
    if choice.get("type").and_then(Value::as_str) != Some("allowed_tools") {
        return "auto".into();
    }
    let mut freed = choice.clone();
    if let Value::Object(freed) = &mut freed {
        freed.insert("mode".to_owned(), "auto".into());
    }
    freed
}

/// A choice for a call that has no code tool.
fn without(mut choice: Value, tool_name: &str) -> Value {
    let Some(Value::Array(allowed)) = choice.get_mut("tools") else { return choice };
    allowed.retain(|entry| entry.get("name").and_then(Value::as_str) != Some(tool_name));
    if allowed.is_empty() { "none".into() } else { choice }
}
