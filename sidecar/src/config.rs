//! The one file that drives sidecar, filter and Envoy, checked whole before anything starts.
//!
//! INVARIANT: only this module reads the environment, and a `Config` that exists has no problem left in it.

mod base_url;
mod containers;
mod environment;
mod files;
pub mod keys;
mod models;
mod problem;
mod read;
mod reader;
pub mod reference;
mod sandbox;
mod share;
mod tool_loop;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use decision::config::{FilterConfig, IdentityConfig, ModelRule, ModelTable, PolicySource, ProviderInfo, ProviderKind};
use decision::format::ApiFormat;
use decision::policy::Preference;

use crate::attachments::AttachmentLimits;
use crate::containers::ContainerLimits;
use crate::extract::ExtractLimits;
use crate::files::{FilesLimits, StoreTarget};
use crate::repository::Database;
use crate::sandbox::process::ProcessSettings;
use crate::sandbox::remote::{HttpLimits, HttpSettings};
use crate::stored::StoredLimits;
use crate::tool_loop::Limits;
use crate::upstream::ModelLimits;

pub use base_url::BaseUrl;
pub use environment::{Environment, Secret};
pub use problem::ConfigProblem;

/// Path of the snapshot on the sidecar's listener.
pub const SNAPSHOT_PATH: &str = "/otari/internal/snapshot";
/// Name of the sidecar's cluster in Envoy.
pub const SIDECAR_CLUSTER: &str = "sidecar";
/// What Envoy calls the sidecar in `:authority` and `host`.
pub const SIDECAR_AUTHORITY: &str = "sidecar.otari.internal";

/// Everything the parts need to know, typed.
#[derive(Debug, Clone)]
pub struct Config {
    /// Envoy's public listener.
    pub listen: SocketAddr,
    /// Folder of everything kept, absolute.
    pub data_dir: PathBuf,
    /// The database.
    pub database: Database,
    /// Where the sidecar listens.
    pub sidecar_listen: ListenAddress,
    /// In a mesh: where model calls go instead of [`Config::model_socket`]. Ends without a slash.
    pub model_url: Option<String>,
    /// The secret between Envoy and sidecar, if the environment gives it; else it is kept in [`Config::hop_secret_file`].
    pub hop_secret: Option<Secret>,
    /// Longest request body on the model routes.
    pub max_body_bytes: u64,
    /// Prefixes of the API, such as `/v1`.
    pub roots: Vec<String>,
    /// Who runs declared code by default.
    pub code_execution_executor: Preference,
    /// Whether anybody may ask the filter what it would decide, and without identity the sidecar too.
    pub explain: bool,
    /// How callers are known.
    pub identity: IdentityConfig,
    /// Who the providers are.
    pub providers: BTreeMap<String, Provider>,
    /// Which model is whose; the first match wins.
    pub models: Vec<ModelRule>,
    /// How the snapshot travels.
    pub policy: PolicyConfig,
    /// Where code runs.
    pub sandbox: SandboxConfig,
    /// Where files are kept, and how many; `None` when they are off.
    pub files: Option<FilesConfig>,
    /// Limits of the tool loop.
    pub tool_loop: Limits,
    /// Which sandbox sessions are kept between requests.
    pub containers: ContainerLimits,
    /// What is kept of answers that callers may go on from.
    pub stored: StoredLimits,
    /// Patience with models.
    pub upstream: ModelLimits,
    /// Limits of the sidecar's listener.
    pub http: HttpConfig,
    /// The log.
    pub log: LogConfig,
    /// `OTARI_BOOTSTRAP_KEY`.
    pub bootstrap_key: Option<Secret>,
    /// `OTARI_MASTER_KEY`; without it the admin routes are off.
    pub master_key: Option<Secret>,
    /// What was set and changes nothing, a sentence each; whoever set it is to be told.
    pub warnings: Vec<String>,
}

/// Where a listener listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// A Unix socket, absolute path.
    Unix(PathBuf),
    /// A TCP address; a secret alone protects it.
    Tcp(SocketAddr),
}

/// One provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// What it is, and so what it runs natively.
    pub kind: ProviderKind,
    /// Its address; `None` in a mesh, which has routes of its own.
    pub base_url: Option<BaseUrl>,
    /// Variable with the operator's own credential, for Envoy to add.
    pub api_key_env: Option<String>,
    /// Wires it serves, most natural first.
    pub wires: Vec<ApiFormat>,
}

/// `policy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyConfig {
    /// How often to look for changes.
    pub poll: Duration,
    /// How long an unconfirmed snapshot counts.
    pub max_age: Duration,
    /// Pins by workspace that need no database.
    pub static_pins: BTreeMap<String, Preference>,
}

/// `sandbox`.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// Where code runs.
    pub backend: SandboxBackendConfig,
    /// Wall clock of one execution, seconds.
    pub exec_timeout_s: u32,
    /// Sessions alive at once.
    pub max_sessions: usize,
    /// Sessions alive at once of one workspace.
    pub max_sessions_per_workspace: usize,
    /// Images a workspace's policy may name.
    pub allowed_images: Vec<String>,
    /// Where the embedded sandbox is served to others, if anywhere.
    pub serve: Option<ServeConfig>,
    /// How a contract-v1 server is talked to, whichever.
    pub http: HttpLimits,
}

/// `sandbox.serve` and what belongs to it.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// Where to listen.
    pub address: ListenAddress,
    /// What callers must bring; never absent for a TCP address.
    pub token: Option<Secret>,
    /// Where other replicas reach it.
    pub advertise_url: Option<String>,
}

/// `sandbox.backend` and what belongs to each.
#[derive(Debug, Clone)]
pub enum SandboxBackendConfig {
    /// Processes of this host.
    Embedded(Box<ProcessSettings>),
    /// A contract-v1 server.
    Http(HttpSettings),
    /// Nowhere.
    None,
}

/// `files`.
#[derive(Debug, Clone)]
pub struct FilesConfig {
    /// Where blobs are kept.
    pub store: StoreTarget,
    /// How much there may be.
    pub limits: FilesLimits,
    /// How much of them models are shown.
    pub attachments: AttachmentLimits,
    /// How documents are read as text; `None`: not at all.
    pub extraction: Option<ExtractLimits>,
    /// How often the sweep runs; `None`: never.
    pub sweep_interval: Option<Duration>,
}

/// `http`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Connections at once.
    pub max_connections: usize,
    /// Bytes of request bodies held at once, over all connections.
    pub max_buffered_bytes: u64,
    /// Of these, those of one workspace's requests.
    pub max_buffered_bytes_per_workspace: u64,
    /// Longest time for a request's head.
    pub header_timeout: Duration,
    /// Longest silence inside a request's body.
    pub body_timeout: Duration,
    /// Longest time of a whole request body, at the filter and here.
    pub body_deadline: Duration,
    /// Longest time of a whole upload, at Envoy and here: `files.upload_deadline_ms`.
    pub upload_deadline: Duration,
    /// Slowest upload, on the whole; 0: any.
    pub upload_min_bytes_per_s: u64,
    /// Longest time in which nothing of an answer can be sent on.
    pub stall_timeout: Duration,
    /// How long a stop waits for open requests, and again for sandboxes.
    pub drain_timeout: Duration,
}

/// `log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// JSON lines instead of text.
    pub json: bool,
    /// Directives.
    pub level: String,
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl Config {
    /// Reads and checks the file, then the environment over it. Every problem found is in the answer.
    pub fn load(path: &Path, env: &Environment) -> Result<Self, Vec<ConfigProblem>> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let fix = format!("the file cannot be read ({error}); name a readable one with --config");
            vec![ConfigProblem::new("(file)", path.display().to_string(), fix)]
        })?;
        Self::parse(&text, env)
    }

    /// Checks the text of a file, then the environment over it.
    pub fn parse(text: &str, env: &Environment) -> Result<Self, Vec<ConfigProblem>> {
        read::read(text, env)
    }

    /// The filter's plugin configuration; the sidecar decides by the same one.
    pub fn filter_config(&self, hop_secret: &Secret) -> FilterConfig {
        let providers = self.providers.iter().map(|(name, provider)| {
            (name.clone(), ProviderInfo { kind: provider.kind, wires: provider.wires.clone() })
        });
        FilterConfig {
            identity: self.identity.clone(),
            models: ModelTable { providers: providers.collect(), rules: self.models.clone() },
            roots: self.roots.clone(),
            max_body_bytes: self.max_body_bytes,
            max_buffered_bytes: self.http.max_buffered_bytes,
            body_deadline_ms: milliseconds(self.http.body_deadline),
            policy: PolicySource {
                cluster: SIDECAR_CLUSTER.to_owned(),
                authority: SIDECAR_AUTHORITY.to_owned(),
                path: SNAPSHOT_PATH.to_owned(),
                poll_ms: milliseconds(self.policy.poll),
                max_age_ms: milliseconds(self.policy.max_age),
                hop_secret: hop_secret.expose().to_owned(),
            },
            static_pins: self.policy.static_pins.clone(),
            providers_routed: self.model_url.is_none(),
            explain: self.explain,
        }
    }

    /// Envoy's listener for the sidecar's model calls: it adds the operator's credentials, so it is a socket of ours.
    pub fn model_socket(&self) -> PathBuf {
        self.data_dir.join("model.sock")
    }

    /// Envoy's admin interface: whoever reaches it can stop Envoy, so it is a socket of ours.
    pub fn admin_socket(&self) -> PathBuf {
        self.data_dir.join("admin.sock")
    }

    /// Where the first key is kept unless the environment gives it.
    pub fn bootstrap_key_file(&self) -> PathBuf {
        self.data_dir.join("bootstrap-key")
    }

    /// Where the secret between Envoy and sidecar is kept unless the environment gives it.
    pub fn hop_secret_file(&self) -> PathBuf {
        self.data_dir.join("hop-secret")
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
