//! `tools` and `tool_choice` in the words of the Responses wire.

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::{Map, Value, json};

use crate::wire::conversation::Function;
use crate::wire::json::Fields;
use crate::wire::tools::{Choices, Named, ToolWords, Tools};

/// This wire's words.
pub(super) struct Words;

impl ToolWords for Words {
    // Not every server heeds `tool_choice: none`, so the functions themselves go.
    const DECLARES_TO_THE_END: bool = false;

    /// `strict` is said in any case: on this wire a function is strict unless it says otherwise.
    fn function(function: &Function) -> Value {
        let mut entry = Map::new();
        entry.insert("type".to_owned(), "function".into());
        entry.insert("name".to_owned(), function.name.as_str().into());
        if let Some(description) = &function.description {
            entry.insert("description".to_owned(), description.as_str().into());
        }
        entry.insert("parameters".to_owned(), function.schema.clone().into());
        entry.insert("strict".to_owned(), function.strict.unwrap_or(false).into());
        entry.into()
    }

    fn auto(_asked: &Value) -> Value {
        "auto".into()
    }

    fn any(_asked: &Value) -> Value {
        "required".into()
    }

    fn named(_asked: &Value, name: &str) -> Value {
        json!({"type": "function", "name": name})
    }

    fn none() -> Value {
        "none".into()
    }
}

/// Reads the tools of a caller's request.
pub(super) fn read<'a>(fields: &mut Fields<'a>, run: &Run) -> Result<Tools<'a>, Problem> {
    Tools::read(fields, run, names_of, choose)
}

/// A tool's own name, and those of the functions that stand in it, as in a namespace.
fn names_of(tool: &Value) -> Vec<String> {
    let inside = tool.get("tools").and_then(Value::as_array).into_iter().flatten();
    let name = |tool: &Value| tool.get("name").and_then(Value::as_str).map(str::to_owned);
    std::iter::once(tool).chain(inside).filter_map(name).collect()
}

fn choose(asked: Value, named: Named<'_>) -> Choices {
    let ours = |one: &Value| is_claimed(one, named.run, named.own);
    if ours(&asked) {
        return Choices::ours_once::<Words>(&asked, named.functions);
    }
    if asked == "required" {
        let free = Words::auto(&asked);
        return Choices::any_once(asked, free);
    }
    let is_list = asked.get("type").and_then(Value::as_str) == Some("allowed_tools");
    let Some(list) = asked.get("tools").and_then(Value::as_array).filter(|_| is_list) else {
        return Choices::always(asked);
    };
    Choices::listed::<Words>(list, ours, named.functions, |tools, free| {
        let mut choice = asked.clone();
        if let Value::Object(choice) = &mut choice {
            choice.insert("tools".to_owned(), tools.into());
            if free {
                choice.insert("mode".to_owned(), "auto".into());
            }
        }
        choice
    })
}

/// Does a choice, or an entry of an allow-list, mean a claimed declaration?
pub(super) fn is_claimed(choice: &Value, run: &Run, names: &[String]) -> bool {
    let (kind, name) = (choice.get("type").and_then(Value::as_str), choice.get("name").and_then(Value::as_str));
    kind.is_some() && run.claims(kind, name) && !name.is_some_and(|name| names.iter().any(|known| known == name))
}
