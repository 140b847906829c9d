//! Route tables: what goes to the sidecar, what to which provider, and what nobody answers.
//!
//! INVARIANT: the hop secret is added on routes to the sidecar and nowhere else, and the sidecar's internal paths have no
//! public route.

use decision::config::{FilterConfig, ProviderKind};
use decision::header;
use decision::request::RESPONSE;
use serde_json::{Value, json};

use super::listener::FILTER;
use super::{Input, Provider, STREAM_IDLE_S, seconds};
use crate::config::SIDECAR_CLUSTER;

/// Paths under each API root that the sidecar serves by itself.
pub(super) const SIDECAR_PATHS: &[&str] = &["files", "containers", "tools", "workspaces", "settings"];
/// How the path of an answer begins that the sidecar keeps, under each API root; others are their provider's.
pub(super) fn kept_answers() -> String {
    format!("responses/{RESPONSE}")
}

/// For the sidecar to say that it is well.
const HEALTH_TIMEOUT_S: u32 = 5;
/// Spellings of a path under `/otari` that a decoder or normaliser could turn into an internal one.
pub(super) const ODD_OTARI: &str = r"/otari/(.*//.*|/.*|.*%.*|.*\\.*|(.*/)?\..*)";
/// Envoy holds this much more than the filter allows, a read and a batch of it: so the filter sees what is too long,
/// and answers in the caller's words before Envoy does.
const HEADROOM_BYTES: u64 = 2 * 1024 * 1024;
/// A cluster that does not exist.
pub(super) const NOWHERE: &str = "nowhere";
/// Headers Envoy adds by itself; a provider gets what the client sent.
const ENVOYS_OWN: &[&str] = &["x-forwarded-proto", "x-envoy-external-address", "x-envoy-internal"];

pub(super) fn public(input: &Input<'_>) -> Value {
    let mut routes = vec![
        answer(json!({"path": "/healthz/filter"}), 503),
        json!({
            "match": {"path": "/healthz"},
            "route": {"cluster": SIDECAR_CLUSTER, "priority": "HIGH", "timeout": seconds(HEALTH_TIMEOUT_S)},
        }),
        answer(json!({"path_separated_prefix": "/otari/internal"}), 404),
    ];
    // What the filter has decided is matched a second time: so it stands before the longer list of paths.
    let decided = json!({"prefix": "/", "headers": [exactly(header::ROUTE, header::ROUTE_SIDECAR)]});
    routes.push(limited(to_sidecar("sidecar", decided, input), input));
    routes.extend(to_providers(input).into_iter().map(|route| limited(route, input)));
    if input.filter.explain {
        routes.push(limited(nowhere(json!({"path": "/otari/filter/explain"})), input));
    }
    // Past the filter too, which would read them as the sidecar's.
    routes.push(unfiltered(answer(json!({"safe_regex": {"regex": ODD_OTARI}}), 404)));
    routes.push(unfiltered(to_sidecar("otari", json!({"path_separated_prefix": "/otari"}), input)));
    for root in &input.filter.roots {
        for path in SIDECAR_PATHS {
            let when = json!({"path_separated_prefix": format!("{root}/{path}")});
            routes.push(unfiltered(to_sidecar(path, when, input)));
        }
        let when = json!({"prefix": format!("{root}/{}", kept_answers())});
        routes.push(unfiltered(to_sidecar("responses", when, input)));
    }
    // Also the route under which every undecided request waits for its body.
    routes.push(limited(nowhere(json!({"prefix": "/"})), input));
    table("public", routes)
}

pub(super) fn model(input: &Input<'_>) -> Value {
    let mut routes = to_providers(input);
    routes.push(nowhere(json!({"prefix": "/"})));
    table("model", routes)
}

/// A regular expression for any of the API's roots.
pub(super) fn any_root(filter: &FilterConfig) -> String {
    let roots: Vec<String> = filter.roots.iter().map(|root| quote(root)).collect();
    format!("(?:{})", roots.join("|"))
}

fn table(name: &str, routes: Vec<Value>) -> Value {
    json!({
        "name": name,
        "validate_clusters": false,
        "virtual_hosts": [{"name": name, "domains": ["*"], "routes": routes}],
    })
}

fn to_sidecar(name: &str, when: Value, input: &Input<'_>) -> Value {
    json!({
        "name": name,
        "match": when,
        "route": streamed(SIDECAR_CLUSTER),
        "request_headers_to_add": [overwrite(header::HOP, input.around.hop_secret.expose())],
    })
}

/// A client's own credential passes; a client without one gets the operator's.
fn to_providers(input: &Input<'_>) -> Vec<Value> {
    let mut routes = Vec::new();
    for provider in &input.providers {
        let chosen = exactly(header::PROVIDER, provider.name);
        let Some(variable) = provider.api_key_env else {
            routes.push(to_provider(provider, vec![chosen], None, input));
            continue;
        };
        for credential in [header::AUTHORIZATION, header::API_KEY] {
            let own = json!({"name": credential, "present_match": true});
            routes.push(to_provider(provider, vec![chosen.clone(), own], None, input));
        }
        let added = match provider.kind {
            ProviderKind::Anthropic => overwrite(header::API_KEY, &format!("%ENVIRONMENT({variable})%")),
            ProviderKind::Openai | ProviderKind::OpenaiCompatible => {
                overwrite(header::AUTHORIZATION, &format!("Bearer %ENVIRONMENT({variable})%"))
            }
        };
        routes.push(to_provider(provider, vec![chosen], Some(added), input));
    }
    routes
}

fn to_provider(provider: &Provider<'_>, headers: Vec<Value>, credential: Option<Value>, input: &Input<'_>) -> Value {
    let removed: Vec<&str> = [header::INTERNAL, header::CONTROL, ENVOYS_OWN].concat();
    let mut action = streamed(&provider.cluster);
    action["host_rewrite_literal"] = json!(provider.url.authority);
    if let Some(rewrite) = path_rewrite(&provider.url.path, &input.filter) {
        action["regex_rewrite"] = rewrite;
    }
    let mut route = json!({
        "name": provider.cluster,
        "match": {"prefix": "/", "headers": headers},
        "route": action,
        "request_headers_to_remove": removed,
    });
    if let Some(credential) = credential {
        route["request_headers_to_add"] = json!([credential]);
    }
    route
}

/// A base URL without a path leaves paths as they are. One that ends in `/v1` stands in the place of the API's root,
/// any other before the whole path.
fn path_rewrite(base_path: &str, filter: &FilterConfig) -> Option<Value> {
    if base_path.is_empty() {
        return None;
    }
    let replaced = if base_path.ends_with("/v1") { format!("^{}/", any_root(filter)) } else { "^/".to_owned() };
    Some(json!({"pattern": {"regex": replaced}, "substitution": format!("{base_path}/")}))
}

/// Streams may last; only silence ends them. Nothing is sent twice: there is no retry policy here or anywhere.
fn streamed(cluster: &str) -> Value {
    json!({"cluster": cluster, "timeout": "0s", "idle_timeout": seconds(STREAM_IDLE_S)})
}

fn unfiltered(mut route: Value) -> Value {
    route["typed_per_filter_config"] = json!({
        FILTER: {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": true},
    });
    route
}

fn limited(mut route: Value, input: &Input<'_>) -> Value {
    route["request_body_buffer_limit"] = json!(input.filter.max_body_bytes.saturating_add(HEADROOM_BYTES));
    route
}

fn answer(when: Value, status: u16) -> Value {
    json!({"match": when, "direct_response": {"status": status}})
}

/// Answers 404, and holds a body meanwhile: a `direct_response` would do the one, but ignores the limit of the other.
fn nowhere(when: Value) -> Value {
    json!({"match": when, "route": {"cluster": NOWHERE, "cluster_not_found_response_code": "NOT_FOUND"}})
}

fn exactly(name: &str, value: &str) -> Value {
    json!({"name": name, "string_match": {"exact": value}})
}

pub(super) fn overwrite(name: &str, value: &str) -> Value {
    json!({"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"})
}

pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::new();
    for letter in text.chars() {
        if !letter.is_ascii_alphanumeric() && letter != '/' {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted
}
