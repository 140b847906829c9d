//! Envoy's bootstrap, rendered from the one config file: listeners, routes, clusters, the filter and its limits.
//!
//! INVARIANT: what a client sends can pick neither a cluster nor the sidecar: the headers that do are stripped before
//! the first route match, whether the filter lives or not.

mod cluster;
mod listener;
mod local_reply;
mod routes;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use decision::config::{FilterConfig, ProviderKind};
use serde_json::{Value, json};

use crate::config::{BaseUrl, Config, Secret};

/// Bundles of system roots, by distribution; the first that exists is used.
const CA_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];
/// Envoy's heap, above which it takes no new request: many bodies of `max_body_bytes` at once are the way there.
const MAX_HEAP_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// Shares of it: from where on memory is given back to the system, the largest streams are cut off, one after the other,
/// and no request is taken.
const SHRINK_AT: f64 = 0.8;
const RESET_FROM: f64 = 0.85;
const REFUSE_AT: f64 = 0.95;
/// Streams that hold less than two to this are not told apart.
const TRACKED_STREAM_POWER: u32 = 20;
/// What nobody uses goes back to the system at this pace, whatever the heap's size. Without it Envoy would for ever keep
/// what compiling the filter took, and what the largest rush of bodies did.
const RELEASED_BYTES: u64 = 4 * 1024 * 1024;
const RELEASE_INTERVAL_S: u32 = 1;
/// Client connections at once.
const MAX_CLIENT_CONNECTIONS: u64 = 10_000;

/// For a TCP or TLS connection to a provider.
const CONNECT_S: u32 = 5;
/// Without a byte in either direction on a stream. Streams have no limit as a whole.
const STREAM_IDLE_S: u32 = 600;

/// What the rendering needs to know beside the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// What Envoy's routes to the sidecar prove themselves with.
    pub hop_secret: &'a Secret,
    /// `filter.wasm`.
    pub wasm: &'a Path,
    /// Certificates that TLS to providers trusts; [`system_ca_bundle`] finds the system's.
    pub ca_bundle: &'a Path,
}

/// Why there is no bootstrap.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
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
pub fn render(config: &Config, around: Surroundings<'_>) -> Result<String, RenderError> {
    let bootstrap = bootstrap(config, around)?;
    serde_saphyr::to_string(&bootstrap).map_err(|error| RenderError::Write(Box::new(error)))
}

/// All of it, for the parts of the rendering.
struct Input<'a> {
    config: &'a Config,
    around: Surroundings<'a>,
    /// The filter's own configuration: identity, models, roots, body limit, policy.
    filter: FilterConfig,
    providers: Vec<Provider<'a>>,
}

/// A provider with an address, which is a cluster.
struct Provider<'a> {
    name: &'a str,
    kind: ProviderKind,
    url: &'a BaseUrl,
    api_key_env: Option<&'a str>,
    cluster: String,
}

fn bootstrap(config: &Config, around: Surroundings<'_>) -> Result<Value, RenderError> {
    let input = Input { config, around, filter: config.filter_config(around.hop_secret), providers: providers(config) };
    let mut clusters = vec![cluster::sidecar(&config.sidecar_listen)?];
    for provider in &input.providers {
        clusters.push(cluster::provider(provider, around.ca_bundle)?);
    }
    Ok(json!({
        "node": {"id": "otari", "cluster": "otari"},
        "admin": {"address": pipe(&config.admin_socket())?},
        "overload_manager": overload_manager(),
        "memory_allocator_manager": {
            "bytes_to_release": RELEASED_BYTES,
            "memory_release_interval": seconds(RELEASE_INTERVAL_S),
        },
        "stats_config": {"stats_tags": [
            {"tag_name": "otari_outcome", "regex": r"^wasmcustom\.otari\.decided\.((\w+))$"},
            {"tag_name": "otari_problem", "regex": r"^wasmcustom\.otari\.refused\.((\w+))$"},
        ]},
        "static_resources": {
            "listeners": [listener::public(&input)?, listener::model(&input)?],
            "clusters": clusters,
        },
    }))
}

fn providers(config: &Config) -> Vec<Provider<'_>> {
    let with_address = config.providers.iter().filter_map(|(name, provider)| {
        Some(Provider {
            name,
            kind: provider.kind,
            url: provider.base_url.as_ref()?,
            api_key_env: provider.api_key_env.as_deref(),
            cluster: format!("provider_{name}"),
        })
    });
    with_address.collect()
}

fn overload_manager() -> Value {
    json!({
        "refresh_interval": "0.25s",
        // Who holds most of the heap is known for streams of HTTP/2 alone; those of HTTP/1 end by their deadline.
        "buffer_factory_config": {"minimum_account_to_track_power_of_two": TRACKED_STREAM_POWER},
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
        "actions": [
            {
                "name": "envoy.overload_actions.shrink_heap",
                "triggers": [on_heap(&json!({"threshold": {"value": SHRINK_AT}}))],
            },
            {
                "name": "envoy.overload_actions.reset_high_memory_stream",
                "triggers": [on_heap(&json!({
                    "scaled": {"scaling_threshold": RESET_FROM, "saturation_threshold": REFUSE_AT},
                }))],
            },
            {
                "name": "envoy.overload_actions.stop_accepting_requests",
                "triggers": [on_heap(&json!({"threshold": {"value": REFUSE_AT}}))],
            },
        ],
    })
}

fn on_heap(when: &Value) -> Value {
    let mut trigger = when.clone();
    trigger["name"] = json!("envoy.resource_monitors.fixed_heap");
    trigger
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

/// As Envoy writes times; to the millisecond.
fn exact(time: Duration) -> String {
    format!("{}.{:03}s", time.as_secs(), time.subsec_millis())
}

fn seconds(seconds: u32) -> String {
    format!("{seconds}s")
}

#[cfg(test)]
mod tests;
