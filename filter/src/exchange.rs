//! One request: Envoy's callbacks mapped onto `decision::exchange`, line by line.
//!
//! INVARIANT: once a request may go on it is never paused again, and it goes on only by a decision: whatever fails on
//! the way, a host call among it, is answered here.

use std::rc::Rc;

use decision::exchange::{EnforcementPoint, Env, Exchange, Forward, HeaderEdits, Refusal, RequestHead, Step, Target};
use decision::format::Vocabulary;
use decision::header;
use decision::identity::request_id;
use decision::problem::{Origin, Problem, ProblemKind, Reply};

use crate::host::{self, Buffer, HeaderMap, HostError, Level, Pair};
use crate::root::metrics::Outcome;
use crate::root::policy::Current;
use crate::root::{Held, Root};

/// The canary: answered here, so that an answer proves the VM alive.
const CANARY_PATH: &[u8] = b"/healthz/filter";
/// Decides a posted case and answers with the decision; only with `explain` in the configuration.
const EXPLAIN_PATH: &[u8] = b"/otari/filter/explain";
/// Body is copied out once this much is there, or all of it: each copy is a call into Envoy and one back.
const BATCH_BYTES: usize = 64 * 1024;
/// And in pieces of at most this size, which stay in the cache between copying and scanning.
const PIECE_BYTES: usize = 128 * 1024;

/// What Envoy does after a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The request goes on.
    Continue,
    /// It waits, or has been answered.
    Pause,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Stream {
    root: Rc<Root>,
    state: State,
    /// When its headers were there, on the host's monotonic clock.
    began_ns: u64,
}

#[derive(Debug)]
enum State {
    /// The headers have not come.
    Waiting,
    /// The body is being read.
    Reading(Box<Reading>),
    /// A posted case is awaited.
    Explaining,
    /// On its way.
    Gone,
    /// Answered here.
    Answered,
}

#[derive(Debug)]
struct Reading {
    exchange: Exchange,
    request_id: String,
    read_bytes: usize,
    held: Held,
}

/// What the head of a request asks for.
enum Begun {
    Canary,
    Explain,
    Exchange(Box<Reading>, Step),
}

impl Stream {
    /// A request of this plugin instance.
    pub(crate) fn new(root: Rc<Root>) -> Self {
        Self { root, state: State::Waiting, began_ns: 0 }
    }

    /// The headers are there.
    pub(crate) fn on_headers(&mut self, end_of_stream: bool) -> Next {
        self.began_ns = now_ns();
        let policy = self.root.current_policy();
        let begun = host::headers(HeaderMap::Request, |headers| self.begin(headers, end_of_stream, &policy));
        match begun {
            Ok(Begun::Canary) => self.answer_canary(),
            Ok(Begun::Explain) if end_of_stream => self.answer_explained(0),
            Ok(Begun::Explain) => self.pause(State::Explaining),
            Ok(Begun::Exchange(reading, Step::Buffer)) => self.pause(State::Reading(reading)),
            Ok(Begun::Exchange(reading, step)) => self.act(step, &reading.request_id),
            Err(error) => self.fail("headers", error),
        }
    }

    /// `size` bytes of body are there, in all.
    pub(crate) fn on_body(&mut self, size: usize, end_of_stream: bool) -> Next {
        match std::mem::replace(&mut self.state, State::Answered) {
            State::Gone => self.resume(),
            State::Answered | State::Waiting => Next::Pause,
            State::Explaining if end_of_stream || self.is_late() => self.answer_explained(size),
            State::Explaining => self.pause(State::Explaining),
            State::Reading(mut reading) => {
                let step = match (reading.held.grow(size), self.is_late()) {
                    (true, false) => return self.read(reading, size, end_of_stream),
                    (true, true) => reading.exchange.too_slow(),
                    (false, _) => reading.exchange.overloaded(),
                };
                self.act(step, &reading.request_id)
            }
        }
    }

    /// The body is complete, and trailers follow it: the last callback saw no end of the stream.
    pub(crate) fn on_trailers(&mut self) -> Next {
        match std::mem::replace(&mut self.state, State::Answered) {
            State::Gone => self.resume(),
            State::Answered | State::Waiting => Next::Pause,
            State::Explaining => self.answer_explained(usize::MAX),
            State::Reading(reading) => self.read(reading, usize::MAX, true),
        }
    }

    fn begin(&self, headers: &[Pair<'_>], end_of_stream: bool, policy: &Current) -> Begun {
        let value = |name: &[u8]| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let path = value(b":path").unwrap_or_default();
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        if path == CANARY_PATH {
            return Begun::Canary;
        }
        if path == EXPLAIN_PATH && self.root.config.explain {
            return Begun::Explain;
        }
        let request_id = value(header::REQUEST_ID.as_bytes()).and_then(request_id);
        let request_id = request_id.map_or_else(|| self.root.mint_request_id(), str::to_owned);
        let env = self.env(policy, &request_id);
        let (exchange, step) = Exchange::begin(&RequestHead { headers }, end_of_stream, &env);
        Begun::Exchange(Box::new(Reading { exchange, request_id, read_bytes: 0, held: Held::new(&self.root) }), step)
    }

    fn env<'a>(&'a self, policy: &'a Current, request_id: &'a str) -> Env<'a> {
        Env { config: &self.root.config, policy: policy.view(), point: EnforcementPoint::Filter, request_id }
    }

    /// Its body is held, and trickles. One that stops altogether ends by Envoy's idle timeout.
    fn is_late(&self) -> bool {
        let elapsed_ms = now_ns().saturating_sub(self.began_ns) / 1_000_000;
        elapsed_ms > self.root.config.body_deadline_ms
    }

    /// Feeds the exchange what has come since the last call, and nothing twice.
    fn read(&mut self, mut reading: Box<Reading>, size: usize, complete: bool) -> Next {
        if !complete && size.saturating_sub(reading.read_bytes) < BATCH_BYTES {
            return self.pause(State::Reading(reading));
        }
        while reading.read_bytes < size && !reading.exchange.settled() {
            let exchange = &mut reading.exchange;
            let piece = host::buffer(Buffer::RequestBody, reading.read_bytes, PIECE_BYTES, |bytes| {
                exchange.feed(bytes);
                bytes.len()
            });
            match piece {
                Ok(0) | Err(HostError::NotFound) => break,
                Ok(bytes) => reading.read_bytes = reading.read_bytes.saturating_add(bytes),
                Err(error) => return self.fail("body", error),
            }
        }
        // A settled request is refused, whatever the rest of its body.
        if complete || reading.exchange.settled() {
            return self.finish(reading);
        }
        self.pause(State::Reading(reading))
    }

    fn finish(&mut self, mut reading: Box<Reading>) -> Next {
        let policy = self.root.current_policy();
        let step = reading.exchange.finish(&self.env(&policy, &reading.request_id));
        self.root.metrics.scanned(reading.exchange.scanned());
        self.act(step, &reading.request_id)
    }

    fn act(&mut self, step: Step, request_id: &str) -> Next {
        match step {
            Step::PassThrough(edits, _) => self.let_go(&edits, Outcome::Passed),
            Step::Forward(forward) => {
                let Forward { target, edits, .. } = *forward;
                let outcome = match target {
                    Target::Provider(_) => Outcome::Provider,
                    Target::Sidecar => Outcome::Sidecar,
                    // The sidecar's alone; its edits would be those of a model call.
                    Target::Loop(_) => return self.fail("decision", HostError::Unreadable),
                };
                self.let_go(&edits, outcome)
            }
            Step::Refuse(refusal) => self.refuse(&refusal, request_id),
            Step::Buffer => self.fail("decision", HostError::Unreadable),
        }
    }

    fn let_go(&mut self, edits: &HeaderEdits, outcome: Outcome) -> Next {
        match self.apply(edits) {
            Ok(()) => {
                self.root.metrics.decided(outcome);
                self.resume()
            }
            // A header that could not be set may be the one that keeps this request from the provider.
            Err(error) => self.fail("header edits", error),
        }
    }

    fn apply(&self, edits: &HeaderEdits) -> Result<(), HostError> {
        for name in &edits.remove {
            host::remove_request_header(name)?;
        }
        for (name, value) in &edits.set {
            host::set_request_header(name, value)?;
        }
        // Envoy does it by itself at each edit, so far. Standalone a request whose route stayed as it was would end
        // nowhere, and be seen in every test; a mesh has an Envoy of its own choice, and a route for everything.
        if self.root.config.providers_routed || edits.remove.is_empty() && edits.set.is_empty() {
            return Ok(());
        }
        host::clear_route_cache()
    }

    fn refuse(&mut self, refusal: &Refusal, request_id: &str) -> Next {
        self.root.metrics.decided(Outcome::Refused);
        self.root.metrics.refused(refusal.reason);
        let reply = refusal.problem.reply(refusal.vocabulary, request_id);
        self.answer(&reply, refusal.reason.code())
    }

    fn answer_canary(&mut self) -> Next {
        let (version, age_ms) = self.root.snapshot_version_and_age_ms().unzip();
        let body = serde_json::json!({"status": "ok", "snapshot_version": version, "snapshot_age_ms": age_ms});
        self.answer_json(body.to_string().into_bytes(), "canary")
    }

    fn answer_explained(&mut self, size: usize) -> Next {
        let explained = host::buffer(Buffer::RequestBody, 0, size, decision::explain::explain);
        match explained {
            Ok(body) => self.answer_json(body, "explain"),
            Err(HostError::NotFound) => self.answer_json(decision::explain::explain(b""), "explain"),
            Err(error) => self.fail("body", error),
        }
    }

    fn answer_json(&mut self, body: Vec<u8>, details: &str) -> Next {
        let headers = vec![("content-type", "application/json".to_owned())];
        self.answer(&Reply { status: 200, headers, body }, details)
    }

    /// Answers for a host call that did not work.
    fn fail(&mut self, what: &str, error: HostError) -> Next {
        self.root.metrics.host_error();
        self.root.metrics.decided(Outcome::Refused);
        host::log(Level::Error, &format!("request refused: {what} not available ({error:?})"));
        refuse_unseen();
        self.pause(State::Answered)
    }

    fn answer(&mut self, reply: &Reply, details: &str) -> Next {
        if let Err(error) = host::reply(reply.status, &reply.headers, &reply.body, &format!("otari_{details}")) {
            // Paused for good: Envoy's idle timeout ends the stream.
            host::log(Level::Error, &format!("a request could not be answered ({error:?})"));
        }
        self.pause(State::Answered)
    }

    fn pause(&mut self, state: State) -> Next {
        self.state = state;
        Next::Pause
    }

    fn resume(&mut self) -> Next {
        self.state = State::Gone;
        Next::Continue
    }
}

/// A host without the clock has no deadline.
fn now_ns() -> u64 {
    host::monotonic_ns().unwrap_or(0)
}

/// Answers a request of which nothing is known: 500, in the words every SDK can at least show.
pub(crate) fn refuse_unseen() {
    let problem = Problem::new(ProblemKind::Internal, Origin::Gateway, "the gateway could not read the request");
    let reply = problem.reply(Vocabulary::OpenAi, "");
    if host::reply(reply.status, &reply.headers, &reply.body, "otari_internal").is_err() {
        host::log(Level::Error, "a request could not be answered");
    }
}
