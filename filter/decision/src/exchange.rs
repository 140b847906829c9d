//! One request at an enforcement point, step by step: head seen → body complete → where it goes.
//!
//! INVARIANT: a step other than [`Step::Buffer`] is the last; an enforcement point acts on it and asks no more.

mod edits;
mod head;
mod verdict;

pub use edits::HeaderEdits;
pub use head::RequestHead;
pub(crate) use head::came_twice;
pub use verdict::Verdict;

use crate::config::{FilterConfig, IdentityConfig, ModelInput, ModelRoute, ProviderKind};
use crate::decide::{self, Decision, Input, Outcome, Run, Uninspected};
use crate::format::{ApiFormat, Vocabulary};
use crate::identity::{Caller, Identity, unknown_key};
use crate::policy::PolicyView;
use crate::problem::{Origin, Problem, ProblemKind, Reply};
use crate::reason::Reason;
use crate::request::RequestView;
use crate::scan::{ScanErrorKind, Scanner};
use head::{Facts, Opening};

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
    /// The decision; its reason is `NotInference` where nothing was to be decided.
    pub decision: Decision,
    /// The wire of the body; `None` where it is of none of the three.
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
    /// Always `None` in a mesh, whose routes know the caller's name.
    pub upstream_model: Option<String>,
    /// What the model takes besides text.
    pub inputs: Vec<ModelInput>,
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

impl Refusal {
    /// The whole answer.
    pub fn reply(&self, env: &Env<'_>) -> Reply {
        self.problem.reply(self.vocabulary, env.request_id)
    }
}

/// The stepper.
#[derive(Debug)]
pub struct Exchange {
    /// `None` once the last step is out.
    pending: Option<Pending>,
    scanned: u64,
}

#[derive(Debug)]
struct Pending {
    facts: Facts,
    scanner: Scanner,
    max_body_bytes: u64,
}

impl Exchange {
    /// The head is there. `end_of_stream`: and there is no body.
    pub fn begin(head: &RequestHead<'_>, end_of_stream: bool, env: &Env<'_>) -> (Self, Step) {
        let done = |step| (Self { pending: None, scanned: 0 }, step);
        let facts = match head::open(head, end_of_stream, env) {
            Opening::Done(step) => return done(*step),
            Opening::Facts(facts) => *facts,
        };
        if let Err(step) = facts.identify(env) {
            return done(*step);
        }
        if end_of_stream && facts.format.is_some() {
            return done(body_missing(&facts));
        }
        if end_of_stream || !facts.reads_body {
            return done(conclude(&facts, RequestView::default(), env));
        }
        if let Some(length) = facts.content_length.filter(|length| *length > env.config.max_body_bytes) {
            return done(too_large(&facts, Some(length), env.config.max_body_bytes));
        }
        let max_body_bytes = env.config.max_body_bytes;
        (Self { pending: Some(Pending { facts, scanner: Scanner::new(), max_body_bytes }), scanned: 0 }, Step::Buffer)
    }

    /// The next bytes of the body.
    pub fn feed(&mut self, chunk: &[u8]) {
        if let Some(pending) = &mut self.pending {
            pending.scanner.feed(chunk);
            self.scanned = pending.scanner.scanned();
        }
    }

    /// The answer is a refusal whatever comes: an enforcement point may call `finish` before the end of the body.
    pub fn settled(&self) -> bool {
        let over = |pending: &Pending| pending.scanner.scanned() > pending.max_body_bytes;
        self.pending
            .as_ref()
            .is_some_and(|pending| pending.scanner.failed() && pending.facts.format.is_some() || over(pending))
    }

    /// There is no room to hold more of the body.
    pub fn overloaded(&mut self) -> Step {
        refuse(self.give_up(), Reason::Overloaded, Problem::bodies_full())
    }

    /// The body takes longer than `body_deadline_ms`.
    pub fn too_slow(&mut self) -> Step {
        let message = "the request body took too long to arrive (http.body_deadline_ms): send it faster, or upload files \
                       and refer to them by id";
        refuse(self.give_up(), Reason::BodyTooSlow, Problem::invalid(message))
    }

    fn give_up(&mut self) -> Vocabulary {
        self.pending.take().map_or(Vocabulary::OpenAi, |pending| pending.facts.vocabulary)
    }

    /// The body is complete.
    pub fn finish(&mut self, env: &Env<'_>) -> Step {
        let Some(Pending { facts, scanner, max_body_bytes }) = self.pending.take() else {
            // A second call: the first answer stands, and this one must harm nobody.
            return refuse(Vocabulary::OpenAi, Reason::BodyMissing, Problem::invalid("the request is over"));
        };
        if scanner.scanned() > max_body_bytes {
            return too_large(&facts, None, max_body_bytes);
        }
        match scanner.finish() {
            Ok(request) => conclude(&facts, request, env),
            Err(error) => match (&error.kind, facts.format) {
                (ScanErrorKind::Empty, Some(_)) => body_missing(&facts),
                // Off the inference endpoints a body need not be an object; then it names no model.
                (ScanErrorKind::Empty | ScanErrorKind::NotAnObject, None) => {
                    conclude(&facts, RequestView::default(), env)
                }
                _ => refuse(facts.vocabulary, Reason::BodyInvalid, Problem::from(&error)),
            },
        }
    }

    /// Bytes of body seen so far.
    pub fn scanned(&self) -> u64 {
        self.scanned
    }
}

/// Head and body are known.
fn conclude(facts: &Facts, request: RequestView, env: &Env<'_>) -> Step {
    let identity = match facts.identify(env) {
        Ok(identity) => identity,
        Err(step) => return *step,
    };
    if facts.uninspected && request.own_file_ids {
        return refuse_file(facts);
    }
    let route = match route(facts, &request, env) {
        Ok(route) => route,
        Err((reason, problem)) => return refuse(facts.vocabulary, reason, problem),
    };
    let static_pin = env.config.static_pins.get(&identity.workspace).copied();
    let decision = match facts.format {
        None if facts.uninspected => {
            decide::decide_uninspected(Uninspected::Endpoint, &identity.workspace, static_pin, env.policy)
        }
        None => Decision::provider(Reason::NotInference),
        Some(format) => decide::decide(&Input {
            format,
            request: &request,
            header: facts.preference,
            provider: route.as_ref().map(|route| (route.kind, route.wires)),
            workspace: &identity.workspace,
            static_pin,
            policy: env.policy,
        }),
    };
    let model = route.map(|route| ModelChoice {
        provider: route.provider.to_owned(),
        kind: route.kind,
        wires: route.wires.to_vec(),
        upstream_model: route.upstream_model.filter(|_| env.config.providers_routed),
        inputs: route.inputs.to_vec(),
    });
    let renamed = model.as_ref().is_some_and(|model| model.upstream_model.is_some());
    let target = match (&decision.outcome, env.point) {
        (Outcome::Refuse(problem), _) => return refuse(facts.vocabulary, decision.reason, problem.clone()),
        (Outcome::Undecided, EnforcementPoint::Sidecar) => return policy_unavailable(facts.vocabulary),
        (Outcome::Undecided | Outcome::Otari(_), EnforcementPoint::Filter) => Target::Sidecar,
        // The filter never touches a body: ids to resolve and names to change are the sidecar's. And so is a credential
        // that came before the first snapshot, which may be a key of ours.
        (Outcome::Provider, EnforcementPoint::Filter)
            if renamed || request.needs_sidecar() || !facts.caller.carriers.can_be_told(env.policy.latest()) =>
        {
            Target::Sidecar
        }
        (Outcome::Provider, _) => {
            let name = model.as_ref().map(|model| model.provider.clone());
            Target::Provider(name.filter(|_| env.config.providers_routed))
        }
        (Outcome::Otari(run), EnforcementPoint::Sidecar) => Target::Loop(run.clone()),
    };
    let edits = match &target {
        Target::Sidecar => facts.edits_to_sidecar(&decision, env),
        Target::Provider(_) | Target::Loop(_) => facts.edits_to_provider(model.as_ref(), env),
    };
    Step::Forward(Box::new(Forward {
        target,
        edits,
        decision,
        format: facts.body_format,
        vocabulary: facts.vocabulary,
        identity: Some(identity),
        model,
        request,
    }))
}

/// Where the model is served. In a mesh it may be unknown; standalone, it may not.
fn route<'a>(facts: &Facts, request: &RequestView, env: &Env<'a>) -> Result<Option<ModelRoute<'a>>, (Reason, Problem)> {
    let config: &'a FilterConfig = env.config;
    let route = request.model.as_deref().and_then(|model| config.models.resolve(model));
    if route.is_some() || !config.providers_routed {
        return Ok(route);
    }
    if let Some(model) = &request.model {
        let message = format!(
            "no provider serves the model `{model}`: name one that `models:` of the gateway's configuration matches, \
             or write `provider:model`"
        );
        let problem = Problem::new(ProblemKind::NotFound, Origin::Caller, message);
        return Err((Reason::ModelNotFound, problem.with_code("model_not_found").with_param("model")));
    }
    if facts.format.is_some() {
        let problem = Problem::invalid("`model` is missing: name the model that shall answer");
        return Err((Reason::ModelMissing, problem.with_param("model")));
    }
    match config.models.only_provider() {
        Some(route) => Ok(Some(route)),
        None => Err((
            Reason::NoRoute,
            Problem::new(
                ProblemKind::NotFound,
                Origin::Caller,
                "nothing serves this path: the request names no model, and the gateway has more than one provider",
            ),
        )),
    }
}

fn refuse(vocabulary: Vocabulary, reason: Reason, problem: Problem) -> Step {
    Step::Refuse(Box::new(Refusal { problem, vocabulary, reason }))
}

/// Whoever takes the request apart later cannot come back here for the file.
fn refuse_file(facts: &Facts) -> Step {
    let message = "the request names a file of this gateway, which its provider cannot read when it comes to it: upload \
                   the file to the provider itself, or send each request by itself to the endpoint of its model";
    refuse(facts.vocabulary, Reason::FileNotAtProvider, Problem::invalid(message))
}

fn body_missing(facts: &Facts) -> Step {
    refuse(facts.vocabulary, Reason::BodyMissing, Problem::invalid("the request has no body: send a JSON object"))
}

fn too_large(facts: &Facts, length: Option<u64>, limit: u64) -> Step {
    let length = length.map(|length| format!(" of {length} bytes")).unwrap_or_default();
    let message = format!(
        "the body{length} is longer than the limit of {limit} bytes (`max_body_bytes`): upload files and refer to \
         them by id instead"
    );
    refuse(facts.vocabulary, Reason::BodyTooLarge, Problem::new(ProblemKind::PayloadTooLarge, Origin::Caller, message))
}

/// Whose request it is, by its head alone and for good: for the paths that the filter lets through unread, at the
/// authority.
pub fn identify(
    head: &RequestHead<'_>,
    config: &IdentityConfig,
    policy: PolicyView<'_>,
) -> Result<Identity, (Reason, Problem)> {
    Caller::read(head, config)?.identity(policy).map_err(unidentifiable)
}

/// What the authority says when it cannot tell whose request it is.
fn unidentifiable(reason: Reason) -> (Reason, Problem) {
    match reason {
        Reason::KeyUnverified => unknown_key(),
        _ => no_policy(),
    }
}

/// The authority itself has no policy: fail closed.
fn policy_unavailable(vocabulary: Vocabulary) -> Step {
    let (reason, problem) = no_policy();
    refuse(vocabulary, reason, problem)
}

fn no_policy() -> (Reason, Problem) {
    let message = "the gateway could not read its policy, so it ran nothing: try again later";
    (Reason::PolicyUnavailable, Problem::new(ProblemKind::Internal, Origin::Gateway, message))
}

/// A key that cannot be told: on to the sidecar, and there the end.
fn unidentified(facts: &Facts, reason: Reason, env: &Env<'_>) -> Step {
    if env.point == EnforcementPoint::Sidecar {
        let (reason, problem) = unidentifiable(reason);
        return refuse(facts.vocabulary, reason, problem);
    }
    let decision = Decision::undecided(reason);
    Step::Forward(Box::new(Forward {
        target: Target::Sidecar,
        edits: facts.edits_to_sidecar(&decision, env),
        decision,
        format: facts.format,
        vocabulary: facts.vocabulary,
        identity: None,
        model: None,
        request: RequestView::default(),
    }))
}

#[cfg(test)]
mod tests;
