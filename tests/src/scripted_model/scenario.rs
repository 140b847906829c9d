//! What a scripted model says, as data: one JSON file a scenario, named like the model that plays it.
//!
//! INVARIANT: a scenario file with an unknown field or step does not load; a typo never becomes a silent no-op.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// Everything one model says.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What the scenario is for, in one sentence.
    pub about: String,
    /// Characters in a streamed fragment; small enough by default to split JSON escapes.
    #[serde(default = "default_fragment")]
    pub fragment: usize,
    /// One list of turns for each text the user sends; further texts play the last list again.
    pub prompts: Vec<Vec<Turn>>,
    /// Played instead of a turn that calls `{tool}` when the request offers no code tool.
    #[serde(default)]
    pub without_tool: Option<Turn>,
    /// The last turn is played for ever, instead of a 400 for a turn too many.
    #[serde(default)]
    pub endless: bool,
}

/// One answer of the model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// What the request must look like; otherwise the answer is a 400 that says what is missing.
    #[serde(default)]
    pub expect: Expect,
    /// What is said, in order.
    pub steps: Vec<Step>,
}

/// Conditions on the request that a turn answers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Each must occur in the results of the last round of tool calls.
    #[serde(default)]
    pub results: Vec<String>,
    /// Each must occur somewhere in the request body's text, after JSON unescaping.
    #[serde(default)]
    pub texts: Vec<String>,
    /// JSON pointer → value that must stand there; `null` stands for "absent or null".
    #[serde(default)]
    pub body: BTreeMap<String, Value>,
}

/// One thing a model does.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Text; `{{tool_result}}` and `{{body_sha256}}` are filled in.
    Text(String),
    /// Reasoning: `reasoning_content` on the chat wire, a signed thinking block on the Messages wire, a sealed item on the
    /// Responses wire.
    Thinking(String),
    /// A tool call.
    Call(Call),
    /// Not on the chat wire: a whole content block or item, as a provider that runs code itself sends it.
    Block(Value),
    /// Silence, for keep-alive and cancellation tests; at most [`MAX_DELAY_MS`].
    DelayMs(u64),
    /// Token counts of this answer, instead of 10 in and 5 out.
    Usage(Usage),
    /// Why the answer ends, instead of "tool" after a call and "end" otherwise.
    Finish(Finish),
    /// An HTTP error in place of the answer; must be the only step besides delays.
    Error(HttpError),
    /// The wire's own error event, in mid-stream.
    ErrorEvent(String),
    /// These characters as they stand, in mid-stream.
    Malformed(String),
    /// The connection breaks.
    Cut,
    /// Nothing more comes until the client leaves.
    Hang,
}

/// A tool call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Name of the tool; `{tool}` is the code tool that the request offers.
    pub tool: String,
    /// The arguments, as an object; or as a string, which is sent as it stands, valid JSON or not. `{{prompt}}` in a text
    /// of theirs is the user's last one.
    pub arguments: Value,
}

/// Token counts.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens read.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
}

/// Why an answer ends, in neutral words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model has said all it wants.
    End,
    /// The model waits for tool results.
    Tool,
    /// The token limit is reached.
    Length,
    /// The provider's filter stepped in.
    Refusal,
}

/// An HTTP error.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpError {
    /// HTTP status.
    pub status: u16,
    /// The body; absent is an empty one.
    #[serde(default)]
    pub body: Option<Value>,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// Longest silence a scenario may ask for; longer is a hang.
pub(crate) const MAX_DELAY_MS: u64 = 60_000;

/// All scenarios of a folder, by name.
#[derive(Debug, Clone, Default)]
pub struct Library(BTreeMap<String, Scenario>);

impl Library {
    /// Reads every `*.json` of a folder; the file's stem is the model's name.
    pub fn load(folder: &Path) -> Result<Self, String> {
        let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut scenarios = BTreeMap::new();
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let scenario: Scenario =
                serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
            scenario.check().map_err(|problem| format!("{}: {problem}", path.display()))?;
            scenarios.insert(name, scenario);
        }
        Ok(Self(scenarios))
    }

    /// The scenario a model plays. `anything--NAME` plays NAME too, so that model patterns have something to match.
    pub fn find(&self, model: &str) -> Option<&Scenario> {
        self.0.get(model).or_else(|| self.0.get(model.rsplit_once("--")?.1))
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl Scenario {
    fn check(&self) -> Result<(), String> {
        if self.fragment == 0 {
            return Err("`fragment` must be at least 1".to_owned());
        }
        if self.prompts.is_empty() || self.prompts.iter().any(Vec::is_empty) {
            return Err("`prompts` needs at least one list of at least one turn".to_owned());
        }
        let turns = self.prompts.iter().flatten().chain(&self.without_tool);
        for step in turns.flat_map(|turn| &turn.steps) {
            if matches!(step, Step::DelayMs(ms) if *ms > MAX_DELAY_MS) {
                return Err(format!("`delay_ms` may be at most {MAX_DELAY_MS}; use `hang` for longer"));
            }
        }
        Ok(())
    }
}

fn default_fragment() -> usize {
    7
}
