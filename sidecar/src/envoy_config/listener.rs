//! The two listeners: the public one with the filter, the model listener without.
//!
//! INVARIANT: a header that picks a route, or changes how Envoy treats a request, is never the client's own.

use decision::config::IdentityConfig;
use decision::header;
use serde_json::{Value, json};

use super::{Input, RenderError, STREAM_IDLE_S, exact, local_reply, pipe, routes, seconds, socket, text};

/// How much of a connection is read ahead. The limit of a buffered body stands on the route.
const READ_AHEAD_BYTES: u32 = 1024 * 1024;
/// For the whole head of a request to arrive.
const HEADERS_TIMEOUT_S: u32 = 10;
/// A model that broke off is told to the sidecar by the end of its connection, which Envoy delays so that answers in flight
/// are read; nobody is nearer than the sidecar.
const MODEL_CLOSE: &str = "0.1s";
/// Idle client connections: whoever holds many of them keeps others out.
const CLIENT_IDLE_S: u32 = 300;
/// HTTP/2 streams of one client connection.
const MAX_STREAMS: u32 = 100;
/// HTTP/2 flow-control windows: enough for a body to keep moving, not for one client to fill the memory.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// Name of the filter, in the chain and in per-route overrides.
pub(super) const FILTER: &str = "otari";

pub(super) fn public(input: &Input<'_>) -> Result<Value, RenderError> {
    let mut internal = header::INTERNAL.to_vec();
    if let IdentityConfig::Header { user, workspace } = &input.filter.identity {
        internal.extend([user.as_str(), workspace.as_str()]);
    }
    let mut stripped: Vec<Value> = internal.iter().map(|name| json!({"remove": name})).collect();
    stripped.push(json!({"remove_on_match": {"key_matcher": {"safe_regex": {"regex": folding_to(&internal)}}}}));
    // From an address it takes for internal, Envoy lets these change timeouts and retries; nothing may run twice.
    stripped.push(json!({"remove_on_match": {"key_matcher": {"prefix": "x-envoy-"}}}));
    let manager = json!({
        "early_header_mutation_extensions": [{
            "name": "strip-internal-headers",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
                "mutations": stripped,
            },
        }],
        "request_headers_timeout": seconds(HEADERS_TIMEOUT_S),
        // The longest that any request may take; the filter holds those to less that wait for a decision.
        "request_timeout": exact(input.config.http.body_deadline.max(input.config.http.upload_deadline)),
        "local_reply_config": local_reply::config(&input.filter),
        "route_config": routes::public(input),
        "http_filters": [wasm(input)?, router()],
        "access_log": [access_log()],
    });
    Ok(listener("public", socket(input.config.listen), connection_manager("public", manager)))
}

pub(super) fn model(input: &Input<'_>) -> Result<Value, RenderError> {
    let manager = json!({
        "local_reply_config": local_reply::config(&input.filter),
        "route_config": routes::model(input),
        "http_filters": [router()],
        "delayed_close_timeout": MODEL_CLOSE,
    });
    let mut listener = listener("model", pipe(&input.config.model_socket())?, connection_manager("model", manager));
    // A request that was taken is served to its end: its model calls are not refused for want of memory.
    listener["bypass_overload_manager"] = json!(true);
    Ok(listener)
}

fn listener(name: &str, address: Value, manager: Value) -> Value {
    json!({
        "name": name,
        "address": address,
        "per_connection_buffer_limit_bytes": READ_AHEAD_BYTES,
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }]}],
    })
}

/// What both listeners share; with these settings path, body and headers reach a provider as they came.
fn connection_manager(name: &str, own: Value) -> Value {
    let mut manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "codec_type": "AUTO",
        "use_remote_address": true,
        "skip_xff_append": true,
        "generate_request_id": false,
        "preserve_external_request_id": true,
        "server_header_transformation": "PASS_THROUGH",
        // A rewritten path would be another request; the filter reads every spelling of ours as it stands.
        "normalize_path": false,
        "merge_slashes": false,
        "path_with_escaped_slashes_action": "KEEP_UNCHANGED",
        "common_http_protocol_options": {
            "idle_timeout": seconds(CLIENT_IDLE_S),
            // Coding agents send `session_id`; the names that a server could fold into ours are stripped.
            "headers_with_underscores_action": "ALLOW",
        },
        "http2_protocol_options": {
            "max_concurrent_streams": MAX_STREAMS,
            "initial_stream_window_size": STREAM_WINDOW_BYTES,
            "initial_connection_window_size": CONNECTION_WINDOW_BYTES,
        },
        "stream_idle_timeout": seconds(STREAM_IDLE_S),
    });
    if let (Some(manager), Value::Object(own)) = (manager.as_object_mut(), own) {
        manager.extend(own);
    }
    manager
}

/// Matches the names that become one of these for a server that reads `_` as `-`.
fn folding_to(names: &[&str]) -> String {
    let folded: Vec<String> =
        names.iter().map(|name| routes::quote(name).replace("\\-", "[-_]").replace("\\_", "[-_]")).collect();
    folded.join("|")
}

fn wasm(input: &Input<'_>) -> Result<Value, RenderError> {
    let configuration = serde_json::to_string(&input.filter).map_err(|error| RenderError::Write(Box::new(error)))?;
    Ok(json!({
        "name": FILTER,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "config": {
                "name": FILTER,
                "root_id": FILTER,
                // Without this a paused request never sees its body, and hangs.
                "allow_on_headers_stop_iteration": true,
                "failure_policy": "FAIL_RELOAD",
                "reload_config": {"backoff": {"base_interval": "1s", "max_interval": "10s"}},
                "configuration": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": configuration},
                "vm_config": {
                    // Constant: a new id for each version would leak the memory of the old ones.
                    "vm_id": FILTER,
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": {"local": {"filename": text(input.around.wasm)?}},
                },
            },
        },
    }))
}

fn router() -> Value {
    json!({
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            "suppress_envoy_headers": true,
        },
    })
}

/// One line a request, without query, credential or body.
fn access_log() -> Value {
    json!({
        "name": "envoy.access_loggers.stdout",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
            "log_format": {"json_format": {
                "time": "%START_TIME%",
                "method": "%REQ(:METHOD)%",
                "path": "%PATH(NQ)%",
                "status": "%RESPONSE_CODE%",
                "flags": "%RESPONSE_FLAGS%",
                "details": "%RESPONSE_CODE_DETAILS%",
                "decision": format!("%REQ({})%", header::DECISION),
                "cluster": "%UPSTREAM_CLUSTER%",
                "request_bytes": "%BYTES_RECEIVED%",
                "response_bytes": "%BYTES_SENT%",
                "duration_ms": "%DURATION%",
                "request_id": "%REQ(X-REQUEST-ID)%",
            }},
        },
    })
}
