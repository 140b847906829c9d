//! Who runs the code: the one rule, pure and total.
//!
//! INVARIANT: a pin, a header or an old snapshot never turns into the other executor; at worst the answer is "refuse".

use crate::config::ProviderKind;
use crate::format::ApiFormat;
use crate::policy::{PolicyView, Preference, WorkspacePolicy};
use crate::problem::Problem;
use crate::reason::Reason;
use crate::request::{CodeTool, RequestView, ToolDeclaration};

/// Everything a decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The endpoint's wire.
    pub format: ApiFormat,
    /// The body.
    pub request: &'a RequestView,
    /// The request header.
    pub header: Option<Preference>,
    /// The model's provider: its kind and the wires the model serves. `None` if the table has no such model.
    pub provider: Option<(ProviderKind, &'a [ApiFormat])>,
    /// The caller's workspace.
    pub workspace: &'a str,
    /// Pin from the plugin configuration; stands over the workspace's own.
    pub static_pin: Option<Preference>,
    /// The snapshot.
    pub policy: PolicyView<'a>,
}

/// The answer and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Who runs it.
    pub outcome: Outcome,
    /// Why.
    pub reason: Reason,
}

/// Who runs the code of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The provider, or there is no code tool at all.
    Provider,
    /// This gateway.
    Otari(Run),
    /// Only the sidecar can tell.
    Undecided,
    /// Nobody: the request is answered with this.
    Refuse(Problem),
}

impl Outcome {
    /// One word, for metrics and logs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Otari(_) => "otari",
            Self::Undecided => "undecided",
            Self::Refuse(_) => "refuse",
        }
    }
}

/// How a run shows in the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// The endpoint's own blocks or items for hosted code execution.
    Native,
    /// Text alone.
    Plain,
}

/// Model calls per request, unless the request asks for another number.
pub const DEFAULT_ITERATIONS: u32 = 10;
/// Most model calls per request.
pub const MAX_ITERATIONS: u32 = 25;
/// Most seconds per execution.
pub const MAX_EXEC_TIMEOUT_S: u32 = 60;

/// A run at this gateway: all that policy and declarations say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// How the run shows in the answer.
    pub dialect: Dialect,
    /// Every code tool of the request, in the order of `tools`; all are replaced by one tool of ours.
    pub claimed: Vec<ToolDeclaration>,
    /// What the model may be given, after the policy; never empty.
    pub tools: Vec<CodeTool>,
    /// Model calls allowed, 1..=[`MAX_ITERATIONS`].
    pub max_iterations: u32,
    /// Seconds per execution, 1..=[`MAX_EXEC_TIMEOUT_S`].
    pub exec_timeout_s: u32,
    /// The declaration's hint, else the policy's.
    pub purpose_hint: Option<String>,
    /// Image of the sandbox session, checked against the operator's list.
    pub image: Option<String>,
    /// Container of ours to continue.
    pub container: Option<String>,
}

impl Run {
    /// Does a `tool_choice`, or an entry of an allow-list, with this type and name mean a claimed declaration?
    /// Then the wire module points it at the tool the model is given. A caller's own function of the same name comes
    /// first: the wire module asks only when there is none.
    pub fn claims(&self, _kind: Option<&str>, _name: Option<&str>) -> bool {
        false
    }
}

/// Decides.
pub fn decide(input: &Input<'_>) -> Decision {
    let _ = WorkspacePolicy::default();
    let _ = input;
    Decision { outcome: Outcome::Provider, reason: Reason::NoCodeTool }
}
