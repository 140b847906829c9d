//! Starts processes that end with this one, even when it is killed and no destructor runs.
//!
//! INVARIANT: the kernel sends the death signal when the *thread* that started a process ends, so one thread that never
//! ends starts them all.

use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts the command.
pub fn spawn(command: Command) -> io::Result<Child> {
    static ORDERS: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        raise_open_files();
        let (sender, inbox) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                // Nobody waits for the answer any more: the child goes down with its pipe and its handle.
                drop(reply.send(command.spawn()));
            }
        });
        Mutex::new(sender)
    });
    let (reply, answer) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts processes is gone");
    orders.lock().unwrap_or_else(PoisonError::into_inner).send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// For this process and all that it starts: a thousand clients are a thousand descriptors, and the soft limit is often
/// 1024. Where it cannot be raised, the test that needs it says so.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
}

/// A command that is killed when the process that starts it ends. `setpriv` becomes the program, so the id is its own.
pub fn leashed(program: &std::path::Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}
