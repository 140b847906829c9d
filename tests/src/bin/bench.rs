//! The command `bench`: measures the sidecar beside it, a release build, and prints one line of JSON.

use std::io::Write as _;
use std::process::ExitCode;

use harness::stack::{Fallible, binary};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            drop(writeln!(std::io::stderr(), "bench: {problem}"));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Fallible<()> {
    let figures = harness::bench::run(binary("otari-sidecar")?).await?;
    writeln!(std::io::stdout(), "{figures}")?;
    Ok(())
}
