//! How many bytes of request bodies are held at once, over all connections.
//!
//! INVARIANT: a share is taken before its bytes are kept, and given back when it is dropped; one workspace never has all.

use std::sync::Arc;

use decision::problem::Problem;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::shares::{Seat, Shares};

/// A permit stands for so many bytes.
const UNIT_BYTES: u64 = 1024;

/// `http.max_buffered_bytes`, and what of it a workspace may take.
#[derive(Debug, Clone)]
pub struct BodyBudget {
    room: Arc<Semaphore>,
    units: usize,
    shares: Shares,
}

/// The part of the budget that one body takes.
#[derive(Debug)]
pub(super) struct Share {
    budget: BodyBudget,
    taken: Option<OwnedSemaphorePermit>,
    /// The same of its workspace's share, when that is known.
    seat: Option<Seat>,
}

impl BodyBudget {
    /// Room for so many bytes, rounded down to whole KiB, and for one workspace so many of them.
    pub fn new(max_bytes: u64, max_bytes_per_workspace: u64) -> Self {
        let units = units(max_bytes / UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        let shares = Shares::new(units_of(max_bytes_per_workspace));
        Self { room: Arc::new(Semaphore::new(units)), units, shares }
    }

    /// Bytes that are held now.
    pub fn held_bytes(&self) -> u64 {
        (self.units.saturating_sub(self.room.available_permits()) as u64).saturating_mul(UNIT_BYTES)
    }

    /// A share of nothing yet.
    pub(super) fn share(&self) -> Share {
        Share { budget: self.clone(), taken: None, seat: None }
    }
}

impl Share {
    /// Counts what is held, and whatever comes, against this workspace's share.
    pub(super) fn belongs_to(&mut self, workspace: &str) -> Result<(), Problem> {
        let mut seat = self.budget.shares.seat(workspace);
        if !seat.grow(u32::try_from(self.held()).unwrap_or(u32::MAX)) {
            return Err(share_full());
        }
        self.seat = Some(seat);
        Ok(())
    }

    /// Makes the share large enough for so many bytes in all. Nobody waits: whoever holds the rest may be waiting too.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), Problem> {
        let more = units_of(bytes).saturating_sub(self.held());
        let more = u32::try_from(more).map_err(|_| Problem::bodies_full())?;
        if more == 0 {
            return Ok(());
        }
        if self.seat.as_mut().is_some_and(|seat| !seat.grow(more)) {
            return Err(share_full());
        }
        let permit = Arc::clone(&self.budget.room).try_acquire_many_owned(more).map_err(|_| Problem::bodies_full())?;
        match &mut self.taken {
            Some(taken) => taken.merge(permit),
            None => self.taken = Some(permit),
        }
        Ok(())
    }

    fn held(&self) -> usize {
        self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

/// What bytes take, in whole units.
fn units_of(bytes: u64) -> usize {
    units(bytes.div_ceil(UNIT_BYTES))
}

fn units(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn share_full() -> Problem {
    let text = "the gateway holds as many bytes of this workspace's requests as it may \
                (http.max_buffered_bytes_per_workspace): try again";
    Problem::busy(text)
}

#[cfg(test)]
mod tests {
    use decision::problem::ProblemKind;

    use super::*;

    #[test]
    fn shares_add_up_and_are_given_back() {
        let budget = BodyBudget::new(4096, 4096);
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
    #[test]
    fn a_workspace_takes_no_more_than_its_share() {
        let budget = BodyBudget::new(8192, 4096);
        let (mut one, mut two, mut other) = (budget.share(), budget.share(), budget.share());
        one.grow(3000).unwrap();
        one.belongs_to("team").unwrap();
        two.grow(2000).unwrap();
        let full = two.belongs_to("team").unwrap_err();
        assert!(full.message.contains("http.max_buffered_bytes_per_workspace"), "{full:?}");
        other.belongs_to("other").unwrap();
        other.grow(3000).unwrap();
        assert_eq!(one.grow(4097).unwrap_err(), full);
        drop(two);
        one.grow(4096).unwrap();
        drop(one);
        let mut again = budget.share();
        again.belongs_to("team").unwrap();
        again.grow(4096).unwrap();
    }
}
