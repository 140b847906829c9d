//! What ran beside calls of the caller's and may not come back, kept for a while: the next request of its conversation finds it here.
//!
//! INVARIANT: a workspace sees its own alone. One that fills its share pushes out its own; when all is full, whoever has
//! most gives way. What is lost (by age, by size, by a restart, at another replica) is no error: the model then reads the
//! caller's calls alone.

mod notes;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::wire::past::{PastRun, PastRuns, Place};

pub(super) use notes::Notes;

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimits {
    /// Since it was last asked for.
    pub max_age: Duration,
    /// Answers in all.
    pub max_answers: usize,
    /// Bytes in all.
    pub max_bytes: usize,
    /// Answers of one workspace.
    pub max_workspace_answers: usize,
    /// Bytes of one workspace; an answer that is larger is not kept.
    pub max_workspace_bytes: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            max_age: Duration::from_mins(15),
            max_answers: 8192,
            max_bytes: 64 << 20,
            max_workspace_answers: 512,
            max_workspace_bytes: 8 << 20,
        }
    }
}

impl MemoryLimits {
    /// The largest answer that is kept, in bytes.
    fn largest(&self) -> usize {
        self.max_workspace_bytes.min(self.max_bytes)
    }
}

/// The memory of one process.
#[derive(Debug)]
pub struct Memory {
    limits: MemoryLimits,
    drawers: Mutex<Drawers>,
}

#[derive(Debug, Default)]
struct Drawers {
    by_workspace: HashMap<String, Drawer>,
    answers: usize,
    bytes: usize,
    /// When age was last looked at.
    swept: Option<Instant>,
}

/// What one workspace has, the longest unused in front.
#[derive(Debug, Default)]
struct Drawer {
    answers: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    place: Place,
    /// Ids of the caller's calls in the answer.
    call_ids: Vec<String>,
    runs: Arc<[PastRun]>,
    bytes: usize,
    used: Instant,
}

/// One workspace's view of the memory.
pub(super) struct OfWorkspace<'a> {
    memory: &'a Memory,
    workspace: &'a str,
}

impl Memory {
    /// An empty memory.
    pub fn new(limits: MemoryLimits) -> Self {
        Self { limits, drawers: Mutex::default() }
    }

    pub(super) fn of<'a>(&'a self, workspace: &'a str) -> OfWorkspace<'a> {
        OfWorkspace { memory: self, workspace }
    }

    fn keep(&self, workspace: &str, place: Place, call_ids: Vec<String>, runs: Vec<PastRun>) {
        let ids = call_ids.iter().map(|id| size_of::<String>().saturating_add(id.len()));
        let bytes = ids.chain(runs.iter().map(size)).fold(size_of::<Kept>(), usize::saturating_add);
        if bytes > self.limits.largest() {
            return;
        }
        let kept = Kept { place, call_ids, runs: runs.into(), bytes, used: Instant::now() };
        let mut drawers = self.drawers.lock().unwrap_or_else(PoisonError::into_inner);
        drawers.sweep(kept.used, self.limits.max_age);
        drawers.put(workspace, kept, &self.limits);
    }
}

impl PastRuns for OfWorkspace<'_> {
    fn find(&self, call_ids: &HashSet<String>, place: &Place) -> Option<Arc<[PastRun]>> {
        let (now, max_age) = (Instant::now(), self.memory.limits.max_age);
        let mut drawers = self.memory.drawers.lock().unwrap_or_else(PoisonError::into_inner);
        drawers.sweep(now, max_age);
        let answers = &mut drawers.by_workspace.get_mut(self.workspace)?.answers;
        let is_it = |kept: &Kept| {
            let is_fresh = now.duration_since(kept.used) < max_age;
            is_fresh && kept.place == *place && kept.call_ids.iter().any(|id| call_ids.contains(id))
        };
        // The newest: the same question may have been asked again.
        let mut kept = answers.remove(answers.iter().rposition(is_it)?)?;
        kept.used = now;
        let runs = Arc::clone(&kept.runs);
        answers.push_back(kept);
        Some(runs)
    }
}

impl Drawers {
    /// Throws away what is too old. As long as anybody asks, nothing outlives its age by much.
    fn sweep(&mut self, now: Instant, max_age: Duration) {
        if self.swept.is_some_and(|swept| now.duration_since(swept) < max_age / 8) {
            return;
        }
        self.swept = Some(now);
        self.by_workspace.retain(|_, drawer| {
            drawer.answers.retain(|kept| now.duration_since(kept.used) < max_age);
            drawer.bytes = drawer.answers.iter().map(|kept| kept.bytes).sum();
            !drawer.answers.is_empty()
        });
        self.answers = self.by_workspace.values().map(|drawer| drawer.answers.len()).sum();
        self.bytes = self.by_workspace.values().map(|drawer| drawer.bytes).sum();
    }

    fn put(&mut self, workspace: &str, new: Kept, limits: &MemoryLimits) {
        let over = |answers: usize, bytes: usize, max_answers: usize, max_bytes: usize| {
            answers.saturating_add(1) > max_answers || bytes.saturating_add(new.bytes) > max_bytes
        };
        while let Some(drawer) = self.by_workspace.get(workspace)
            && over(drawer.answers.len(), drawer.bytes, limits.max_workspace_answers, limits.max_workspace_bytes)
            && self.drop_oldest_of(workspace)
        {}
        while over(self.answers, self.bytes, limits.max_answers, limits.max_bytes) {
            let weight = |drawer: &Drawer| {
                let (answers, bytes) = (drawer.answers.len() as u128, drawer.bytes as u128);
                (answers * limits.max_bytes as u128).max(bytes * limits.max_answers as u128)
            };
            let largest = self.by_workspace.iter().max_by_key(|(_, drawer)| weight(drawer));
            let Some(largest) = largest.map(|(name, _)| name.clone()) else { return };
            if !self.drop_oldest_of(&largest) {
                return;
            }
        }
        self.answers += 1;
        self.bytes += new.bytes;
        let drawer = self.by_workspace.entry(workspace.to_owned()).or_default();
        drawer.bytes += new.bytes;
        drawer.answers.push_back(new);
    }

    fn drop_oldest_of(&mut self, workspace: &str) -> bool {
        let Some(drawer) = self.by_workspace.get_mut(workspace) else { return false };
        let oldest = drawer.answers.pop_front();
        if let Some(kept) = &oldest {
            drawer.bytes -= kept.bytes;
            self.bytes -= kept.bytes;
            self.answers -= 1;
        }
        if drawer.answers.is_empty() {
            self.by_workspace.remove(workspace);
        }
        oldest.is_some()
    }
}

/// What a run takes, its own management included.
fn size(run: &PastRun) -> usize {
    let PastRun { call, result } = run;
    [
        size_of::<PastRun>(),
        call.id.len(),
        call.name.len(),
        call.arguments.len(),
        result.call_id.len(),
        result.text.len(),
    ]
    .into_iter()
    .fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests;
