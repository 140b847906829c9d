//! How long a session lives: what it was granted, when it was used last, and how many use it now.
//!
//! INVARIANT: a session in use never ends by its age; one whose lifetime is over takes no new use, so it ends with the
//! last one it has.

use std::time::{Duration, Instant};

use crate::sandbox::{SandboxError, SessionSpec};

/// Calls and file operations of one session at the same time: one goes on, the others wait for their turn.
pub(super) const MAX_USES: usize = 32;

/// A point of time, by the clock that never goes back and by the one on the wall.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) instant: Instant,
    pub(super) epoch_ms: i64,
}

/// What is known of a live session from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionInfo {
    /// It ends when it was not used for so long.
    pub idle_timeout: Duration,
    /// It ends so long after it was opened, or with the call that runs then.
    pub max_lifetime: Duration,
    /// When it was opened, in milliseconds since the epoch.
    pub created_at_ms: i64,
    /// When a call or a file operation last began or ended, likewise.
    pub last_activity_at_ms: i64,
}

/// The life of one session.
#[derive(Debug)]
pub(super) struct Life {
    idle: Duration,
    lifetime: Duration,
    opened: Moment,
    used: Moment,
    uses: usize,
}

impl Life {
    /// A life that begins now. The hints of `spec` can only shorten what a session has anyway.
    pub(super) fn begin(idle: Duration, lifetime: Duration, spec: &SessionSpec, now: Moment) -> Self {
        let shorter = |own: Duration, hint: Option<Duration>| hint.map_or(own, |hint| hint.min(own));
        Self {
            idle: shorter(idle, spec.idle_timeout),
            lifetime: shorter(lifetime, spec.max_lifetime),
            opened: now,
            used: now,
            uses: 0,
        }
    }

    /// Begins a use; one that is to wait counts from now on.
    pub(super) fn enter(&mut self, now: Moment) -> Result<(), SandboxError> {
        if self.is_over(now) || self.is_old(now) {
            return Err(SandboxError::UnknownSession);
        }
        if self.uses >= MAX_USES {
            return Err(SandboxError::Busy { limit: MAX_USES });
        }
        self.uses += 1;
        self.used = now;
        Ok(())
    }

    /// Ends a use.
    pub(super) fn leave(&mut self, now: Moment) {
        self.uses = self.uses.saturating_sub(1);
        self.used = now;
    }

    /// Whether nobody uses it.
    pub(super) fn is_at_rest(&self) -> bool {
        self.uses == 0
    }

    /// Whether it is to be ended.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        let unused = now.instant.saturating_duration_since(self.used.instant);
        self.is_at_rest() && (unused >= self.idle || self.is_old(now))
    }

    /// Tells of it.
    pub(super) fn info(&self) -> SessionInfo {
        SessionInfo {
            idle_timeout: self.idle,
            max_lifetime: self.lifetime,
            created_at_ms: self.opened.epoch_ms,
            last_activity_at_ms: self.used.epoch_ms,
        }
    }

    fn is_old(&self, now: Moment) -> bool {
        now.instant.saturating_duration_since(self.opened.instant) >= self.lifetime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// A life of 10 s idle and 100 s in all, unless hinted, and the moment so many seconds after its begin.
    fn life(idle: Option<u32>, lifetime: Option<u32>) -> (Life, impl Fn(u32) -> Moment) {
        let begun = Instant::now();
        let at = move |second: u32| Moment { instant: begun + S * second, epoch_ms: i64::from(second) * 1000 };
        let hint = |seconds: Option<u32>| seconds.map(|seconds| S * seconds);
        let spec = SessionSpec { idle_timeout: hint(idle), max_lifetime: hint(lifetime), ..SessionSpec::default() };
        (Life::begin(S * 10, S * 100, &spec, at(0)), at)
    }

    #[test]
    fn hints_can_only_shorten() {
        for (hints, granted) in [
            ((None, None), (10, 100)),
            ((Some(3), Some(30)), (3, 30)),
            ((Some(11), Some(1000)), (10, 100)),
            ((None, Some(5)), (10, 5)),
        ] {
            let info = life(hints.0, hints.1).0.info();
            assert_eq!((info.idle_timeout, info.max_lifetime), (S * granted.0, S * granted.1));
        }
    }

    #[test]
    fn a_life_ends_after_standing_unused_and_every_use_begins_the_wait_anew() {
        let (mut life, at) = life(None, None);
        assert!(!life.is_over(at(9)));
        assert!(life.is_over(at(10)));
        assert!(matches!(life.enter(at(10)), Err(SandboxError::UnknownSession)));
        life.enter(at(9)).unwrap();
        // However long a use takes, and also while another waits, it is not idle.
        assert!(!life.is_over(at(50)));
        life.enter(at(50)).unwrap();
        life.leave(at(60));
        assert!(!life.is_over(at(75)));
        life.leave(at(80));
        assert!(!life.is_over(at(89)));
        assert!(life.is_over(at(90)));
        assert_eq!((life.info().created_at_ms, life.info().last_activity_at_ms), (0, 80_000));
    }

    #[test]
    fn a_life_ends_in_time_but_not_while_it_is_used_and_takes_no_use_beyond_it() {
        let (mut life, at) = life(None, Some(20));
        life.enter(at(5)).unwrap();
        assert!(!life.is_over(at(25)));
        assert!(matches!(life.enter(at(20)), Err(SandboxError::UnknownSession)));
        life.leave(at(25));
        assert!(life.is_over(at(25)));
    }

    #[test]
    fn no_more_than_so_many_wait() {
        let (mut life, at) = life(None, None);
        for _ in 0..MAX_USES {
            life.enter(at(1)).unwrap();
        }
        assert!(matches!(life.enter(at(1)), Err(SandboxError::Busy { limit: MAX_USES })));
        life.leave(at(2));
        life.enter(at(2)).unwrap();
    }
}
