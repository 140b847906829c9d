//! How many bytes of request bodies are held at once, over all connections.
//!
//! INVARIANT: a share is taken before its bytes are kept, and given back when it is dropped.

use std::sync::Arc;

use decision::problem::Problem;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A permit stands for so many bytes.
const UNIT_BYTES: u64 = 1024;

/// `http.max_buffered_bytes`.
#[derive(Debug, Clone)]
pub struct BodyBudget {
    room: Arc<Semaphore>,
    units: usize,
}

/// The part of the budget that one body takes.
#[derive(Debug)]
pub(super) struct Share {
    budget: BodyBudget,
    taken: Option<OwnedSemaphorePermit>,
}

impl BodyBudget {
    /// Room for so many bytes, rounded down to whole KiB.
    pub fn new(max_bytes: u64) -> Self {
        let units = usize::try_from(max_bytes / UNIT_BYTES).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(units)), units }
    }

    /// Bytes that are held now.
    pub fn held_bytes(&self) -> u64 {
        (self.units.saturating_sub(self.room.available_permits()) as u64).saturating_mul(UNIT_BYTES)
    }

    /// A share of nothing yet.
    pub(super) fn share(&self) -> Share {
        Share { budget: self.clone(), taken: None }
    }
}

impl Share {
    /// Makes the share large enough for so many bytes in all. Nobody waits: whoever holds the rest may be waiting too.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), Problem> {
        let has = self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = usize::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(usize::MAX);
        let more = u32::try_from(wanted.saturating_sub(has)).map_err(|_| Problem::bodies_full())?;
        if more == 0 {
            return Ok(());
        }
        let permit = Arc::clone(&self.budget.room).try_acquire_many_owned(more).map_err(|_| Problem::bodies_full())?;
        match &mut self.taken {
            Some(taken) => taken.merge(permit),
            None => self.taken = Some(permit),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use decision::problem::ProblemKind;

    use super::*;

    #[test]
    fn shares_add_up_and_are_given_back() {
        let budget = BodyBudget::new(4096);
        let (mut one, mut other) = (budget.share(), budget.share());
        one.grow(1).unwrap();
        one.grow(1024).unwrap();
        assert_eq!(budget.held_bytes(), 1024);
        one.grow(1025).unwrap();
        other.grow(2048).unwrap();
        assert_eq!(budget.held_bytes(), 4096);
        assert_eq!(one.grow(2049).unwrap_err().kind, ProblemKind::Overloaded);
        drop(other);
        one.grow(4096).unwrap();
        assert!(one.grow(4097).is_err());
        drop(one);
        assert_eq!(budget.held_bytes(), 0);
    }
}
