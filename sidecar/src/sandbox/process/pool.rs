//! Opens sessions, and keeps a few ready before anybody asks.
//!
//! INVARIANT: a session of the pool is isolated like any other and has run nothing but imports of installed packages. Who
//! takes one gets it for good: none comes back. It holds a slot like any other, and is what is given out next, so a caller
//! is never refused for its sake.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::Tier;
use super::launch::Launcher;
use super::session::Session;
use crate::ids::IdSource;
use crate::sandbox::{SandboxError, SessionId};

/// Prefix of session ids.
const SESSION: &str = "otari_sbx_";
/// When to come back if every session is taken: most live for one request.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// What a session of the pool has imported, as far as it is installed: what most code of models begins with, and the slowest
/// of it.
const IMPORTS: [&str; 3] = ["numpy", "pandas", "matplotlib.pyplot"];
/// How often it is looked whether one more is to be made ready. That waits until so long no session was opened: the imports
/// take more of the processor than most code, and under load a new session without them is the better use of it.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The wait after a session could not be made ready.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// Where sessions come from.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) launcher: Arc<Launcher>,
    pub(super) tier: Tier,
    ids: Arc<dyn IdSource>,
    slots: Arc<Semaphore>,
    /// How many are to stand ready.
    wanted: usize,
    ready: Mutex<VecDeque<(SessionId, Session)>>,
    /// How many sessions were asked for since the start.
    asked: AtomicU64,
    phase: watch::Sender<Phase>,
}

/// What the pool does right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing.
    Resting,
    /// A session is being made ready, and holds a slot.
    Preparing,
    /// Nothing is made ready any more.
    Closed,
}

impl Pool {
    pub(super) fn new(launcher: Arc<Launcher>, tier: Tier, ids: Arc<dyn IdSource>, wanted: usize) -> Arc<Self> {
        let slots = Arc::new(Semaphore::new(launcher.limits.sessions));
        let phase = watch::Sender::new(Phase::Resting);
        Arc::new(Self { launcher, tier, ids, slots, wanted, ready: Mutex::default(), asked: AtomicU64::new(0), phase })
    }

    /// Gives a session that nobody has used: one that stands ready, else a new one.
    pub(super) async fn open(&self) -> Result<(SessionId, Session), SandboxError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(ready) = self.take() {
            return Ok(ready);
        }
        if let Ok(slot) = self.slot() {
            return self.make(slot, &[]).await;
        }
        // The last slot may be that of a session which is being made ready: it is this caller's then.
        let mut phase = self.phase.subscribe();
        drop(phase.wait_for(|phase| *phase != Phase::Preparing).await);
        match self.take() {
            Some(ready) => Ok(ready),
            None => self.make(self.slot()?, &[]).await,
        }
    }

    /// Sessions that stand ready.
    pub(super) fn len(&self) -> usize {
        self.ready().len()
    }

    /// Opens no session any more, and ends those that nobody has taken.
    pub(super) async fn close(&self) {
        self.slots.close();
        self.phase.send_replace(Phase::Closed);
        let left: Vec<_> = self.ready().drain(..).collect();
        for (_, session) in left {
            if let Err(error) = session.close().await {
                tracing::warn!(%error, "a sandbox session that stood ready could not be closed");
            }
        }
    }

    /// The first that lives: one may have been killed by the kernel for its memory.
    fn take(&self) -> Option<(SessionId, Session)> {
        let mut ready = self.ready();
        std::iter::from_fn(|| ready.pop_front()).find(|(_, session)| session.is_alive())
    }

    fn slot(&self) -> Result<OwnedSemaphorePermit, SandboxError> {
        Arc::clone(&self.slots).try_acquire_owned().map_err(|_| full())
    }

    async fn make(&self, slot: OwnedSemaphorePermit, modules: &[&str]) -> Result<(SessionId, Session), SandboxError> {
        let id = SessionId(self.ids.mint(SESSION));
        let session = Session::open(Arc::clone(&self.launcher), self.tier, &id.0, slot, modules).await?;
        Ok((id, session))
    }

    /// Makes one more session ready if that is wanted and a slot is free.
    async fn prepare(&self) -> Result<(), SandboxError> {
        if self.len() >= self.wanted || !self.turn(Phase::Resting, Phase::Preparing) {
            return Ok(());
        }
        let mut phase = self.phase.subscribe();
        let made = match self.slot() {
            Ok(slot) => tokio::select! {
                made = self.make(slot, &IMPORTS) => made.map(Some),
                _ = phase.wait_for(|phase| *phase == Phase::Closed) => Ok(None),
            },
            Err(_) => Ok(None),
        };
        let made = made.map(|made| {
            // Under one lock with `close`: a session that comes after it is dropped, which ends it.
            let mut ready = self.ready();
            if *self.phase.borrow() != Phase::Closed {
                ready.extend(made);
            }
        });
        self.turn(Phase::Preparing, Phase::Resting);
        made
    }

    /// Goes from one phase to the next; false if it was in another.
    fn turn(&self, from: Phase, to: Phase) -> bool {
        self.phase.send_if_modified(|phase| {
            let turns = *phase == from;
            if turns {
                *phase = to;
            }
            turns
        })
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<(SessionId, Session)>> {
        // Whole between any two operations on it, so a panic elsewhere does not spoil it.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every session is taken.
pub(super) fn full() -> SandboxError {
    SandboxError::AtCapacity { retry_after: Some(RETRY_AFTER) }
}

/// Keeps the pool filled, until it is closed or gone.
pub(super) async fn tend(pool: Weak<Pool>) {
    let mut asked = 0;
    loop {
        let mut pause = LOOK_EVERY;
        {
            let Some(pool) = pool.upgrade() else { return };
            if *pool.phase.borrow() == Phase::Closed {
                return;
            }
            let before = std::mem::replace(&mut asked, pool.asked.load(Ordering::Relaxed));
            if before == asked
                && let Err(error) = pool.prepare().await
            {
                tracing::warn!(%error, "no sandbox session could be made ready; code waits for its own until one can");
                pause = AFTER_FAILURE;
            }
        }
        tokio::time::sleep(pause).await;
    }
}
