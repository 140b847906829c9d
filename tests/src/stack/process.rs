//! Processes as the kernel lists them: who descends from whom, and who is still there.
//!
//! INVARIANT: a process is known by its id and its start time together, so that a reused id is another process.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::{Pid, Signal, kill_process};

/// A process that was running when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    pid: i32,
    /// Clock ticks since boot.
    start: u64,
}

impl Process {
    /// Whether this very process still runs; one that only waits to be reaped does not.
    pub fn is_alive(&self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.start == self.start && stat.state != 'Z')
    }

    /// Whether a file of this name stands in its working directory, as the process itself sees it.
    pub fn has_file(&self, name: &str) -> bool {
        std::fs::exists(format!("/proc/{}/cwd/{name}", self.pid)).unwrap_or(false)
    }

    /// Kills it.
    pub fn kill(&self) {
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_alive()) {
            // An error means that it is gone already.
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// The children of a process, their children, and so on.
pub fn descendants(of: u32) -> BTreeSet<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().parse::<i32>().ok();
        if let Some(stat) = pid.and_then(Stat::read) {
            children.entry(stat.parent).or_default().push(Process { pid: stat.pid, start: stat.start });
        }
    }
    let mut found = BTreeSet::new();
    let mut next: Vec<i32> = i32::try_from(of).into_iter().collect();
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).into_iter().flatten() {
            next.push(child.pid);
            found.insert(child);
        }
    }
    found
}

/// What `/proc/PID/stat` tells.
struct Stat {
    pid: i32,
    state: char,
    parent: i32,
    start: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name in parentheses, which may hold anything; what follows the last one is plain.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            pid,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }
}
