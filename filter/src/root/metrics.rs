//! The counters and gauges Envoy shows as `wasmcustom.otari.*`, defined once per plugin instance. Labels stand in the
//! name, because the ABI has none (`stats_tags` in the rendered bootstrap turns them into labels).
//!
//! INVARIANT: names are a closed list; nothing a client sends becomes part of one. A request counts here, in the VM;
//! Envoy is told with the next tick, because a call for each request would be a tenth of the filter's cost.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use decision::reason::Reason;

use crate::host::{self, HostError, Metric, MetricKind};

/// Where a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Not a request we look at.
    Passed,
    /// To the provider.
    Provider,
    /// To the sidecar, to run there or because only it can tell.
    Sidecar,
    /// Answered here.
    Refused,
}

/// How a poll of the policy ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Poll {
    /// A new version.
    Updated,
    /// The version we have.
    Unchanged,
    /// No usable answer.
    Failed,
}

/// The handles.
#[derive(Debug)]
pub(crate) struct Metrics {
    passed: Counter,
    provider: Counter,
    sidecar: Counter,
    refused: Counter,
    refused_by_reason: RefCell<BTreeMap<Reason, Counter>>,
    host_errors: Counter,
    scanned_bytes: Counter,
    polls_updated: Counter,
    polls_unchanged: Counter,
    polls_failed: Counter,
    snapshot_version: Metric,
    snapshot_age_ms: Metric,
}

#[derive(Debug)]
struct Counter {
    metric: Metric,
    untold: Cell<u64>,
}

impl Counter {
    fn define(name: &str) -> Result<Self, HostError> {
        Ok(Self { metric: host::define_metric(MetricKind::Counter, name)?, untold: Cell::new(0) })
    }

    fn add(&self, count: u64) {
        self.untold.set(self.untold.get().saturating_add(count));
    }

    fn tell(&self) {
        host::increment(self.metric, self.untold.take());
    }
}

impl Metrics {
    /// Defines every metric.
    pub(crate) fn define() -> Result<Self, HostError> {
        let counter = |name: &str| Counter::define(name);
        let gauge = |name: &str| host::define_metric(MetricKind::Gauge, name);
        Ok(Self {
            passed: counter("otari.decided.passed")?,
            provider: counter("otari.decided.provider")?,
            sidecar: counter("otari.decided.sidecar")?,
            refused: counter("otari.decided.refused")?,
            refused_by_reason: RefCell::default(),
            host_errors: counter("otari.host_errors")?,
            scanned_bytes: counter("otari.scanned_bytes")?,
            polls_updated: counter("otari.policy.polls.updated")?,
            polls_unchanged: counter("otari.policy.polls.unchanged")?,
            polls_failed: counter("otari.policy.polls.failed")?,
            snapshot_version: gauge("otari.policy.snapshot_version")?,
            snapshot_age_ms: gauge("otari.policy.snapshot_age_ms")?,
        })
    }

    /// Tells Envoy what has been counted since the last time.
    pub(crate) fn tell(&self) {
        let counters = [
            &self.passed,
            &self.provider,
            &self.sidecar,
            &self.refused,
            &self.host_errors,
            &self.scanned_bytes,
            &self.polls_updated,
            &self.polls_unchanged,
            &self.polls_failed,
        ];
        counters.into_iter().for_each(Counter::tell);
        if let Ok(refused) = self.refused_by_reason.try_borrow() {
            refused.values().for_each(Counter::tell);
        }
    }

    /// Counts a request once, when it is decided.
    pub(crate) fn decided(&self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Passed => &self.passed,
            Outcome::Provider => &self.provider,
            Outcome::Sidecar => &self.sidecar,
            Outcome::Refused => &self.refused,
        };
        counter.add(1);
    }

    /// Counts a refusal under its reason; [`Metrics::decided`] counts it too. Defined when it first happens: a closed
    /// list, but a long one.
    pub(crate) fn refused(&self, reason: Reason) {
        let Ok(mut known) = self.refused_by_reason.try_borrow_mut() else { return };
        if !known.contains_key(&reason)
            && let Ok(counter) = Counter::define(&format!("otari.refused.{}", reason.code()))
        {
            known.insert(reason, counter);
        }
        if let Some(counter) = known.get(&reason) {
            counter.add(1);
        }
    }

    /// Counts a host call that failed where it should not.
    pub(crate) fn host_error(&self) {
        self.host_errors.add(1);
    }

    /// Counts body bytes that were copied out of Envoy.
    pub(crate) fn scanned(&self, size_bytes: u64) {
        self.scanned_bytes.add(size_bytes);
    }

    /// Counts a poll of the policy.
    pub(crate) fn polled(&self, poll: Poll) {
        let counter = match poll {
            Poll::Updated => &self.polls_updated,
            Poll::Unchanged => &self.polls_unchanged,
            Poll::Failed => &self.polls_failed,
        };
        counter.add(1);
    }

    /// Shows what this worker knows; workers overwrite each other, and agree within two poll periods.
    pub(crate) fn snapshot(&self, version: u64, age_ms: u64) {
        host::record(self.snapshot_version, version);
        host::record(self.snapshot_age_ms, age_ms);
    }
}
