//! Processes by handle: a number may come to mean another process, a handle never does.
//!
//! INVARIANT: no signal of the sandbox is sent to a bare number.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A killed tree is gone long before this.
const DEATH_TIMEOUT: Duration = Duration::from_secs(5);

/// A process that is certain to be the one we mean.
#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    fd: OwnedFd,
}

impl Process {
    /// Opens the process that has this number now. Look at it after this, not before, to know whose it is.
    pub(super) fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, fd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Its number in our pid namespace.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) fn signal(&self, signal: Signal) {
        // The only failure that can be is that it is gone already, which is what the caller wants or finds out.
        pidfd_send_signal(&self.fd, signal).unwrap_or_default();
    }

    /// Blocks until it has ended, or for as long as `patience` lasts; tells whether it has.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).ok();
        poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], patience.as_ref()).is_ok_and(|ended| ended > 0)
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.wait(Duration::ZERO)
    }
}

/// Kills the sandboxes of a predecessor that its death did not take along, and waits until they are gone.
pub(super) fn kill_marked(marker: &str) {
    let Ok(processes) = fs::read_dir("/proc") else { return };
    let mut killed = Vec::new();
    for entry in processes.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(process) = pid.and_then(|pid| Process::open(pid).ok()) else { continue };
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if command.split(|byte| *byte == 0).next() == Some(marker.as_bytes()) {
            tracing::warn!(pid = process.pid.as_raw_pid(), "killing a sandbox that a former sidecar left");
            process.signal(Signal::KILL);
            killed.push(process);
        }
    }
    // Process 1 of a session ends after all others of it, so after this nobody writes to a workspace any more.
    for process in killed {
        process.wait(DEATH_TIMEOUT);
    }
}
