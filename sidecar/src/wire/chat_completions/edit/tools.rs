//! `tools` and `tool_choice` of a caller's request: claimed declarations go, our function joins.
//!
//! INVARIANT: a choice never names a tool that the model is not given.

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::wire::code_tool;
use crate::wire::json::{Fields, push_json, push_name};
use crate::wire::model_request::ModelRequest;

/// The tools of a request.
pub(super) struct Tools<'a> {
    /// The caller's own.
    kept: Vec<&'a RawValue>,
    /// Name the model knows the code tool by.
    pub(super) name: String,
    choice: Option<Choice>,
    /// `parallel_tool_calls`, which providers refuse beside no tools.
    parallel: Option<&'a RawValue>,
}

struct Choice {
    first: Value,
    /// For later calls: what forces the code tool is met by one call of it.
    later: Value,
    /// For the call that must not use the code tool.
    closing: Value,
}

impl<'a> Tools<'a> {
    pub(super) fn read(fields: &mut Fields<'a>, run: &Run) -> Result<Self, Problem> {
        let list: Vec<&RawValue> = match fields.take("tools") {
            None => Vec::new(),
            Some(tools) => serde_json::from_str(tools.get())
                .map_err(|_| Problem::invalid("`tools` is not a list").with_param("tools"))?,
        };
        let unclaimed = list.into_iter().enumerate().filter(|(position, _)| !code_tool::is_claimed(run, *position));
        let kept: Vec<&RawValue> = unclaimed.map(|(_, tool)| tool).collect();
        let names: Vec<String> =
            kept.iter().filter_map(|tool| name_of(&serde_json::from_str(tool.get()).ok()?)).collect();
        let name = code_tool::free_name(names.iter().map(String::as_str));
        let choice: Option<Value> =
            fields.take("tool_choice").and_then(|choice| serde_json::from_str(choice.get()).ok());
        let ours = |one: &Value| is_ours(one, run, &names);
        let choice = choice.filter(|choice| !choice.is_null()).map(|choice| Choice::new(choice, ours, &name));
        Ok(Self { kept, name, choice, parallel: fields.take("parallel_tool_calls") })
    }

    pub(super) fn write(&self, request: &mut ModelRequest) {
        let mut ours = Vec::new();
        push_json(&mut ours, &code_tool::chat_function(&self.name));
        let choice = |pick: fn(&Choice) -> &Value| self.choice.as_ref().map(pick);
        request.tools_first = self.members(Some(&ours), choice(|choice| &choice.first));
        request.tools_later = self.members(Some(&ours), choice(|choice| &choice.later));
        // Not every server heeds `tool_choice: none`, so the tool itself goes.
        request.tools_closing =
            if self.kept.is_empty() { Vec::new() } else { self.members(None, choice(|choice| &choice.closing)) };
    }

    fn members(&self, ours: Option<&[u8]>, choice: Option<&Value>) -> Vec<u8> {
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
            push_json(&mut out, choice);
        }
        if let Some(parallel) = self.parallel {
            push_name(&mut out, "parallel_tool_calls");
            out.extend_from_slice(parallel.get().as_bytes());
        }
        out
    }
}

impl Choice {
    fn new(value: Value, ours: impl Fn(&Value) -> bool, tool_name: &str) -> Self {
        let named = json!({"type": "function", "function": {"name": tool_name}});
        if ours(&value) {
            return Self { first: named, later: json!("auto"), closing: json!("auto") };
        }
        if value == "required" {
            return Self { first: value, later: json!("auto"), closing: json!("auto") };
        }
        let Some(list) = value.pointer("/allowed_tools/tools").and_then(Value::as_array) else {
            return Self { first: value.clone(), later: value.clone(), closing: value };
        };
        let mut others = Vec::new();
        let mut allowed = Vec::new();
        for entry in list {
            if !ours(entry) {
                others.push(entry.clone());
                allowed.push(entry.clone());
            } else if !allowed.contains(&named) {
                allowed.push(named.clone());
            }
        }
        let with = |tools: Vec<Value>, free: bool| {
            let mut choice = value.clone();
            if let Some(Value::Object(inner)) = choice.get_mut("allowed_tools") {
                inner.insert("tools".to_owned(), tools.into());
                if free {
                    inner.insert("mode".to_owned(), "auto".into());
                }
            }
            choice
        };
        let closing = if others.is_empty() { json!("none") } else { with(others, true) };
        // A list without our tool forces the caller's own, whose call ends the answer.
        let is_met = allowed.contains(&named);
        Self { first: with(allowed.clone(), false), later: with(allowed, is_met), closing }
    }
}

/// Does a choice, or an entry of an allow-list, mean a claimed declaration?
fn is_ours(one: &Value, run: &Run, names: &[String]) -> bool {
    let name = name_of(one);
    let kind = one.as_str().or_else(|| one.get("type")?.as_str());
    name.as_ref().is_none_or(|name| !names.contains(name)) && run.claims(kind, name.as_deref())
}

/// The name in a tool, a choice, or an entry of an allow-list.
fn name_of(one: &Value) -> Option<String> {
    let name = ["/function/name", "/custom/name", "/name"].into_iter().find_map(|place| one.pointer(place)?.as_str());
    name.map(str::to_owned)
}
