//! Transactions that write.
//!
//! INVARIANT: SQLite has one writer at a time, and whoever finds it taken looks again and again: within this process
//! writers take turns instead, in the order in which they came, and hold no connection while they wait.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::{Any, AnyConnection, AnyPool, Transaction};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{BUSY_TIMEOUT, RepositoryError};

/// Who writes next; `None` where any number may at once.
#[derive(Clone)]
pub(super) struct Turns(Option<Arc<Semaphore>>);

/// A transaction; undone when it is dropped.
pub(super) struct Change {
    // Dropped in this order: the turn is over when the transaction is.
    transaction: Transaction<'static, Any>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Turns for a database that has one writer at a time, or none.
    pub(super) fn new(one_at_a_time: bool) -> Self {
        Self(one_at_a_time.then(|| Arc::new(Semaphore::new(1))))
    }

    /// Begins a transaction. Its first statement has to write.
    pub(super) async fn begin(&self, pool: &AnyPool) -> Result<Change, RepositoryError> {
        let turn = match &self.0 {
            None => None,
            Some(turns) => {
                let turn = tokio::time::timeout(BUSY_TIMEOUT, Arc::clone(turns).acquire_owned()).await;
                Some(turn.ok().and_then(Result::ok).ok_or(sqlx::Error::PoolTimedOut)?)
            }
        };
        Ok(Change { transaction: pool.begin().await?, _turn: turn })
    }
}

impl Change {
    pub(super) async fn commit(self) -> Result<(), RepositoryError> {
        Ok(self.transaction.commit().await?)
    }

    pub(super) async fn rollback(self) -> Result<(), RepositoryError> {
        Ok(self.transaction.rollback().await?)
    }
}

impl Deref for Change {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.transaction
    }
}

impl DerefMut for Change {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.transaction
    }
}
