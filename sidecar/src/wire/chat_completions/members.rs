//! Members of a caller's request that decide what its answer shows, and those that no run here can honour.
//!
//! INVARIANT: a member that is ours alone is taken out here; the model never sees it.

use decision::problem::Problem;
use serde_json::Value;

use crate::wire::json::Fields;
use crate::wire::model_request::Show;

/// Asks for an account of what ran.
const INCLUDE: &str = "otari_include";
/// The one thing that can be asked for.
const CODE_EXECUTION: &str = "code_execution";

/// What the caller asked to see. Takes out what only this gateway reads.
pub(super) fn read_show(fields: &mut Fields<'_>) -> Result<Show, Problem> {
    let runs = match fields.take(INCLUDE).map(|list| serde_json::from_str::<Option<Vec<Value>>>(list.get())) {
        None | Some(Ok(None)) => false,
        Some(Ok(Some(list))) if list.iter().all(|entry| entry == CODE_EXECUTION) => !list.is_empty(),
        Some(_) => {
            let message = format!("`{INCLUDE}` must be a list of nothing but \"{CODE_EXECUTION}\"");
            return Err(Problem::invalid(message).with_param(INCLUDE));
        }
    };
    let options: Option<Value> = fields.read("stream_options");
    let usage = options.and_then(|options| options.get("include_usage")?.as_bool()).unwrap_or(false);
    // Thinking of the same wire is shown as it comes; that of another has no place in this one.
    Ok(Show { reasoning: false, usage, runs })
}

/// Refuses what cannot be combined with a run here, whatever wire the model speaks.
pub(super) fn check_servable(fields: &Fields<'_>) -> Result<(), Problem> {
    let given = |name: &str| fields.read::<Value>(name).filter(|value| !value.is_null());
    if given("n").is_some_and(|n| n != 1) {
        let message = "`n` must be 1 where code runs at this gateway: ask several times for several answers";
        return Err(Problem::invalid(message).with_param("n"));
    }
    for name in ["functions", "function_call"] {
        if given(name).is_some() {
            let message = format!(
                "`{name}` cannot be combined with code that runs at this gateway: use `tools` and `tool_choice`"
            );
            return Err(Problem::invalid(message).with_param(name));
        }
    }
    Ok(())
}
