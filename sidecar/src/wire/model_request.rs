//! A request to a model that grows turn by turn: parsed once, each call one copy of bytes.
//!
//! INVARIANT: what stands in the history is never written again, only appended to.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::code_tool::Functions;
use super::past::Place;

/// The parts of a request body that the loop puts together.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// Members that never change: `"model":…,"stream":…`, no braces.
    pub fields: Vec<u8>,
    /// Name of the member that holds the history.
    pub history_name: &'static str,
    /// The history's entries, no brackets.
    pub history: Vec<u8>,
    /// `"tools":…,"tool_choice":…` of the first call, no braces; may be empty.
    pub tools_first: Vec<u8>,
    /// The same for later calls: a forced call is forced once.
    pub tools_later: Vec<u8>,
    /// The same for the call that must not use the tool.
    pub tools_closing: Vec<u8>,
}

/// Members of a caller's request, on any wire, that no provider reads.
pub const GATEWAY_FIELDS: &[&str] =
    &["container", "guardrails", "max_tool_iterations", "mcp_server_ids", "session_label", "tools_header"];

/// Those of them that this gateway does not read either.
pub const UNSERVED_FIELDS: &[&str] = &["guardrails", "session_label", "tools_header"];

/// What becomes of the blocks and items of a provider's own tools in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// They stay: the model is the provider's own, or nobody knows.
    Stays,
    /// The model, which is another provider's, is told in words what they did.
    Told,
}

/// What the caller asked to see beside the answer itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Show {
    /// The model's thinking, where it comes from another wire.
    pub reasoning: bool,
    /// Chat Completions: what the answer cost, at the end of a stream.
    pub usage: bool,
    /// Chat Completions: an account of what ran.
    pub runs: bool,
}

/// A request made ready for a run here.
#[derive(Debug)]
pub struct Prepared {
    /// What the model is sent.
    pub request: ModelRequest,
    /// Our functions, by the names that the model knows them by.
    pub functions: Functions,
    /// Name of the model as the caller wrote it.
    pub model: String,
    /// What the caller asked to see.
    pub show: Show,
    /// What could not be carried over, by parameter.
    pub dropped: Vec<String>,
    /// What the answer needs of the request.
    pub caller: CallerSettings,
}

/// What a caller's request says that means nothing to the model and something to the answer.
#[derive(Debug, Default)]
pub struct CallerSettings {
    /// Members that the answer repeats or follows, for wires whose answers do.
    pub members: Map<String, Value>,
    /// Code calls that may run; no limit of the caller's when absent.
    pub max_calls: Option<usize>,
    /// What a run here cannot give, by parameter.
    pub dropped: Vec<String>,
    /// Responses: the caller wants to go on from the answer by its id.
    pub store: bool,
    /// Where the answer will stand, if what runs in it must be remembered for the caller's next request.
    pub place: Option<Place>,
}

/// What the model is told of one of its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    /// The model's own id of the call.
    pub call_id: String,
    /// What it gave.
    pub text: String,
    /// It is no success.
    pub is_error: bool,
}

/// Which model call of a request this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnKind {
    /// The first.
    First,
    /// Any other.
    Later,
    /// The last, without the tool.
    Closing,
}

impl ModelRequest {
    /// The whole body.
    pub fn body(&self, kind: TurnKind) -> Bytes {
        let tools = match kind {
            TurnKind::First => &self.tools_first,
            TurnKind::Later => &self.tools_later,
            TurnKind::Closing => &self.tools_closing,
        };
        let mut body = Vec::with_capacity(self.fields.len() + tools.len() + self.history.len() + 64);
        body.push(b'{');
        for part in [&self.fields, tools] {
            if !part.is_empty() {
                body.extend_from_slice(part);
                body.push(b',');
            }
        }
        super::json::push_json(&mut body, self.history_name);
        body.extend_from_slice(b":[");
        body.extend_from_slice(&self.history);
        body.extend_from_slice(b"]}");
        body.into()
    }

    /// Appends an entry, a JSON text, or several with commas between them, to the history.
    pub fn append(&mut self, entry: &[u8]) {
        if !self.history.is_empty() && !entry.is_empty() {
            self.history.push(b',');
        }
        self.history.extend_from_slice(entry);
    }
}
