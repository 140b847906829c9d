//! Signals to every process of a session: interrupts them, stops them between calls, lets them go on.
//!
//! INVARIANT: once [`freeze`] has said yes, nothing of the session runs until [`thaw`]. Only what runs can wake what is
//! stopped, so a session that was once seen to stand still goes on standing.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep};

use super::census::{descendants, thread_directories};
use super::pidfd::Process;

/// Longest wait for a session to stand still; a system call under way, a large write for one, goes on to its end.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);
/// A session at rest stops within this, so it is looked at without a pause.
const SPIN: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(1);

/// Stops everything in the session. False if it could not be brought to a stand: kill it then.
pub(super) async fn freeze(init: Pid) -> bool {
    let begun = Instant::now();
    let mut before = None;
    loop {
        let members = members(init);
        let mut still = true;
        for process in members.iter().filter(|process| !stands(process.pid())) {
            process.signal(Signal::STOP);
            still = false;
        }
        let seen: Vec<Pid> = members.iter().map(Process::pid).collect();
        // A process that forks while it is being stopped leaves a child, which only the next look finds.
        if still && before.as_ref() == Some(&seen) {
            return true;
        }
        before = Some(seen);
        match begun.elapsed() {
            spent if spent > FREEZE_TIMEOUT => return false,
            spent if spent > SPIN => sleep(PAUSE).await,
            _ => tokio::task::yield_now().await,
        }
    }
}

/// Kills bubblewrap while it may still be setting its sandbox up, and what it has started. Blocks for as long as that
/// takes, some milliseconds.
///
/// The first process of a sandbox asks to die with bubblewrap only when all is set up. Were bubblewrap gone before that, it
/// would wait for its word for ever, and be nobody's.
pub(super) fn kill_starting(bwrap: &Process) {
    let begun = std::time::Instant::now();
    let mut before = None;
    while begun.elapsed() < FREEZE_TIMEOUT {
        // Once it stands it starts nothing more.
        let still = stands(bwrap.pid());
        bwrap.signal(Signal::STOP);
        let started = below(bwrap.pid());
        for process in &started {
            process.signal(Signal::KILL);
        }
        let seen: Vec<Pid> = started.iter().map(Process::pid).collect();
        if still && before.as_ref() == Some(&seen) {
            break;
        }
        before = Some(seen);
        std::thread::sleep(SPIN);
    }
    bwrap.signal(Signal::KILL);
}

/// Lets everything in the session go on.
pub(super) fn thaw(init: Pid) {
    signal_all(init, Signal::CONT);
}

/// Interrupts everything in the session, as a terminal would.
pub(super) fn interrupt(init: Pid) {
    signal_all(init, Signal::INT);
}

/// Whether nothing in the session runs.
pub(super) fn is_frozen(init: Pid) -> bool {
    members(init).iter().all(|process| stands(process.pid()))
}

fn signal_all(init: Pid, signal: Signal) {
    for process in members(init) {
        process.signal(signal);
    }
}

/// Every process of the session but its process 1, which runs nobody's code.
fn members(init: Pid) -> Vec<Process> {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid"));
    let Ok(inside) = namespace(init.as_raw_pid()) else { return Vec::new() };
    let others = descendants(init).into_iter().filter_map(Pid::from_raw).filter(|pid| *pid != init);
    let opened = others.filter_map(|pid| Process::open(pid).ok());
    // Looked at after it was opened, so that a reused number cannot name a process outside.
    opened.filter(|process| namespace(process.pid().as_raw_pid()).is_ok_and(|found| found == inside)).collect()
}

/// Every process below this one, in whatever namespaces.
fn below(top: Pid) -> Vec<Process> {
    let numbers = descendants(top).into_iter().skip(1).filter_map(Pid::from_raw);
    let opened: Vec<Process> = numbers.filter_map(|pid| Process::open(pid).ok()).collect();
    // Asked again after they were opened: a number that is still there was not reused in between.
    let still = descendants(top);
    opened.into_iter().filter(|process| still.contains(&process.pid().as_raw_pid())).collect()
}

/// Whether no thread of it runs. One that waits inside the kernel stops on its way out, without another instruction.
/// A process is asked thread by thread, because one whose first thread has ended looks dead while the others run.
fn stands(pid: Pid) -> bool {
    thread_directories(pid.as_raw_pid()).into_iter().all(|thread| {
        let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
        // The name before the state may hold anything, parentheses too.
        let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
        matches!(state, Some('T' | 't' | 'Z' | 'X' | 'D') | None)
    })
}
