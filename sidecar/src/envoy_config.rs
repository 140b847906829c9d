//! Envoy's bootstrap, rendered from the one config file: listeners, routes, clusters, the filter and its limits.
//!
//! INVARIANT: what a client sends can pick neither a cluster nor the sidecar: the headers that do are stripped before
//! the first route match, whether the filter lives or not.

mod base_url;
mod cluster;
mod listener;
mod local_reply;
mod routes;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use decision::config::{FilterConfig, ProviderKind};
use serde_json::{Value, json};

use base_url::BaseUrl;

/// Bundles of system roots, by distribution; the first that exists is used.
const CA_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];
/// Envoy's heap, above which it takes no new request: many bodies of `max_body_bytes` at once are the way there.
const MAX_HEAP_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// Client connections at once.
const MAX_CLIENT_CONNECTIONS: u64 = 10_000;

/// All that the rendering needs to know.
#[derive(Debug, Clone)]
pub struct EnvoyConfigInput {
    /// The public listener.
    pub listen: SocketAddr,
    /// Envoy's admin interface, a Unix socket: whoever reaches it can stop Envoy.
    pub admin_socket: PathBuf,
    /// Where the sidecar listens.
    pub sidecar: ListenAddress,
    /// The model listener, for the sidecar's calls to models; a Unix socket.
    pub model_socket: PathBuf,
    /// What Envoy's routes to the sidecar prove themselves with.
    pub hop_secret: String,
    /// The providers, each a cluster.
    pub providers: Vec<EnvoyProvider>,
    /// Certificates that TLS to providers trusts; [`system_ca_bundle`] finds the system's.
    pub ca_bundle: PathBuf,
    /// The filter's own configuration: identity, models, roots, body limit, policy.
    pub filter: FilterConfig,
    /// `filter.wasm`.
    pub wasm_path: PathBuf,
    /// Times.
    pub timeouts: EnvoyTimeouts,
}

/// Where the sidecar listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// A Unix socket, absolute path.
    Unix(PathBuf),
    /// A TCP address; the hop secret alone protects it.
    Tcp(SocketAddr),
}

/// One provider as Envoy needs it.
#[derive(Debug, Clone)]
pub struct EnvoyProvider {
    /// Its name in the config, `[a-z0-9_-]`.
    pub name: String,
    /// Which header carries its credential.
    pub kind: ProviderKind,
    /// `http[s]://host[:port][/path]`. A path that ends in `/v1` stands for the API's root itself.
    pub base_url: String,
    /// The environment variable with the credential for clients that bring none.
    pub api_key_env: Option<String>,
}

/// Times, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct EnvoyTimeouts {
    /// For a TCP or TLS connection to a provider.
    pub connect_s: u32,
    /// Without a byte in either direction on a stream. Streams have no limit as a whole.
    pub stream_idle_s: u32,
    /// For a whole request, body and all, to arrive.
    pub request_s: u32,
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl Default for EnvoyTimeouts {
    fn default() -> Self {
        Self { connect_s: 5, stream_idle_s: 600, request_s: 3600 }
    }
}

/// Why there is no bootstrap.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A provider's URL.
    #[error("providers.{name}.base_url: `{url}` is not http[s]://host[:port][/path]")]
    BaseUrl {
        /// The provider.
        name: String,
        /// What stands there.
        url: String,
    },
    /// A file name that is not UTF-8, which YAML cannot hold.
    #[error("`{}` is not UTF-8: choose another data_dir", .0.display())]
    Path(PathBuf),
    /// The filter's configuration or the result could not be written.
    #[error("the Envoy configuration could not be written")]
    Write(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The system's certificates, if they are in one of the usual places.
pub fn system_ca_bundle() -> Option<PathBuf> {
    CA_BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// The bootstrap as YAML. It holds the hop secret: write it readable by its owner alone.
pub fn render(input: &EnvoyConfigInput) -> Result<String, RenderError> {
    let bootstrap = bootstrap(input)?;
    serde_saphyr::to_string(&bootstrap).map_err(|error| RenderError::Write(Box::new(error)))
}

/// A provider whose URL has been understood.
struct Provider<'a> {
    input: &'a EnvoyProvider,
    url: BaseUrl,
    cluster: String,
}

fn bootstrap(input: &EnvoyConfigInput) -> Result<Value, RenderError> {
    let providers = input.providers.iter().map(provider).collect::<Result<Vec<_>, _>>()?;
    let mut clusters = vec![cluster::sidecar(&input.sidecar)?];
    for provider in &providers {
        clusters.push(cluster::provider(provider, input)?);
    }
    Ok(json!({
        "node": {"id": "otari", "cluster": "otari"},
        "admin": {"address": pipe(&input.admin_socket)?},
        "overload_manager": overload_manager(),
        "stats_config": {"stats_tags": [
            {"tag_name": "otari_outcome", "regex": r"^wasmcustom\.otari\.decided\.((\w+))$"},
            {"tag_name": "otari_problem", "regex": r"^wasmcustom\.otari\.refused\.((\w+))$"},
        ]},
        "static_resources": {
            "listeners": [listener::public(input, &providers)?, listener::model(input, &providers)?],
            "clusters": clusters,
        },
    }))
}

fn provider(input: &EnvoyProvider) -> Result<Provider<'_>, RenderError> {
    let url = BaseUrl::parse(&input.base_url)
        .ok_or_else(|| RenderError::BaseUrl { name: input.name.clone(), url: input.base_url.clone() })?;
    Ok(Provider { input, url, cluster: format!("provider_{}", input.name) })
}

fn overload_manager() -> Value {
    json!({
        "refresh_interval": "0.25s",
        "resource_monitors": [
            {
                "name": "envoy.resource_monitors.global_downstream_max_connections",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                    "max_active_downstream_connections": MAX_CLIENT_CONNECTIONS,
                },
            },
            {
                "name": "envoy.resource_monitors.fixed_heap",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
                    "max_heap_size_bytes": MAX_HEAP_BYTES,
                },
            },
        ],
        "actions": [{
            "name": "envoy.overload_actions.stop_accepting_requests",
            "triggers": [{"name": "envoy.resource_monitors.fixed_heap", "threshold": {"value": 0.95}}],
        }],
    })
}

fn pipe(path: &Path) -> Result<Value, RenderError> {
    Ok(json!({"pipe": {"path": text(path)?, "mode": 0o600}}))
}

fn socket(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}

fn text(path: &Path) -> Result<&str, RenderError> {
    path.to_str().ok_or_else(|| RenderError::Path(path.to_owned()))
}

fn seconds(seconds: u32) -> String {
    format!("{seconds}s")
}

#[cfg(test)]
mod tests;
