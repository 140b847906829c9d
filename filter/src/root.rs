//! One plugin instance in one VM: its configuration, its policy, its counters and its request ids.
//!
//! INVARIANT: a `Root` that exists has a configuration that was understood whole; without one Envoy keeps the last.

pub(crate) mod metrics;
pub(crate) mod policy;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use decision::config::FilterConfig;
use decision::identity::REQUEST_ID_PREFIX;

use crate::host::{self, Buffer, Level};
use metrics::Metrics;
use policy::{Current, Policy};

/// Until the first snapshot is there, the worker looks this often, so that a start is not slowed by a long period.
const FIRST_TICK_MS: u32 = 50;

/// The state behind a root context.
#[derive(Debug)]
pub(crate) struct Root {
    /// The plugin configuration.
    pub(crate) config: FilterConfig,
    /// The counters.
    pub(crate) metrics: Metrics,
    policy: RefCell<Policy>,
    waiting: Cell<bool>,
    held_bytes: Cell<u64>,
    ids: Ids,
}

/// The part of a body that waits in Envoy for a decision; it no longer counts when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    root: Rc<Root>,
    bytes: u64,
}

impl Root {
    /// Reads the plugin configuration; `None`, and a log line that says why, refuses it.
    pub(crate) fn configure(config_size: usize) -> Option<Self> {
        let refuse = |why: String| {
            host::log(Level::Error, &format!("plugin configuration refused: {why}"));
            None
        };
        let config = match host::buffer(Buffer::PluginConfiguration, 0, config_size, FilterConfig::parse) {
            Ok(Ok(config)) => config,
            Ok(Err(why)) => return refuse(why),
            Err(error) => return refuse(format!("there is none ({error:?})")),
        };
        let metrics = match Metrics::define() {
            Ok(metrics) => metrics,
            Err(error) => return refuse(format!("metrics cannot be defined ({error:?})")),
        };
        if let Err(error) = host::set_tick_period(FIRST_TICK_MS) {
            return refuse(format!("no timer ({error:?})"));
        }
        let policy = RefCell::new(Policy::new(&config.policy));
        Some(Self { config, metrics, policy, waiting: Cell::new(true), held_bytes: Cell::new(0), ids: Ids::new() })
    }

    /// The timer of this worker.
    pub(crate) fn tick(&self) {
        self.metrics.tell();
        let Ok(mut policy) = self.policy.try_borrow_mut() else { return };
        if policy.tick(&self.config, &self.metrics).is_err() {
            self.metrics.host_error();
        }
        if self.waiting.get() && policy.version_and_age_ms().is_some() {
            self.waiting.set(host::set_tick_period(Policy::tick_ms(&self.config.policy)).is_err());
        }
    }

    /// The answer to one of our own calls.
    pub(crate) fn call_answered(&self, token: u32, body_size: usize) {
        if let Ok(mut policy) = self.policy.try_borrow_mut() {
            policy.answered(&self.config.policy, token, body_size, &self.metrics);
        }
    }

    /// What a request may rely on now.
    pub(crate) fn current_policy(&self) -> Current {
        self.policy.try_borrow().map_or(Current::Missing, |policy| policy.current())
    }

    /// Version and age in milliseconds of the snapshot.
    pub(crate) fn snapshot_version_and_age_ms(&self) -> Option<(u64, u64)> {
        self.policy.try_borrow().ok()?.version_and_age_ms()
    }

    /// A request id of our own, for a request that brought none.
    pub(crate) fn mint_request_id(&self) -> String {
        self.ids.mint()
    }
}

impl Held {
    /// Nothing yet.
    pub(crate) fn new(root: &Rc<Root>) -> Self {
        Self { root: Rc::clone(root), bytes: 0 }
    }

    /// So many bytes are there, in all. `false` if they are too many beside those of other requests.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let total = self.root.held_bytes.get().saturating_sub(self.bytes).saturating_add(bytes);
        self.root.held_bytes.set(total);
        self.bytes = bytes;
        total <= self.root.config.max_buffered_bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.root.held_bytes.set(self.root.held_bytes.get().saturating_sub(self.bytes));
    }
}

/// Request ids: the time this VM was configured, and a counter. Unique enough for a log, guessable, and meant to be.
#[derive(Debug)]
struct Ids {
    started_ns: u64,
    count: Cell<u64>,
}

impl Ids {
    fn new() -> Self {
        Self { started_ns: host::wall_clock_ns(), count: Cell::new(0) }
    }

    fn mint(&self) -> String {
        let count = self.count.get().wrapping_add(1);
        self.count.set(count);
        format!("{REQUEST_ID_PREFIX}{:x}_{count:x}", self.started_ns)
    }
}
