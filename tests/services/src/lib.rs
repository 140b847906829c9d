//! Real servers for tests, where the product's counterparts are servers: each starts on loopback or on a Unix socket, in
//! a folder of its own, and is killed when the process that started it ends, even if that is killed itself.
//!
//! - [`spawner`] starts processes that end with this one.
//! - [`postgres`] is PostgreSQL, from Debian's package.
//!
//! INVARIANT: a server that is not installed is a failure that says what to install, never a test that is skipped.

pub mod postgres;
pub mod spawner;

mod folder;

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub use folder::folder;

/// Longest wait until a server is ready.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// Pause between two looks at something that is about to happen.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A failure of the harness itself, never of what is tested.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// An address on loopback that nobody listens on.
pub fn free_address() -> Fallible<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// Waits until `ready` is, or the server has ended.
pub(crate) fn wait_until(name: &str, child: &mut Child, mut ready: impl FnMut() -> bool) -> Fallible<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    while !ready() {
        if let Some(status) = child.try_wait()? {
            return Err(format!("{name} ended at its start: {status}").into());
        }
        if Instant::now() > deadline {
            return Err(format!("{name} is not ready after {READY_TIMEOUT:?}").into());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Runs a command to its end. What it says is in the error if it fails.
pub(crate) fn run(mut command: Command) -> Fallible<()> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Err(format!("{command:?}: {}: {said}", output.status).into())
}
