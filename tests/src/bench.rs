//! What the sidecar costs, measured without Envoy: an instant model, a sandbox that answers at once, and clients that
//! keep their connections. Everything runs on this machine, so that only ratios and orders of magnitude mean something.

pub mod files;
mod instant;
mod pace;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use decision::format::ApiFormat::{self, ChatCompletions, Messages, Responses};
use serde_json::{Value, json};

use crate::client::{Call, Connection, Target};
use crate::stack::Fallible;

/// Proof towards the sidecar that we are its Envoy.
const HOP_SECRET: &str = "the hop secret of a measurement, made for one run";
/// How long the sidecar may take to come up.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Requests before the clock starts, for each client.
const WARM_UP: usize = 50;
/// Requests of one client; with more clients each sends as many.
const TURNS: usize = 200;
/// Measurements of every pair of wires.
const ROUNDS: usize = 3;
/// Requests of the relay, each way.
const RELAYS: usize = 1_500;

/// A running sidecar with its two stand-ins.
struct Bench {
    socket: PathBuf,
    model: std::net::SocketAddr,
    sidecar: Child,
    _folder: tempfile::TempDir,
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(self.sidecar.kill());
        drop(self.sidecar.wait());
    }
}

impl Bench {
    async fn start(program: PathBuf) -> Fallible<Self> {
        let folder = tempfile::tempdir()?;
        let (model, sandbox) = (instant::model().await?, instant::sandbox().await?);
        let config = folder.path().join("otari.yaml");
        std::fs::write(
            &config,
            format!(
                "data_dir: {}\nidentity: {{mode: none}}\nmodel_url: http://{model}\n\
                 hop_secret_env: BENCH_HOP_SECRET\nlog: {{level: warn}}\n\
                 sandbox: {{backend: http, url: \"http://{sandbox}\", max_sessions: 256}}\n\
                 providers:\n  \
                   messages: {{type: openai_compatible, base_url: \"http://{model}\", wires: [messages]}}\n  \
                   chat: {{type: openai_compatible, base_url: \"http://{model}\", wires: [chat_completions]}}\n  \
                   responses: {{type: openai_compatible, base_url: \"http://{model}\", wires: [responses]}}\n\
                 models:\n  - {{match: \"chat*\", provider: chat}}\n  - {{match: \"responses*\", provider: responses}}\n  \
                 - {{match: \"*\", provider: messages}}\n",
                folder.path().join("data").display()
            ),
        )?;
        let sidecar = Command::new(program)
            .args(["serve", "--config"])
            .arg(&config)
            .env("BENCH_HOP_SECRET", HOP_SECRET)
            .stdin(Stdio::null())
            .spawn()?;
        let socket = folder.path().join("data/sidecar.sock");
        let bench = Self { socket, model, sidecar, _folder: folder };
        bench.wait_until_ready().await?;
        Ok(bench)
    }

    async fn wait_until_ready(&self) -> Fallible<()> {
        let begun = Instant::now();
        while begun.elapsed() < READY_WITHIN {
            if self.socket.exists()
                && let Ok(answer) = Call::get("/healthz").send(Target::Unix(self.socket.clone())).await
                && answer.status == 200
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err("the sidecar did not come up".into())
    }

    /// Whole or streamed code turns of `clients` at once: times of all turns, and how long it took together.
    async fn turns(&self, clients: usize, wire: ApiFormat, model: &str, stream: bool) -> Fallible<Value> {
        let body = instant::code_request(wire, model, stream);
        let path = path(wire);
        let mut connections = Vec::new();
        for _ in 0..clients {
            let mut client = Connection::open(Target::Unix(self.socket.clone())).await?;
            for _ in 0..WARM_UP {
                timed(&mut client, path, &body, instant::is_code_answer).await?;
            }
            connections.push(client);
        }
        let begun = Instant::now();
        let work = connections.into_iter().map(|mut client| {
            let body = body.clone();
            async move {
                let mut times = Vec::with_capacity(TURNS);
                for _ in 0..TURNS {
                    times.push(timed(&mut client, path, &body, instant::is_code_answer).await?);
                }
                Fallible::Ok(times)
            }
        });
        let times: Vec<Duration> = futures_util::future::try_join_all(work).await?.into_iter().flatten().collect();
        let per_second = whole(times.len()) / begun.elapsed().as_secs_f64();
        Ok(json!({"p50_ms": millis(median(times)), "per_second": per_second.round()}))
    }

    /// Rates of whole turns at 16 clients, every two wires with each other, in rounds so that a busy moment hits them all.
    async fn pairs(&self) -> Fallible<Value> {
        let wires = [Messages, ChatCompletions, Responses];
        let mut rates = serde_json::Map::new();
        for _ in 0..ROUNDS {
            for caller in wires {
                for model in wires {
                    let turns = self.turns(16, caller, model_of(model), false).await?;
                    let name = format!("{} → {}", word(caller), word(model));
                    let rate = rates.entry(name).or_insert_with(|| json!([]));
                    rate.as_array_mut().into_iter().for_each(|list| list.push(turns["per_second"].clone()));
                }
            }
        }
        Ok(rates.into())
    }

    /// A plain streamed request, alternately straight to the model and through the sidecar.
    async fn relay(&self) -> Fallible<Value> {
        let body = instant::plain_request();
        let mut through = Connection::open(Target::Unix(self.socket.clone())).await?;
        let mut straight = Connection::open(self.model).await?;
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for round in 0..RELAYS {
            let pair = [
                timed(&mut straight, path(Messages), &body, instant::is_plain_answer).await?,
                timed(&mut through, path(Messages), &body, instant::is_plain_answer).await?,
            ];
            if round >= WARM_UP {
                without.push(pair[0]);
                with.push(pair[1]);
            }
        }
        let (with, without) = (millis(median(with)), millis(median(without)));
        Ok(json!({"straight_p50_ms": without, "relayed_p50_ms": with, "added_p50_ms": round(with - without)}))
    }

    /// Small events at a pace on many streams, straight from the model and through the sidecar, in turns.
    async fn paced(&self) -> Fallible<Value> {
        let hop = [("anthropic-version", "2023-06-01"), ("x-otari-hop", HOP_SECRET)];
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            without.push(percentile_99(pace::delays(self.model.into(), &hop).await?));
            with.push(percentile_99(pace::delays(Target::Unix(self.socket.clone()), &hop).await?));
        }
        let (with, without) = (millis(median(with)), millis(median(without)));
        Ok(json!({"straight_p99_ms": without, "relayed_p99_ms": with, "added_p99_ms": round(with - without)}))
    }

    /// Resident memory of the sidecar in MiB.
    fn resident_mib(&self) -> Fallible<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.sidecar.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok((kib / 1024.0).round())
    }
}

/// Measures `program`, a release build of the sidecar.
pub async fn run(program: PathBuf) -> Fallible<Value> {
    let bench = Bench::start(program).await?;
    let idle_mib = bench.resident_mib()?;
    Ok(json!({
        "idle_mib": idle_mib,
        "turn_1_client": bench.turns(1, Messages, "instant", false).await?,
        "turn_16_clients": bench.turns(16, Messages, "instant", false).await?,
        "turn_16_clients_streamed": bench.turns(16, Messages, "instant", true).await?,
        "pairs": bench.pairs().await?,
        "relay": bench.relay().await?,
        "paced": bench.paced().await?,
        "after_mib": bench.resident_mib()?,
    }))
}

/// Time of one request, its answer read to the end; `right` says whether it is the one expected.
async fn timed(connection: &mut Connection, path: &str, body: &Bytes, right: fn(&[u8]) -> bool) -> Fallible<Duration> {
    let call = Call::post_bytes(path, body.clone())
        .header("anthropic-version", "2023-06-01")
        .header("x-otari-hop", HOP_SECRET);
    let begun = Instant::now();
    let answer = connection.send(call).await?;
    let time = begun.elapsed();
    if answer.status == 200 && right(&answer.body) {
        Ok(time)
    } else {
        Err(format!("a wrong answer, {}: {}", answer.status, answer.text()).into())
    }
}

fn path(wire: ApiFormat) -> &'static str {
    match wire {
        Messages => "/v1/messages",
        ChatCompletions => "/v1/chat/completions",
        Responses => "/v1/responses",
    }
}

/// The instant model that is served in this wire alone.
fn model_of(wire: ApiFormat) -> &'static str {
    match wire {
        Messages => "instant",
        ChatCompletions => "chat-instant",
        Responses => "responses-instant",
    }
}

fn word(wire: ApiFormat) -> &'static str {
    match wire {
        Messages => "Messages",
        ChatCompletions => "Chat Completions",
        Responses => "Responses",
    }
}

fn percentile_99(mut nanoseconds: Vec<u64>) -> Duration {
    nanoseconds.sort_unstable();
    Duration::from_nanos(nanoseconds.get(nanoseconds.len() * 99 / 100).copied().unwrap_or_default())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    round(time.as_secs_f64() * 1000.0)
}

/// To a hundredth.
fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

fn whole(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}
