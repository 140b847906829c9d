//! The child's side: `otari-sidecar extract-text KIND`, a document on standard input, its text on standard output.

use std::io::{self, BufWriter, Read as _, Write as _};
use std::process::ExitCode;

use super::{Document, documents, jail};

/// The document was read to its end.
const WHOLE: u8 = 0;
/// It could not be read, or not to its end.
pub(super) const BROKEN: u8 = 1;
/// This system cannot close the jail, so nothing was read.
pub(super) const NO_JAIL: u8 = 3;

/// Runs the hidden command. Whoever calls it must not have started threads.
pub fn run(kind: Document, cpu_seconds: u64) -> ExitCode {
    // Nobody reads what it says, and the way to the symbols of a backtrace is closed.
    std::panic::set_hook(Box::new(|_| {}));
    if let Err(error) = jail::enter(cpu_seconds) {
        writeln!(io::stderr(), "{}", crate::telemetry::chain(&error)).ok();
        return ExitCode::from(NO_JAIL);
    }
    let mut bytes = Vec::new();
    let mut out = BufWriter::new(io::stdout().lock());
    let read = io::stdin().lock().read_to_end(&mut bytes).map_err(documents::Fault::from);
    let read = read.and_then(|_| documents::read(kind, bytes, &mut out));
    let written = out.flush();
    ExitCode::from(if read.is_ok() && written.is_ok() { WHOLE } else { BROKEN })
}
