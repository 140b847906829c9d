//! The only place that reads the wall clock.

use std::fmt::Debug;

use jiff::Timestamp;

/// Where "now" comes from.
pub trait Clock: Send + Sync + Debug {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// The current time in milliseconds since the epoch, as the database keeps it.
    fn now_ms(&self) -> i64 {
        self.now().as_millisecond()
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that a test turns.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct TurnedClock(std::sync::atomic::AtomicI64);

#[cfg(test)]
impl TurnedClock {
    pub(crate) fn at(now_ms: i64) -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self(now_ms.into()))
    }

    pub(crate) fn set(&self, now_ms: i64) {
        self.0.store(now_ms, std::sync::atomic::Ordering::SeqCst);
    }

    pub(crate) fn turn(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(test)]
impl Clock for TurnedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.0.load(std::sync::atomic::Ordering::SeqCst)).unwrap()
    }
}
