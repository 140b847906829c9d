//! `tools` and `tool_choice` in the words of the Messages wire.

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::{Map, Value, json};

use crate::wire::conversation::Function;
use crate::wire::json::Fields;
use crate::wire::tools::{Choices, Named, ToolWords, Tools};

/// This wire's words. Every choice keeps whether parallel calls are forbidden.
pub(super) struct Words;

/// The member of a choice that forbids parallel calls.
pub(super) const SERIAL: &str = "disable_parallel_tool_use";

impl ToolWords for Words {
    // A history with calls in it needs tools to be declared.
    const DECLARES_TO_THE_END: bool = true;

    fn function(function: &Function) -> Value {
        let mut entry = Map::new();
        entry.insert("name".to_owned(), function.name.as_str().into());
        if let Some(description) = &function.description {
            entry.insert("description".to_owned(), description.as_str().into());
        }
        entry.insert("input_schema".to_owned(), function.schema.clone().into());
        if function.strict == Some(true) {
            entry.insert("strict".to_owned(), true.into());
        }
        entry.into()
    }

    fn auto(asked: &Value) -> Value {
        choice("auto", None, asked)
    }

    fn any(asked: &Value) -> Value {
        choice("any", None, asked)
    }

    fn named(asked: &Value, name: &str) -> Value {
        choice("tool", Some(name), asked)
    }

    fn none() -> Value {
        json!({"type": "none"})
    }
}

/// The member that says who may call a tool: the model, or code that it runs.
const CALLERS: &str = "allowed_callers";

/// Reads the tools of a caller's request. Gives also what had to be left out of them.
pub(super) fn read<'a>(fields: &mut Fields<'a>, run: &Run) -> Result<(Tools<'a>, Vec<String>), Problem> {
    let mut tools = Tools::read(fields, run, |tool| word(tool, "name"), choose)?;
    let mut dropped = Vec::new();
    tools.edit_own(|tool| without_code(tool, &mut dropped))?;
    Ok((tools, dropped))
}

/// A tool without the code that may call it: code that runs here can call none, and a provider refuses a caller that is
/// not declared.
fn without_code(tool: &str, dropped: &mut Vec<String>) -> Result<Option<String>, Problem> {
    if memchr::memmem::find(tool.as_bytes(), CALLERS.as_bytes()).is_none() {
        return Ok(None);
    }
    let Ok(mut tool) = serde_json::from_str::<Map<String, Value>>(tool) else { return Ok(None) };
    let is_code = |caller: &Value| caller.as_str().is_some_and(|caller| caller.starts_with("code_execution"));
    let Some(callers) = tool.get_mut(CALLERS).and_then(Value::as_array_mut) else { return Ok(None) };
    let before = callers.len();
    callers.retain(|caller| !is_code(caller));
    if callers.len() == before {
        return Ok(None);
    }
    let param = format!("{}.{CALLERS}", tool.get("name").and_then(Value::as_str).unwrap_or("tools"));
    if tool.get(CALLERS).and_then(Value::as_array).is_some_and(Vec::is_empty) {
        let message = format!("`{param}` allows code alone, and code that runs here cannot call tools: add `direct`");
        return Err(Problem::invalid(message).with_param(param));
    }
    dropped.push(param);
    Ok(Some(Value::from(tool).to_string()))
}

fn choose(asked: Value, named: Named<'_>) -> Choices {
    let (kind, name) = (word(&asked, "type").unwrap_or_default(), word(&asked, "name").unwrap_or_default());
    match &*kind {
        "tool" if !named.own.contains(&name) && named.run.claims(Some(&kind), Some(&name)) => {
            Choices::ours_once::<Words>(&asked, named.functions)
        }
        "any" => {
            let free = Words::auto(&asked);
            Choices::any_once(asked, free)
        }
        _ => Choices::always(asked),
    }
}

fn choice(kind: &str, name: Option<&str>, asked: &Value) -> Value {
    let mut choice = Map::new();
    choice.insert("type".to_owned(), kind.into());
    choice.extend(name.map(|name| ("name".to_owned(), name.into())));
    choice.extend(asked.get(SERIAL).map(|serial| (SERIAL.to_owned(), serial.clone())));
    choice.into()
}

fn word(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned)
}
