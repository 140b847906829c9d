//! One thread, alive as long as the sandbox, that starts every process and buries those nobody waits for.
//!
//! INVARIANT: no sandbox outlives this thread. `PR_SET_PDEATHSIG` (bubblewrap's `--die-with-parent`) fires when the
//! *thread* that forked ends, so a thread of a pool would kill its sandboxes at an arbitrary moment, while this one
//! takes them along exactly when the sidecar ends, by `kill -9` too.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::Pid;
use tokio::sync::oneshot;

use super::freeze::kill_starting;
use super::pidfd::Process;

/// How often dead children that nobody waited for are looked at.
const BURY_EVERY: Duration = Duration::from_millis(50);

/// A handle on the thread, which ends with the last handle.
#[derive(Debug, Clone)]
pub(super) struct Spawner {
    jobs: mpsc::Sender<Job>,
}

enum Job {
    Spawn(Box<Command>, oneshot::Sender<io::Result<Child>>),
    Bury(Child),
}

impl Spawner {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel();
        thread::Builder::new().name("sandbox-spawner".to_owned()).spawn(move || work(&inbox))?;
        Ok(Self { jobs })
    }

    /// Starts a process. Descriptors handed to it are closed here once it runs.
    pub(super) async fn spawn(&self, command: Command) -> io::Result<Child> {
        let (reply, answer) = oneshot::channel();
        let gone = || io::Error::other("the spawner thread is gone");
        self.jobs.send(Job::Spawn(Box::new(command), reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Kills a child, and all it started, whose end nobody can wait for.
    pub(super) fn bury(&self, child: Child) {
        drop(self.jobs.send(Job::Bury(child)));
    }
}

fn work(inbox: &mpsc::Receiver<Job>) {
    let mut graves: Vec<Child> = Vec::new();
    loop {
        let job = if graves.is_empty() {
            inbox.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected)
        } else {
            inbox.recv_timeout(BURY_EVERY)
        };
        match job {
            Ok(Job::Spawn(mut command, reply)) => {
                let spawned = command.spawn();
                drop(command);
                // The caller gave up in the meantime: the child must not run on.
                if let Err(Ok(mut child)) = reply.send(spawned) {
                    kill(&mut child);
                    graves.push(child);
                }
            }
            Ok(Job::Bury(mut child)) => {
                kill(&mut child);
                graves.push(child);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                // All were killed before they came here, so none keeps us waiting.
                for mut child in graves {
                    drop(child.wait());
                }
                return;
            }
        }
        graves.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

fn kill(child: &mut Child) {
    if let Ok(bwrap) = Process::open(Pid::from_child(child)) {
        kill_starting(&bwrap);
    }
    // Nothing is left to fail for but that it is dead.
    drop(child.kill());
}
