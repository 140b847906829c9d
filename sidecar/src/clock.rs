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
