//! One live interpreter in its sandbox: runs a call or shells side by side, keeps their output, stops them when a limit is
//! passed.
//!
//! INVARIANT: an interpreter whose call did not end by a believed answer is never used again. Dropping one kills
//! its whole process tree, so a call whose future is dropped stops at once. Between calls nothing of it runs, whatever
//! a call left behind; it goes on with the next.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Tier;
use super::control::{Control, ControlFault, Done};
use super::freeze;
use super::launch::{Ends, Launcher};
use super::pidfd::Process;
use super::printed::{Pipes, Printed};
use super::spawner::Spawner;
use super::watch::{Guard, Strike, Watch};
use super::work::Work;

/// Longest time from the start of bubblewrap to the driver's greeting; generous, for loaded machines.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// An interrupt that did not end the call is repeated, and then reaches the programs it started too.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(500);
/// Interrupts a call gets before it is killed: 2 s in all.
const INTERRUPTS: u32 = 4;
/// A killed tree is gone long before this.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time an interpreter that closed its channel has to end by itself, so that its exit status is its own.
const EXIT_GRACE: Duration = Duration::from_millis(500);
/// How much of bubblewrap's own complaint is kept.
const COMPLAINT_BYTES: usize = 2048;

/// A started interpreter.
#[derive(Debug)]
pub(super) struct Interpreter {
    control: Control,
    pipes: Pipes,
    python: Process,
    killer: Arc<Killer>,
    watch: Arc<Watch>,
    guard: Guard,
    outer: Outer,
    output_bytes: usize,
}

/// How a call ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// By itself; the interpreter lives on.
    Finished(Done),
    /// By the first interrupt at its deadline; the interpreter lives on.
    Interrupted(Done),
    /// It ignored the interrupt and was killed.
    TimedOut,
    /// It ended the interpreter: `os._exit`, a crash, a kill. Carries the exit status, 128 + n for signal n.
    Exited(i32),
    /// It broke the control channel and was killed.
    Broken(ControlFault),
    /// It passed a watched limit and was killed.
    Struck(Strike),
    /// It left something running that could not be stopped, and was killed.
    Restless,
}

/// What calls left behind.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) ending: Ending,
    /// Of each call, in their order.
    pub(super) printed: Vec<Printed>,
}

/// Why an interpreter did not start.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox did not start: {complaint}")]
pub(super) struct LaunchError {
    /// What bubblewrap or Python printed, cut short.
    pub(super) complaint: String,
    #[source]
    source: Option<io::Error>,
}

impl LaunchError {
    pub(super) fn io(source: io::Error) -> Self {
        Self { complaint: source.to_string(), source: Some(source) }
    }
}

/// Kills a session's tree from anywhere.
#[derive(Debug)]
pub(super) struct Killer {
    init: Process,
}

/// The outer bubblewrap: our child, to be reaped.
#[derive(Debug)]
struct Outer {
    child: Option<Child>,
    spawner: Spawner,
}

impl Interpreter {
    /// Starts one over `workspace` and waits until it is ready for code, with those of `modules` that it has imported.
    pub(super) async fn launch(
        launcher: &Launcher,
        tier: Tier,
        workspace: &Path,
        modules: &[&str],
    ) -> Result<Self, LaunchError> {
        let fault = LaunchError::io;
        let (mut control, theirs) = Control::pair().map_err(fault)?;
        let (stdout, stdout_end) = io::pipe().map_err(fault)?;
        let (stderr, stderr_end) = io::pipe().map_err(fault)?;
        let ends = Ends { control: theirs, stdout: stdout_end, stderr: stderr_end };
        let command = launcher.command(tier, workspace, ends, modules).map_err(fault)?;
        let child = launcher.spawner.spawn(command).await.map_err(fault)?;
        let outer = Outer { child: Some(child), spawner: launcher.spawner.clone() };
        let stdout = pipe::Receiver::from_owned_fd(stdout.into()).map_err(fault)?;
        let mut stderr = pipe::Receiver::from_owned_fd(stderr.into()).map_err(fault)?;
        let greeted = match timeout(START_TIMEOUT, control.ready()).await {
            Ok(Ok(pid)) => outer.identify(pid).map_err(fault),
            Ok(Err(_)) => Err(LaunchError { complaint: complaint(&mut stderr).await, source: None }),
            Err(_) => Err(LaunchError { complaint: "it did not answer in time".to_owned(), source: None }),
        };
        let (python, init) = greeted?;
        let watch = Watch::new(init.pid(), python.pid(), workspace.to_path_buf(), launcher.limits.clone());
        let watch = Arc::new(watch.map_err(fault)?);
        let killer = Arc::new(Killer { init });
        let guard = Guard::start(Arc::clone(&watch), Arc::clone(&killer));
        let output_bytes = launcher.limits.output_bytes;
        let pipes = Pipes::new(stdout, stderr);
        Ok(Self { control, pipes, python, killer, watch, guard, outer, output_bytes })
    }

    /// Kills this interpreter from elsewhere, while a call runs.
    pub(super) fn killer(&self) -> Arc<Killer> {
        Arc::clone(&self.killer)
    }

    /// The kernel's `/proc/PID/status` of the interpreter, which nothing inside can forge.
    pub(super) fn status(&self) -> io::Result<String> {
        fs::read_to_string(format!("/proc/{}/status", self.python.pid().as_raw_pid()))
    }

    /// Whether it has not ended.
    pub(super) fn is_alive(&self) -> bool {
        !self.python.has_ended()
    }

    /// Looks once for every limit that is watched.
    pub(super) fn look(&self) -> Option<Strike> {
        self.watch.look(true, &mut 0)
    }

    /// Why it was killed since its last call, if it was.
    pub(super) fn struck(&self) -> Option<Strike> {
        self.guard.struck()
    }

    /// Runs one call, or several side by side, until their budget is spent or they are told to stop. Gives the interpreter
    /// back if it can take another.
    pub(super) async fn run(
        mut self,
        work: &Work<'_>,
        budget: Duration,
        stop: &CancellationToken,
    ) -> (Ran, Option<Self>) {
        let mut printed: Vec<_> = (0..work.calls()).map(|_| Printed::new(self.output_bytes)).collect();
        let mut buffer = Pipes::buffer();
        self.guard.call_begins();
        freeze::thaw(self.killer.init.pid());
        let ending = self.call(work, (budget, stop), &mut printed, &mut buffer).await;
        let ending = self.settle(ending).await;
        let kept = matches!(ending, Ending::Finished(_) | Ending::Interrupted(_));
        self.pipes.drain(&mut printed, &mut buffer);
        (Ran { ending, printed }, kept.then_some(self))
    }

    /// Hands the work to the driver, with pipes for each call of it.
    async fn begin(&mut self, work: &Work<'_>) -> Result<u64, ControlFault> {
        let ends = self.pipes.widen(work.calls()).map_err(ControlFault::Io)?;
        let id = self.control.send(work).await?;
        if !ends.is_empty() {
            self.control.hand_over(&ends).await?;
        }
        Ok(id)
    }

    async fn call(
        &mut self,
        work: &Work<'_>,
        (budget, stop): (Duration, &CancellationToken),
        printed: &mut [Printed],
        buffer: &mut [u8],
    ) -> Ending {
        let mut deadline = Instant::now() + budget;
        // Nothing is read meanwhile, but nothing needs to be: the driver is waiting for this.
        let id = match timeout_at(deadline, self.begin(work)).await {
            Ok(Ok(id)) => id,
            Ok(Err(fault)) => return Ending::Broken(fault),
            Err(_) => return Ending::TimedOut,
        };
        let Self { control, pipes, python, killer, guard, .. } = self;
        let strike = guard.strike();
        tokio::pin!(strike);
        let (mut interrupts, mut stopped) = (0, false);
        loop {
            tokio::select! {
                () = pipes.read(printed, buffer) => {}
                done = control.done(id, work) => return match done {
                    // An edit that reports was done, or not, before the interrupt could reach it.
                    Ok(done) if interrupts > 0 && done.edit.is_none() => Ending::Interrupted(done),
                    Ok(done) => Ending::Finished(done),
                    Err(fault) => Ending::Broken(fault),
                },
                strike = &mut strike => return Ending::Struck(strike),
                () = stop.cancelled(), if !stopped => {
                    stopped = true;
                    deadline = deadline.min(Instant::now());
                }
                () = sleep_until(deadline) => {
                    match interrupts {
                        0 => python.signal(Signal::INT),
                        INTERRUPTS => return Ending::TimedOut,
                        _ => freeze::interrupt(killer.init.pid()),
                    }
                    interrupts += 1;
                    deadline += INTERRUPT_AGAIN;
                }
            }
        }
    }

    /// Brings everything to a stand after a call that ended well. An interpreter that cannot be trusted any more is
    /// ended, and how it ended is learnt if it did so itself.
    async fn settle(&mut self, ending: Ending) -> Ending {
        let ending = match ending {
            Ending::Finished(_) | Ending::Interrupted(_) if freeze::freeze(self.killer.init.pid()).await => {
                self.guard.call_ended();
                ending
            }
            Ending::Finished(_) | Ending::Interrupted(_) => Ending::Restless,
            Ending::Broken(ControlFault::Closed) => self.outer.reap(EXIT_GRACE).await.map_or(ending, Ending::Exited),
            _ => ending,
        };
        // Death by the watch looks like an end of its own.
        let ending = self.struck().map_or(ending, Ending::Struck);
        if !matches!(ending, Ending::Finished(_) | Ending::Interrupted(_)) {
            self.killer.kill();
            self.outer.reap(REAP_TIMEOUT).await;
        }
        ending
    }

    /// Kills the tree and waits until it is gone. False if it is still there after a generous wait.
    pub(super) async fn stop(mut self) -> bool {
        self.killer.kill();
        self.outer.reap(REAP_TIMEOUT).await.is_some()
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        self.killer.kill();
    }
}

impl Killer {
    /// Kills process 1 of the session and, by the kernel's doing, every other. One that is gone is no error.
    pub(super) fn kill(&self) {
        self.init.signal(Signal::KILL);
    }
}

impl Outer {
    /// Opens the interpreter and its process 1. The driver has run nothing of anybody's yet, so it is alive and honest.
    fn identify(&self, python: Pid) -> io::Result<(Process, Process)> {
        let strange = || io::Error::other("its processes are not those bubblewrap starts");
        let init = parent(python)?;
        let found = (Process::open(python)?, Process::open(init)?);
        // Both were opened by number: still the same line of descent means that no number was reused in between.
        let ours = self.child.as_ref().map(Pid::from_child);
        if parent(python)? == init && Some(parent(init)?) == ours { Ok(found) } else { Err(strange()) }
    }

    /// Waits for bubblewrap's end; gives its exit status, which is the interpreter's.
    async fn reap(&mut self, patience: Duration) -> Option<i32> {
        let child = self.child.as_mut()?;
        let pid = Pid::from_child(child);
        let process = Process::open(pid).ok()?;
        drop(tokio::task::spawn_blocking(move || process.wait(patience)).await);
        let status = child.try_wait().ok()??;
        self.child = None;
        Some(
            std::os::unix::process::ExitStatusExt::signal(&status)
                .map_or(status.code().unwrap_or(-1), |signal| 128 + signal),
        )
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.spawner.bury(child);
        }
    }
}

fn parent(pid: Pid) -> io::Result<Pid> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid()))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
    parent.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("the kernel does not tell its parent"))
}

async fn complaint(stderr: &mut pipe::Receiver) -> String {
    let mut bytes = Vec::new();
    let mut limited = stderr.take(COMPLAINT_BYTES as u64);
    drop(timeout(EXIT_GRACE, limited.read_to_end(&mut bytes)).await);
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    if text.is_empty() { "it ended without a word".to_owned() } else { text }
}
