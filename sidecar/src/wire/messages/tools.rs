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

/// Reads the tools of a caller's request.
pub(super) fn read<'a>(fields: &mut Fields<'a>, run: &Run) -> Result<Tools<'a>, Problem> {
    Tools::read(fields, run, |tool| word(tool, "name"), choose)
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
