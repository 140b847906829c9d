//! The leases of kept sessions that this process opened, by the containers' ids.
//!
//! INVARIANT: a lease stays here while a request works with its session; it leaves when its row is gone. There are no more
//! than room was reserved for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sandbox::Lease;

/// The leases.
#[derive(Debug, Default)]
pub(super) struct ParkedLeases(Mutex<Lot>);

#[derive(Debug, Default)]
struct Lot {
    leases: HashMap<String, Parked>,
    /// Room for leases that are on their way in, by workspace.
    reserved: HashMap<String, usize>,
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

/// Room for one lease, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Room<'a> {
    parked: &'a ParkedLeases,
    workspace: String,
}

/// Whose leases take all the room there is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The workspace's own.
    OfWorkspace,
    /// Everybody's.
    OfAll,
}

impl ParkedLeases {
    /// Room for one lease more, among `max` and among `share` of its workspace.
    pub(super) fn reserve(&self, workspace: &str, max: usize, share: usize) -> Result<Room<'_>, Full> {
        let mut lot = self.lot();
        let coming = lot.reserved.get(workspace).copied().unwrap_or_default();
        if coming + lot.leases.values().filter(|parked| parked.workspace == workspace).count() >= share {
            return Err(Full::OfWorkspace);
        }
        if lot.reserved.values().sum::<usize>() + lot.leases.len() >= max {
            return Err(Full::OfAll);
        }
        lot.reserved.insert(workspace.to_owned(), coming + 1);
        Ok(Room { parked: self, workspace: workspace.to_owned() })
    }

    /// The lease of a container.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Lease>> {
        self.lot().leases.get(id).map(|parked| Arc::clone(&parked.lease))
    }

    /// Takes a lease out. `false` if it is not there: another may be, under the same id.
    pub(super) fn remove(&self, id: &str, lease: &Arc<Lease>) -> bool {
        let mut lot = self.lot();
        let is_there = lot.leases.get(id).is_some_and(|parked| Arc::ptr_eq(&parked.lease, lease));
        is_there && lot.leases.remove(id).is_some()
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

    /// All, or one workspace's; those first that stood unused longest.
    pub(super) fn oldest(&self, workspace: Option<&str>) -> Vec<(String, Arc<Lease>)> {
        let lot = self.lot();
        let some = lot.leases.iter().filter(|(_, parked)| workspace.is_none_or(|one| one == parked.workspace));
        let mut some: Vec<_> = some.map(|(id, parked)| (parked.used, id.clone(), Arc::clone(&parked.lease))).collect();
        some.sort_unstable_by_key(|(used, ..)| *used);
        some.into_iter().map(|(_, id, lease)| (id, lease)).collect()
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

impl Room<'_> {
    /// Takes a lease in. `false` if none is taken any more.
    pub(super) fn park(self, id: String, lease: Arc<Lease>) -> bool {
        let mut lot = self.parked.lot();
        lot.uses = lot.uses.saturating_add(1);
        let used = lot.uses;
        if !lot.closed {
            lot.leases.insert(id, Parked { lease, workspace: self.workspace.clone(), used });
        }
        !lot.closed
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut lot = self.parked.lot();
        // The map holds workspaces that have room reserved, no others.
        if let Some(coming) = lot.reserved.get_mut(&self.workspace) {
            *coming = coming.saturating_sub(1);
            if *coming == 0 {
                lot.reserved.remove(&self.workspace);
            }
        }
    }
}
