//! The sweep: containers that nobody goes on with in time are ended, and then their rows are removed.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use super::{AT_ONCE, Containers, end, milliseconds};
use crate::repository::{ContainerRow, RepositoryError};
use crate::telemetry::chain;

/// Between two sweeps. Callers see at once that a container has expired.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How long a sweep may take to end what it has claimed, before another may try.
const CLAIM: Duration = Duration::from_mins(5);
/// Containers that are claimed together.
const BATCH: u32 = 64;

impl Containers {
    /// Ends what has expired, again and again, until `stop`.
    pub async fn sweep(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(SWEEP_EVERY)).await.is_some() {
            match self.sweep_once().await {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "kept sandbox sessions that had expired were ended"),
                Err(error) => tracing::error!(error = %chain(&error), "kept sandbox sessions were not swept"),
            }
        }
    }

    /// Ends what has expired: how many.
    pub(super) async fn sweep_once(&self) -> Result<usize, RepositoryError> {
        let mut count = 0_usize;
        loop {
            let until_ms = self.now_ms().saturating_add(milliseconds(CLAIM));
            let rows = self.repository().claim_expired_containers(until_ms, BATCH).await?;
            let found = rows.len();
            stream::iter(rows).for_each_concurrent(AT_ONCE, |row| self.expire(row, until_ms)).await;
            count = count.saturating_add(found);
            if found < BATCH as usize {
                break;
            }
        }
        Ok(count.saturating_add(self.end_orphans().await?))
    }

    async fn expire(&self, row: ContainerRow, until_ms: i64) {
        // Of a process that cannot be reached it is that process that ends it, and its own end.
        if let Some(lease) = self.lease_of(&row) {
            end(&lease).await;
            self.0.parked.remove(&row.id, &lease);
        }
        match self.repository().remove_claimed_container(&row.id, until_ms).await {
            Ok(_) => self.0.parts.metrics.container("expired"),
            Err(error) => {
                tracing::error!(error = %chain(&error), container.id = row.id, "an expired container's row stays");
            }
        }
    }
}
