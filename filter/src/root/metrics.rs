//! The counters and gauges Envoy shows as `wasmcustom.otari.*`, defined once per plugin instance.
//!
//! INVARIANT: names are a closed list; nothing a client sends becomes part of one. Labels stand in the name, because
//! the ABI has none (`stats_tags` in the rendered bootstrap turns them into labels).

use std::cell::RefCell;
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
    passed: Metric,
    provider: Metric,
    sidecar: Metric,
    refused: Metric,
    refused_by_reason: RefCell<BTreeMap<Reason, Metric>>,
    host_errors: Metric,
    scanned_bytes: Metric,
    polls_updated: Metric,
    polls_unchanged: Metric,
    polls_failed: Metric,
    snapshot_version: Metric,
    snapshot_age_ms: Metric,
}

impl Metrics {
    /// Defines every metric.
    pub(crate) fn define() -> Result<Self, HostError> {
        let counter = |name: &str| host::define_metric(MetricKind::Counter, name);
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

    /// Counts a request once, when it is decided.
    pub(crate) fn decided(&self, outcome: Outcome) {
        let metric = match outcome {
            Outcome::Passed => self.passed,
            Outcome::Provider => self.provider,
            Outcome::Sidecar => self.sidecar,
            Outcome::Refused => self.refused,
        };
        host::increment(metric, 1);
    }

    /// Counts a refusal under its reason; [`Metrics::decided`] counts it too. Defined when it first happens: a closed
    /// list, but a long one.
    pub(crate) fn refused(&self, reason: Reason) {
        let Ok(mut known) = self.refused_by_reason.try_borrow_mut() else { return };
        let metric = known.get(&reason).copied().or_else(|| {
            let name = format!("otari.refused.{}", reason.code());
            let metric = host::define_metric(MetricKind::Counter, &name).ok()?;
            known.insert(reason, metric);
            Some(metric)
        });
        if let Some(metric) = metric {
            host::increment(metric, 1);
        }
    }

    /// Counts a host call that failed where it should not.
    pub(crate) fn host_error(&self) {
        host::increment(self.host_errors, 1);
    }

    /// Counts body bytes that were copied out of Envoy.
    pub(crate) fn scanned(&self, size_bytes: u64) {
        host::increment(self.scanned_bytes, size_bytes);
    }

    /// Counts a poll of the policy.
    pub(crate) fn polled(&self, poll: Poll) {
        let metric = match poll {
            Poll::Updated => self.polls_updated,
            Poll::Unchanged => self.polls_unchanged,
            Poll::Failed => self.polls_failed,
        };
        host::increment(metric, 1);
    }

    /// Shows what this worker knows; workers overwrite each other, and agree within two poll periods.
    pub(crate) fn snapshot(&self, version: u64, age_ms: u64) {
        host::record(self.snapshot_version, version);
        host::record(self.snapshot_age_ms, age_ms);
    }
}
