//! The same reading from a DOM: slow, plain, and written apart from the scanner.

use serde_json::{Map, Value};

use crate::request::{Keyword, NamedTool, RequestView, ToolChoice, ToolDeclaration};

type Object = Map<String, Value>;

/// What a decision reads, or `None` if the request must be refused.
pub(super) fn view(dom: &Value) -> Option<RequestView> {
    let root = dom.as_object()?;
    if root.contains_key("Model") {
        return None;
    }
    let mut view = RequestView {
        model: match root.get("model") {
            None | Some(Value::Null) => None,
            Some(Value::String(model)) if model.len() <= super::super::MAX_MODEL => Some(model.clone()),
            Some(_) => return None,
        },
        stream: root.get("stream") == Some(&Value::Bool(true)),
        mcp: ["mcp_servers", "mcp_server_ids"].iter().any(|key| is_filled(root.get(*key))),
        stored_prompt: is_filled(root.get("prompt")),
        tool_choice: choice(root.get("tool_choice")),
        ..RequestView::default()
    };
    let tools = match root.get("tools") {
        None | Some(Value::Null) => &Vec::new(),
        Some(Value::Array(tools)) => tools,
        Some(_) => return None,
    };
    for (index, tool) in tools.iter().enumerate() {
        let Some(tool) = tool.as_object() else { continue };
        container(tool, &mut view);
        let Some(kind) = text(tool, "type") else { continue };
        view.web_search |= kind == "otari_web_search";
        if Keyword::parse(&kind).is_none() && Keyword::parse(&kind.trim().to_ascii_lowercase()).is_some() {
            return None;
        }
        if let Some(keyword) = Keyword::parse(&kind) {
            view.declarations.push(ToolDeclaration {
                index: u32::try_from(index).ok()?,
                keyword,
                name: text(tool, "name"),
                purpose_hint: text(tool, "purpose_hint").filter(|hint| !hint.trim().is_empty()),
            });
        }
    }
    container(root, &mut view);
    own_container(dom, &mut view);
    strings(dom, &mut |text| {
        view.own_file_ids |= text.starts_with("file-otr") || text.starts_with("cfile_otr");
        view.minted_history |=
            ["otari_srvtoolu_", "otari_ci_", "otari_thought_", "resp_otr", "msg_otr", "rs_otr", "fc_otr"]
                .iter()
                .any(|ours| text.starts_with(ours));
    });
    unusable(root, &mut view);
    Some(view)
}

/// `tools` has an entry that asks for code.
pub(super) fn declares_code(dom: &Value) -> bool {
    let tools = dom.get("tools").and_then(Value::as_array);
    let is_code =
        |tool: &Value| tool.get("type").and_then(Value::as_str).is_some_and(|kind| Keyword::parse(kind).is_some());
    tools.is_some_and(|tools| tools.iter().any(is_code))
}

fn text(object: &Object, key: &str) -> Option<String> {
    object.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn is_filled(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Array(entries)) => !entries.is_empty(),
        Some(_) => true,
    }
}

fn container(holder: &Object, view: &mut RequestView) {
    view.skills |= is_filled(holder.get("container").and_then(|container| container.get("skills")));
}

/// Containers of ours; the order in which they stand decides which is the first.
fn own_container(dom: &Value, view: &mut RequestView) {
    let id = |container: &Value| match container {
        Value::String(id) => Some(id.clone()),
        container => container.get("id").and_then(Value::as_str).map(str::to_owned),
    };
    let tools = dom.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    let holders = std::iter::once(dom).chain(&tools);
    let mut ids: Vec<String> = holders
        .filter_map(|holder| holder.as_object()?.get("container").and_then(id))
        .filter(|id| id.starts_with("otari_cntr_"))
        .collect();
    ids.dedup();
    view.containers_differ = ids.iter().any(|id| *id != ids[0]);
    view.own_container = ids.into_iter().next();
}

fn unusable(root: &Object, view: &mut RequestView) {
    let stream = !matches!(root.get("stream"), None | Some(Value::Null | Value::Bool(_)));
    let iterations = root.get("max_tool_iterations").filter(|value| !value.is_null());
    view.max_tool_iterations = iterations.and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    if stream || (iterations.is_some() && view.max_tool_iterations.is_none()) {
        view.unusable = Some(SOME);
    }
}

/// A parameter; which of several stands first is not a DOM's to say.
const SOME: &str = "some";

/// Without what only the order of the text can tell.
pub(super) fn comparable(mut view: RequestView) -> RequestView {
    view.unusable = view.unusable.map(|_| SOME);
    if view.containers_differ {
        view.own_container = None;
    }
    view
}

fn strings(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => found(text),
        Value::Array(entries) => entries.iter().for_each(|entry| strings(entry, found)),
        Value::Object(fields) => fields.values().for_each(|field| strings(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn choice(value: Option<&Value>) -> Option<ToolChoice> {
    match value? {
        Value::String(word) => {
            let tool = NamedTool { kind: Some(word.clone()), name: None };
            Some(ToolChoice { tool, allowed: Vec::new() })
        }
        Value::Object(choice) => {
            let lists = [choice.get("tools"), choice.get("allowed_tools").and_then(|allowed| allowed.get("tools"))];
            let entries = lists.into_iter().flatten().filter_map(Value::as_array).flatten();
            Some(ToolChoice { tool: named(choice), allowed: entries.filter_map(Value::as_object).map(named).collect() })
        }
        _ => None,
    }
}

fn named(object: &Object) -> NamedTool {
    let mut nested = ["function", "tool", "custom"].iter().filter_map(|key| object.get(*key)?.as_object());
    let name = text(object, "name").or_else(|| nested.find_map(|object| text(object, "name")));
    NamedTool { kind: text(object, "type"), name }
}
