//! One process of the stack, with its log in a file.
//!
//! INVARIANT: the process leads a group of its own, and dropping the part ends the whole group.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use services::spawner;

use super::{Fallible, Process, eventually, process};

/// How long a process may take to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// How long a process may take to say where it listens.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Characters of a log that a failing test shows.
const TAIL: usize = 6_000;

/// A running process.
#[derive(Debug)]
pub struct Part {
    name: &'static str,
    child: Mutex<Child>,
    pid: u32,
    log: PathBuf,
    output: PathBuf,
}

impl Part {
    /// Starts the command, its output going to `NAME.out` and `NAME.log` in the folder.
    pub fn start(name: &'static str, mut command: Command, dir: &Path) -> io::Result<Self> {
        let (log, output) = (dir.join(format!("{name}.log")), dir.join(format!("{name}.out")));
        command.stdin(Stdio::null()).stdout(File::create(&output)?).stderr(File::create(&log)?).process_group(0);
        let child =
            spawner::spawn(command).map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        Ok(Self { name, pid: child.id(), child: Mutex::new(child), log, output })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has not ended.
    pub fn is_running(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(child.try_wait(), Ok(None))
    }

    /// Kills the process group at once, as a crash would.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
        self.wait(GRACE);
    }

    /// Asks the process to end, and waits so long for it. The exit code, if it ended by itself.
    pub async fn stop(&self, grace: Duration) -> Option<i32> {
        self.signal(Signal::TERM);
        // Clients that were dropped before close their connections only while the runtime goes on.
        eventually(grace, async || !self.is_running()).await;
        self.exit_code()
    }

    /// The processes that descend from this one, such as sandboxes.
    pub fn descendants(&self) -> BTreeSet<Process> {
        process::descendants(self.pid)
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        self.status_bytes("VmRSS:")
    }

    /// The most that resident memory has been, in bytes, since the start or the last [`Self::forget_peak`].
    pub fn peak_bytes(&self) -> io::Result<u64> {
        self.status_bytes("VmHWM:")
    }

    /// Lets the peak begin anew with what is resident now.
    pub fn forget_peak(&self) -> io::Result<()> {
        std::fs::write(format!("/proc/{}/clear_refs", self.pid), "5")
    }

    fn status_bytes(&self, name: &str) -> io::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let kilobytes = line.trim().trim_end_matches(" kB").parse::<u64>().map_err(io::Error::other)?;
        Ok(kilobytes * 1024)
    }

    /// All that the process wrote to its standard error.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The end of the log, under a heading.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let start = log.char_indices().rev().nth(TAIL).map_or(0, |(index, _)| index);
        format!("---- {} ----\n{}", self.name, &log[start..])
    }

    /// The `{"address": …}` that a process prints when it listens.
    pub(super) fn announced_address(&self) -> Fallible<SocketAddr> {
        let end = Instant::now() + ANNOUNCE_TIMEOUT;
        while Instant::now() < end && self.is_running() {
            let output = std::fs::read_to_string(&self.output)?;
            if let Some((line, _)) = output.split_once('\n') {
                let line: serde_json::Value = serde_json::from_str(line)?;
                return Ok(line["address"].as_str().unwrap_or_default().parse()?);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Err(format!("{} does not say where it listens\n{}", self.name, self.log_tail()).into())
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // An error means that the group is gone already.
            kill_process_group(pid, signal).ok();
        }
    }

    fn exit_code(&self) -> Option<i32> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.try_wait().ok().flatten().and_then(|status| status.code())
    }

    fn wait(&self, limit: Duration) {
        let end = Instant::now() + limit;
        while self.is_running() && Instant::now() < end {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        self.wait(GRACE);
        self.signal(Signal::KILL);
        self.wait(GRACE);
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "the test runner captures it for the failing test")]
            {
                eprintln!("{}", self.log_tail());
            }
        }
    }
}
