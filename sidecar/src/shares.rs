//! What one workspace may take of something that all use, so that none takes it all.
//!
//! INVARIANT: only workspaces that have or want something are remembered; what a seat holds is given back when it is
//! dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The shares of all workspaces in one thing. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shares {
    places: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
    max_per_workspace: usize,
}

/// What is held of a workspace's share.
#[derive(Debug)]
pub struct Seat {
    shares: Shares,
    workspace: String,
    places: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Shares {
    /// So many for each workspace.
    pub fn new(max_per_workspace: usize) -> Self {
        Self { places: Arc::default(), max_per_workspace: max_per_workspace.min(Semaphore::MAX_PERMITS) }
    }

    /// A seat that holds nothing yet.
    pub fn seat(&self, workspace: &str) -> Seat {
        let mut all = self.all();
        let places =
            all.entry(workspace.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.max_per_workspace)));
        Seat { shares: self.clone(), workspace: workspace.to_owned(), places: Arc::clone(places), held: None }
    }

    /// One place, as soon as the workspace has one. Whoever waits takes nothing from anybody else.
    pub async fn wait(&self, workspace: &str) -> Seat {
        let mut seat = self.seat(workspace);
        // Nobody closes it.
        seat.held = Arc::clone(&seat.places).acquire_owned().await.ok();
        seat
    }

    /// Whether a workspace holds all that it may.
    pub fn is_taken(&self, workspace: &str) -> bool {
        self.all().get(workspace).is_some_and(|places| places.available_permits() == 0)
    }

    /// How many workspaces have or want something.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Semaphore>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Takes so many more, if the workspace has them left.
    pub fn grow(&mut self, more: u32) -> bool {
        let Ok(permit) = Arc::clone(&self.places).try_acquire_many_owned(more) else { return false };
        match &mut self.held {
            Some(held) => held.merge(permit),
            None => self.held = Some(permit),
        }
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut all = self.shares.all();
        drop(self.held.take());
        // The map's own and this seat's: nobody else has, or waits for, anything of it.
        if Arc::strong_count(&self.places) == 2 {
            all.remove(&self.workspace);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_workspace_has_its_share_and_nobody_elses() {
        let shares = Shares::new(2);
        let (first, _second) = (shares.wait("one").await, shares.wait("one").await);
        let mut waiting = Box::pin(shares.wait("one"));
        assert!((&mut waiting).now_or_never().is_none(), "the share is taken");
        let _other = shares.wait("other").now_or_never().expect("the other's is not");
        drop(first);
        let third = (&mut waiting).now_or_never().expect("what is given back is had again");
        assert!(shares.wait("one").now_or_never().is_none());
        drop(third);
    }

    #[tokio::test]
    async fn a_seat_grows_within_the_share_and_gives_all_of_it_back() {
        let shares = Shares::new(10);
        let (mut one, mut two) = (shares.seat("team"), shares.seat("team"));
        assert!(one.grow(4) && one.grow(3) && two.grow(3));
        assert!(!two.grow(1) && !one.grow(u32::MAX));
        drop(one);
        assert!(two.grow(7));
        drop(two);
        assert_eq!(shares.remembered(), 0, "only who has something is remembered");
        let mut all = shares.seat("team");
        assert!(all.grow(10));
    }
}
