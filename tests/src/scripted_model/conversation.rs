//! What a request tells about the conversation so far, whatever the wire.
//!
//! INVARIANT: everything comes from the request itself, so the model keeps no state and any replica could answer.

use decision::format::ApiFormat;
use serde_json::Value;

/// A request as the scripted model understands it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conversation {
    /// The model asked for.
    pub(crate) model: String,
    /// Whether the answer is to be streamed.
    pub(crate) stream: bool,
    /// Chat wire: whether the stream ends with a usage chunk.
    pub(crate) include_usage: bool,
    /// The user's last text.
    pub(crate) asked: String,
    /// How many texts the user has sent, less one.
    pub(crate) prompt: usize,
    /// How many rounds of tool results came since the user's last text.
    pub(crate) round: usize,
    /// The results of the last of those rounds.
    pub(crate) results: Vec<String>,
    /// The name of the offered code tool.
    pub(crate) code_tool: Option<String>,
}

/// Who said what, with the wire's shape taken away.
enum Said {
    Prompt(String),
    Results(Vec<String>),
    Other,
}

impl Conversation {
    /// Reads a request body.
    pub(crate) fn read(wire: ApiFormat, body: &Value) -> Result<Self, String> {
        let model = body.get("model").and_then(Value::as_str).ok_or("`model` must be a string")?;
        let messages = history(wire, body)?;
        let mut conversation = Self {
            model: model.to_owned(),
            stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false),
            include_usage: body.pointer("/stream_options/include_usage").and_then(Value::as_bool).unwrap_or(false),
            asked: String::new(),
            prompt: 0,
            round: 0,
            results: Vec::new(),
            code_tool: code_tool(body),
        };
        let mut prompts = 0_usize;
        let mut in_results = false;
        for message in &messages {
            match said(wire, message) {
                Said::Prompt(text) => {
                    prompts += 1;
                    conversation.asked = text;
                    conversation.round = 0;
                    conversation.results.clear();
                    in_results = false;
                }
                Said::Results(results) => {
                    if !in_results {
                        conversation.round += 1;
                        conversation.results.clear();
                    }
                    conversation.results.extend(results);
                    in_results = true;
                }
                Said::Other => in_results = false,
            }
        }
        conversation.prompt = prompts.saturating_sub(1);
        Ok(conversation)
    }
}

/// The messages or items so far.
fn history(wire: ApiFormat, body: &Value) -> Result<Vec<Value>, String> {
    let name = if wire == ApiFormat::Responses { "input" } else { "messages" };
    match body.get(name) {
        Some(Value::Array(list)) => Ok(list.clone()),
        Some(Value::String(text)) if wire == ApiFormat::Responses => {
            Ok(vec![serde_json::json!({"role": "user", "content": text})])
        }
        _ => Err(format!("`{name}` must be a list")),
    }
}

fn said(wire: ApiFormat, message: &Value) -> Said {
    let content = message.get("content").unwrap_or(&Value::Null);
    if message.get("type").and_then(Value::as_str) == Some("function_call_output") {
        return Said::Results(vec![text_of(message.get("output").unwrap_or(&Value::Null))]);
    }
    match (wire, message.get("role").and_then(Value::as_str)) {
        (_, Some("tool")) => Said::Results(vec![text_of(content)]),
        (ApiFormat::Messages, Some("user")) => {
            let results: Vec<String> = content
                .as_array()
                .into_iter()
                .flatten()
                .filter(|block| block.get("type").and_then(Value::as_str) == Some("tool_result"))
                .map(|block| text_of(block.get("content").unwrap_or(&Value::Null)))
                .collect();
            if results.is_empty() { Said::Prompt(text_of(content)) } else { Said::Results(results) }
        }
        (_, Some("user")) => Said::Prompt(text_of(content)),
        _ => Said::Other,
    }
}

/// The text of a string, or of the text parts of a list.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The offered tool that runs code: a function of either wire's shape whose name says so.
fn code_tool(body: &Value) -> Option<String> {
    let tools = body.get("tools").and_then(Value::as_array)?;
    tools
        .iter()
        .filter_map(|tool| tool.pointer("/function/name").or_else(|| tool.get("name")).and_then(Value::as_str))
        .find(|name| name.contains("code_execution"))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rounds_start_again_with_each_text_of_the_user() {
        let read = |messages: Value| {
            Conversation::read(ApiFormat::ChatCompletions, &json!({"model": "m", "messages": messages})).unwrap()
        };
        let first = read(json!([{"role": "user", "content": "a"}]));
        assert_eq!((first.prompt, first.round), (0, 0));
        let second = read(json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "tool_calls": []},
            {"role": "tool", "content": "1"},
            {"role": "tool", "content": "2"},
        ]));
        assert_eq!((second.prompt, second.round, second.results), (0, 1, vec!["1".to_owned(), "2".to_owned()]));
        let third = read(json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "tool_calls": []},
            {"role": "tool", "content": "1"},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "b"},
        ]));
        assert_eq!((third.prompt, third.round, third.results.len()), (1, 0, 0));
    }

    #[test]
    fn a_messages_turn_of_tool_results_is_not_a_prompt() {
        let body = json!({"model": "m", "stream": true, "tools": [{"name": "code_execution"}], "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "code_execution", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "42"}]},
            ]},
        ]});
        let conversation = Conversation::read(ApiFormat::Messages, &body).unwrap();
        assert_eq!((conversation.prompt, conversation.round), (0, 1));
        assert_eq!(conversation.results, ["42"]);
        assert_eq!(conversation.code_tool.as_deref(), Some("code_execution"));
        assert!(conversation.stream);
    }
}
