//! `tools` and `tool_choice` in the words of the Chat Completions wire.

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::{Map, Value, json};

use crate::wire::conversation::Function;
use crate::wire::json::{Fields, push_json, push_name};
use crate::wire::tools::{Choices, Named, ToolWords, Tools};

/// This wire's words.
pub(super) struct Words;

impl ToolWords for Words {
    // Not every server heeds `tool_choice: none`, so the functions themselves go.
    const DECLARES_TO_THE_END: bool = false;

    fn function(function: &Function) -> Value {
        let mut entry = Map::new();
        entry.insert("name".to_owned(), function.name.as_str().into());
        if let Some(description) = &function.description {
            entry.insert("description".to_owned(), description.as_str().into());
        }
        entry.insert("parameters".to_owned(), function.schema.clone().into());
        if let Some(strict) = function.strict {
            entry.insert("strict".to_owned(), strict.into());
        }
        json!({"type": "function", "function": entry})
    }

    fn auto(_asked: &Value) -> Value {
        "auto".into()
    }

    fn any(_asked: &Value) -> Value {
        "required".into()
    }

    fn named(_asked: &Value, name: &str) -> Value {
        json!({"type": "function", "function": {"name": name}})
    }

    fn none() -> Value {
        "none".into()
    }
}

/// The parallel flag, which providers refuse beside no tools.
pub(super) fn parallel(flag: &(impl serde::Serialize + ?Sized)) -> Vec<u8> {
    let mut member = Vec::new();
    push_name(&mut member, "parallel_tool_calls");
    push_json(&mut member, flag);
    member
}

/// Reads the tools of a caller's request.
pub(super) fn read<'a>(fields: &mut Fields<'a>, run: &Run) -> Result<Tools<'a>, Problem> {
    let mut tools = Tools::read(fields, run, name_of, choose)?;
    tools.beside = fields.take("parallel_tool_calls").map(parallel).unwrap_or_default();
    Ok(tools)
}

fn choose(asked: Value, named: Named<'_>) -> Choices {
    let ours = |one: &Value| is_ours(one, named);
    if ours(&asked) {
        return Choices::ours_once::<Words>(&asked, named.functions);
    }
    if asked == "required" {
        let free = Words::auto(&asked);
        return Choices::any_once(asked, free);
    }
    let Some(list) = asked.pointer("/allowed_tools/tools").and_then(Value::as_array) else {
        return Choices::always(asked);
    };
    Choices::listed::<Words>(list, ours, named.functions, |tools, free| {
        let mut choice = asked.clone();
        if let Some(Value::Object(inner)) = choice.get_mut("allowed_tools") {
            inner.insert("tools".to_owned(), tools.into());
            if free {
                inner.insert("mode".to_owned(), "auto".into());
            }
        }
        choice
    })
}

/// Does a choice, or an entry of an allow-list, mean a claimed declaration?
fn is_ours(one: &Value, named: Named<'_>) -> bool {
    let name = name_of(one);
    let kind = one.as_str().or_else(|| one.get("type")?.as_str());
    name.as_ref().is_none_or(|name| !named.own.contains(name)) && named.run.claims(kind, name.as_deref())
}

/// The name in a tool, a choice, or an entry of an allow-list.
fn name_of(one: &Value) -> Option<String> {
    let name = ["/function/name", "/custom/name", "/name"].into_iter().find_map(|place| one.pointer(place)?.as_str());
    name.map(str::to_owned)
}
