//! The policy snapshot of one worker: polled by one worker of the process, shared with all, parsed once per version.
//!
//! INVARIANT: the age of a snapshot counts from the moment the poll that confirmed it was *sent*, on a clock that
//! nobody can set; so it is never younger than it says. What is shared never goes back to the answer of an older poll.
//! Two values are shared: the last confirmation, a few bytes that each tick reads, and the snapshot itself, which is
//! written first and read only when the confirmation names one that is not held.
//! Requests ask no clock: each tick settles whether the snapshot stays fresh until the next.

use std::rc::Rc;

use decision::config::{FilterConfig, PolicySource};
use decision::policy::{PolicyView, Snapshot};

use crate::host::{self, Buffer, HeaderMap, HostError, Level, Version};
use crate::root::metrics::{Metrics, Poll};

/// A worker looks at the shared snapshot this many times per poll period, so that a change is in force everywhere
/// within two periods however the ticks of the workers fall.
const TICKS_PER_POLL: u32 = 2;
/// Ticks are never closer than this, whatever the period.
const MIN_TICK_MS: u32 = 20;
/// How long a poll may take. A late answer is worth waiting for: its age counts from the question.
const POLL_TIMEOUT_MS: u32 = 5_000;
/// A snapshot above this is refused: every worker holds its own copy.
const MAX_SNAPSHOT_BYTES: usize = 16 * 1024 * 1024;
/// How often a write to the shared value is tried again after another worker was faster.
const MAX_WRITE_ATTEMPTS: u32 = 4;
/// An `etag` above this is not kept, and so costs an unconditional poll.
const MAX_ETAG_BYTES: usize = 128;

/// What this worker knows of the policy.
#[derive(Debug)]
pub(crate) struct Policy {
    confirmed_key: String,
    snapshot_key: String,
    lease_key: String,
    held: Option<Held>,
    /// Etag of a shared snapshot that could not be read: it is not tried again.
    unreadable: Vec<u8>,
    fresh: bool,
    poll: Option<RunningPoll>,
    failing: bool,
}

#[derive(Debug)]
struct Held {
    snapshot: Rc<Snapshot>,
    etag: Vec<u8>,
    confirmed_ns: u64,
}

#[derive(Debug)]
struct RunningPoll {
    token: u32,
    sent_ns: u64,
}

impl RunningPoll {
    /// Envoy gives an answer or a timeout for each; one for which neither came is lost.
    fn is_awaited(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.sent_ns) < ms_to_ns(u64::from(POLL_TIMEOUT_MS)).saturating_mul(2)
    }
}

/// What this worker may rely on, taken once for a request.
#[derive(Debug)]
pub(crate) enum Current {
    /// Confirmed within `policy.max_age_ms`.
    Fresh(Rc<Snapshot>),
    /// Confirmed longer ago than that.
    Stale(Rc<Snapshot>),
    /// None was ever seen.
    Missing,
}

impl Current {
    /// The same, as the decision wants it.
    pub(crate) fn view(&self) -> PolicyView<'_> {
        match self {
            Self::Fresh(snapshot) => PolicyView::Fresh(snapshot),
            Self::Stale(snapshot) => PolicyView::Stale(snapshot),
            Self::Missing => PolicyView::Missing,
        }
    }
}

impl Policy {
    /// Nothing known yet.
    pub(crate) fn new(source: &PolicySource) -> Self {
        // Plugin instances of one VM share data; only those that poll the same place may share a snapshot.
        let place = format!("{}|{}|{}", source.cluster, source.authority, source.path);
        Self {
            confirmed_key: format!("otari.policy.confirmed|{place}"),
            snapshot_key: format!("otari.policy.snapshot|{place}"),
            lease_key: format!("otari.policy.lease|{place}"),
            held: None,
            unreadable: Vec::new(),
            fresh: false,
            poll: None,
            failing: false,
        }
    }

    /// Milliseconds between two ticks.
    pub(crate) fn tick_ms(source: &PolicySource) -> u32 {
        u32::try_from(source.poll_ms).unwrap_or(u32::MAX).checked_div(TICKS_PER_POLL).unwrap_or(0).max(MIN_TICK_MS)
    }

    /// Takes over what other workers have learnt, and polls if it is this worker's turn.
    pub(crate) fn tick(&mut self, config: &FilterConfig, metrics: &Metrics) -> Result<(), HostError> {
        // A tick that fails must not leave the last one's word standing.
        self.fresh = false;
        self.read_shared()?;
        let now_ns = host::monotonic_ns()?;
        self.settle_freshness(&config.policy, now_ns);
        if let Some(held) = &self.held {
            metrics.snapshot(held.snapshot.version, held.age_ms(now_ns));
        }
        // One at a time: on a machine so busy that answers take longer than a period, each would else be forgotten for
        // the sake of the next.
        let waiting = self.poll.as_ref().is_some_and(|poll| poll.is_awaited(now_ns));
        if !waiting && self.take_lease(&config.policy, now_ns)? {
            self.send_poll(&config.policy, now_ns, metrics);
        }
        Ok(())
    }

    /// The answer to a poll has come.
    pub(crate) fn answered(&mut self, source: &PolicySource, token: u32, body_size: usize, metrics: &Metrics) {
        let Some(poll) = self.poll.take_if(|poll| poll.token == token) else { return };
        match self.take_answer(poll.sent_ns, body_size) {
            Ok(result) => {
                if std::mem::take(&mut self.failing) {
                    host::log(Level::Info, "policy: the sidecar answers again");
                }
                metrics.polled(result);
            }
            Err(why) => self.poll_failed(why, metrics),
        }
        if let Ok(now_ns) = host::monotonic_ns() {
            self.settle_freshness(source, now_ns);
        }
    }

    /// What a request that starts or ends now may rely on.
    pub(crate) fn current(&self) -> Current {
        match &self.held {
            Some(held) if self.fresh => Current::Fresh(Rc::clone(&held.snapshot)),
            Some(held) => Current::Stale(Rc::clone(&held.snapshot)),
            None => Current::Missing,
        }
    }

    /// Version and age in milliseconds, for the canary.
    pub(crate) fn version_and_age_ms(&self) -> Option<(u64, u64)> {
        let held = self.held.as_ref()?;
        Some((held.snapshot.version, held.age_ms(host::monotonic_ns().ok()?)))
    }

    fn settle_freshness(&mut self, source: &PolicySource, now_ns: u64) {
        let until_next_tick_ms = u64::from(Self::tick_ms(source));
        self.fresh = self
            .held
            .as_ref()
            .is_some_and(|held| held.age_ms(now_ns).saturating_add(until_next_tick_ms) <= source.max_age_ms);
    }

    fn take_lease(&self, source: &PolicySource, now_ns: u64) -> Result<bool, HostError> {
        // A quarter short of the period: ticks come at halves of it and are never quite even.
        let lease_ns = ms_to_ns(source.poll_ms.saturating_sub(source.poll_ms / 4));
        let version = match host::shared(&self.lease_key, decode_u64) {
            Ok((Some(taken_ns), _)) if now_ns.saturating_sub(taken_ns) < lease_ns => return Ok(false),
            Ok((_, version)) => version,
            Err(HostError::NotFound) => Version::ANY,
            Err(error) => return Err(error),
        };
        match host::set_shared(&self.lease_key, &now_ns.to_le_bytes(), version) {
            Ok(()) => Ok(true),
            Err(HostError::CasMismatch) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn send_poll(&mut self, source: &PolicySource, now_ns: u64, metrics: &Metrics) {
        let etag = self.held.as_ref().and_then(|held| std::str::from_utf8(&held.etag).ok()).unwrap_or_default();
        let mut headers = vec![
            (":method", "GET"),
            (":path", source.path.as_str()),
            (":authority", source.authority.as_str()),
            (decision::header::HOP, source.hop_secret.as_str()),
            ("accept", "application/json"),
        ];
        if !etag.is_empty() {
            headers.push(("if-none-match", etag));
        }
        match host::get(&source.cluster, &headers, POLL_TIMEOUT_MS) {
            Ok(token) => self.poll = Some(RunningPoll { token, sent_ns: now_ns }),
            Err(_) => self.poll_failed("the cluster of the policy does not exist or is full", metrics),
        }
    }

    fn poll_failed(&mut self, why: &str, metrics: &Metrics) {
        metrics.polled(Poll::Failed);
        if !std::mem::replace(&mut self.failing, true) {
            host::log(Level::Warn, &format!("policy: no snapshot from the sidecar: {why}; trying again every period"));
        }
    }

    fn take_answer(&mut self, sent_ns: u64, body_size: usize) -> Result<Poll, &'static str> {
        let (status, etag) = host::headers(HeaderMap::CallResponse, |pairs| {
            let value = |name: &[u8]| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_vec());
            (value(b":status"), value(b"etag").filter(|etag| etag.len() <= MAX_ETAG_BYTES).unwrap_or_default())
        })
        .map_err(|_| "its answer has no headers")?;
        match status.as_deref() {
            Some(b"200") => {}
            Some(b"304") => return self.confirm(sent_ns),
            Some(b"401" | b"403") => return Err("it does not accept the hop secret"),
            Some(b"503" | b"504") => return Err("it cannot be reached or is too slow"),
            _ => return Err("its status is neither 200 nor 304"),
        }
        if body_size > MAX_SNAPSHOT_BYTES {
            return Err("the snapshot is over 16 MiB");
        }
        let shared = host::buffer(Buffer::CallResponseBody, 0, body_size, |json| encode(sent_ns, &etag, json))
            .map_err(|_| "its answer has no body")?;
        Held::take_over(&mut self.held, &shared)?;
        publish(&self.snapshot_key, sent_ns, &shared);
        publish(&self.confirmed_key, sent_ns, &encode(sent_ns, &etag, b""));
        Ok(Poll::Updated)
    }

    /// The sidecar has nothing newer: what is held and what is shared are as fresh as this poll.
    fn confirm(&mut self, sent_ns: u64) -> Result<Poll, &'static str> {
        let held = self.held.as_mut().ok_or("it answers 304 though nothing is held")?;
        held.confirmed_ns = held.confirmed_ns.max(sent_ns);
        let is_held = |value: &[u8]| decode(value).is_none_or(|shared| shared.etag == held.etag);
        if matches!(host::shared(&self.confirmed_key, is_held), Ok((false, _))) {
            // The others hold another one: the next poll brings this one whole, to be shared, unless theirs is newer.
            held.etag.clear();
        } else {
            publish(&self.confirmed_key, sent_ns, &encode(sent_ns, &held.etag, b""));
        }
        Ok(Poll::Unchanged)
    }

    fn read_shared(&mut self) -> Result<(), HostError> {
        let confirmed = |value: &[u8]| decode(value).map(|shared| (shared.confirmed_ns, shared.etag.to_vec()));
        let (confirmed_ns, etag) = match host::shared(&self.confirmed_key, confirmed) {
            Ok((Some(confirmed), _)) => confirmed,
            Ok((None, _)) | Err(HostError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        match &mut self.held {
            Some(held) if confirmed_ns <= held.confirmed_ns => return Ok(()),
            Some(held) if held.is(&etag) => {
                held.confirmed_ns = confirmed_ns;
                return Ok(());
            }
            _ if self.unreadable == etag && !etag.is_empty() => return Ok(()),
            held => match host::shared(&self.snapshot_key, |value| Held::take_over(held, value)) {
                Ok((Ok(()), _)) | Err(HostError::NotFound) => {}
                Ok((Err(why), _)) => {
                    host::log(Level::Warn, &format!("policy: no snapshot from another worker: {why}"));
                    self.unreadable = etag;
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
        }
        if let Some(held) = self.held.as_mut().filter(|held| held.is(&etag)) {
            held.confirmed_ns = held.confirmed_ns.max(confirmed_ns);
        }
        Ok(())
    }
}

impl Held {
    /// Takes over a snapshot that was confirmed later than what is held, and parses it only if it is another version.
    fn take_over(held: &mut Option<Self>, value: &[u8]) -> Result<(), &'static str> {
        let shared = decode(value).ok_or("it is cut off")?;
        match held {
            Some(held) if shared.confirmed_ns <= held.confirmed_ns => return Ok(()),
            Some(held) if held.is(shared.etag) => {
                held.confirmed_ns = shared.confirmed_ns;
                return Ok(());
            }
            _ => {}
        }
        let snapshot: Snapshot =
            serde_json::from_slice(shared.json).map_err(|_| "it is not one this filter understands")?;
        *held =
            Some(Self { snapshot: Rc::new(snapshot), etag: shared.etag.to_vec(), confirmed_ns: shared.confirmed_ns });
        Ok(())
    }

    /// It is the version of this etag.
    fn is(&self, etag: &[u8]) -> bool {
        self.etag == etag && !etag.is_empty()
    }

    fn age_ms(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.confirmed_ns) / NS_PER_MS
    }
}

/// Publishes the answer of the poll sent at `sent_ns`, unless that of a later one stands there.
fn publish(key: &str, sent_ns: u64, value: &[u8]) {
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let version = match host::shared(key, decode_u64) {
            Ok((Some(confirmed_ns), _)) if confirmed_ns >= sent_ns => return,
            Ok((_, version)) => version,
            Err(_) => Version::ANY,
        };
        match host::set_shared(key, value, version) {
            Err(HostError::CasMismatch) => {}
            _ => return,
        }
    }
}

/// A shared value: when it was confirmed, its etag with a length, and the snapshot as the sidecar wrote it, which the
/// confirmation leaves out.
struct Shared<'a> {
    confirmed_ns: u64,
    etag: &'a [u8],
    json: &'a [u8],
}

const NS_PER_MS: u64 = 1_000_000;

fn ms_to_ns(ms: u64) -> u64 {
    ms.saturating_mul(NS_PER_MS)
}

fn encode(confirmed_ns: u64, etag: &[u8], json: &[u8]) -> Vec<u8> {
    const { assert!(MAX_ETAG_BYTES <= 255) };
    let etag_size = u8::try_from(etag.len()).unwrap_or(0);
    let etag = etag.get(..usize::from(etag_size)).unwrap_or_default();
    [&confirmed_ns.to_le_bytes(), [etag_size].as_slice(), etag, json].concat()
}

fn decode(value: &[u8]) -> Option<Shared<'_>> {
    let (confirmed_ns, rest) = value.split_first_chunk::<8>()?;
    let (etag_size, rest) = rest.split_first()?;
    let (etag, json) = rest.split_at_checked(usize::from(*etag_size))?;
    Some(Shared { confirmed_ns: u64::from_le_bytes(*confirmed_ns), etag, json })
}

fn decode_u64(value: &[u8]) -> Option<u64> {
    value.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
}
