//! The command `bench`: measures turns, relays and memory of the whole stack and prints one JSON object. `make bench`
//! runs it with release builds and writes the table.

use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use harness::client::{Call, Connection};
use harness::sandbox_stand_in::SandboxStandIn;
use harness::stack::{Fallible, Setup, Stack};
use serde_json::{Value, json};

/// Requests before anything is measured.
const WARM_UP: usize = 200;
/// Length of one measurement.
const MEASURE: Duration = Duration::from_secs(8);
/// Pairs of a relayed and a direct request.
const PAIRS: usize = 3000;
/// Turns in the embedded sandbox.
const COLD_TURNS: usize = 150;
/// Starts of a bare interpreter, for comparison.
const PYTHON_STARTS: usize = 50;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(result) if writeln!(std::io::stdout(), "{result}").is_ok() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(problem) => {
            drop(writeln!(std::io::stderr(), "bench: {problem}"));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Fallible<Value> {
    let sandbox = SandboxStandIn::start("sum 5050\n").await?;
    let http = format!("{{backend: http, url: \"{}\"}}", sandbox.url());
    let quiet = Setup::default().set("log", "{level: warn}").concurrency(1);
    let stack = Stack::start(quiet.clone().set("sandbox", &http)).await?;
    let idle_mib = stack.sidecar().resident_bytes()? / (1024 * 1024);
    let one = turns(&stack, 1).await?;
    let sixteen = turns(&stack, 16).await?;
    let relay = relay(&stack).await?;
    drop(stack);
    let stack = Stack::start(quiet).await?;
    let cold = cold_sessions(&stack).await?;
    Ok(json!({
        "turn_1": one, "turn_16": sixteen, "relay": relay, "sidecar_idle_mib": idle_mib,
        "embedded": {"turn_p50_ms": cold, "python_p50_ms": python_start()?},
    }))
}

fn question(model: &str, user: &str, tools: bool, stream: bool) -> Value {
    let mut request = json!({"model": model, "max_tokens": 1024, "stream": stream, "metadata": {"user_id": user},
        "messages": [{"role": "user", "content": "Add up the numbers to 100."}]});
    if tools {
        request["tools"] = json!([{"type": "code_execution_20250825", "name": "code_execution"}]);
    }
    request
}

/// Time of one request, its answer read to the end.
async fn timed(connection: &mut Connection, request: &Value, key: &str, expected: &str) -> Fallible<Duration> {
    let call = Call::post("/v1/messages", request).bearer(key);
    let start = Instant::now();
    let answer = connection.send(call).await?;
    let took = start.elapsed();
    if answer.status != 200 || !answer.text().contains(expected) {
        return Err(format!("unexpected answer {}: {}", answer.status, answer.text()).into());
    }
    Ok(took)
}

/// Code turns as fast as so many clients can ask for them.
async fn turns(stack: &Stack, clients: usize) -> Fallible<Value> {
    let request = question("messages--code-once", "somebody", true, false);
    let (address, key) = (stack.address(), stack.key());
    let end = Instant::now() + MEASURE;
    let work = (0..clients).map(|_| {
        let request = request.clone();
        async move {
            let mut connection = Connection::open(address).await?;
            for _ in 0..WARM_UP / clients {
                timed(&mut connection, &request, key, "sum 5050").await?;
            }
            let mut times = Vec::new();
            while Instant::now() < end {
                times.push(timed(&mut connection, &request, key, "sum 5050").await?);
            }
            Fallible::Ok(times)
        }
    });
    let start = Instant::now();
    let times: Vec<Duration> = futures_util::future::try_join_all(work).await?.concat();
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    Ok(json!({"p50_ms": median_ms(times), "per_s": rate.round()}))
}

/// A plain streamed request: to the provider by Envoy alone, and relayed by the sidecar, in turns.
async fn relay(stack: &Stack) -> Fallible<Value> {
    let mut connection = Connection::open(stack.address()).await?;
    let direct = question("messages--text", "somebody", false, true);
    // What looks like an id of ours is the sidecar's to judge: it finds nothing to resolve, and relays.
    let relayed = question("messages--text", "otari_srvtoolu_none", false, true);
    let (mut direct_times, mut relayed_times, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..WARM_UP + PAIRS {
        let one = timed(&mut connection, &direct, stack.key(), "message_stop").await?;
        let other = timed(&mut connection, &relayed, stack.key(), "message_stop").await?;
        if pair >= WARM_UP {
            direct_times.push(one);
            relayed_times.push(other);
            added.push(other.saturating_sub(one));
        }
    }
    let (direct, relayed) = (median_ms(direct_times), median_ms(relayed_times));
    Ok(json!({"direct_p50_ms": direct, "relayed_p50_ms": relayed, "added_p50_ms": median_ms(added)}))
}

/// Code turns of one client in the embedded sandbox, a new session each.
async fn cold_sessions(stack: &Stack) -> Fallible<f64> {
    let request = question("messages--code-once", "somebody", true, false);
    let mut connection = Connection::open(stack.address()).await?;
    let mut times = Vec::new();
    for _ in 0..COLD_TURNS {
        times.push(timed(&mut connection, &request, stack.key(), "sum 5050").await?);
    }
    Ok(median_ms(times))
}

fn python_start() -> Fallible<f64> {
    let mut times = Vec::new();
    for _ in 0..PYTHON_STARTS {
        let start = Instant::now();
        let status = Command::new("python3").args(["-I", "-S", "-c", "print(1)"]).stdout(Stdio::null()).status()?;
        if !status.success() {
            return Err("python3 does not run".into());
        }
        times.push(start.elapsed());
    }
    Ok(median_ms(times))
}

/// The median in milliseconds, to three places.
fn median_ms(mut times: Vec<Duration>) -> f64 {
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    (median.as_secs_f64() * 1_000_000.0).round() / 1000.0
}
