//! The log and the metrics: how they are set up, and every name and label there is.
//!
//! INVARIANT: labels come from closed sets, never from what a caller wrote.

use std::error::Error;
use std::fmt;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tracing_subscriber::EnvFilter;

use crate::config::LogConfig;

/// Upper bounds of the duration buckets, seconds.
const DURATION_BUCKETS_S: [f64; 12] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];

/// Sets up the log on standard error. Only the first call in a process counts.
pub fn start_log(config: &LogConfig) {
    let filter = EnvFilter::try_new(&config.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = if config.json { log.json().try_init() } else { log.try_init() };
    // A second log in one process is a test's doing; the first one stays.
    drop(started);
}

/// Longest text of an error and its causes, in bytes: a store or a server may put whole answers into its errors.
const MAX_CAUSES_BYTES: usize = 2000;

/// An error and everything below it, for the log, cut to [`MAX_CAUSES_BYTES`].
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause.filter(|_| text.len() < MAX_CAUSES_BYTES) {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text.truncate(text.floor_char_boundary(MAX_CAUSES_BYTES));
    text
}

fn duration_histogram() -> Histogram {
    Histogram::new(DURATION_BUCKETS_S)
}

/// Every counter of the sidecar.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram>,
    in_flight: Gauge,
    decisions: Family<DecisionLabels, Counter>,
    disagreements: Family<DisagreementLabels, Counter>,
    turns: Counter,
    code_runs: Counter,
    body_bytes: Gauge<u64, AtomicU64>,
    file_bytes: Family<DirectionLabels, Counter>,
    swept: Family<SweptLabels, Counter>,
    sweeps: Family<SweepLabels, Counter>,
    sweep_durations: Histogram,
    policy_version: Gauge<u64, AtomicU64>,
    sandbox_available: Gauge,
}

/// Labels of a finished request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    route: String,
    status: u16,
    end: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DisagreementLabels {
    filter: &'static str,
    sidecar: &'static str,
    snapshot: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SweptLabels {
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SweepLabels {
    end: &'static str,
}

impl Metrics {
    /// Registers everything.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("otari");
        let requests = Family::default();
        registry.register("sidecar_requests", "Requests answered by the sidecar", requests.clone());
        let durations = Family::new_with_constructor(duration_histogram as fn() -> Histogram);
        let help = "From a request's head to the last byte of its answer";
        registry.register("sidecar_request_duration_seconds", help, durations.clone());
        let in_flight = Gauge::default();
        registry.register("sidecar_requests_in_flight", "Requests not yet answered to the end", in_flight.clone());
        let decisions = Family::default();
        registry.register("sidecar_decisions", "Who runs the code, as the sidecar decided", decisions.clone());
        let disagreements = Family::default();
        let help = "Decisions of the filter that the sidecar's own differed from";
        registry.register("sidecar_decision_mismatches", help, disagreements.clone());
        let turns = Counter::default();
        registry.register("sidecar_turns", "Model calls made for code turns", turns.clone());
        let code_runs = Counter::default();
        registry.register("sidecar_code_runs", "Pieces of code handed to the sandbox", code_runs.clone());
        let body_bytes = Gauge::default();
        registry.register("sidecar_buffered_bytes", "Bytes of request bodies held", body_bytes.clone());
        let file_bytes = Family::default();
        registry.register("sidecar_file_bytes", "Bytes of files that callers sent and fetched", file_bytes.clone());
        let swept = Family::default();
        registry.register("sidecar_files_swept", "Files and blobs that the sweep removed, or failed to", swept.clone());
        let sweeps = Family::default();
        registry.register("sidecar_sweeps", "Sweeps over files", sweeps.clone());
        let sweep_durations = duration_histogram();
        registry.register("sidecar_sweep_duration_seconds", "Time of a sweep over files", sweep_durations.clone());
        let policy_version = Gauge::default();
        registry.register("policy_version", "Version of the policy snapshot", policy_version.clone());
        let sandbox_available = Gauge::default();
        registry.register("sandbox_available", "Whether a sandbox is configured", sandbox_available.clone());
        Self {
            registry: Arc::new(registry),
            requests,
            durations,
            in_flight,
            decisions,
            disagreements,
            turns,
            code_runs,
            body_bytes,
            file_bytes,
            swept,
            sweeps,
            sweep_durations,
            policy_version,
            sandbox_available,
        }
    }

    /// A request has arrived.
    pub fn request_started(&self) {
        self.in_flight.inc();
    }

    /// Its answer has left, or was given up.
    pub fn request_finished(&self, labels: &RequestLabels, elapsed: Duration) {
        self.in_flight.dec();
        self.requests.get_or_create(labels).inc();
        self.durations.get_or_create(&RouteLabels { route: labels.route.clone() }).observe(elapsed.as_secs_f64());
    }

    /// A decision was made.
    pub fn decided(&self, outcome: &'static str, reason: &'static str) {
        self.decisions.get_or_create(&DecisionLabels { outcome, reason }).inc();
    }

    /// Filter and sidecar decided differently. `snapshot`: how the filter's stood to the sidecar's.
    pub fn disagreed(&self, filter: &'static str, sidecar: &'static str, snapshot: &'static str) {
        self.disagreements.get_or_create(&DisagreementLabels { filter, sidecar, snapshot }).inc();
    }

    /// A code turn is over.
    pub fn looped(&self, turns: u32, code_runs: u32) {
        self.turns.inc_by(turns.into());
        self.code_runs.inc_by(code_runs.into());
    }

    /// So many bytes of request bodies are held.
    pub fn observe_bodies(&self, bytes: u64) {
        self.body_bytes.set(bytes);
    }

    /// So many bytes of an upload have arrived.
    pub fn file_bytes_received(&self, bytes: usize) {
        self.file_bytes.get_or_create(&DirectionLabels { direction: "received" }).inc_by(bytes as u64);
    }

    /// So many bytes of a download have left.
    pub fn file_bytes_sent(&self, bytes: usize) {
        self.file_bytes.get_or_create(&DirectionLabels { direction: "sent" }).inc_by(bytes as u64);
    }

    /// A sweep over files has ended, well or not, after it removed so much of each kind.
    pub fn swept(&self, counts: &[(&'static str, u64)], well: bool, elapsed: Duration) {
        for (what, count) in counts {
            self.swept.get_or_create(&SweptLabels { what }).inc_by(*count);
        }
        self.sweeps.get_or_create(&SweepLabels { end: if well { "done" } else { "failed" } }).inc();
        self.sweep_durations.observe(elapsed.as_secs_f64());
    }

    /// The snapshot stands so.
    pub fn observe_policy(&self, version: u64, sandbox_available: bool) {
        self.policy_version.set(version);
        self.sandbox_available.set(i64::from(sandbox_available));
    }

    /// Everything as `OpenMetrics` text.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestLabels {
    /// `route` is a path template of the router, `end` how the answer ended.
    pub fn new(route: &str, status: StatusCode, end: &'static str) -> Self {
        Self { route: route.to_owned(), status: status.as_u16(), end }
    }
}
