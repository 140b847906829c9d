//! Clusters: the sidecar, and one for each provider.
//!
//! INVARIANT: a provider over `https` is verified: its name is in the handshake and in the certificate.

use std::path::Path;

use serde_json::{Value, json};

use super::{CONNECT_S, Provider, RenderError, seconds, socket, text};
use crate::config::{BaseUrl, ListenAddress, SIDECAR_CLUSTER};

/// Requests under way at once to one cluster. Streams last minutes, so this is a limit on clients, not on load.
const MAX_REQUESTS: u32 = 4096;
/// An idle connection is closed before servers usually do, so that a request does not meet a closing one.
const KEEP_ALIVE_S: u32 = 50;
/// A local socket that takes longer than this is not there.
const SIDECAR_CONNECT_S: u32 = 1;

pub(super) fn sidecar(address: &ListenAddress) -> Result<Value, RenderError> {
    let address = match address {
        ListenAddress::Unix(path) => json!({"pipe": {"path": text(path)?}}),
        ListenAddress::Tcp(address) => socket(*address),
    };
    Ok(json!({
        "name": SIDECAR_CLUSTER,
        "type": "STATIC",
        "connect_timeout": seconds(SIDECAR_CONNECT_S),
        // Health goes at high priority: by connections of its own, whatever the others do.
        "circuit_breakers": circuit_breakers(&["DEFAULT", "HIGH"]),
        "typed_extension_protocol_options": protocol_options(),
        "load_assignment": load_assignment(SIDECAR_CLUSTER, address),
    }))
}

pub(super) fn provider(provider: &Provider<'_>, ca_bundle: &Path) -> Result<Value, RenderError> {
    let url = provider.url;
    let mut cluster = json!({
        "name": provider.cluster,
        // A hosted API is one name with many addresses, changing; a server of one's own is all addresses of its name.
        "type": if url.ip().is_some() { "STATIC" } else if url.tls { "LOGICAL_DNS" } else { "STRICT_DNS" },
        "connect_timeout": seconds(CONNECT_S),
        "circuit_breakers": circuit_breakers(&["DEFAULT"]),
        "typed_extension_protocol_options": protocol_options(),
        "load_assignment": load_assignment(
            &provider.cluster,
            json!({"socket_address": {"address": url.host, "port_value": url.port}}),
        ),
    });
    if url.ip().is_none() {
        cluster["dns_lookup_family"] = json!("V4_PREFERRED");
    }
    if url.tls {
        cluster["transport_socket"] = tls(url, text(ca_bundle)?);
    }
    Ok(cluster)
}

fn tls(url: &BaseUrl, ca_bundle: &str) -> Value {
    let san_type = if url.ip().is_some() { "IP_ADDRESS" } else { "DNS" };
    let mut context = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {
            "alpn_protocols": ["http/1.1"],
            "validation_context": {
                "trusted_ca": {"filename": ca_bundle},
                "match_typed_subject_alt_names": [{"san_type": san_type, "matcher": {"exact": url.host}}],
            },
        },
    });
    if url.ip().is_none() {
        context["sni"] = json!(url.host);
    }
    json!({"name": "envoy.transport_sockets.tls", "typed_config": context})
}

fn circuit_breakers(priorities: &[&str]) -> Value {
    let limits = |priority: &&str| {
        json!({
            "priority": priority,
            "max_connections": MAX_REQUESTS,
            "max_pending_requests": MAX_REQUESTS,
            "max_requests": MAX_REQUESTS,
            "max_retries": 0,
        })
    };
    json!({"thresholds": priorities.iter().map(limits).collect::<Vec<_>>()})
}

fn protocol_options() -> Value {
    json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "common_http_protocol_options": {"idle_timeout": seconds(KEEP_ALIVE_S)},
        "explicit_http_config": {"http_protocol_options": {}},
    }})
}

fn load_assignment(cluster: &str, address: Value) -> Value {
    json!({
        "cluster_name": cluster,
        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
    })
}
