//! Which of the client's headers reach the model, and which of the model's reach the client.
//!
//! INVARIANT: nothing that means this gateway leaves towards a model; of a provider's headers only ids and limits come back.

use decision::header::{API_KEY, AUTHORIZATION, CONTROL, DROPPED};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};

use crate::wire::served::{CallerWire, ModelWire, Wires};

/// Longest list of what was dropped that a header tells; the log has all of it.
const MAX_DROPPED_BYTES: usize = 1024;
const BETA: &str = "anthropic-beta";
const VERSION: &str = "anthropic-version";
const BEARER: &[u8] = b"Bearer ";

/// The client's headers, as far as they mean something to the model's wire.
pub(super) fn for_model(client: &HeaderMap, wires: Wires, streamed: bool) -> HeaderMap {
    let mut headers = client.clone();
    for name in CONTROL {
        headers.remove(*name);
    }
    for name in ["accept", "content-encoding", "content-type", "cookie", "expect", "forwarded", "x-request-id"] {
        headers.remove(name);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let accept = if streamed { "text/event-stream" } else { "application/json" };
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    match wires.model {
        ModelWire::Messages if wires.are_same() => keep_foreign_betas(&mut headers),
        ModelWire::Messages => to_api_key(&mut headers),
        ModelWire::ChatCompletions | ModelWire::Responses => to_bearer(&mut headers),
    }
    headers
}

/// The same credential, under the name that servers of OpenAI's wires read.
fn to_bearer(headers: &mut HeaderMap) {
    headers.remove(VERSION);
    headers.remove(BETA);
    if let Some(key) = headers.remove(API_KEY)
        && !headers.contains_key(AUTHORIZATION)
        && let Ok(mut value) = HeaderValue::from_bytes(&[b"Bearer ", key.as_bytes()].concat())
    {
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
}

/// The same credential, under the name that servers of the Messages wire read, and the version that they demand.
fn to_api_key(headers: &mut HeaderMap) {
    for name in ["openai-beta", "openai-organization", "openai-project"] {
        headers.remove(name);
    }
    headers.insert(HeaderName::from_static(VERSION), HeaderValue::from_static("2023-06-01"));
    let Some(credential) = headers.remove(AUTHORIZATION) else { return };
    let key = credential.as_bytes().split_at_checked(BEARER.len());
    if let Some((scheme, key)) = key
        && scheme.eq_ignore_ascii_case(BEARER)
        && !headers.contains_key(API_KEY)
        && let Ok(mut value) = HeaderValue::from_bytes(key.trim_ascii())
    {
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(API_KEY), value);
    }
}

/// The betas of hosted code execution mean a tool that the model is not given here.
fn keep_foreign_betas(headers: &mut HeaderMap) {
    let kept: Vec<String> = headers
        .get_all(BETA)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|beta| !beta.is_empty() && !beta.starts_with("code-execution-"))
        .map(str::to_owned)
        .collect();
    headers.remove(BETA);
    if let Ok(value) = HeaderValue::from_str(&kept.join(","))
        && !kept.is_empty()
    {
        headers.insert(HeaderName::from_static(BETA), value);
    }
}

/// What the client gets to know of the provider's headers: ids and limits.
pub(super) fn for_client(upstream: &HeaderMap, wire: CallerWire, request_id: &str, dropped: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in upstream {
        let known = name.as_str();
        if known.starts_with("anthropic-")
            || known.starts_with("x-ratelimit-")
            || known.starts_with("openai-")
            || matches!(known, "request-id" | "x-request-id")
        {
            headers.append(name.clone(), value.clone());
        }
    }
    let id_header = match wire {
        CallerWire::Messages => "request-id",
        CallerWire::ChatCompletions | CallerWire::Responses => "x-request-id",
    };
    if let (false, Ok(id)) = (headers.contains_key(id_header), HeaderValue::from_str(request_id)) {
        headers.insert(HeaderName::from_static(id_header), id);
    }
    if let Some(dropped) = dropped {
        tell_dropped(&mut headers, dropped);
    }
    headers
}

/// Names in an answer's head what of its request could not be carried over.
pub fn tell_dropped(headers: &mut HeaderMap, dropped: &str) {
    if let Ok(dropped) = HeaderValue::from_str(&header_text(dropped)) {
        headers.insert(HeaderName::from_static(DROPPED), dropped);
    }
}

/// Names from a request's body as a header may say them.
fn header_text(names: &str) -> String {
    let text: String = names.chars().flat_map(char::escape_default).take(MAX_DROPPED_BYTES).collect();
    if text.len() < MAX_DROPPED_BYTES { text } else { format!("{text}...") }
}
