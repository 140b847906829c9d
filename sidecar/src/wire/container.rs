//! The container that a request asks for, in the words of each wire.

use decision::decide::Run;
use decision::format::ApiFormat;
use decision::problem::Problem;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::Fields;
use crate::ids;

/// Which session a run is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerAsked {
    /// A fresh one.
    Fresh,
    /// That one and no other.
    Named {
        /// Its id, whoever minted it.
        id: String,
        /// Where it stands.
        param: String,
    },
    /// The one that the conversation last worked in, if it is to be had.
    Last(String),
}

/// Reads it from a body that has the history in it.
pub fn asked(caller: ApiFormat, body: &[u8], run: &Run) -> Result<ContainerAsked, Problem> {
    let fields: Fields<'_> =
        serde_json::from_slice(body).map_err(|_| Problem::invalid("the body is not a JSON object"))?;
    if let Some(id) = &run.container {
        return Ok(ContainerAsked::Named { id: id.clone(), param: place_of(id, &fields, run) });
    }
    match caller {
        ApiFormat::Messages => of_messages(&fields),
        // As the hosted service does it: `auto` goes on where the conversation was.
        ApiFormat::Responses => Ok(last(&fields).map_or(ContainerAsked::Fresh, ContainerAsked::Last)),
        ApiFormat::ChatCompletions => Ok(ContainerAsked::Fresh),
    }
}

/// A text or an object; without an id in it, a fresh one is asked for.
fn of_messages(fields: &Fields<'_>) -> Result<ContainerAsked, Problem> {
    const PARAM: &str = "container";
    let container: Value = fields.read(PARAM).unwrap_or_default();
    let id = match &container {
        Value::Object(object) => object.get("id").unwrap_or(&Value::Null),
        other => other,
    };
    match id {
        Value::Null => Ok(ContainerAsked::Fresh),
        Value::String(auto) if auto == "auto" && container.is_string() => Ok(ContainerAsked::Fresh),
        Value::String(id) => Ok(ContainerAsked::Named { id: id.clone(), param: PARAM.to_owned() }),
        _ => {
            let message =
                "`container` must be the id of a container, or an object with its `id`; leave it out for a new one";
            Err(Problem::invalid(message).with_param(PARAM))
        }
    }
}

fn place_of(id: &str, fields: &Fields<'_>, run: &Run) -> String {
    let tools: Vec<Value> = fields.read("tools").unwrap_or_default();
    let names = |container: &Value| container == id || container.get("id").is_some_and(|own| own == id);
    let index = run.claimed.iter().map(|claimed| claimed.index).find(|index| {
        let tool = usize::try_from(*index).ok().and_then(|index| tools.get(index));
        tool.and_then(|tool| tool.get("container")).is_some_and(names)
    });
    index.map_or_else(|| "container".to_owned(), |index| format!("tools[{index}].container"))
}

/// The container of the last code call in the input that ran here.
fn last(fields: &Fields<'_>) -> Option<String> {
    let items: Vec<&RawValue> = fields.read("input")?;
    items.into_iter().rev().find_map(|item| {
        let item: Fields<'_> = serde_json::from_str(item.get()).ok()?;
        let is_call = item.read::<String>("type")? == "code_interpreter_call";
        let id = is_call.then(|| item.read::<String>("container_id"))??;
        id.starts_with(ids::CONTAINER).then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use decision::decide::Dialect;
    use decision::request::{CodeTool, Keyword, ToolDeclaration};
    use serde_json::json;

    use super::*;

    const OURS: &str = "otari_cntr_1";

    fn ask(caller: ApiFormat, body: &Value, container: Option<&str>) -> Result<ContainerAsked, Problem> {
        let claimed = vec![ToolDeclaration { index: 1, keyword: Keyword::Interpreter, name: None, purpose_hint: None }];
        let run = Run {
            dialect: Dialect::Native,
            claimed,
            tools: vec![CodeTool::Python],
            max_iterations: 10,
            exec_timeout_s: 60,
            purpose_hint: None,
            image: None,
            container: container.map(str::to_owned),
        };
        asked(caller, body.to_string().as_bytes(), &run)
    }

    fn named(id: &str, param: &str) -> ContainerAsked {
        ContainerAsked::Named { id: id.to_owned(), param: param.to_owned() }
    }

    #[test]
    fn each_form_of_a_messages_container_is_read() {
        let of = |container: Value| ask(ApiFormat::Messages, &json!({"container": container}), None);
        for fresh in [json!(null), json!("auto"), json!({}), json!({"id": null}), json!({"skills": []})] {
            assert_eq!(of(fresh.clone()).unwrap(), ContainerAsked::Fresh, "{fresh}");
        }
        assert_eq!(ask(ApiFormat::Messages, &json!({}), None).unwrap(), ContainerAsked::Fresh);
        for foreign in [json!("container_011"), json!({"id": "container_011"})] {
            assert_eq!(of(foreign.clone()).unwrap(), named("container_011", "container"), "{foreign}");
        }
        // An id is an id in an object, whatever it says.
        assert_eq!(of(json!({"id": "auto"})).unwrap(), named("auto", "container"));
        for wrong in [json!(7), json!([OURS]), json!({"id": 7})] {
            assert_eq!(of(wrong.clone()).unwrap_err().param.as_deref(), Some("container"), "{wrong}");
        }
    }

    #[test]
    fn an_id_of_ours_is_told_by_where_it_stands() {
        for container in [json!(OURS), json!({"id": OURS})] {
            let tool = json!({"tools": [{}, {"type": "code_interpreter", "container": container}]});
            let top = json!({"container": container, "tools": [{}, {"type": "code_interpreter"}]});
            for caller in [ApiFormat::Messages, ApiFormat::ChatCompletions, ApiFormat::Responses] {
                assert_eq!(ask(caller, &tool, Some(OURS)).unwrap(), named(OURS, "tools[1].container"));
                assert_eq!(ask(caller, &top, Some(OURS)).unwrap(), named(OURS, "container"));
            }
        }
    }

    #[test]
    fn auto_on_the_responses_wire_goes_on_where_the_conversation_last_ran_here() {
        let call = |id: &str| json!({"type": "code_interpreter_call", "id": "otari_ci_1", "container_id": id});
        let said = json!({"role": "user", "content": [{"type": "input_text", "text": "otari_cntr_7"}]});
        let input = json!([call("otari_cntr_1"), call("otari_cntr_2"), call("cntr_of_the_provider"), said]);
        let last = ContainerAsked::Last("otari_cntr_2".to_owned());
        assert_eq!(ask(ApiFormat::Responses, &json!({"input": input}), None).unwrap(), last);
        for input in [json!("Hello"), json!([]), json!([call("cntr_1")]), json!(["otari_cntr_1"])] {
            let fresh = ask(ApiFormat::Responses, &json!({"input": input}), None).unwrap();
            assert_eq!(fresh, ContainerAsked::Fresh, "{input}");
        }
        let chat = ask(ApiFormat::ChatCompletions, &json!({"input": [call(OURS)]}), None).unwrap();
        assert_eq!(chat, ContainerAsked::Fresh);
    }
}
