//! What the filter sends here: the decision made again, then a refusal, a relay, or a code turn.
//!
//! INVARIANT: a relayed body leaves with the bytes it came with, save what only this gateway can resolve: a model's
//! name at its provider, our own blocks in the history, and the ids of our files.

mod attach;
mod edit;

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use decision::decide::Run;
use decision::exchange::{self, EnforcementPoint, Env, Exchange, Forward, RequestHead, Step, Target, Verdict};
use decision::format::{ApiFormat, Endpoint};
use decision::header;
use decision::identity::Identity;
use decision::problem::{Origin, Problem, ProblemKind};
use decision::reason::Reason;
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use self::attach::{Given, give};
use self::edit::Edited;
use super::access::Caller;
use super::budget::Share;
use super::fetch::{self, Fetched, Flowing};
use super::{Refusal, Services};
use crate::attachments::Recipient;
use crate::stored::Named;
use crate::telemetry::chain;
use crate::tool_loop::{LoopReply, ReplyBody, RunRequest, tell_dropped};
use crate::upstream::{self, ModelAnswer, ModelCall, UpstreamError};
use crate::wire::responses;

/// The word of the outcome that is a refusal.
const REFUSE: &str = "refuse";

/// A request as the rest of this file needs it.
struct Incoming {
    method: Method,
    path: String,
    headers: HeaderMap,
}

/// Its body.
enum Payload {
    /// What had to be read before anything could be decided.
    Held(Fetched),
    /// What nobody here reads.
    Flowing(Flowing),
}

/// The router's fallback: everything that is no route of the control plane.
pub(super) async fn serve(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let sent_here = request.headers().get(header::ROUTE).is_some_and(|route| route == header::ROUTE_SIDECAR);
    let ours = match caller.endpoint {
        // A misspelled path is refused there.
        Endpoint::Inference(_) | Endpoint::Misspelled(_) => true,
        Endpoint::Uninspected | Endpoint::TokenCount(_) | Endpoint::Other => sent_here,
        Endpoint::Files | Endpoint::Control => false,
    };
    if !ours {
        return no_such_path(caller.endpoint).into_response();
    }
    match Box::pin(decide_and_act(&services, &caller, request)).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

fn no_such_path(endpoint: Endpoint) -> Refusal {
    let text = match endpoint {
        Endpoint::Files => {
            "there is no such path: of containers this gateway serves themselves and the files that answers cite"
        }
        _ => "there is no such path",
    };
    Problem::new(ProblemKind::NotFound, Origin::Caller, text).into()
}

async fn decide_and_act(services: &Services, caller: &Caller, request: Request) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    let mut headers = head.headers;
    let filters = headers.get(header::DECISION).cloned();
    for name in header::INTERNAL {
        headers.remove(*name);
    }
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let incoming = Incoming { method: head.method, path, headers };
    let ended = http_body::Body::is_end_stream(&body);
    let (mut exchange, mut step) = begin(services, caller, &incoming, ended);
    if needs_newer_policy(services, &step) {
        if let Err(error) = services.policy.refresh_soon().await {
            // The decision knows what to refuse when the policy is stale.
            tracing::error!(error = %chain(&error), "the policy could not be read");
        }
        (exchange, step) = begin(services, caller, &incoming, ended);
    }
    let limits = services.body_limits(services.filter_config.max_body_bytes);
    let payload = if matches!(step, Step::Buffer) {
        let look = |piece: &[u8]| {
            exchange.feed(piece);
            if exchange.settled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let whole = fetch::whole(body, limits, look).await?;
        let policy = services.policy.current();
        step = exchange.finish(&env(services, caller, policy.view()));
        Payload::Held(whole)
    } else {
        Payload::Flowing(Flowing::new(body, limits))
    };
    note(services, caller, &step, filters.as_ref());
    act(services, caller, incoming, payload, step).await
}

fn begin(services: &Services, caller: &Caller, incoming: &Incoming, ended: bool) -> (Exchange, Step) {
    let mut pairs: Vec<(&[u8], &[u8])> = Vec::with_capacity(incoming.headers.len() + 2);
    pairs.push((b":method", incoming.method.as_str().as_bytes()));
    pairs.push((b":path", incoming.path.as_bytes()));
    pairs.extend(incoming.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())));
    let policy = services.policy.current();
    Exchange::begin(&RequestHead { headers: &pairs }, ended, &env(services, caller, policy.view()))
}

fn env<'a>(services: &'a Services, caller: &'a Caller, policy: decision::policy::PolicyView<'a>) -> Env<'a> {
    Env { config: &services.filter_config, policy, point: EnforcementPoint::Sidecar, request_id: &caller.request_id }
}

/// The snapshot may be older than the key, or the database may have come back.
fn needs_newer_policy(services: &Services, step: &Step) -> bool {
    let unknown = matches!(step, Step::Refuse(refusal) if refusal.reason == Reason::KeyUnknown);
    unknown || !services.policy.current().is_fresh()
}

/// Keeps the decision for the log, and whether the filter's was another one: then one of the two is of another version,
/// or decided by another snapshot.
fn note(services: &Services, caller: &Caller, step: &Step, filters: Option<&HeaderValue>) {
    let (outcome, reason) = match step {
        Step::Forward(forward) => (forward.decision.outcome.word(), forward.decision.reason),
        Step::Refuse(refused) => (REFUSE, refused.reason),
        Step::PassThrough(..) | Step::Buffer => return,
    };
    caller.notes.decided(outcome, reason);
    let Some(header) = filters else { return };
    let verdict = Verdict::parse(header.as_bytes());
    if verdict.is_some_and(|verdict| verdict.agrees(outcome, reason)) {
        return;
    }
    let version = services.policy.current().version();
    let snapshot = match verdict.map(|verdict| verdict.snapshot) {
        Some(Some(filters)) if filters == version => "same",
        Some(Some(_)) => "other",
        Some(None) | None => "none",
    };
    let filter = verdict.map_or("unreadable", |verdict| verdict.outcome);
    services.metrics.disagreed(filter, outcome, snapshot);
    tracing::info!(
        request.id = &*caller.request_id,
        filter.decision = filter,
        filter.reason = verdict.map(|verdict| verdict.reason.code()),
        decision = outcome,
        reason = reason.code(),
        snapshot,
        "the filter had decided otherwise"
    );
}

async fn act(
    services: &Services,
    caller: &Caller,
    incoming: Incoming,
    payload: Payload,
    step: Step,
) -> Result<Response, Refusal> {
    let mut forward = match step {
        Step::Forward(forward) => forward,
        Step::Refuse(refused) => {
            let exchange::Refusal { problem, vocabulary, .. } = *refused;
            return Err(Refusal::in_vocabulary(problem, vocabulary));
        }
        // Nothing was decided, so nobody knows whose it is.
        Step::PassThrough(..) => return Err(no_such_path(caller.endpoint)),
        Step::Buffer => return Err(undecided()),
    };
    let headers = forward_headers(services, &incoming.headers, &forward)?;
    let incoming = Incoming { headers, ..incoming };
    let mut payload = payload;
    if let (Payload::Held(body), Some(owner)) = (&mut payload, &forward.identity) {
        let counted = body.share.belongs_to(&owner.workspace);
        counted.map_err(|problem| Refusal::in_vocabulary(problem, forward.vocabulary))?;
    }
    let (payload, named) = with_answers(services, payload, &forward).await?;
    // The target goes its own way; what is left of the forward says the rest.
    match std::mem::replace(&mut forward.target, Target::Sidecar) {
        Target::Provider(provider) => relay(services, caller, incoming, payload, named, provider, &forward).await,
        Target::Loop(run) => match payload {
            Payload::Held(body) => code_turn(services, caller, incoming.headers, body, named, run, &forward).await,
            // A run is decided by what its body says.
            Payload::Flowing(_) => Err(undecided()),
        },
        Target::Sidecar => Err(undecided()),
    }
}

/// The client's headers with the decision's edits; nothing internal and no wish of the client's towards us is left.
fn forward_headers(services: &Services, headers: &HeaderMap, forward: &Forward) -> Result<HeaderMap, Refusal> {
    let mut headers = headers.clone();
    for name in &forward.edits.remove {
        headers.remove(name.as_str());
    }
    for (name, value) in &forward.edits.set {
        let name = HeaderName::try_from(name).map_err(Refusal::internal)?;
        headers.insert(name, HeaderValue::try_from(value).map_err(Refusal::internal)?);
    }
    for name in header::INTERNAL.iter().chain(header::CONTROL) {
        headers.remove(*name);
    }
    if !services.filter_config.providers_routed {
        // In a mesh the call meets the filter again, which knows it by this and takes it off.
        let secret = HeaderValue::try_from(services.hop_secret.expose()).map_err(Refusal::internal)?;
        headers.insert(header::HOP, secret);
    }
    Ok(headers)
}

async fn relay(
    services: &Services,
    caller: &Caller,
    incoming: Incoming,
    payload: Payload,
    named: Named,
    provider: Option<String>,
    forward: &Forward,
) -> Result<Response, Refusal> {
    let mut dropped = None;
    // The share is held until the head of the answer is there: then the body has left.
    let (body, _share) = match payload {
        Payload::Flowing(body) => (upstream::Body::wrap(body), None),
        Payload::Held(Fetched { bytes, share }) => {
            let edited = edited(bytes, forward)?;
            let body = Fetched { bytes: edited.body, share };
            let given = give(services, forward, body, &named, Recipient::Provider, None).await?;
            let all: Vec<String> = edited.dropped.into_iter().chain(given.dropped).collect();
            dropped = (!all.is_empty()).then(|| all.join(", "));
            (given.body.bytes.into(), Some(given.body.share))
        }
    };
    if let Some(dropped) = &dropped {
        tracing::info!(request.id = &*caller.request_id, dropped, "not carried over to the model's provider");
    }
    let call =
        ModelCall { provider: provider.unwrap_or_default(), path: incoming.path, headers: incoming.headers, body };
    let mut answer = services.models.relay(incoming.method, call).await.map_err(upstream_failed)?;
    if let Some(dropped) = &dropped {
        tell_dropped(&mut answer.headers, dropped);
    }
    Ok(relayed(answer))
}

/// Puts the answers of ours into a body that it goes on from, which no model and no provider could find.
async fn with_answers(services: &Services, payload: Payload, forward: &Forward) -> Result<(Payload, Named), Refusal> {
    let goes_on = forward.request.minted_history && forward.format == Some(ApiFormat::Responses);
    match (payload, &services.engine.stored, &forward.identity) {
        (Payload::Held(Fetched { bytes, mut share }), Some(stored), Some(owner)) if goes_on => {
            let in_vocabulary = |problem| Refusal::in_vocabulary(problem, forward.vocabulary);
            let resolved = stored.resolve(owner, bytes, &mut |bytes| share.grow(bytes)).await;
            let (bytes, named) = resolved.map_err(in_vocabulary)?;
            Ok((Payload::Held(Fetched { bytes, share }), named))
        }
        (payload, _, _) => Ok((payload, Named::default())),
    }
}

/// The body as its provider can read it.
fn edited(body: Bytes, forward: &Forward) -> Result<Edited, Refusal> {
    let upstream_model = forward.model.as_ref().and_then(|model| model.upstream_model.as_deref());
    // Citations of our files may come back alone, without the calls that wrote them.
    let folds = forward.format.filter(|_| forward.request.minted_history || forward.request.own_file_ids);
    edit::edit(body, upstream_model, folds)
}

fn relayed(answer: ModelAnswer) -> Response {
    // An answer that breaks off must break off for the client too, never end as if it were whole.
    let mut response = Response::new(Body::from_stream(answer.body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

async fn code_turn(
    services: &Services,
    caller: &Caller,
    headers: HeaderMap,
    mut body: Fetched,
    mut named: Named,
    mut run: Run,
    forward: &Forward,
) -> Result<Response, Refusal> {
    let Some(format) = forward.format else {
        return Err(undecided());
    };
    if !named.is_some() && forward.request.own_file_ids {
        // Kept with the ids: whoever goes on from this answer gets the files again, not what was made of them here.
        let twice = (body.bytes.len() as u64).saturating_mul(2);
        body.share.grow(twice).map_err(|problem| Refusal::in_vocabulary(problem, forward.vocabulary))?;
        named.input = responses::stored::input(&body.bytes);
    }
    // A run is decided for somebody; nobody is the tenant of no name.
    let nobody = || Identity { user: String::new(), workspace: String::new() };
    let owner = forward.identity.clone().unwrap_or_else(nobody);
    // Before its files, whose names depend on what is there; whoever leaves from here on gives it back.
    let container = services.engine.resume(&owner, format, &body.bytes, &run).await;
    let container = container.map_err(|problem| Refusal::in_vocabulary(problem, forward.vocabulary))?;
    let Given { body, seeds, hint, dropped } =
        give(services, forward, body, &named, Recipient::Run, container.as_ref()).await?;
    let hints = [run.purpose_hint.take(), hint];
    run.purpose_hint = hints.into_iter().flatten().reduce(|one, other| format!("{one}\n{other}"));
    // Only a mesh may serve models that our table does not have; then the caller is taken at its word about the wire.
    let model = forward.model.as_ref();
    run.exec_timeout_s = run.exec_timeout_s.min(services.exec_timeout_s);
    let asked = RunRequest {
        request_id: caller.request_id.to_string(),
        owner,
        caller: format,
        model_wires: model.map_or_else(|| vec![format], |model| model.wires.clone()),
        provider: model.map(|model| model.provider.clone()).unwrap_or_default(),
        provider_kind: model.map(|model| model.kind),
        upstream_model: model.and_then(|model| model.upstream_model.clone()),
        forward_headers: headers,
        body: body.bytes,
        named,
        seeds,
        container,
        dropped,
        run,
        stream: forward.request.stream,
        tally: Arc::clone(&caller.notes.tally),
    };
    let reply = services.engine.serve(asked).await;
    reply.map(|reply| looped(reply, body.share)).map_err(|problem| Refusal::in_vocabulary(problem, forward.vocabulary))
}

/// The loop keeps the request for its next turn: its share goes with the answer.
fn looped(reply: LoopReply, share: Share) -> Response {
    let body = match reply.body {
        ReplyBody::Whole(bytes) => Body::from(bytes),
        ReplyBody::Stream(pieces) => Body::from_stream(pieces.map(move |piece| {
            let _held = &share;
            Ok::<_, std::convert::Infallible>(piece)
        })),
    };
    let mut response = Response::new(body);
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    response
}

fn upstream_failed(error: UpstreamError) -> Refusal {
    Refusal::from(Problem::from(&error)).caused_by(error)
}

/// A step the sidecar never gets; the request is refused rather than guessed about.
fn undecided() -> Refusal {
    Problem::new(ProblemKind::Internal, Origin::Gateway, "the gateway could not decide about this request").into()
}
