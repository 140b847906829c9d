//! Room: a kept session that stands unused gives way to a new one.
//!
//! INVARIANT: the row goes first, so that nobody can go on with a session that is being ended.

use std::sync::Arc;

use super::parked::{Full, Room};
use super::{Containers, end};
use crate::repository::RepositoryError;
use crate::sandbox::{Lease, SandboxError, SessionGrant, SessionId, SessionSpec};
use crate::telemetry::chain;

/// Kept sessions that one new session can push out: others may be quicker and take the room.
const MAX_ATTEMPTS: usize = 8;

impl Containers {
    /// Opens a session and lends it. At capacity only if no kept one can give way.
    ///
    /// To be awaited to its end: a session that gives way must be gone, not half gone.
    pub async fn lease(&self, spec: &SessionSpec) -> Result<Lease, SandboxError> {
        let reaper = &self.0.parts.reaper;
        for _ in 0..MAX_ATTEMPTS {
            let full = match reaper.lease(spec).await {
                Err(full @ SandboxError::AtCapacity { .. }) => full,
                other => return other,
            };
            let share = reaper.is_full(&spec.workspace).then_some(spec.workspace.as_str());
            match self.make_room(share).await {
                Ok(true) => {}
                Ok(false) => return Err(full),
                Err(error) => {
                    tracing::error!(error = %chain(&error), "no kept session gave way");
                    return Err(full);
                }
            }
        }
        reaper.lease(spec).await
    }

    /// Room among those that are kept; `None` if there is none to be had.
    pub(super) async fn make_room_to_keep(&self, workspace: &str) -> Option<Room<'_>> {
        let (max, share) = (self.limits().max_kept, self.limits().max_kept_per_workspace);
        loop {
            let full = match self.0.parked.reserve(workspace, max, share) {
                Ok(room) => return Some(room),
                Err(full) => full,
            };
            match self.evict_parked((full == Full::OfWorkspace).then_some(workspace)).await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    tracing::error!(error = %chain(&error), "no kept session gave way");
                    return None;
                }
            }
        }
    }

    /// Ends one kept session that nobody uses, of this workspace if one is named. `false` if there is none.
    async fn make_room(&self, workspace: Option<&str>) -> Result<bool, RepositoryError> {
        if self.end_orphans().await? > 0 || self.evict_parked(workspace).await? {
            return Ok(true);
        }
        if workspace.is_some() {
            return Ok(false);
        }
        // At a server of its own others keep sessions too, and so did this process before it was started again.
        let place = &self.0.parts.place;
        let Some(row) = self.repository().evict_container(&place.backend).await? else { return Ok(false) };
        let granted = SessionGrant { id: SessionId(row.session), idle_timeout: None, max_lifetime: None };
        end(&Lease::taken_over(Arc::clone(self.0.parts.reaper.backend()), granted)).await;
        self.0.parts.metrics.container("evicted");
        Ok(true)
    }

    async fn evict_parked(&self, workspace: Option<&str>) -> Result<bool, RepositoryError> {
        for (id, lease) in self.0.parked.oldest(workspace) {
            if !self.repository().remove_idle_container(&id).await? {
                // In use.
                continue;
            }
            if self.0.parked.remove(&id, &lease) {
                end(&lease).await;
                self.0.parts.metrics.container("evicted");
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends the sessions whose rows are gone: others removed them. How many.
    pub(super) async fn end_orphans(&self) -> Result<usize, RepositoryError> {
        let parked = self.0.parked.oldest(None);
        if parked.is_empty() {
            return Ok(0);
        }
        let ids: Vec<String> = parked.iter().map(|(id, _)| id.clone()).collect();
        let known = self.repository().known_containers(&ids).await?;
        let mut ended = 0;
        for (id, lease) in parked.iter().filter(|(id, _)| !known.contains(id)) {
            if self.0.parked.remove(id, lease) {
                end(lease).await;
                ended += 1;
            }
        }
        Ok(ended)
    }
}
