//! The hold on a claimed row: short, so that a row is soon free if its process dies, and renewed as long as the claim lives.
//!
//! INVARIANT: whoever takes the time out of a hold is the only one who may change the row by it, for nothing renews it then.

use std::sync::{Arc, PoisonError};

use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::{Containers, milliseconds};
use crate::telemetry::chain;

/// Renewals in the time that a claim lasts: all but one of them may fail.
const RENEWALS_PER_CLAIM: u32 = 4;

/// What a claim has of its row.
#[derive(Debug)]
pub(super) struct Hold {
    held: Arc<Held>,
    /// Goes with the hold.
    _renewal: AbortOnDropHandle<()>,
}

/// A row, and until when it is claimed.
#[derive(Debug)]
pub(super) struct Held {
    id: String,
    /// In milliseconds since the epoch; `None` if it is not this claim's any more.
    until_ms: Mutex<Option<i64>>,
}

impl Hold {
    /// Keeps a row claimed, which is so until `until_ms` by now.
    pub(super) fn new(containers: &Containers, id: &str, until_ms: i64) -> Self {
        let held = Arc::new(Held { id: id.to_owned(), until_ms: Mutex::new(Some(until_ms)) });
        let mut all = containers.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&held));
        drop(all);
        let renewal = containers.0.parts.tasks.spawn(Arc::clone(&held).renew(containers.clone()));
        Self { held, _renewal: AbortOnDropHandle::new(renewal) }
    }

    /// Renews it no more: until when it is claimed, if it still is this claim's.
    pub(super) async fn end(self) -> Option<i64> {
        self.held.until_ms.lock().await.take()
    }
}

impl Held {
    async fn renew(self: Arc<Self>, containers: Containers) {
        let lasts = containers.limits().claim;
        loop {
            tokio::time::sleep(lasts / RENEWALS_PER_CLAIM).await;
            let mut until_ms = self.until_ms.lock().await;
            let Some(from_ms) = *until_ms else { return };
            let to_ms = containers.now_ms().saturating_add(milliseconds(lasts));
            match containers.repository().renew_container(&self.id, from_ms, to_ms).await {
                Ok(true) => *until_ms = Some(to_ms),
                Ok(false) => {
                    tracing::warn!(container.id = self.id, "a request lost the container that it works with");
                    *until_ms = None;
                    return;
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), container.id = self.id, "a claim was not renewed");
                }
            }
        }
    }
}

impl Containers {
    /// Removes the rows that requests of this process still have.
    pub(super) async fn forget_held(&self) {
        let all = std::mem::take(&mut *self.0.held.lock().unwrap_or_else(PoisonError::into_inner));
        for held in all.into_iter().filter_map(|held| held.upgrade()) {
            let Some(until_ms) = held.until_ms.lock().await.take() else { continue };
            if let Err(error) = self.repository().remove_claimed_container(&held.id, until_ms).await {
                tracing::warn!(error = %chain(&error), container.id = held.id, "the row of a container in use stays");
            }
        }
    }
}
