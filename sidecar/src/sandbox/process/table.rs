//! The sessions that are alive, who uses them, and the task that ends them when their time is over.
//!
//! INVARIANT: whether a session is used and whether it is ended is decided under one lock, so no session is ended under
//! a call; who is taken out of here is closed, or closes by its drop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};

use super::life::{Life, Moment, SessionInfo};
use super::session::Session;
use crate::clock::Clock;
use crate::sandbox::{SandboxError, SessionId, SessionSpec};

/// How often it is looked for sessions whose time is over. Callers see that at once.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Sessions that are closed at the same time.
const AT_ONCE: usize = 16;

/// Every live session.
#[derive(Debug)]
pub(super) struct Table {
    rows: Mutex<Rows>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct Rows {
    sessions: HashMap<SessionId, Row>,
    /// No session is added any more.
    closed: bool,
}

#[derive(Debug)]
struct Row {
    session: Arc<Session>,
    life: Life,
}

/// A session in use; it is out of use when this is dropped.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) session: Arc<Session>,
    pub(super) using: Use,
}

/// That a session is in use. Holds neither the session nor the table.
#[derive(Debug)]
pub(super) struct Use {
    id: SessionId,
    table: Weak<Table>,
}

impl Table {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { rows: Mutex::default(), clock })
    }

    /// Adds a session, whose life begins now. Gives it back if nothing is added any more.
    pub(super) fn add(
        &self,
        id: SessionId,
        session: Session,
        limits: (Duration, Duration),
        spec: &SessionSpec,
    ) -> Result<SessionInfo, Box<Session>> {
        let mut rows = self.rows();
        if rows.closed {
            return Err(Box::new(session));
        }
        let life = Life::begin(limits.0, limits.1, spec, self.now());
        let info = life.info();
        rows.sessions.insert(id, Row { session: Arc::new(session), life });
        Ok(info)
    }

    /// Begins to use a session.
    pub(super) fn enter(self: &Arc<Self>, id: &SessionId) -> Result<Visit, SandboxError> {
        let now = self.now();
        let mut rows = self.rows();
        let row = rows.sessions.get_mut(id).ok_or(SandboxError::UnknownSession)?;
        row.life.enter(now)?;
        let session = Arc::clone(&row.session);
        Ok(Visit { session, using: Use { id: id.clone(), table: Arc::downgrade(self) } })
    }

    /// Tells of a session whose time is not over.
    pub(super) fn info(&self, id: &SessionId) -> Option<SessionInfo> {
        let now = self.now();
        let rows = self.rows();
        rows.sessions.get(id).filter(|row| !row.life.is_over(now)).map(|row| row.life.info())
    }

    /// Sessions that are not closed yet.
    pub(super) fn len(&self) -> usize {
        self.rows().sessions.len()
    }

    /// Takes a session out, for it to be closed.
    pub(super) fn remove(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.rows().sessions.remove(id).map(|row| row.session)
    }

    /// Takes all out, and no other in.
    pub(super) async fn close(&self) {
        let all: Vec<_> = {
            let mut rows = self.rows();
            rows.closed = true;
            rows.sessions.drain().map(|(_, row)| row.session).collect()
        };
        close(all).await;
    }

    /// Takes out whose time is over, and who can take no call any more.
    fn remove_over(&self) -> Vec<Arc<Session>> {
        let now = self.now();
        let is_over = |row: &Row| row.life.is_over(now) || (row.life.is_at_rest() && row.session.is_lost());
        let mut rows = self.rows();
        rows.sessions.extract_if(|_, row| is_over(row)).map(|(_, row)| row.session).collect()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        // The rows are whole between any two operations on them, so a panic elsewhere does not spoil them.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        Moment { instant: Instant::now(), epoch_ms: self.clock.now_ms() }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let Some(table) = self.table.upgrade() else { return };
        let now = table.now();
        if let Some(row) = table.rows().sessions.get_mut(&self.id) {
            row.life.leave(now);
        }
    }
}

/// Ends sessions when their time is over, until the table is gone.
pub(super) async fn tend(table: Weak<Table>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(over) = table.upgrade().map(|table| table.remove_over()) else { return };
        if !over.is_empty() {
            tracing::info!(sessions = over.len(), "sandbox sessions were not used or lived for as long as they may");
        }
        close(over).await;
    }
}

/// Side by side: one session with a hundred thousand files must not hold up the others.
async fn close(sessions: Vec<Arc<Session>>) {
    let closing = stream::iter(sessions).for_each_concurrent(AT_ONCE, async |session| {
        if let Err(error) = session.close().await {
            tracing::warn!(%error, "a sandbox session could not be closed");
        }
    });
    closing.await;
}
