//! The command `scripted-model [--listen ADDRESS] [--scenarios FOLDER]`: prints `{"address": …}`
//! and plays models until it is killed.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use harness::scripted_model::{Library, ScriptedModel};

#[tokio::main]
async fn main() -> ExitCode {
    match run(std::env::args().skip(1)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            drop(writeln!(std::io::stderr(), "scripted-model: {problem}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let mut listen = "127.0.0.1:0".to_owned();
    let mut scenarios = PathBuf::from("tests/scenarios");
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--listen" => listen = value()?,
            "--scenarios" => scenarios = value()?.into(),
            other => {
                return Err(format!("unknown argument {other}; use [--listen ADDRESS] [--scenarios FOLDER]"));
            }
        }
    }
    let address = listen.parse().map_err(|error| format!("--listen {listen}: {error}"))?;
    let model = ScriptedModel::bind(address, Library::load(&scenarios)?)
        .await
        .map_err(|error| format!("--listen {listen}: {error}"))?;
    let address = model.address().map_err(|error| error.to_string())?;
    writeln!(std::io::stdout(), "{}", serde_json::json!({"address": address.to_string()}))
        .map_err(|error| format!("standard output: {error}"))?;
    model.serve().await;
    Ok(())
}
