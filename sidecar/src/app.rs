//! Puts the parts together, runs them, and takes them down in good order; the only place that knows concrete types.
//!
//! INVARIANT: when `run` returns, no request is served any more and every sandbox session has been handed back.

mod containers;
mod contract;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use decision::config::IdentityConfig;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::attachments::{Attachments, Readings};
use crate::clock::Clock;
use crate::config::{Config, ListenAddress, SandboxBackendConfig, Secret};
use crate::containers::Containers;
use crate::extract::Extractor;
use crate::files::{FileStore, Files, FilesError, StoreError, Sweeper};
use crate::http::listener::{Ending, Listener, ListenerLimits};
use crate::http::{BodyBudget, Services, router};
use crate::ids::IdSource;
use crate::keys::{self, KeyError};
use crate::policy::{PolicyBasis, PolicyHolder};
use crate::private;
use crate::repository::{Repository, RepositoryError};
use crate::sandbox::process::{ProcessSandbox, ProcessSettings, StartupRefusal};
use crate::sandbox::remote::{HttpSandbox, HttpSettingsError};
use crate::sandbox::{Reaper, SandboxBackend};
use crate::stored::StoredResponses;
use crate::telemetry::{self, Metrics};
use crate::tool_loop::{Engine, Memory};
use crate::upstream::{ModelClient, ModelTarget, UpstreamError};
use contract::{Serving, drain};

pub use contract::SandboxDaemon;

/// Why the sidecar does not start.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The data folder cannot be made.
    #[error("data_dir {path} cannot be used", path = .path.display())]
    DataDir {
        /// The folder.
        path: std::path::PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The sidecar cannot listen.
    #[error("sidecar_listen {address} cannot be listened on")]
    Listen {
        /// Where.
        address: ListenAddress,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The sandbox cannot be served.
    #[error("sandbox.serve: {address} cannot be listened on")]
    Serve {
        /// Where.
        address: ListenAddress,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is no sandbox of its own, or nowhere to serve it.
    #[error(
        "sandboxd serves the embedded sandbox: set `sandbox.serve`, such as unix:/run/otari/sandbox.sock, and leave \
         `sandbox.backend` at embedded"
    )]
    NothingToServe,
    /// A key or a secret.
    #[error("the keys cannot be set up")]
    Keys(#[from] KeyError),
    /// The database.
    #[error("the database cannot be used")]
    Repository(#[from] RepositoryError),
    /// The way to the models.
    #[error("the model client cannot be set up")]
    Models(#[source] UpstreamError),
    /// The embedded sandbox.
    #[error(transparent)]
    Sandbox(StartupRefusal),
    /// The store of files.
    #[error("files.url: the store cannot be opened")]
    Files(#[source] StoreError),
    /// A sweep over files.
    #[error("the files could not be swept")]
    Sweep(#[source] FilesError),
    /// The client of a contract-v1 server.
    #[error("the sandbox's client cannot be set up")]
    RemoteSandbox(#[source] HttpSettingsError),
}

/// What comes in from outside: a test brings its own.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub ids: Arc<dyn IdSource>,
    /// The program `otari-sidecar`, which reads documents in processes of its own.
    pub program: PathBuf,
}

/// Everything, ready to serve.
#[derive(Debug)]
pub struct App {
    services: Arc<Services>,
    stored: StoredResponses,
    containers: Option<Containers>,
    listener: Listener,
    limits: ListenerLimits,
    serving: Option<Serving>,
    embedded: Option<Arc<ProcessSandbox>>,
    poll: Duration,
    sweep_interval: Option<Duration>,
    drain_timeout: Duration,
    /// Connections and code turns: what a drain waits for.
    requests: TaskTracker,
    /// What serves them: accept loop, snapshot, sweep, reaper.
    background: TaskTracker,
}

impl App {
    /// Opens everything and listens; serves nothing yet.
    pub async fn build(config: &Config, parts: Parts) -> Result<Self, AppError> {
        let hop_secret = hop_secret(config, &*parts.ids)?;
        let repository = open_repository_to_serve(config, &parts).await?;
        let Sandbox { backend: sandbox, embedded } = build_sandbox(config, &parts).await?;
        let basis = policy_basis(config, sandbox.is_some());
        let policy = PolicyHolder::start(repository.clone(), Arc::clone(&parts.clock), basis).await?;
        let (requests, background) = (TaskTracker::new(), TaskTracker::new());
        let models = ModelClient::new(model_target(config), config.upstream).map_err(AppError::Models)?;
        let reaper = sandbox.as_ref().map(|sandbox| reaper(config, sandbox, &background));
        let metrics = Metrics::new();
        let containers =
            reaper.clone().map(|reaper| containers::build(config, &parts, &repository, reaper, &metrics, &requests));
        let (stored, keeping) = StoredResponses::new(repository.clone(), Arc::clone(&parts.clock), config.stored);
        background.spawn(keeping);
        let files = open_files(config, &parts, &repository, &requests)?;
        let engine = Arc::new(Engine {
            models: models.clone(),
            reaper,
            containers: containers.clone(),
            clock: Arc::clone(&parts.clock),
            ids: Arc::clone(&parts.ids),
            limits: config.tool_loop,
            stored: (!config.stored.retention.is_zero()).then(|| stored.clone()),
            files: files.clone(),
            memory: Arc::new(Memory::new(config.tool_loop.memory)),
            tasks: requests.clone(),
        });
        let listener = bind(&config.sidecar_listen).await?;
        let services = Arc::new(Services {
            filter_config: config.filter_config(&hop_secret),
            hop_secret,
            master_key: config.master_key.clone(),
            body_timeout: config.http.body_timeout,
            body_deadline: config.http.body_deadline,
            upload_deadline: config.http.upload_deadline,
            upload_min_bytes_per_s: config.http.upload_min_bytes_per_s,
            bodies: BodyBudget::new(config.http.max_buffered_bytes, config.http.max_buffered_bytes_per_workspace),
            exec_timeout_s: config.sandbox.exec_timeout_s,
            repository,
            policy: Arc::new(policy),
            models,
            engine,
            sandbox,
            attachments: attachments(config, &parts, files.clone()),
            files,
            containers: containers.clone(),
            metrics,
            clock: parts.clock,
            ids: parts.ids,
        });
        let serving = serving(config, embedded.as_ref(), &services, &requests).await?;
        let (poll, drain_timeout) = (config.policy.poll, config.http.drain_timeout);
        let sweep_interval = config.files.as_ref().and_then(|files| files.sweep_interval);
        Ok(Self {
            services,
            stored,
            containers,
            listener,
            limits: listener_limits(config),
            serving,
            embedded,
            poll,
            sweep_interval,
            drain_timeout,
            requests,
            background,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> &ListenAddress {
        self.listener.address()
    }

    /// Serves until `stop` is ready, then drains.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let ending = Ending::default();
        let repository = self.services.repository.clone();
        let policy = Arc::clone(&self.services.policy);
        self.background.spawn(policy.keep_fresh(self.poll, ending.stop.clone()));
        self.background.spawn(self.stored.sweep(ending.stop.clone()));
        if let Some(containers) = self.containers.clone() {
            self.background.spawn(containers.sweep(ending.stop.clone()));
        }
        if let Some(files) = self.services.files.clone() {
            let sweeper = Sweeper::new(&files, self.services.metrics.clone());
            self.background.spawn(look_after(files, sweeper, self.sweep_interval, ending.stop.clone()));
        }
        let served = self.listener.serve(router(self.services), self.limits, ending.clone(), self.requests.clone());
        self.background.spawn(served);
        if let Some(serving) = self.serving {
            tracing::info!(address = %serving.address(), "serving the sandbox by contract v1");
            self.background.spawn(serving.serve(ending.clone()));
        }
        stop.await;
        drain(&self.requests, &ending, self.drain_timeout).await;
        if let Some(containers) = self.containers {
            containers.shut().await;
        }
        // With the last request went the last handle on the reaper; it ends when every session is destroyed.
        self.background.close();
        if tokio::time::timeout(self.drain_timeout, self.background.wait()).await.is_err() {
            tracing::error!("http.drain_timeout_ms is over: sandbox sessions may be left");
        }
        if let Some(sandbox) = self.embedded {
            sandbox.shut().await;
        }
        repository.close().await;
        tracing::info!("stopped");
    }
}

async fn bind(address: &ListenAddress) -> Result<Listener, AppError> {
    Listener::bind(address).await.map_err(|source| AppError::Listen { address: address.clone(), source })
}

fn listener_limits(config: &Config) -> ListenerLimits {
    ListenerLimits {
        max_connections: config.http.max_connections,
        header_timeout: config.http.header_timeout,
        stall_timeout: config.http.stall_timeout,
    }
}

fn policy_basis(config: &Config, sandbox_available: bool) -> PolicyBasis {
    PolicyBasis {
        default_executor: config.code_execution_executor,
        sandbox_available,
        allowed_images: config.sandbox.allowed_images.clone(),
        withheld: [&config.master_key, &config.bootstrap_key].into_iter().flatten().map(Secret::sha256).collect(),
        max_age: config.policy.max_age,
    }
}

fn model_target(config: &Config) -> ModelTarget {
    match &config.model_url {
        Some(url) => ModelTarget::Url(url.clone()),
        None => ModelTarget::Unix(config.model_socket()),
    }
}

/// The contract's server, if the config wants one and there is a sandbox of our own behind it.
async fn serving(
    config: &Config,
    embedded: Option<&Arc<ProcessSandbox>>,
    services: &Services,
    requests: &TaskTracker,
) -> Result<Option<Serving>, AppError> {
    let (Some(serve), Some(sandbox)) = (&config.sandbox.serve, embedded) else { return Ok(None) };
    let (sandbox, ids, bodies) = (Arc::clone(sandbox), Arc::clone(&services.ids), services.bodies.clone());
    Ok(Some(Serving::build(serve, &config.http, sandbox, ids, bodies, requests.clone()).await?))
}

fn reaper(config: &Config, sandbox: &Arc<dyn SandboxBackend>, background: &TaskTracker) -> Reaper {
    let (reaper, work) = Reaper::new(Arc::clone(sandbox), config.sandbox.max_sessions_per_workspace);
    background.spawn(work);
    reaper
}

/// The same with the first key, which is made by who serves, not by commands beside it, whose environment may be another.
async fn open_repository_to_serve(config: &Config, parts: &Parts) -> Result<Repository, AppError> {
    let repository = open_repository(config, parts).await?;
    if config.identity == IdentityConfig::OtariKey {
        let (given, file) = (config.bootstrap_key.as_ref(), config.bootstrap_key_file());
        keys::ensure_bootstrap(&repository, &*parts.ids, given, &file).await?;
    }
    Ok(repository)
}

/// Opens the database of this config and makes the default owner.
pub async fn open_repository(config: &Config, parts: &Parts) -> Result<Repository, AppError> {
    make_data_dir(config)?;
    let repository = Repository::open(&config.database, Arc::clone(&parts.clock)).await?;
    keys::ensure_default_owner(&repository).await?;
    Ok(repository)
}

/// The secret between Envoy and sidecar, made if this is the first to need it.
pub fn hop_secret(config: &Config, ids: &dyn IdSource) -> Result<Secret, AppError> {
    make_data_dir(config)?;
    match &config.hop_secret {
        Some(secret) => Ok(secret.clone()),
        None => Ok(keys::secret_file(&config.hop_secret_file(), || Secret::new(ids.hex128() + &ids.hex128()))?),
    }
}

/// The sandbox's user, who is not ours when we are root, passes through it to reach its sessions. So everything secret in
/// it is private by its own mode.
fn make_data_dir(config: &Config) -> Result<(), AppError> {
    let embedded = matches!(config.sandbox.backend, SandboxBackendConfig::Embedded(_));
    let passable = embedded && rustix::process::geteuid().is_root();
    private::folder(&config.data_dir, passable)
        .map_err(|source| AppError::DataDir { path: config.data_dir.clone(), source })
}

/// Opens the files of this config; `None` when they are off. `tasks`: where uploads run, for a drain to wait for.
pub fn open_files(
    config: &Config,
    parts: &Parts,
    repository: &Repository,
    tasks: &TaskTracker,
) -> Result<Option<Files>, AppError> {
    let Some(files) = &config.files else { return Ok(None) };
    let store = FileStore::open(&files.store, files.limits.max_bytes, tasks.clone()).map_err(AppError::Files)?;
    let (repository, ids, limits) = (repository.clone(), Arc::clone(&parts.ids), files.limits.clone());
    Ok(Some(Files::new(repository, store, ids, limits, tasks.clone())))
}

/// What files need besides requests: a store that is known to be theirs, and the sweep.
async fn look_after(files: Files, sweeper: Sweeper, every: Option<Duration>, stop: CancellationToken) {
    if let Some(Err(error)) = stop.run_until_cancelled(files.mark_store()).await {
        tracing::error!(error = telemetry::chain(&error), "files.url: the store does not answer");
    }
    if let Some(every) = every {
        sweeper.run(every, stop).await;
    }
}

fn attachments(config: &Config, parts: &Parts, files: Option<Files>) -> Attachments {
    let limits = config.files.as_ref().map(|files| files.attachments).unwrap_or_default();
    let extraction = config.files.as_ref().and_then(|files| files.extraction);
    let extractor = extraction.map(|limits| Extractor::new(parts.program.clone(), limits));
    Attachments { files, extractor, limits, readings: Readings::default() }
}

/// Where code runs.
struct Sandbox {
    backend: Option<Arc<dyn SandboxBackend>>,
    /// The same, if it is of this host.
    embedded: Option<Arc<ProcessSandbox>>,
}

async fn build_sandbox(config: &Config, parts: &Parts) -> Result<Sandbox, AppError> {
    match &config.sandbox.backend {
        SandboxBackendConfig::None => Ok(Sandbox { backend: None, embedded: None }),
        SandboxBackendConfig::Embedded(settings) => {
            let settings = ProcessSettings::clone(settings);
            let (ids, clock) = (Arc::clone(&parts.ids), Arc::clone(&parts.clock));
            let started = Box::pin(ProcessSandbox::start(settings, ids, clock)).await.map_err(AppError::Sandbox)?;
            Ok(Sandbox { backend: Some(Arc::clone(&started) as _), embedded: Some(started) })
        }
        SandboxBackendConfig::Http(settings) => {
            let client = HttpSandbox::new(settings.clone()).map_err(AppError::RemoteSandbox)?;
            Ok(Sandbox { backend: Some(Arc::new(client)), embedded: None })
        }
    }
}
