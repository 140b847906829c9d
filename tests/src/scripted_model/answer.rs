//! From a scenario's turn to what goes on the wire: picks the turn, checks what it expects, fills in its templates.

use bytes::Bytes;
use serde_json::Value;
use std::time::Duration;

use super::conversation::Conversation;
use super::scenario::{Expect, Finish, HttpError, Scenario, Step, Turn, Usage};

/// A turn with its templates filled in, ready for a wire's writer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The model's name, echoed.
    pub(crate) model: String,
    /// Which turn of the conversation it is, for ids that do not repeat.
    pub(crate) turn: String,
    /// Characters in a streamed fragment.
    pub(crate) fragment: usize,
    /// Chat wire: whether the stream ends with a usage chunk.
    pub(crate) include_usage: bool,
    /// What is said, in order.
    pub(crate) acts: Vec<Act>,
    /// Why it ends.
    pub(crate) finish: Finish,
    /// Token counts.
    pub(crate) usage: Usage,
    /// An error in place of all that.
    pub(crate) error: Option<HttpError>,
}

/// A step whose templates are filled in.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Text(String),
    Thinking(String),
    /// `arguments` is the JSON text.
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    Block(Value),
    ErrorEvent(String),
    Malformed(String),
    Wait(Duration),
    Cut,
    Hang,
}

/// What a wire's writer hands to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Bytes(Bytes),
    Wait(Duration),
    Cut,
    Hang,
}

impl Answer {
    /// Picks and prepares the turn that answers this request; an `Err` says what the request lacks.
    pub(crate) fn prepare(
        scenario: &Scenario,
        conversation: &Conversation,
        body: &Value,
        body_sha256: &str,
    ) -> Result<Self, String> {
        let turn = pick(scenario, conversation)?;
        check(&turn.expect, conversation, body)?;
        let mut answer = Self {
            model: conversation.model.clone(),
            turn: format!("{}_{}", conversation.prompt, conversation.round),
            fragment: scenario.fragment,
            include_usage: conversation.include_usage,
            acts: Vec::new(),
            finish: Finish::End,
            usage: Usage { input: 10, output: 5 },
            error: None,
        };
        let mut explicit_finish = None;
        for step in &turn.steps {
            match step {
                Step::Text(text) => answer.acts.push(Act::Text(fill(text, conversation, body_sha256))),
                Step::Thinking(text) => answer.acts.push(Act::Thinking(text.clone())),
                Step::Call(call) => {
                    let name = match (call.tool.as_str(), &conversation.code_tool) {
                        ("{tool}", Some(tool)) => tool.clone(),
                        ("{tool}", None) => return Err("the request offers no code tool to call".to_owned()),
                        (other, _) => other.to_owned(),
                    };
                    let arguments = match &call.arguments {
                        Value::String(text) => text.clone(),
                        object => object.to_string(),
                    };
                    let arguments = arguments.replace("{{prompt}}", &within_json(&conversation.asked));
                    let id = format!("call_{}_{}_{}", conversation.prompt, conversation.round, answer.acts.len());
                    answer.acts.push(Act::Call { id, name, arguments });
                    answer.finish = Finish::Tool;
                }
                Step::Block(block) => answer.acts.push(Act::Block(block.clone())),
                Step::DelayMs(ms) => answer.acts.push(Act::Wait(Duration::from_millis(*ms))),
                Step::Usage(usage) => answer.usage = *usage,
                Step::Finish(finish) => explicit_finish = Some(*finish),
                Step::Error(error) => answer.error = Some(error.clone()),
                Step::ErrorEvent(message) => answer.acts.push(Act::ErrorEvent(message.clone())),
                Step::Malformed(text) => answer.acts.push(Act::Malformed(text.clone())),
                Step::Cut => answer.acts.push(Act::Cut),
                Step::Hang => answer.acts.push(Act::Hang),
            }
        }
        answer.finish = explicit_finish.unwrap_or(answer.finish);
        Ok(answer)
    }

    /// The silences and breaks of the answer, for a whole-body answer, which has nothing in between.
    pub(crate) fn interruptions(&self) -> Vec<Piece> {
        self.acts.iter().filter_map(interruption).collect()
    }
}

/// The piece of an act that is the same on every wire.
pub(crate) fn interruption(act: &Act) -> Option<Piece> {
    match act {
        Act::Wait(duration) => Some(Piece::Wait(*duration)),
        Act::Cut => Some(Piece::Cut),
        Act::Hang => Some(Piece::Hang),
        _ => None,
    }
}

/// Cuts a text into fragments of so many characters.
pub(crate) fn fragments(text: &str, size: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(size.max(1)).map(|chunk| chunk.iter().collect()).collect()
}

fn pick<'a>(scenario: &'a Scenario, conversation: &Conversation) -> Result<&'a Turn, String> {
    let turns = scenario.prompts.get(conversation.prompt).or(scenario.prompts.last()).ok_or("no prompts")?;
    let turn = match turns.get(conversation.round) {
        Some(turn) => turn,
        None if scenario.endless => turns.last().ok_or("no turns")?,
        None => return Err(format!("the scenario has no answer to {} rounds of tool results", conversation.round)),
    };
    let wants_tool = turn.steps.iter().any(|step| matches!(step, Step::Call(call) if call.tool == "{tool}"));
    match &scenario.without_tool {
        Some(other) if wants_tool && conversation.code_tool.is_none() => Ok(other),
        _ => Ok(turn),
    }
}

fn check(expect: &Expect, conversation: &Conversation, body: &Value) -> Result<(), String> {
    let results = conversation.results.join("\n");
    for wanted in &expect.results {
        if !results.contains(wanted.as_str()) {
            return Err(format!("the last tool results do not contain {wanted:?}: {results:?}"));
        }
    }
    for wanted in &expect.texts {
        if !says(body, wanted) {
            return Err(format!("nothing in the request contains {wanted:?}"));
        }
    }
    for (pointer, wanted) in &expect.body {
        let found = body.pointer(pointer).unwrap_or(&Value::Null);
        if found != wanted {
            return Err(format!("{pointer} is {found}, not {wanted}"));
        }
    }
    Ok(())
}

fn says(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text.contains(wanted),
        Value::Array(items) => items.iter().any(|item| says(item, wanted)),
        Value::Object(fields) => fields.values().any(|field| says(field, wanted)),
        _ => false,
    }
}

/// A text as it stands between the quotes of a JSON string.
fn within_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default().to_owned()
}

fn fill(text: &str, conversation: &Conversation, body_sha256: &str) -> String {
    text.replace("{{tool_result}}", &conversation.results.join("\n")).replace("{{body_sha256}}", body_sha256)
}
