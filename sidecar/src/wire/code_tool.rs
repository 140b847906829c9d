//! The function that a model is given in place of the caller's code tools.

mod argument;

use decision::decide::Run;
use serde_json::{Value, json};

pub use argument::{CodeArgument, NotCode};

/// Its name, unless the caller has a function of that name.
pub const NAME: &str = "code_execution";

/// What the model is told it does.
pub const DESCRIPTION: &str = "Runs Python code in an isolated interpreter and gives back its standard output, \
standard error and return code. Variables, imports and files stay in place between calls of the same request. \
There is no network. Only what the code prints is seen, so print every result that matters. Prefer running code \
to working things out in your head whenever numbers, dates, data or files are involved.";

/// In front of the text of a result that is no success, for wires and models that know no other mark.
pub const ERROR_MARK: &str = "[tool error] ";

/// JSON schema of its one parameter.
pub fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python source code to run."}},
        "required": ["code"],
        "additionalProperties": false,
    })
}

/// The function as Chat Completions declares one.
pub fn chat_function(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": DESCRIPTION, "parameters": schema()}})
}

/// A name that none of the caller's own functions has.
pub fn free_name<'a>(taken: impl Iterator<Item = &'a str> + Clone) -> String {
    let is_free = |name: &str| !taken.clone().any(|known| known == name);
    if is_free(NAME) {
        return NAME.to_owned();
    }
    // One more candidate than there are names that could be in the way.
    let candidates = (1..=taken.clone().count().saturating_add(1)).map(|n| format!("otari_{NAME}_{n}"));
    candidates.into_iter().find(|name| is_free(name)).unwrap_or_else(|| format!("otari_{NAME}"))
}

/// The purpose hint as it stands in front of the system text.
pub fn hint_text(run: &Run, tool_name: &str) -> Option<String> {
    let hint = run.purpose_hint.as_deref()?.trim();
    (!hint.is_empty()).then(|| format!("When to use the tools of this gateway:\n- {tool_name}: {hint}"))
}

/// Is the tool at this position one of the claimed?
pub fn is_claimed(run: &Run, position: usize) -> bool {
    run.claimed.iter().any(|declaration| usize::try_from(declaration.index).is_ok_and(|index| index == position))
}
