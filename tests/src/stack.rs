//! The whole product on one machine: scripted model, sidecar and Envoy, each a real process in a folder of its own.
//!
//! INVARIANT: when a `Stack` is dropped its processes are gone; when that happens in a failing test, their logs are shown.

mod binaries;
mod part;
mod process;
mod setup;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use services::spawner;
use tempfile::TempDir;

use crate::client::{Answer, Call, Target};
use crate::scripted_model::Record;

pub use binaries::{binary, envoy, filter_wasm};
pub use part::Part;
pub use process::{Process, descendants};
pub use setup::{Place, Setup};

/// Longest wait until `/healthz` answers 200.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// Pause between two looks at something that is about to happen.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Attempts at finding a port that stays free between being chosen and being bound.
const PORT_ATTEMPTS: usize = 5;

/// A failure of the harness itself, never of what is tested.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A running product.
#[derive(Debug)]
pub struct Stack {
    // Fields drop in this order: the entry first, the folder last.
    envoy: Part,
    sidecar: Part,
    model: Part,
    address: SocketAddr,
    model_address: SocketAddr,
    dir: TempDir,
}

impl Stack {
    /// Starts everything and waits until a request can be served.
    pub async fn start(setup: Setup) -> Fallible<Self> {
        let dir = tempfile::Builder::new().prefix("otari-").tempdir()?;
        let model = start_model(dir.path())?;
        let model_address = model.announced_address()?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let address = free_address()?;
            let config = dir.path().join("otari.yaml");
            setup.write(dir.path(), address, model_address)?;
            let sidecar = setup.start_sidecar(dir.path(), &config)?;
            let envoy = setup.start_envoy(dir.path(), &config)?;
            match wait_until_ready(address, &sidecar, &envoy).await {
                Ok(()) => return Ok(Self { envoy, sidecar, model, address, model_address, dir }),
                Err(problem) if attempts < PORT_ATTEMPTS && envoy.log().contains("Address already in use") => {
                    drop(problem);
                }
                Err(problem) => {
                    return Err(format!("{problem}\n{}\n{}", sidecar.log_tail(), envoy.log_tail()).into());
                }
            }
        }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for an SDK.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The otari key of user and workspace `default`.
    pub fn key(&self) -> &'static str {
        setup::BOOTSTRAP_KEY
    }

    /// Makes a key for this user of a workspace, which is made too if it is new.
    pub fn make_key(&self, user: &str, workspace: &str) -> Fallible<String> {
        let mut command = spawner::leashed(&binary("otari-sidecar")?);
        command.args(["keys", "create", "--create-workspace", "--user", user, "--workspace", workspace]);
        command.arg("--config").arg(self.dir.path().join("otari.yaml")).stdout(Stdio::piped());
        let output = command.spawn()?.wait_with_output()?;
        if !output.status.success() {
            return Err("`otari-sidecar keys create` failed".into());
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// The admin credential.
    pub fn master_key(&self) -> &'static str {
        setup::MASTER_KEY
    }

    /// The folder with config, logs and `data/`.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// `data_dir`: sockets, database, hop secret.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Envoy's process.
    pub fn envoy(&self) -> &Part {
        &self.envoy
    }

    /// The sidecar's process.
    pub fn sidecar(&self) -> &Part {
        &self.sidecar
    }

    /// The scripted model's process.
    pub fn model(&self) -> &Part {
        &self.model
    }

    /// Sends a request with the bootstrap key through Envoy.
    ///
    /// # Panics
    /// When no whole answer comes.
    pub async fn send(&self, call: Call) -> Answer {
        self.try_send(call).await.unwrap_or_else(|error| panic!("no answer from {}: {error}", self.address))
    }

    /// Like [`Self::send`], for answers that may break off.
    pub async fn try_send(&self, call: Call) -> io::Result<Answer> {
        call.bearer(self.key()).send(self.address).await
    }

    /// What the scripted model received so far.
    pub async fn received(&self) -> Fallible<Vec<Record>> {
        let answer = Call::get("/__scripted/requests").send(self.model_address).await?;
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// Asks Envoy's admin interface.
    pub async fn admin(&self, path: &str) -> io::Result<Answer> {
        Call::get(path).send(Target::Unix(self.data_dir().join("admin.sock"))).await
    }

    /// Envoy's counters and gauges whose name contains this.
    pub async fn stats(&self, filter: &str) -> io::Result<BTreeMap<String, u64>> {
        let answer = self.admin("/stats").await?.text();
        let pairs = answer.lines().filter_map(|line| line.split_once(": "));
        Ok(pairs
            .filter(|(name, _)| name.contains(filter))
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect())
    }

    /// How often a wasm VM had to be loaded again; anything but 0 means that a request trapped it.
    pub async fn vm_reloads(&self) -> io::Result<u64> {
        Ok(self.stats("vm_reload").await?.values().sum())
    }
}

/// Looks again and again until the condition holds; `false` after `limit`.
pub async fn eventually(limit: Duration, mut condition: impl AsyncFnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if condition().await {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn start_model(dir: &Path) -> Fallible<Part> {
    let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let mut command = spawner::leashed(&binary("scripted-model")?);
    command.args(["--scenarios", scenarios]);
    Ok(Part::start("scripted-model", command, dir)?)
}

/// A port that was free a moment ago.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

async fn wait_until_ready(address: SocketAddr, sidecar: &Part, envoy: &Part) -> Result<(), String> {
    let ready = eventually(READY_TIMEOUT, async || {
        !sidecar.is_running()
            || !envoy.is_running()
            || Call::get("/healthz").send(address).await.is_ok_and(|answer| answer.status == 200)
    });
    let ready = ready.await;
    match (sidecar.is_running(), envoy.is_running()) {
        (false, _) => Err("the sidecar ended before it was ready".to_owned()),
        (_, false) => Err("Envoy ended before it was ready".to_owned()),
        (true, true) if !ready => Err(format!("/healthz did not answer 200 within {READY_TIMEOUT:?}")),
        (true, true) => Ok(()),
    }
}
