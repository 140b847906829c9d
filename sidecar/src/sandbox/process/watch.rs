//! Looks at a running session from outside for the limits the kernel does not keep without a cgroup.
//!
//! INVARIANT: looks only; whoever watches decides what happens.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::{SandboxLimits, tree};

/// How often a busy session is looked at.
const EVERY: Duration = Duration::from_millis(100);
/// Looking at the disk may take at most this part of the time: the next look waits so many times as long as the last took.
const DISK_PATIENCE: u32 = 10;
/// More processes than any limit on tasks admits; the walk ends there.
const MAX_TASKS: usize = 16_384;

/// What a session used too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strike {
    /// Resident memory of all processes.
    Memory,
    /// Bytes in the workspace.
    WorkspaceBytes,
    /// Entries in the workspace.
    WorkspaceEntries,
    /// The workspace has a part that cannot be measured.
    WorkspaceHidden,
}

/// What to watch.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    /// Process 1 of the session, by its number here.
    pub(super) init: Pid,
    pub(super) workspace: PathBuf,
    pub(super) limits: SandboxLimits,
}

impl Watch {
    /// Ends with the first limit that is passed. Safe to cancel.
    pub(super) async fn strike(&self) -> Strike {
        let mut next_disk = Instant::now();
        loop {
            tokio::time::sleep(EVERY).await;
            let watch = self.clone();
            let with_disk = Instant::now() >= next_disk;
            let looked = tokio::task::spawn_blocking(move || {
                let begun = Instant::now();
                let strike = watch.memory().or_else(|| if with_disk { watch.disk() } else { None });
                (strike, begun.elapsed())
            });
            match looked.await {
                Ok((Some(strike), _)) => return strike,
                Ok((None, took)) if with_disk => next_disk = Instant::now() + took * DISK_PATIENCE,
                Ok((None, _)) => {}
                // The runtime is shutting down.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Looks at the workspace once.
    pub(super) fn disk(&self) -> Option<Strike> {
        let directory: OwnedFd = tree::open_path(&self.workspace).ok()?;
        let device = rustix::fs::fstat(&directory).ok()?.st_dev;
        let mut usage = tree::measure(directory, self.limits.workspace_entries);
        usage.bytes += descendants(self.init).into_iter().map(|pid| unlinked_bytes(pid, device)).sum::<u64>();
        if usage.bytes > self.limits.workspace_bytes {
            Some(Strike::WorkspaceBytes)
        } else if usage.entries > self.limits.workspace_entries {
            Some(Strike::WorkspaceEntries)
        } else {
            usage.hidden.then_some(Strike::WorkspaceHidden)
        }
    }

    fn memory(&self) -> Option<Strike> {
        let processes = descendants(self.init);
        let over = |bytes: u64| bytes > self.limits.memory_bytes;
        let resident: u64 = processes.iter().map(|pid| resident_bytes(*pid)).sum();
        if !over(resident) {
            return None;
        }
        // Forked processes share pages, which the cheap figure counts several times over.
        let proportional: u64 = processes.iter().map(|pid| proportional_bytes(*pid)).sum();
        over(proportional).then_some(Strike::Memory)
    }
}

/// A process and all below it. In a pid namespace orphans fall to process 1, so none can leave this tree.
pub(super) fn descendants(init: Pid) -> Vec<i32> {
    let mut found = vec![init.as_raw_pid()];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<i32>().ok()));
            if found.len() > MAX_TASKS {
                return found;
            }
        }
    }
    found
}

/// Disk held by files that a process has open but that no directory names any more.
fn unlinked_bytes(pid: i32, device: u64) -> u64 {
    const BLOCK_BYTES: u64 = 512;
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let held = files.flatten().filter_map(|file| fs::metadata(file.path()).ok());
    held.filter(|meta| meta.nlink() == 0 && meta.dev() == device).map(|meta| meta.blocks() * BLOCK_BYTES).sum()
}

/// Memory of a process's own, cheap to read.
fn resident_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    kilobytes(&status, &["RssAnon:", "RssShmem:"])
}

/// The same with shared pages split between those who share them; the cheap figure where the kernel does not tell.
fn proportional_bytes(pid: i32) -> u64 {
    match fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        Ok(rollup) => kilobytes(&rollup, &["Pss_Anon:", "Pss_Shmem:"]),
        Err(_) => resident_bytes(pid),
    }
}

fn kilobytes(text: &str, names: &[&str]) -> u64 {
    let value = |line: &str| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
    text.lines().filter(|line| names.iter().any(|name| line.starts_with(name))).filter_map(value).sum::<u64>() * 1024
}

#[cfg(test)]
mod tests {
    use super::{descendants, kilobytes, proportional_bytes, resident_bytes};

    #[test]
    fn own_memory_is_seen_by_both_figures() {
        const BIG: usize = 64 << 20;
        let filled = vec![1u8; BIG];
        let pid = rustix::process::getpid();
        assert!(resident_bytes(pid.as_raw_pid()) >= BIG as u64);
        assert!(proportional_bytes(pid.as_raw_pid()) >= BIG as u64);
        assert!(descendants(pid).contains(&pid.as_raw_pid()));
        drop(filled);
    }

    #[test]
    fn lines_are_added_up_in_bytes() {
        let text = "VmRSS:\t9 kB\nRssAnon:\t   12 kB\nRssFile:\t 1 kB\nRssShmem:\t 3 kB\n";
        assert_eq!(kilobytes(text, &["RssAnon:", "RssShmem:"]), 15 * 1024);
    }
}
