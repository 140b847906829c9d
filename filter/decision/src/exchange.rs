//! One request at an enforcement point, step by step: head seen → body complete → where it goes.
//!
//! INVARIANT: a step other than [`Step::Buffer`] is the last; an enforcement point acts on it and asks no more.

use crate::config::{FilterConfig, ProviderKind};
use crate::decide::{Decision, Run};
use crate::format::{ApiFormat, Vocabulary};
use crate::identity::Identity;
use crate::policy::PolicyView;
use crate::problem::Problem;
use crate::reason::Reason;
use crate::request::RequestView;

/// The head of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// All pairs, `:method` and `:path` included; names in lower case, values as bytes.
    pub headers: &'a [(&'a [u8], &'a [u8])],
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnforcementPoint {
    /// The fast path: may send on to the sidecar whatever it cannot settle.
    Filter,
    /// The authority: must settle.
    Sidecar,
}

/// What an enforcement point knows besides the request.
#[derive(Debug, Clone, Copy)]
pub struct Env<'a> {
    /// The configuration.
    pub config: &'a FilterConfig,
    /// The snapshot as it stands now.
    pub policy: PolicyView<'a>,
    /// Who asks.
    pub point: EnforcementPoint,
    /// For error bodies.
    pub request_id: &'a str,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Hold the request until its body is complete, feeding the body; then call `finish`.
    Buffer,
    /// Not ours to look at: apply the edits and let it go, body unread.
    PassThrough(HeaderEdits, Reason),
    /// Decided. May come from `begin`, before the body: then the body is not held at all.
    Forward(Box<Forward>),
    /// Answer with this.
    Refuse(Box<Refusal>),
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub problem: Problem,
    /// Whose words to use.
    pub vocabulary: Vocabulary,
    /// Why, for the counters.
    pub reason: Reason,
}

/// A request that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// Where to.
    pub target: Target,
    /// Header edits for that target; towards a loop, the edits of its model calls.
    pub edits: HeaderEdits,
    /// The decision. `NotInference` where nothing was to be decided.
    pub decision: Decision,
    /// The endpoint's wire; `None` off the inference endpoints.
    pub format: Option<ApiFormat>,
    /// Whose error words the caller reads.
    pub vocabulary: Vocabulary,
    /// Whose request it is; `None` where only the sidecar can tell.
    pub identity: Option<Identity>,
    /// Where the model is served; `None` without a model or a match.
    pub model: Option<ModelChoice>,
    /// What the body says; empty when the body was not read.
    pub request: RequestView,
}

/// A model and its provider, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice {
    /// Provider's name.
    pub provider: String,
    /// Provider's kind.
    pub kind: ProviderKind,
    /// Wires the model serves, never empty.
    pub wires: Vec<ApiFormat>,
    /// The name to send upstream, when it is not the caller's: whoever sends the body on must put it there.
    pub upstream_model: Option<String>,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To the provider of this name; in a mesh (`None`) to wherever its own routes lead.
    Provider(Option<String>),
    /// To the sidecar; the filter's alone.
    Sidecar,
    /// Into the tool loop; the sidecar's alone.
    Loop(Run),
}

/// Changes to the request's headers: first remove, then set. Names in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeaderEdits {
    /// Headers to take out, all values of each; only ones that are there.
    pub remove: Vec<String>,
    /// Headers to set, replacing what is there.
    pub set: Vec<(String, String)>,
}

/// The stepper.
#[derive(Debug)]
pub struct Exchange {}

impl Exchange {
    /// The head is there. `end_of_stream`: and there is no body.
    pub fn begin(_head: &RequestHead<'_>, _end_of_stream: bool, _env: &Env<'_>) -> (Self, Step) {
        (Self {}, Step::Buffer)
    }

    /// The next bytes of the body.
    pub fn feed(&mut self, _chunk: &[u8]) {}

    /// The answer is already fixed: an enforcement point may call `finish` before the end of the body.
    pub fn settled(&self) -> bool {
        false
    }

    /// The body is complete.
    pub fn finish(&mut self, _env: &Env<'_>) -> Step {
        Step::PassThrough(HeaderEdits::default(), Reason::NotInference)
    }

    /// Bytes of body seen so far.
    pub fn scanned(&self) -> u64 {
        0
    }
}
