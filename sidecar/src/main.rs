//! The command `otari-sidecar`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The embedded sandbox starts this program again as its own first process: that hook must come before all else.
    sidecar::cli::main()
}
