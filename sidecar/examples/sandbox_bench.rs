//! Measures the embedded sandbox: `cargo run --release --example sandbox_bench [rounds]`.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidecar::clock::SystemClock;
use sidecar::config::{Config, Environment, SandboxBackendConfig};
use sidecar::ids::SystemIds;
use sidecar::sandbox::process::{ProcessSandbox, ProcessSettings};
use sidecar::sandbox::{ExecutionRequest, SandboxBackend, SessionId, SessionSpec, ToolInput};
use tokio_util::sync::CancellationToken;

type Fallible<T> = Result<T, Box<dyn Error>>;

const STACK: &str = "import numpy, pandas, matplotlib.pyplot\nprint('hello')";
/// Sessions whose memory is measured.
const MANY: usize = 10;
/// A session is made ready when none was asked for in a while, so these rounds are slow.
const POOL_ROUNDS: usize = 20;

#[tokio::main]
async fn main() -> Fallible<()> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(100), |text| text.parse())?;
    sessions(rounds).await?;
    files(rounds.min(POOL_ROUNDS)).await?;
    let system = settings(None)?.python;
    from_the_pool("from the pool, first output", &system, "print('hello')").await?;
    let Ok(python) = fs::read_to_string(packages()) else {
        say("the packages are not installed: `make packages`");
        return Ok(());
    };
    let python = PathBuf::from(python.trim());
    from_the_pool("from the pool, packages", &python, STACK).await?;
    with_packages(&python).await?;
    memory(&python).await
}

fn packages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/sandbox/full/.installed")
}

/// The defaults, over a folder of its own, with another interpreter and without a pool.
fn settings(python: Option<&Path>) -> Fallible<ProcessSettings> {
    let data_dir = std::env::temp_dir().join(format!("otari-bench-{}", std::process::id()));
    let config = Config::parse("", &Environment::default()).map_err(|problems| format!("{problems:?}"))?;
    let SandboxBackendConfig::Embedded(settings) = config.sandbox.backend else { return Err("not embedded".into()) };
    let python = python.map_or_else(|| settings.python.clone(), Path::to_path_buf);
    Ok(ProcessSettings { data_dir, python, warm_sessions: 0, ..*settings })
}

async fn open(settings: ProcessSettings) -> Fallible<Arc<ProcessSandbox>> {
    Ok(ProcessSandbox::start(settings, Arc::new(SystemIds), Arc::new(SystemClock)).await?)
}

async fn close(sandbox: Arc<ProcessSandbox>) -> Fallible<()> {
    sandbox.shut().await;
    drop(sandbox);
    // The task that fills a pool lets go of the folder when it next looks.
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(fs::remove_dir_all(settings(None)?.data_dir)?)
}

async fn session(sandbox: &ProcessSandbox) -> Fallible<SessionId> {
    Ok(sandbox.create_session(&SessionSpec::default()).await?.id)
}

async fn run(sandbox: &ProcessSandbox, session: &SessionId, code: &str) -> Fallible<()> {
    let input = ToolInput::Python { code: code.to_owned() };
    let request = ExecutionRequest {
        input,
        timeout: Duration::from_secs(30),
        call_id: String::new(),
        stop: CancellationToken::new(),
    };
    let result = sandbox.execute(session, &request).await?;
    if result.return_code == 0 { Ok(()) } else { Err(result.stderr.into()) }
}

/// Sessions one after the other, against the bare interpreter.
async fn sessions(rounds: usize) -> Fallible<()> {
    let settings = settings(None)?;
    let python = settings.python.clone();
    let started = Instant::now();
    let sandbox = open(settings).await?;
    say(&format!(
        "start with canary          {:>8.2} ms  ({})",
        millis(started.elapsed()),
        sandbox.capability().isolation
    ));
    let (mut bare, mut create, mut cold, mut cell, mut destroy) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        let begun = Instant::now();
        Command::new(&python).args(["-c", "print('hello')"]).stdin(Stdio::null()).output()?;
        bare.push(begun.elapsed());

        let begun = Instant::now();
        let session = session(&sandbox).await?;
        create.push(begun.elapsed());
        run(&sandbox, &session, "print('hello')").await?;
        cold.push(begun.elapsed());
        for _ in 0..10 {
            let begun = Instant::now();
            run(&sandbox, &session, "print('hello')").await?;
            cell.push(begun.elapsed());
        }
        let begun = Instant::now();
        sandbox.destroy_session(&session).await?;
        destroy.push(begun.elapsed());
    }
    tell("bare python3, print", bare);
    tell("session made", create);
    tell("session made, first output", cold);
    tell("cell round trip", cell);
    tell("destroyed, all gone", destroy);
    close(sandbox).await
}

/// A look at a workspace of 10,000 files, as there is one before and after each call.
async fn files(rounds: usize) -> Fallible<()> {
    let mut settings = settings(None)?;
    settings.limits.workspace_entries = 20_000;
    let sandbox = open(settings).await?;
    let session = session(&sandbox).await?;
    run(&sandbox, &session, "for n in range(10_000): open(f'{n}', 'w').close()").await?;
    let mut looks = vec![];
    for _ in 0..rounds {
        let begun = Instant::now();
        sandbox.list_files(&session).await?;
        looks.push(begun.elapsed());
    }
    tell("10,000 files listed", looks);
    close(sandbox).await
}

/// Sessions that stood ready.
async fn from_the_pool(name: &str, python: &Path, code: &str) -> Fallible<()> {
    let sandbox = open(ProcessSettings { warm_sessions: 1, ..settings(Some(python))? }).await?;
    let mut times = vec![];
    for _ in 0..POOL_ROUNDS {
        ready(&sandbox, 1).await;
        let begun = Instant::now();
        let session = session(&sandbox).await?;
        run(&sandbox, &session, code).await?;
        times.push(begun.elapsed());
        sandbox.destroy_session(&session).await?;
    }
    tell(name, times);
    close(sandbox).await
}

/// The same code in sessions that did not.
async fn with_packages(python: &Path) -> Fallible<()> {
    let sandbox = open(settings(Some(python))?).await?;
    let mut times = vec![];
    for _ in 0..POOL_ROUNDS {
        let begun = Instant::now();
        let session = session(&sandbox).await?;
        run(&sandbox, &session, STACK).await?;
        times.push(begun.elapsed());
        sandbox.destroy_session(&session).await?;
    }
    tell("cold, packages", times);
    close(sandbox).await
}

/// What many sessions with the packages imported take together; what they share counts once.
async fn memory(python: &Path) -> Fallible<()> {
    let sandbox = open(ProcessSettings { warm_sessions: MANY, ..settings(Some(python))? }).await?;
    ready(&sandbox, MANY).await;
    let processes = descendants();
    let pss: u64 = processes.iter().map(|pid| kilobytes(*pid, "Pss:")).sum();
    say(&format!("{MANY} sessions with packages  {:>8} MiB  ({} processes)", pss / 1024, processes.len()));
    close(sandbox).await
}

async fn ready(sandbox: &ProcessSandbox, count: usize) {
    while sandbox.ready() < count {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Every process below this one.
fn descendants() -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers: Vec<u32> = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let parent = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    let below =
        |pid: &u32| std::iter::successors(parent(*pid), |pid| parent(*pid)).any(|pid| pid == std::process::id());
    numbers.into_iter().filter(below).collect()
}

fn kilobytes(pid: u32, name: &str) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn tell(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len() - 1)).copied().unwrap_or_default();
    let [p50, p95, p99] = [50, 95, 99].map(|part| millis(at(part)));
    say(&format!("{name:<28} p50 {p50:>7.2} ms   p95 {p95:>7.2} ms   p99 {p99:>7.2} ms"));
}

#[expect(clippy::print_stdout, reason = "a bench talks to a person")]
fn say(line: &str) {
    println!("{line}");
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
