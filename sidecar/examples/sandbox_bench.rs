//! Measures the embedded sandbox: `cargo run --release --example sandbox_bench [rounds]`.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidecar::clock::SystemClock;
use sidecar::config::{Config, Environment, SandboxBackendConfig};
use sidecar::ids::SystemIds;
use sidecar::sandbox::process::{ProcessSandbox, ProcessSettings};
use sidecar::sandbox::{ExecutionRequest, SandboxBackend, SessionSpec, ToolInput};
use tokio_util::sync::CancellationToken;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a bench talks to a person")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(100), |text| text.parse())?;
    let data = std::env::temp_dir().join(format!("otari-bench-{}", std::process::id()));
    let config = Config::parse("", &Environment::default()).map_err(|problems| format!("{problems:?}"))?;
    let SandboxBackendConfig::Embedded(settings) = config.sandbox.backend else { return Err("not embedded".into()) };
    let settings = ProcessSettings { data_dir: data.clone(), ..*settings };
    let python = settings.python.clone();
    let started = Instant::now();
    let sandbox = ProcessSandbox::start(settings, Arc::new(SystemIds), Arc::new(SystemClock)).await?;
    println!("start with canary          {:>8.2} ms  ({})", millis(started.elapsed()), sandbox.capability().isolation);
    let request = ExecutionRequest {
        input: ToolInput::Python { code: "print('hello')".to_owned() },
        timeout: Duration::from_secs(10),
        call_id: String::new(),
        stop: CancellationToken::new(),
    };
    let (mut bare, mut create, mut cold, mut cell, mut destroy) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        let begun = Instant::now();
        Command::new(&python).args(["-c", "print('hello')"]).stdin(Stdio::null()).output()?;
        bare.push(begun.elapsed());

        let begun = Instant::now();
        let session = sandbox.create_session(&SessionSpec::default()).await?.id;
        create.push(begun.elapsed());
        sandbox.execute(&session, &request).await?;
        cold.push(begun.elapsed());
        for _ in 0..10 {
            let begun = Instant::now();
            sandbox.execute(&session, &request).await?;
            cell.push(begun.elapsed());
        }
        let begun = Instant::now();
        sandbox.destroy_session(&session).await?;
        destroy.push(begun.elapsed());
    }
    for (name, times) in [
        ("bare python3, print", bare),
        ("session made", create),
        ("session made, first output", cold),
        ("cell round trip", cell),
        ("destroyed, all gone", destroy),
    ] {
        println!("{name:<26} {}", percentiles(times));
    }
    drop(sandbox);
    std::fs::remove_dir_all(data)?;
    Ok(())
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len() - 1)).copied().unwrap_or_default();
    format!("p50 {:>7.2} ms   p95 {:>7.2} ms   p99 {:>7.2} ms", millis(at(50)), millis(at(95)), millis(at(99)))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
