//! What a request's loop did, for the line in the log; shared, because a client may leave before there is an answer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use decision::problem::ProblemKind;

/// Counts of one request.
#[derive(Debug, Default)]
pub struct Tally {
    turns: AtomicU32,
    code_runs: AtomicU32,
    failure: OnceLock<ProblemKind>,
}

impl Tally {
    /// Calls to the model.
    pub fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Pieces of code handed to the sandbox.
    pub fn code_runs(&self) -> u32 {
        self.code_runs.load(Ordering::Relaxed)
    }

    /// What ended an answer that had begun.
    pub fn failure(&self) -> Option<ProblemKind> {
        self.failure.get().copied()
    }

    pub(super) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn code_run(&self) {
        self.code_runs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn fail(&self, kind: ProblemKind) {
        // The first is the cause of the others.
        self.failure.set(kind).ok();
    }
}
