//! `tools` and `tool_choice` of a Messages request to the model: the caller's own, and our function behind them.
//!
//! INVARIANT: a choice never names a tool that the model is not given.

use std::borrow::Cow;

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::wire::code_tool;
use crate::wire::json::{Fields, push_json, push_name};
use crate::wire::model_request::ModelRequest;

/// `tools` and `tool_choice`, read.
pub(super) struct Tools<'a> {
    /// The caller's own.
    pub(super) kept: Vec<Cow<'a, str>>,
    /// Name the model knows the code tool by.
    pub(super) name: String,
    pub(super) choice: Option<Choice>,
}

pub(super) struct Choice {
    pub(super) value: Value,
    /// It is met by a call of the code tool, so later calls are free.
    pub(super) once: bool,
}

impl<'a> Tools<'a> {
    pub(super) fn read(fields: &mut Fields<'a>, run: &Run) -> Result<Self, Problem> {
        let list: Vec<&RawValue> = match fields.take("tools") {
            None => Vec::new(),
            Some(tools) => serde_json::from_str(tools.get())
                .map_err(|_| Problem::invalid("`tools` is not a list").with_param("tools"))?,
        };
        let unclaimed = list.into_iter().enumerate().filter(|(position, _)| !code_tool::is_claimed(run, *position));
        let kept: Vec<Cow<'a, str>> = unclaimed.map(|(_, tool)| Cow::Borrowed(tool.get())).collect();
        let names: Vec<String> =
            kept.iter().filter_map(|tool| serde_json::from_str::<Fields<'_>>(tool).ok()?.read("name")).collect();
        let name = code_tool::free_name(names.iter().map(String::as_str));
        let choice = fields.take("tool_choice").and_then(|choice| serde_json::from_str(choice.get()).ok());
        let choice =
            choice.filter(|choice: &Value| !choice.is_null()).map(|choice| retarget(choice, run, &names, &name));
        Ok(Self { kept, name, choice })
    }

    pub(super) fn write(&self, request: &mut ModelRequest) {
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
        let kept = self.kept.iter().map(|tool| tool.as_bytes());
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
