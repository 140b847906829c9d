//! Keeps, for the life of a session, the limits that the kernel does not keep without a cgroup.
//!
//! INVARIANT: the watch begins with the interpreter and ends with its drop or its death, whether a call runs or not;
//! whoever passes a limit is killed by the watch itself, and then told of.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::Pid;
use tokio::sync::watch;

use super::census::{Held, Memory, Sockets, descendants, shared_memory_device};
use super::interpreter::Killer;
use super::{SandboxLimits, freeze, tree};

/// How often a busy session is looked at.
const EVERY: Duration = Duration::from_millis(100);
/// How often it is made sure that a session between calls still stands still.
const EVERY_IDLE: Duration = Duration::from_secs(1);
/// Looking at the disk may take at most this part of the time: the next look waits so many times as long as the last took.
const DISK_PATIENCE: u32 = 10;
/// Measurements of memory that must all be over the limit.
const MEMORY_LOOKS: u32 = 3;
/// Looks in a row that may find open files on their way between processes, where more could hide behind them.
const IN_FLIGHT_LOOKS: u32 = 3;

/// What a session used too much of, or did to use too much unseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strike {
    /// Memory of all processes, and what they share.
    Memory,
    /// Sockets of all processes.
    Sockets,
    /// Files and directories in `/tmp` or `/dev/shm`.
    TemporaryEntries,
    /// A process keeps itself or its files out of sight.
    Hidden,
    /// Something ran although no call did.
    Awake,
    /// Bytes in the workspace.
    WorkspaceBytes,
    /// Entries in the workspace.
    WorkspaceEntries,
    /// The workspace has a part that cannot be measured.
    WorkspaceHidden,
}

/// What to watch.
#[derive(Debug)]
pub(super) struct Watch {
    /// Process 1 of the session, by its number here.
    init: Pid,
    workspace: PathBuf,
    limits: SandboxLimits,
    /// `/tmp` and `/dev/shm` of the session.
    temporary: [OwnedFd; 2],
    /// The device of shared memory without a name.
    shared_memory: u64,
    /// Devices of files without a name that are not on the workspace's disk and have a limit of their own.
    elsewhere: [u64; 3],
}

/// A watch at work.
#[derive(Debug)]
pub(super) struct Guard {
    running: watch::Sender<bool>,
    struck: watch::Receiver<Option<Strike>>,
}

impl Strike {
    /// A disk that is too full cannot be handed on; anything else ends with the interpreter.
    pub(super) fn ends_session(self) -> bool {
        matches!(self, Self::WorkspaceBytes | Self::WorkspaceEntries | Self::WorkspaceHidden)
    }
}

impl Watch {
    /// `python` must have run nothing of anybody's yet: its view of the file system is taken at its word.
    pub(super) fn new(init: Pid, python: Pid, workspace: PathBuf, limits: SandboxLimits) -> io::Result<Self> {
        let place = |name: &str| {
            let path = format!("/proc/{}/root/{name}", python.as_raw_pid());
            rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        };
        let temporary = [place("tmp")?, place("dev/shm")?];
        let device = |place: &OwnedFd| rustix::fs::fstat(place).map(|stat| stat.st_dev);
        let shared_memory = shared_memory_device()?;
        let elsewhere = [device(&temporary[0])?, device(&temporary[1])?, shared_memory];
        Ok(Self { init, workspace, limits, temporary, shared_memory, elsewhere })
    }

    /// Looks at everything once.
    pub(super) fn look(&self, with_disk: bool, in_flight: &mut u32) -> Option<Strike> {
        let strike = self.memory().or_else(|| self.temporary());
        if with_disk { strike.or_else(|| self.disk(in_flight)) } else { strike }
    }

    fn disk(&self, in_flight: &mut u32) -> Option<Strike> {
        let directory = tree::open_path(&self.workspace).ok()?;
        let mut usage = tree::measure(directory, self.limits.workspace_entries);
        let (mut unlinked, mut sockets) = (BTreeMap::new(), BTreeMap::new());
        for pid in descendants(self.init) {
            match self.held(pid) {
                Ok((mapped, held)) => {
                    for number in mapped {
                        unlinked.entry(number).or_insert(self.limits.file_bytes);
                    }
                    unlinked.extend(held.unlinked);
                    sockets.extend(held.in_flight);
                }
                // Nobody's code runs in process 1.
                Err(_) if pid == self.init.as_raw_pid() => {}
                Err(_) => return Some(Strike::Hidden),
            }
        }
        let flying = sockets.into_values().sum::<u64>();
        *in_flight = if flying > 0 { *in_flight + 1 } else { 0 };
        usage.bytes += unlinked.into_values().sum::<u64>() + flying.saturating_mul(self.limits.file_bytes);
        if usage.bytes > self.limits.workspace_bytes {
            Some(Strike::WorkspaceBytes)
        } else if usage.entries > self.limits.workspace_entries {
            Some(Strike::WorkspaceEntries)
        } else if usage.hidden {
            Some(Strike::WorkspaceHidden)
        } else {
            (*in_flight >= IN_FLIGHT_LOOKS).then_some(Strike::Hidden)
        }
    }

    /// Files of the workspace that a process holds although no directory names them: those it has mapped, whose size
    /// nobody tells, so that they count as the largest there can be; and those it has open.
    fn held(&self, pid: i32) -> io::Result<(Vec<u64>, Held)> {
        let mapped = Memory::of(pid).map(|memory| memory.nameless(&self.elsewhere)).transpose();
        let mapped = match mapped {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            mapped => mapped.ok().flatten().unwrap_or_default(),
        };
        Ok((mapped.into_iter().map(|piece| piece.number).collect(), Held::of(pid, &self.elsewhere)?))
    }

    /// Processes are measured one after the other, and a page that is shared with a fork of the meantime counts more than
    /// it should: only what is over in several measurements in a row is over.
    fn memory(&self) -> Option<Strike> {
        let mut found = self.memory_once()?;
        for _ in 1..MEMORY_LOOKS {
            if found != Strike::Memory {
                break;
            }
            found = self.memory_once()?;
        }
        Some(found)
    }

    /// Each step costs more than the one before, and is taken only if that one could not rule the strike out.
    fn memory_once(&self) -> Option<Strike> {
        let sockets = Sockets::of(self.init);
        if sockets.count > u64::from(self.limits.open_files) {
            return Some(Strike::Sockets);
        }
        let over = |bytes: u64| bytes > self.limits.memory_bytes;
        let processes: Vec<Memory> = descendants(self.init).into_iter().filter_map(Memory::of).collect();
        if !over(sockets.queued + processes.iter().map(|memory| memory.reach).sum::<u64>()) {
            return None;
        }
        let mut pieces: BTreeMap<u64, u64> = BTreeMap::new();
        for memory in &processes {
            match memory.nameless(&[]) {
                Ok(found) => {
                    for piece in found.into_iter().filter(|piece| piece.device == self.shared_memory) {
                        let known = pieces.entry(piece.number).or_default();
                        *known = piece.end.max(*known);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Some(Strike::Hidden),
                Err(_) => {}
            }
        }
        let shared = sockets.queued + pieces.into_values().sum::<u64>();
        if !over(shared + processes.iter().map(|memory| memory.own).sum::<u64>()) {
            return None;
        }
        // Forked processes share pages, which the cheap figure counts several times over.
        over(shared + processes.iter().map(Memory::proportional).sum::<u64>()).then_some(Strike::Memory)
    }

    fn temporary(&self) -> Option<Strike> {
        // Every entry is the kernel's memory, of which the size of the file system does not speak.
        let over = |place: &OwnedFd| {
            let used = rustix::fs::fstatvfs(place).map_or(0, |stat| stat.f_files.saturating_sub(stat.f_ffree));
            used > self.limits.workspace_entries
        };
        self.temporary.iter().any(over).then_some(Strike::TemporaryEntries)
    }
}

impl Guard {
    /// Begins to watch. A strike kills the session.
    #[expect(clippy::disallowed_methods, reason = "ends with its interpreter, which the drain waits for")]
    pub(super) fn start(watch: Arc<Watch>, killer: Arc<Killer>) -> Self {
        let (running, calls) = watch::channel(false);
        let (strike, struck) = watch::channel(None);
        tokio::spawn(keep(watch, killer, calls, strike));
        Self { running, struck }
    }

    /// Tells that a call begins, before anything of it runs.
    pub(super) fn call_begins(&self) {
        self.running.send_replace(true);
    }

    /// Tells that a call is over and that everything stands still; what it left is looked at at once.
    pub(super) fn call_ended(&self) {
        self.running.send_replace(false);
    }

    /// What it struck for, if it did.
    pub(super) fn struck(&self) -> Option<Strike> {
        *self.struck.borrow()
    }

    /// Waits for a strike. Safe to cancel.
    pub(super) async fn strike(&self) -> Strike {
        let mut struck = self.struck.clone();
        let found = struck.wait_for(Option::is_some).await.ok().and_then(|found| *found);
        match found {
            Some(strike) => strike,
            // The runtime is shutting down.
            None => std::future::pending().await,
        }
    }
}

async fn keep(
    watch: Arc<Watch>,
    killer: Arc<Killer>,
    mut running: watch::Receiver<bool>,
    struck: watch::Sender<Option<Strike>>,
) {
    let mut next_disk = Instant::now();
    let mut in_flight = 0;
    let mut called = false;
    loop {
        // Not marked as seen: a call that began and ended during the last look is still to be looked at.
        let every = if *running.borrow() { EVERY } else { EVERY_IDLE };
        let changed = tokio::select! {
            changed = running.changed() => {
                if changed.is_err() {
                    return;
                }
                true
            }
            () = tokio::time::sleep(every) => false,
        };
        let busy = *running.borrow_and_update();
        called |= busy || changed;
        if changed && busy || !called {
            continue;
        }
        let with_disk = changed || (busy && Instant::now() >= next_disk);
        let eye = Arc::clone(&watch);
        let looked = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let strike = eye.look(with_disk, &mut in_flight);
            (strike, in_flight, begun.elapsed(), !busy && !freeze::is_frozen(eye.init))
        });
        // The runtime is shutting down.
        let Ok((strike, flights, took, awake)) = looked.await else { return };
        in_flight = flights;
        if with_disk {
            next_disk = Instant::now() + took * DISK_PATIENCE;
        }
        // A call that began in the meantime is why it runs.
        let awake = awake && running.has_changed().is_ok_and(|changed| !changed);
        if let Some(strike) = strike.or(awake.then_some(Strike::Awake)) {
            struck.send_replace(Some(strike));
            killer.kill();
            return;
        }
    }
}
