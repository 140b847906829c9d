//! Real servers for tests, where the product's counterparts are servers: each starts on loopback or on a Unix socket, in
//! a folder of its own, and is killed when the process that started it ends, even if that is killed itself.
//!
//! - [`spawner`] starts processes that end with this one.
//! - [`postgres`] is PostgreSQL, from Debian's package.
//! - [`s3`], [`azure`] and [`sftp`] keep blobs.
//!
//! INVARIANT: a server that is not installed is a failure that says what to install, never a test that is skipped.

pub mod azure;
pub mod postgres;
pub mod s3;
pub mod sftp;
pub mod spawner;

mod doorman;
mod folder;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
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

/// The same, so many different ones.
pub(crate) fn free_addresses(count: usize) -> Fallible<Vec<SocketAddr>> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<_, _>>()?;
    Ok(listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?)
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

/// A program that `make services` puts into `.tools/services`.
pub(crate) fn installed(path: &str) -> Fallible<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/services");
    let program = tools.join(path);
    if program.exists() {
        Ok(program)
    } else {
        Err(format!("{} is missing: run `make services`", program.display()).into())
    }
}

/// Sends a request, and reads what the server has to say until it closes.
pub(crate) fn tell(address: SocketAddr, line: &str, body: &str) -> Fallible<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(READY_TIMEOUT))?;
    let length = body.len();
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let head = format!("{line}\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n");
    write!(stream, "{head}{kind}\r\n{body}")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Whether a server answers with a status that begins like this.
pub(crate) fn answers(address: SocketAddr, line: &str, status: &str) -> bool {
    tell(address, line, "")
        .is_ok_and(|answer| answer.get("HTTP/1.1 ".len()..).is_some_and(|rest| rest.starts_with(status)))
}
