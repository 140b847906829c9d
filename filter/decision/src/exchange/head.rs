//! What the head of a request settles, and what must wait for its body.
//!
//! INVARIANT: header values are bytes; a header that may come once and came twice is never read.

use super::{EnforcementPoint, Env, HeaderEdits, Step, refuse, unidentified};
use crate::format::{ApiFormat, Endpoint, Vocabulary, classify};
use crate::header;
use crate::identity::{Caller, Carriers, Identity};
use crate::policy::Preference;
use crate::problem::{Origin, Problem, ProblemKind};
use crate::reason::Reason;

/// The head of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// All pairs, `:method` and `:path` included; names in lower case, values as bytes.
    pub headers: &'a [(&'a [u8], &'a [u8])],
}

impl<'a> RequestHead<'a> {
    /// All values of a header, in order.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.iter().filter(move |(own, _)| *own == name.as_bytes()).map(|(_, value)| *value)
    }

    /// The value of a header that may come once.
    pub(crate) fn single(&self, name: &str) -> Result<Option<&'a [u8]>, (Reason, Problem)> {
        let mut values = self.values(name);
        let value = values.next();
        if values.next().is_some() {
            let message = format!("the header `{name}` came more than once: send it once");
            return Err((Reason::HeaderDuplicate, Problem::invalid(message)));
        }
        Ok(value)
    }

    fn first(&self, name: &str) -> &'a [u8] {
        self.values(name).next().unwrap_or_default()
    }

    fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }
}

/// What is kept of a head until the body is complete.
#[derive(Debug)]
pub(super) struct Facts {
    /// The endpoint's wire; `None` off the inference endpoints.
    pub(super) format: Option<ApiFormat>,
    pub(super) vocabulary: Vocabulary,
    /// The request header about who runs code.
    pub(super) preference: Option<Preference>,
    pub(super) caller: Caller,
    pub(super) content_length: Option<u64>,
    /// The body may name a model.
    pub(super) reads_body: bool,
    /// Internal and control headers that are there.
    pub(super) own_headers: Vec<&'static str>,
}

/// What a head comes to.
pub(super) enum Opening {
    Done(Box<Step>),
    Facts(Box<Facts>),
}

impl Facts {
    /// Whose request it is, or the step to take when that is not known.
    pub(super) fn identify(&self, env: &Env<'_>) -> Result<Identity, Box<Step>> {
        self.caller.identity(env.policy).map_err(|reason| Box::new(unidentified(self, reason, env)))
    }
}

/// Reads a head.
pub(super) fn open(head: &RequestHead<'_>, env: &Env<'_>) -> Opening {
    let endpoint = classify(head.first(":path"), &env.config.roots);
    let own_headers = own_headers(head);
    match endpoint {
        Endpoint::Files | Endpoint::Control => {
            let edits = HeaderEdits::to_own_route(&own_headers, env);
            return Opening::Done(Box::new(Step::PassThrough(edits, Reason::NotInference)));
        }
        _ if is_own_call(head, env) => {
            let edits = HeaderEdits::removing(own_headers);
            return Opening::Done(Box::new(Step::PassThrough(edits, Reason::OwnCall)));
        }
        Endpoint::Inference(_) | Endpoint::Other => {}
    }
    let (format, vocabulary) = match (endpoint, head.first(":method")) {
        (Endpoint::Inference(format), b"POST") => (Some(format), format.vocabulary()),
        // Not the call that makes a model answer: a stored completion, a browser's question.
        (Endpoint::Inference(format), b"GET" | b"HEAD" | b"DELETE" | b"OPTIONS") => (None, format.vocabulary()),
        (Endpoint::Inference(format), _) => {
            let problem = Problem::new(ProblemKind::MethodNotAllowed, Origin::Caller, "this endpoint takes POST");
            return Opening::Done(Box::new(refuse(format.vocabulary(), Reason::MethodNotAllowed, problem)));
        }
        _ if head.has("anthropic-version") => (None, Vocabulary::Anthropic),
        _ => (None, Vocabulary::OpenAi),
    };
    if format.is_none() && !env.config.providers_routed {
        // The mesh's own traffic: whoever it is for, only what is ours stays behind.
        let edits = HeaderEdits::to_mesh(&own_headers, &Carriers::read(head), env);
        return Opening::Done(Box::new(Step::PassThrough(edits, Reason::NotInference)));
    }
    match facts(head, format, vocabulary, own_headers, env) {
        Ok(facts) => Opening::Facts(Box::new(facts)),
        Err((reason, problem)) => Opening::Done(Box::new(refuse(vocabulary, reason, problem))),
    }
}

fn facts(
    head: &RequestHead<'_>,
    format: Option<ApiFormat>,
    vocabulary: Vocabulary,
    own_headers: Vec<&'static str>,
    env: &Env<'_>,
) -> Result<Facts, (Reason, Problem)> {
    let preference = if format.is_some() { preference(head)? } else { None };
    let caller = Caller::read(head, &env.config.identity)?;
    let reads_body = format.is_some() || is_json(head.first("content-type"));
    if reads_body && is_encoded(head) {
        let message = "the body has a `content-encoding`, so it cannot be inspected: send it plain";
        return Err((Reason::BodyEncoded, Problem::new(ProblemKind::UnsupportedMediaType, Origin::Caller, message)));
    }
    let content_length = std::str::from_utf8(head.first("content-length")).ok().and_then(|text| text.parse().ok());
    Ok(Facts { format, vocabulary, preference, caller, content_length, reads_body, own_headers })
}

/// The wish about who runs code, from either spelling of the header.
fn preference(head: &RequestHead<'_>) -> Result<Option<Preference>, (Reason, Problem)> {
    let read = |name| -> Result<Option<Preference>, (Reason, Problem)> {
        match head.single(name)?.map(<[u8]>::trim_ascii) {
            None | Some(b"") => Ok(None),
            Some(word) => Preference::parse(word).map(Some).ok_or_else(|| {
                let message = format!("the header `{name}` must be {}", Preference::WORDS);
                (Reason::HeaderInvalid, Problem::invalid(message))
            }),
        }
    };
    match (read(header::EXECUTOR)?, read(header::EXECUTOR_X)?) {
        (Some(one), Some(other)) if one != other => {
            let message =
                format!("the headers `{}` and `{}` disagree: send one of them", header::EXECUTOR, header::EXECUTOR_X);
            Err((Reason::HeaderDuplicate, Problem::invalid(message)))
        }
        (one, other) => Ok(one.or(other)),
    }
}

/// In a mesh, the sidecar's own model calls come back through the filter with the hop secret.
fn is_own_call(head: &RequestHead<'_>, env: &Env<'_>) -> bool {
    let secret = env.config.policy.hop_secret.as_bytes();
    env.point == EnforcementPoint::Filter
        && !env.config.providers_routed
        && !secret.is_empty()
        && matches!(head.single(header::HOP), Ok(Some(value)) if same(value, secret))
}

/// Compares without telling by its duration how much was right.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differing, (one, other)| differing | (one ^ other)) == 0
}

fn own_headers(head: &RequestHead<'_>) -> Vec<&'static str> {
    header::INTERNAL.iter().chain(header::CONTROL).copied().filter(|name| head.has(name)).collect()
}

fn is_json(content_type: &[u8]) -> bool {
    let essence = content_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let suffix = essence.len().checked_sub(b"+json".len()).and_then(|start| essence.get(start..));
    essence.eq_ignore_ascii_case(b"application/json") || suffix.is_some_and(|end| end.eq_ignore_ascii_case(b"+json"))
}

fn is_encoded(head: &RequestHead<'_>) -> bool {
    let coded = |value: &[u8]| !value.is_empty() && !value.eq_ignore_ascii_case(b"identity");
    head.values("content-encoding").any(|value| coded(value.trim_ascii()))
}
