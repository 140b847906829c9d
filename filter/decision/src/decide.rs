//! Who runs the code: the one rule, pure and total.
//!
//! INVARIANT: a pin, a header or an old snapshot never turns into the other executor; at worst the answer is "refuse".

mod run;

pub use run::{DEFAULT_ITERATIONS, Dialect, MAX_EXEC_TIMEOUT_S, MAX_ITERATIONS, Run};

use crate::config::ProviderKind;
use crate::format::ApiFormat;
use crate::header;
use crate::policy::{PolicyView, Preference, Snapshot, WorkspacePolicy};
use crate::problem::{Origin, Problem, ProblemKind};
use crate::reason::Reason;
use crate::request::{Keyword, RequestView};

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
    /// The four words.
    pub const WORDS: [&str; 4] = ["provider", "otari", "undecided", "refuse"];

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

impl Decision {
    /// The provider keeps it.
    pub(crate) fn provider(reason: Reason) -> Self {
        Self { outcome: Outcome::Provider, reason }
    }

    /// Left to the sidecar.
    pub(crate) fn undecided(reason: Reason) -> Self {
        Self { outcome: Outcome::Undecided, reason }
    }

    fn refuse(reason: Reason, problem: Problem) -> Self {
        Self { outcome: Outcome::Refuse(problem), reason }
    }
}

/// What keeps its declarations at the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uninspected {
    /// [`crate::format::Endpoint::Uninspected`].
    Endpoint,
    /// [`RequestView::stored_prompt`].
    StoredPrompt,
}

/// Decides, in the order of admission: what needs no policy, what needs a sandbox, who runs it, may it run here.
pub fn decide(input: &Input<'_>) -> Decision {
    let request = input.request;
    if request.containers_differ {
        return Decision::refuse(
            Reason::ContainersDiffer,
            Problem::invalid(
                "the request names two different containers of this gateway: name one, at the top level or in the tool",
            ),
        );
    }
    if request.stored_prompt && input.format == ApiFormat::Responses {
        let at_provider =
            decide_uninspected(Uninspected::StoredPrompt, input.workspace, input.static_pin, input.policy);
        if at_provider.outcome != Outcome::Provider {
            return at_provider;
        }
    }
    if request.declarations.is_empty() {
        return if request.own_container.is_some() {
            stray_container()
        } else {
            Decision::provider(Reason::NoCodeTool)
        };
    }
    let snapshot = match input.policy {
        PolicyView::Fresh(snapshot) => snapshot,
        PolicyView::Stale(_) => return Decision::undecided(Reason::PolicyStale),
        PolicyView::Missing => return Decision::undecided(Reason::PolicyMissing),
    };
    if !snapshot.sandbox_available {
        return without_sandbox(input);
    }
    // Read only now: without a sandbox, no policy matters.
    let policy = snapshot.workspaces.get(input.workspace);
    let pin = input.static_pin.or_else(|| policy.and_then(|policy| policy.pin));
    if let Some(conflict) = pin_conflict(input, pin) {
        return conflict;
    }
    let (executor, reason) = executor(input, snapshot, pin);
    if executor == Executor::Provider {
        return to_provider(request, reason);
    }
    match run::admit(input, snapshot, policy.unwrap_or(&WorkspacePolicy::default())) {
        Ok(run) => Decision { outcome: Outcome::Otari(run), reason },
        Err((reason, problem)) => Decision::refuse(reason, problem),
    }
}

/// Decides about what only the provider can see the declarations of: it may run code, unless a pin says who does.
pub(crate) fn decide_uninspected(
    what: Uninspected,
    workspace: &str,
    static_pin: Option<Preference>,
    policy: PolicyView<'_>,
) -> Decision {
    let snapshot = match policy {
        PolicyView::Fresh(snapshot) => snapshot,
        PolicyView::Stale(_) => return Decision::undecided(Reason::PolicyStale),
        PolicyView::Missing => return Decision::undecided(Reason::PolicyMissing),
    };
    let pin = static_pin.or_else(|| snapshot.workspaces.get(workspace)?.pin);
    if !snapshot.sandbox_available || pin != Some(Preference::Otari) {
        return Decision::provider(Reason::NotInference);
    }
    let refused = |message: &str| Problem::new(ProblemKind::PermissionDenied, Origin::Caller, message);
    let problem = match what {
        Uninspected::Endpoint => refused(
            "the workspace is pinned to `otari`, and the provider would run the code of what this endpoint is sent: send \
             each request by itself to the endpoint of its model, or have the workspace's pin changed",
        ),
        Uninspected::StoredPrompt => refused(
            "the workspace is pinned to `otari`, and a stored prompt may bring tools that the provider runs: send its \
             text as `instructions` and `input`, or have the workspace's pin changed",
        )
        .with_param("prompt"),
    };
    Decision::refuse(Reason::PinnedElsewhere, problem)
}

/// The two that a preference comes down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Executor {
    Otari,
    Provider,
}

/// Pin over header over default; `auto` asks what the provider can do.
fn executor(input: &Input<'_>, snapshot: &Snapshot, pin: Option<Preference>) -> (Executor, Reason) {
    let request = input.request;
    if !has_provider_keyword(request) {
        return (Executor::Otari, Reason::OtariExplicit);
    }
    // A container of ours lives only here, so it turns "whoever can" into "here".
    let header = match (request.own_container.is_some(), input.header) {
        (true, None | Some(Preference::Auto)) => Some(Preference::Otari),
        (_, header) => header,
    };
    let (preference, by_otari, by_provider) = match (pin, header) {
        (Some(pin), _) => (pin, Reason::OtariByPin, Reason::ProviderByPin),
        (None, Some(header)) if input.header == Some(header) => {
            (header, Reason::OtariByHeader, Reason::ProviderByHeader)
        }
        (None, Some(header)) => (header, Reason::OtariByContainer, Reason::ProviderByHeader),
        (None, None) => (snapshot.default_executor, Reason::OtariByDefault, Reason::ProviderByDefault),
    };
    match preference {
        Preference::Otari => (Executor::Otari, by_otari),
        Preference::Provider => (Executor::Provider, by_provider),
        Preference::Auto if request.own_container.is_some() => (Executor::Otari, Reason::OtariByContainer),
        Preference::Auto if is_native(input) => (Executor::Provider, Reason::ProviderNative),
        Preference::Auto => (Executor::Otari, Reason::OtariNotNative),
    }
}

/// Can the provider run every provider keyword of the request by itself?
fn is_native(input: &Input<'_>) -> bool {
    let Some((kind, wires)) = input.provider else { return false };
    let native = |keyword: &Keyword| match keyword {
        Keyword::Dated(_) => kind == ProviderKind::Anthropic && input.format == ApiFormat::Messages,
        Keyword::Interpreter => kind == ProviderKind::Openai && input.format == ApiFormat::Responses,
        Keyword::Bare | Keyword::Explicit => false,
    };
    let mut keywords = input.request.declarations.iter().map(|one| &one.keyword).filter(|one| one.is_provider());
    wires.contains(&input.format) && keywords.all(native)
}

fn has_provider_keyword(request: &RequestView) -> bool {
    request.declarations.iter().any(|declaration| declaration.keyword.is_provider())
}

fn explicit(request: &RequestView) -> Option<u32> {
    request.declarations.iter().find(|one| one.keyword == Keyword::Explicit).map(|one| one.index)
}

/// No sandbox is configured: forward, unless the request can only mean this gateway.
fn without_sandbox(input: &Input<'_>) -> Decision {
    const CONFIGURE: &str =
        "the operator configures one with `sandbox: {backend: embedded}` or `{backend: http, url: …}`";
    let request = input.request;
    if let Some(index) = explicit(request) {
        let problem = Problem::invalid(format!(
            "`otari_code_execution` runs code at this gateway, but no sandbox is configured: {CONFIGURE}; \
             or leave the tool out"
        ));
        return Decision::refuse(Reason::SandboxNotConfigured, problem.with_param(format!("tools[{index}].type")));
    }
    match (input.header, request.own_container.is_some()) {
        (Some(Preference::Otari), _) => Decision::refuse(
            Reason::SandboxNotConfigured,
            Problem::invalid(format!(
                "the header `{}` asks for a run at this gateway, but no sandbox is configured: {CONFIGURE}; \
             or send `auto` or `provider`",
                header::EXECUTOR,
            )),
        ),
        (Some(Preference::Provider), true) => stray_container(),
        (_, true) => Decision::refuse(
            Reason::SandboxNotConfigured,
            Problem::invalid(format!(
                "`container` names a container of this gateway, but no sandbox is configured: {CONFIGURE}; \
             or leave `container` out"
            ))
            .with_param("container"),
        ),
        (_, false) => Decision::provider(Reason::SandboxOff),
    }
}

/// The provider keeps the declaration.
fn to_provider(request: &RequestView, reason: Reason) -> Decision {
    if let Some(index) = explicit(request) {
        let problem = Problem::invalid(
            "`otari_code_execution` cannot be combined with a code tool that the provider runs: the model would see \
             two tools of one name. Declare one of them, or have both run here with `otari-code-execution: otari`",
        );
        return Decision::refuse(Reason::CannotCombine, problem.with_param(format!("tools[{index}].type")));
    }
    if request.own_container.is_some() {
        return stray_container();
    }
    Decision::provider(reason)
}

fn stray_container() -> Decision {
    let problem = Problem::invalid(
        "`container` names a container of this gateway, which does not exist at the provider: declare a code tool \
         that runs here (`otari-code-execution: otari`), or leave `container` out",
    );
    Decision::refuse(Reason::ContainerNotAtProvider, problem.with_param("container"))
}

/// A header that asks for something else than the pin. The gateway's own tool leaves nothing to ask for.
fn pin_conflict(input: &Input<'_>, pin: Option<Preference>) -> Option<Decision> {
    let (pin, header) = pin.zip(input.header).filter(|(pin, header)| pin != header)?;
    if !has_provider_keyword(input.request) {
        return None;
    }
    let message = format!(
        "the workspace decides who runs code: it is pinned to `{}`, but the header `{}` asks for `{}`. \
         Leave the header out, or have the workspace's pin changed",
        pin.word(),
        header::EXECUTOR,
        header.word(),
    );
    let problem = Problem::new(ProblemKind::PermissionDenied, Origin::Caller, message);
    Some(Decision::refuse(Reason::PinConflict, problem))
}

#[cfg(test)]
pub(crate) mod tests;
