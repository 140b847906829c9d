//! What the head of a request settles, and what must wait for its body.
//!
//! INVARIANT: header values are bytes; a header that may come once and came twice is never read.

use super::{EnforcementPoint, Env, HeaderEdits, Step, refuse, unidentified};
use crate::format::{ApiFormat, Endpoint, Place, Vocabulary, classify};
use crate::header;
use crate::identity::{Caller, Carriers, Identity, keep_keys_here, known_credential};
use crate::policy::Preference;
use crate::problem::{Origin, Problem, ProblemKind};
use crate::reason::Reason;

/// The head of a request, as a decision reads it.
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
        if values.next().is_some() { Err(came_twice(name)) } else { Ok(value) }
    }

    fn first(&self, name: &str) -> &'a [u8] {
        self.values(name).next().unwrap_or_default()
    }

    fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }
}

/// The refusal of a header that may come once.
pub(crate) fn came_twice(name: &str) -> (Reason, Problem) {
    let message = format!("the header `{name}` came more than once: send it once");
    (Reason::HeaderDuplicate, Problem::invalid(message))
}

/// What is kept of a head until the body is complete.
#[derive(Debug)]
pub(super) struct Facts {
    /// The endpoint's wire; `None` off the inference endpoints.
    pub(super) format: Option<ApiFormat>,
    /// The wire of the body, also where only its tokens are counted.
    pub(super) body_format: Option<ApiFormat>,
    pub(super) vocabulary: Vocabulary,
    /// The request header about who runs code.
    pub(super) preference: Option<Preference>,
    pub(super) caller: Caller,
    pub(super) content_length: Option<u64>,
    /// The provider may run code for it that nobody here sees declared.
    pub(super) uninspected: bool,
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

/// Methods that are passed on to providers. Not TRACE, which is answered with the request's own headers: the operator's
/// credential would be among them.
const PASSED_ON: [&[u8]; 7] = [b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"];

/// Methods that start nothing at a provider.
const READING: [&[u8]; 4] = [b"GET", b"HEAD", b"DELETE", b"OPTIONS"];

/// Reads a head. `end_of_stream`: and there is no body.
pub(super) fn open(head: &RequestHead<'_>, end_of_stream: bool, env: &Env<'_>) -> Opening {
    let endpoint = classify(head.first(":path"), &env.config.roots);
    let vocabulary = Vocabulary::of(endpoint, |name| head.has(name));
    let own_headers = own_headers(head);
    let passed = |edits, reason| Opening::Done(Box::new(Step::PassThrough(edits, reason)));
    let refused = |(reason, problem)| Opening::Done(Box::new(refuse(vocabulary, reason, problem)));
    let format = match endpoint {
        Endpoint::Files | Endpoint::Control => {
            return passed(HeaderEdits::to_own_route(&own_headers, env), Reason::NotInference);
        }
        _ if is_own_call(head, env) => return passed(HeaderEdits::removing(own_headers), Reason::OwnCall),
        // In a mesh, only what reaches a model is ours.
        Endpoint::Misspelled(place) if env.config.providers_routed || place.is_none() || endpoint.reaches_models() => {
            return refused(misspelled(place, env));
        }
        Endpoint::Inference(format) => match served(head, format, end_of_stream) {
            Ok(format) => format,
            Err(problem) => return refused((Reason::MethodNotAllowed, problem)),
        },
        Endpoint::Other | Endpoint::TokenCount(_) | Endpoint::Uninspected
            if env.config.providers_routed && !PASSED_ON.contains(&head.first(":method")) =>
        {
            return refused((Reason::MethodNotAllowed, not_allowed("this gateway does not serve this method")));
        }
        Endpoint::Other | Endpoint::TokenCount(_) | Endpoint::Uninspected | Endpoint::Misspelled(_) => None,
    };
    let uninspected = endpoint == Endpoint::Uninspected && !READING.contains(&head.first(":method"));
    if format.is_none() && !uninspected && !env.config.providers_routed {
        // The mesh's own traffic: whoever it is for, only what is ours stays behind.
        return match keep_keys_here(head, known_credential(head, env.policy.latest())) {
            Ok(()) => {
                passed(HeaderEdits::to_mesh(&own_headers, &Carriers::read(head, None), env), Reason::NotInference)
            }
            Err(refusal) => refused(refusal),
        };
    }
    match facts(head, format, vocabulary, own_headers, env) {
        Ok(facts) => {
            let body_format = match endpoint {
                Endpoint::TokenCount(counted) => Some(counted),
                _ => format,
            };
            Opening::Facts(Box::new(Facts { body_format, uninspected, ..facts }))
        }
        Err(refusal) => refused(refusal),
    }
}

/// What an inference endpoint does with a method: the call that makes a model answer, or (`None`) another without a
/// body: a stored completion, a browser's question. A body would be a request that a lenient server answers.
fn served(head: &RequestHead<'_>, format: ApiFormat, end_of_stream: bool) -> Result<Option<ApiFormat>, Problem> {
    match head.first(":method") {
        b"POST" => Ok(Some(format)),
        b"GET" | b"HEAD" | b"DELETE" | b"OPTIONS" if end_of_stream || head.first("content-length") == b"0" => Ok(None),
        b"GET" | b"HEAD" | b"DELETE" | b"OPTIONS" => Err(not_allowed("this endpoint takes a body with POST alone")),
        _ => Err(not_allowed("this endpoint takes POST")),
    }
}

fn not_allowed(message: &str) -> Problem {
    Problem::new(ProblemKind::MethodNotAllowed, Origin::Caller, message)
}

fn misspelled(place: Option<&Place>, env: &Env<'_>) -> (Reason, Problem) {
    let message = match place.map(|place| place.spelling(&env.config.roots)) {
        Some(spelling) => format!(
            "the path could be read as `{spelling}`, but is not spelled so: send `{spelling}` exactly, without \
             escapes, doubled or trailing slashes, `.` or `..`"
        ),
        None => "the path is too long to be read with its escapes: send it shorter, or without them".to_owned(),
    };
    (Reason::PathMisspelled, Problem::invalid(message))
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
    if reads_body && head.values("content-type").any(is_of_other_charset) {
        let message = "the `charset` of `content-type` is not UTF-8, so the body cannot be inspected: send UTF-8";
        return Err((Reason::BodyEncoded, Problem::new(ProblemKind::UnsupportedMediaType, Origin::Caller, message)));
    }
    if reads_body && is_encoded(head) {
        let message = "the body has a `content-encoding`, so it cannot be inspected: send it plain";
        return Err((Reason::BodyEncoded, Problem::new(ProblemKind::UnsupportedMediaType, Origin::Caller, message)));
    }
    let content_length = std::str::from_utf8(head.first("content-length")).ok().and_then(|text| text.parse().ok());
    Ok(Facts {
        format,
        body_format: format,
        vocabulary,
        preference,
        caller,
        content_length,
        uninspected: false,
        reads_body,
        own_headers,
    })
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

/// A server that heeds it would read other text than the scanner does.
fn is_of_other_charset(content_type: &[u8]) -> bool {
    let parameters = content_type.split(|byte| matches!(byte, b';' | b',')).filter_map(|parameter| {
        let at = parameter.iter().position(|&byte| byte == b'=')?;
        let (name, value) = parameter.split_at_checked(at)?;
        name.trim_ascii().eq_ignore_ascii_case(b"charset").then_some(value)
    });
    let word = |value: &[u8]| {
        let kept = value.iter().filter(|byte| byte.is_ascii_alphanumeric() || **byte >= 0x80);
        kept.map(u8::to_ascii_lowercase).collect::<Vec<u8>>()
    };
    parameters.map(word).any(|word| !matches!(word.as_slice(), b"" | b"utf8" | b"usascii" | b"ascii"))
}

fn is_encoded(head: &RequestHead<'_>) -> bool {
    let coded = |value: &[u8]| !value.is_empty() && !value.eq_ignore_ascii_case(b"identity");
    head.values("content-encoding").any(|value| coded(value.trim_ascii()))
}
