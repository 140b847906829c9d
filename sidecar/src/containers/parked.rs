//! The leases of kept sessions that this process opened, by the containers' ids.
//!
//! INVARIANT: a lease stays here while a request works with its session; it leaves when its row is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sandbox::Lease;

/// The leases.
#[derive(Debug, Default)]
pub(super) struct ParkedLeases(Mutex<Lot>);

#[derive(Debug, Default)]
struct Lot {
    leases: HashMap<String, Parked>,
    /// Counts up with every use.
    uses: u64,
    /// None is taken any more.
    closed: bool,
}

#[derive(Debug)]
struct Parked {
    lease: Arc<Lease>,
    workspace: String,
    used: u64,
}

impl ParkedLeases {
    /// Takes a lease. `false` if none is taken any more.
    pub(super) fn park(&self, id: String, workspace: String, lease: Arc<Lease>) -> bool {
        let mut lot = self.lot();
        lot.uses = lot.uses.saturating_add(1);
        let used = lot.uses;
        if !lot.closed {
            lot.leases.insert(id, Parked { lease, workspace, used });
        }
        !lot.closed
    }

    /// The lease of a container.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Lease>> {
        self.lot().leases.get(id).map(|parked| Arc::clone(&parked.lease))
    }

    /// Takes a lease out.
    pub(super) fn remove(&self, id: &str) -> Option<Arc<Lease>> {
        self.lot().leases.remove(id).map(|parked| parked.lease)
    }

    /// A container was used just now.
    pub(super) fn used(&self, id: &str) {
        let mut lot = self.lot();
        lot.uses = lot.uses.saturating_add(1);
        let used = lot.uses;
        if let Some(parked) = lot.leases.get_mut(id) {
            parked.used = used;
        }
    }

    /// Ids of all, or of one workspace's; those first that stood unused longest.
    pub(super) fn oldest(&self, workspace: Option<&str>) -> Vec<String> {
        let lot = self.lot();
        let some = lot.leases.iter().filter(|(_, parked)| workspace.is_none_or(|one| one == parked.workspace));
        let mut some: Vec<(u64, String)> = some.map(|(id, parked)| (parked.used, id.clone())).collect();
        some.sort_unstable();
        some.into_iter().map(|(_, id)| id).collect()
    }

    /// Takes all out, and no other in.
    pub(super) fn close(&self) -> Vec<(String, Arc<Lease>)> {
        let mut lot = self.lot();
        lot.closed = true;
        lot.leases.drain().map(|(id, parked)| (id, parked.lease)).collect()
    }

    fn lot(&self) -> MutexGuard<'_, Lot> {
        // It is whole between any two operations on it, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
