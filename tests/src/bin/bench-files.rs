//! The command `bench-files [ROWS [PART]]`: measures files with the release builds beside it, and prints one line of JSON.

use std::io::Write as _;
use std::process::ExitCode;

use harness::stack::Fallible;

/// What very many files are.
const ROWS: u32 = 1_000_000;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            drop(writeln!(std::io::stderr(), "bench-files: {problem}"));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Fallible<()> {
    let rows = std::env::args().nth(1).map_or(Ok(ROWS), |rows| rows.parse())?;
    let figures = harness::bench::files::run(rows, std::env::args().nth(2).as_deref()).await?;
    writeln!(std::io::stdout(), "{figures}")?;
    Ok(())
}
