//! A sidecar in this process, its data in a temporary folder, and a client that speaks to it as Envoy does.

mod client;
mod upstream;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::Value;
use sidecar::app::{App, Parts};
use sidecar::clock::{Clock, SystemClock};
use sidecar::config::{Config, Environment, ListenAddress};
use sidecar::ids::SystemIds;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use client::{Answer, Call};
pub(crate) use upstream::{Recorded, Upstream};

pub(crate) const KEY: &str = "otk_bootstrap_of_the_tests";
pub(crate) const MASTER: &str = "master-key-of-the-tests";
pub(crate) const POLICY: &str = "/v1/workspaces/default/code-execution-policy";

/// A running sidecar. The models of the config: `claude-*` of type anthropic, `gpt-*` of type openai, the rest `local`.
pub(crate) struct Sidecar {
    pub(crate) folder: TempDir,
    pub(crate) config: Config,
    pub(crate) hop_secret: String,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

pub(crate) async fn start() -> Sidecar {
    start_with("").await
}

/// The real clock, real ids, and the program whose processes read documents.
pub(crate) fn parts() -> Parts {
    let program = env!("CARGO_BIN_EXE_otari-sidecar").into();
    Parts { clock: Arc::new(SystemClock), ids: Arc::new(SystemIds), program }
}

/// Starts with these lines added to the config file.
pub(crate) async fn start_with(lines: &str) -> Sidecar {
    let folder = tempfile::tempdir().unwrap();
    start_in(folder, lines).await
}

pub(crate) async fn start_in(folder: TempDir, lines: &str) -> Sidecar {
    start_as(folder, lines, Some(KEY), Arc::new(SystemClock)).await
}

/// Starts with a clock that the test can put forward.
pub(crate) async fn start_with_clock(lines: &str) -> (Sidecar, Arc<ShiftedClock>) {
    let clock = Arc::new(ShiftedClock::default());
    let folder = tempfile::tempdir().unwrap();
    (start_as(folder, lines, Some(KEY), Arc::<ShiftedClock>::clone(&clock)).await, clock)
}

/// The machine's clock, put forward.
#[derive(Debug, Default)]
pub(crate) struct ShiftedClock(AtomicI64);

impl ShiftedClock {
    pub(crate) fn forward(&self, milliseconds: i64) {
        self.0.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

impl Clock for ShiftedClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(SystemClock.now_ms() + self.0.load(Ordering::SeqCst)).unwrap()
    }
}

/// Starts with this key in the environment.
pub(crate) async fn start_with_key(folder: TempDir, key: Option<&str>) -> Sidecar {
    start_as(folder, "", key, Arc::new(SystemClock)).await
}

async fn start_as(folder: TempDir, lines: &str, key: Option<&str>, clock: Arc<dyn Clock>) -> Sidecar {
    let text = config_text(&folder, lines);
    let env: Environment = [("OTARI_MASTER_KEY", MASTER)]
        .into_iter()
        .chain(key.map(|key| ("OTARI_BOOTSTRAP_KEY", key)))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let config = Config::parse(&text, &env).unwrap_or_else(|problems| panic!("{problems:?}"));
    let parts = Parts { clock, ..parts() };
    let app = App::build(&config, parts).await.unwrap();
    let hop_secret = std::fs::read_to_string(config.hop_secret_file()).unwrap().trim().to_owned();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let running = TaskTracker::new().spawn(async move { app.run(stopped.cancelled_owned()).await });
    Sidecar { folder, config, hop_secret, stop, running }
}

pub(crate) fn config_text(folder: &TempDir, lines: &str) -> String {
    let sandbox = if lines.contains("sandbox:") { "" } else { "sandbox: {backend: none}\n" };
    let drain = if lines.contains("http:") { "" } else { "http: {drain_timeout_ms: 5000}\n" };
    let tables = if lines.contains("providers:") { "" } else { TABLES };
    format!("data_dir: {}\n{tables}{sandbox}{drain}{lines}\n", folder.path().display())
}

/// The providers and models of most tests.
const TABLES: &str = r#"
providers:
  anthropic: {type: anthropic}
  openai: {type: openai}
  local: {type: openai_compatible, base_url: "http://127.0.0.1:1"}
models:
  - {match: "claude-*", provider: anthropic}
  - {match: "gpt-*", provider: openai}
  - {match: "alias", provider: local, upstream_model: "real \"name\""}
  - {match: "local-*", provider: local}
"#;

/// What stands in a folder that others may read or write.
pub(crate) fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let open = entries.filter(|entry| entry.metadata().unwrap().permissions().mode() & 0o066 != 0);
    let mut paths: Vec<_> = open.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

impl Sidecar {
    /// A call that carries the hop secret and the bootstrap key.
    pub(crate) fn call(&self, method: &str, path: &str) -> Call {
        self.bare_call(method, path)
            .header("x-otari-hop", &self.hop_secret)
            .header("authorization", &format!("Bearer {KEY}"))
    }

    /// A call of the admin.
    pub(crate) fn admin(&self, method: &str, path: &str) -> Call {
        self.bare_call(method, path).header("x-otari-hop", &self.hop_secret).header("otari-key", MASTER)
    }

    /// A call that carries nothing.
    pub(crate) fn bare_call(&self, method: &str, path: &str) -> Call {
        let ListenAddress::Unix(socket) = &self.config.sidecar_listen else { panic!("the tests use Unix sockets") };
        Call::new(socket, method, path)
    }

    /// A Messages request.
    pub(crate) async fn messages(&self, body: &Value) -> Answer {
        self.call("POST", "/v1/messages").json(body).send().await
    }

    /// Asks it to stop; `stopped` waits for it.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until it has stopped.
    pub(crate) async fn stopped(self) -> TempDir {
        self.stop.cancel();
        self.running.await.unwrap();
        self.folder
    }
}
