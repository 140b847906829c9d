//! The command `stack`: starts the whole product, prints `{"base_url", "key", "master_key"}` and serves until its
//! standard input closes. The SDK suites run against it.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use harness::stack::{Fallible, Setup, Stack};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            drop(writeln!(std::io::stderr(), "stack: {problem}"));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Fallible<()> {
    let stack = Stack::start(Setup::default()).await?;
    let hello = serde_json::json!({"base_url": stack.base_url(), "key": stack.key(), "master_key": stack.master_key()});
    writeln!(std::io::stdout(), "{hello}")?;
    let closed = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    closed.await??;
    Ok(())
}
