//! One JSON case in, one JSON answer out: what native tests, the filter in Envoy and the sidecar all run.
//!
//! INVARIANT: equal cases give equal bytes everywhere, however the body is cut.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::config::FilterConfig;
use crate::decide::{Dialect, Outcome, Run};
use crate::exchange::{EnforcementPoint, Env, Exchange, Forward, HeaderEdits, Refusal, RequestHead, Step, Target};
use crate::format::hex;
use crate::policy::{PolicyView, Snapshot};
use crate::reason::Reason;
use crate::request::CodeTool;

/// A question: what becomes of this request?
#[derive(Debug, Deserialize)]
struct Case {
    request: CaseRequest,
    config: FilterConfig,
    /// A snapshot, the word `stale`, or nothing.
    #[serde(default)]
    snapshot: CaseSnapshot,
    #[serde(default)]
    point: CasePoint,
    #[serde(default = "request_id")]
    request_id: String,
    /// What the word `stale` stands for.
    #[serde(skip)]
    nothing: Snapshot,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseRequest {
    #[serde(default = "post")]
    method: String,
    path: String,
    /// In order, so that a header may come twice.
    #[serde(default)]
    headers: Vec<(String, CaseBytes)>,
    /// The body as JSON, sent as it stands in the case.
    #[serde(default)]
    body: Option<Box<RawValue>>,
    /// The body as text or bytes, for what is no JSON.
    #[serde(default)]
    body_text: Option<CaseBytes>,
}

/// Text, or `{"hex": …}` for what is no text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum CaseBytes {
    Text(String),
    Hex { hex: String },
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum CaseSnapshot {
    Fresh(Box<Snapshot>),
    Word(SnapshotWord),
    #[default]
    Missing,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SnapshotWord {
    Stale,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CasePoint {
    #[default]
    Filter,
    Sidecar,
}

fn post() -> String {
    "POST".to_owned()
}

fn request_id() -> String {
    "req_explain".to_owned()
}

/// The answer. Field order is output order.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    /// `provider`, `otari`, `undecided`, `refuse` or `pass_through`.
    decision: &'static str,
    reason: Reason,
    words: &'static str,
    /// `provider`, `sidecar` or `loop`; absent when refused or passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<AnswerRun<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<AnswerReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    edits: Option<AnswerEdits<'a>>,
}

#[derive(Debug, Serialize)]
struct AnswerRun<'a> {
    dialect: Dialect,
    /// Positions in `tools` of the claimed declarations.
    claimed: Vec<u32>,
    tools: &'a [CodeTool],
    max_iterations: u32,
    exec_timeout_s: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose_hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<&'a str>,
    /// The request's `tool_choice` means a claimed declaration.
    chosen: bool,
}

#[derive(Debug, Serialize)]
struct AnswerReply {
    status: u16,
    headers: BTreeMap<&'static str, String>,
    body: Box<RawValue>,
}

#[derive(Debug, Serialize)]
struct AnswerEdits<'a> {
    remove: &'a [String],
    set: BTreeMap<&'a str, &'a str>,
}

/// Explains a case `{request: {method?, path, headers?, body? | body_text?}, config, snapshot?, point?, request_id?}`.
/// `headers` are pairs; `body_text` and header values may be `{"hex": …}`; `snapshot` may be `"stale"`; `point` is
/// `filter` or `sidecar`. A case that cannot be read gives `{"error": …}`.
pub fn explain(case: &[u8]) -> Vec<u8> {
    explain_in_chunks(case, usize::MAX)
}

/// The same with the body fed in chunks of this size (at least 1); the answer does not depend on it.
pub fn explain_in_chunks(case: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let answer = match serde_json::from_slice::<Case>(case) {
        Ok(case) => case.answer(chunk_bytes.max(1)),
        Err(error) => Err(error.to_string()),
    };
    answer.unwrap_or_else(|error| serde_json::json!({"error": error}).to_string().into_bytes())
}

impl Case {
    fn answer(&self, chunk_bytes: usize) -> Result<Vec<u8>, String> {
        let env = self.env();
        let body = self.request.body()?;
        let values = self.request.headers.iter().map(|(name, value)| Ok((name, value.bytes()?)));
        let values = values.collect::<Result<Vec<_>, String>>()?;
        let mut headers: Vec<(&[u8], &[u8])> =
            vec![(b":method", self.request.method.as_bytes()), (b":path", self.request.path.as_bytes())];
        headers.extend(values.iter().map(|(name, value)| (name.as_bytes(), value.as_slice())));

        let (mut exchange, mut step) = Exchange::begin(&RequestHead { headers: &headers }, body.is_empty(), &env);
        if step == Step::Buffer {
            for chunk in body.chunks(chunk_bytes) {
                exchange.feed(chunk);
            }
            step = exchange.finish(&env);
        }
        let answer = match &step {
            Step::Buffer => return Err("the exchange asks for a body that is over".to_owned()),
            Step::PassThrough(edits, reason) => {
                Answer { edits: Some(AnswerEdits::of(edits)), ..Answer::of("pass_through", *reason) }
            }
            Step::Refuse(refusal) => {
                Answer { reply: Some(AnswerReply::of(refusal, &env)?), ..Answer::of("refuse", refusal.reason) }
            }
            Step::Forward(forward) => Answer::of_forward(forward),
        };
        serde_json::to_vec(&answer).map_err(|error| error.to_string())
    }

    fn env(&self) -> Env<'_> {
        Env {
            config: &self.config,
            policy: match &self.snapshot {
                CaseSnapshot::Fresh(snapshot) => PolicyView::Fresh(snapshot),
                CaseSnapshot::Word(SnapshotWord::Stale) => PolicyView::Stale(&self.nothing),
                CaseSnapshot::Missing => PolicyView::Missing,
            },
            point: match self.point {
                CasePoint::Filter => EnforcementPoint::Filter,
                CasePoint::Sidecar => EnforcementPoint::Sidecar,
            },
            request_id: &self.request_id,
        }
    }
}

impl CaseRequest {
    fn body(&self) -> Result<Vec<u8>, String> {
        match (&self.body, &self.body_text) {
            (Some(_), Some(_)) => Err("give either `body` or `body_text`".to_owned()),
            (Some(json), None) => Ok(json.get().as_bytes().to_vec()),
            (None, Some(text)) => text.bytes(),
            (None, None) => Ok(Vec::new()),
        }
    }
}

impl CaseBytes {
    fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Hex { hex: digits } => {
                let pair = |pair: &[u8]| match pair {
                    [high, low] => hex(*high).zip(hex(*low)).map(|(high, low)| (high << 4) | low),
                    _ => None,
                };
                let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
                bytes.ok_or_else(|| "`hex` must hold pairs of hexadecimal digits".to_owned())
            }
        }
    }
}

impl<'a> Answer<'a> {
    fn of(decision: &'static str, reason: Reason) -> Self {
        Self {
            decision,
            reason,
            words: reason.words(),
            target: None,
            provider: None,
            upstream_model: None,
            workspace: None,
            run: None,
            reply: None,
            edits: None,
        }
    }

    fn of_forward(forward: &'a Forward) -> Self {
        let (target, provider) = match &forward.target {
            Target::Provider(name) => ("provider", name.as_deref()),
            Target::Sidecar => ("sidecar", None),
            Target::Loop(_) => ("loop", forward.model.as_ref().map(|model| model.provider.as_str())),
        };
        let run = match &forward.decision.outcome {
            Outcome::Otari(run) => Some(AnswerRun::of(run, forward)),
            _ => None,
        };
        Self {
            target: Some(target),
            provider,
            upstream_model: forward.model.as_ref().and_then(|model| model.upstream_model.as_deref()),
            workspace: forward.identity.as_ref().map(|identity| identity.workspace.as_str()),
            run,
            edits: Some(AnswerEdits::of(&forward.edits)),
            ..Self::of(forward.decision.outcome.word(), forward.decision.reason)
        }
    }
}

impl<'a> AnswerRun<'a> {
    fn of(run: &'a Run, forward: &Forward) -> Self {
        let chosen = forward.request.tool_choice.as_ref().is_some_and(|choice| {
            std::iter::once(&choice.tool)
                .chain(&choice.allowed)
                .any(|tool| run.claims(tool.kind.as_deref(), tool.name.as_deref()))
        });
        Self {
            dialect: run.dialect,
            claimed: run.claimed.iter().map(|one| one.index).collect(),
            tools: &run.tools,
            max_iterations: run.max_iterations,
            exec_timeout_s: run.exec_timeout_s,
            purpose_hint: run.purpose_hint.as_deref(),
            image: run.image.as_deref(),
            container: run.container.as_deref(),
            chosen,
        }
    }
}

impl AnswerReply {
    fn of(refusal: &Refusal, env: &Env<'_>) -> Result<Self, String> {
        let reply = refusal.reply(env);
        let body = String::from_utf8(reply.body).map_err(|error| error.to_string())?;
        Ok(Self {
            status: reply.status,
            headers: reply.headers.into_iter().collect(),
            body: RawValue::from_string(body).map_err(|error| error.to_string())?,
        })
    }
}

impl<'a> AnswerEdits<'a> {
    fn of(edits: &'a HeaderEdits) -> Self {
        Self {
            remove: &edits.remove,
            set: edits.set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        }
    }
}
