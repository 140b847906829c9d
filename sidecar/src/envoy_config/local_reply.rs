//! Envoy's own answers (body over the limit, nobody there, cut connection) in the words of the caller's SDK.
//!
//! INVARIANT: an answer of the filter's, whose details start with `otari_`, is left as it is.

use decision::config::FilterConfig;
use decision::format::Vocabulary;
use decision::header;
use decision::problem::{Origin, Problem, ProblemKind};
use serde_json::{Value, json};

use super::routes::{SIDECAR_PATHS, any_root, kept_answers, overwrite};

/// Envoy's flags for a connection that broke after the request had gone out.
const CUT: &[&str] = &["UC", "UR", "LR", "UPE"];

/// The mappers of both listeners.
pub(super) fn config(filter: &FilterConfig) -> Value {
    let too_large =
        format!("the request body is over this gateway's limit of {} bytes (max_body_bytes)", filter.max_body_bytes);
    let lost =
        Problem::new(ProblemKind::UpstreamFailed, Origin::Gateway, "the gateway lost the request while serving it");
    let cut = Problem { side_effects: true, ..lost.clone() };
    let caller = |kind, message: &str| Problem::new(kind, Origin::Caller, message);
    let upstream = |kind, message: &str| Problem::new(kind, Origin::Upstream, message);
    let unreachable = "the server of this model, or the gateway's sidecar, cannot be reached; try again later";
    let cases = [
        (cut_at_the_sidecar(), cut),
        (cut_on_own_paths(filter), lost),
        (status(413), caller(ProblemKind::PayloadTooLarge, &too_large)),
        (status(404), caller(ProblemKind::NotFound, "this gateway serves no such path")),
        (status(408), caller(ProblemKind::InvalidRequest, "the request did not arrive in time")),
        (status(431), caller(ProblemKind::InvalidRequest, "the request's headers are too large")),
        (status(400), caller(ProblemKind::InvalidRequest, "the request is not valid HTTP")),
        (flagged(CUT), upstream(ProblemKind::UpstreamFailed, "the model's server hung up before it had answered")),
        (status(502), upstream(ProblemKind::UpstreamFailed, "the model's server gave no valid answer")),
        (status(503), upstream(ProblemKind::Overloaded, unreachable)),
        (status(504), upstream(ProblemKind::UpstreamTimedOut, "the model's server took too long")),
    ];
    // The first that matches wins, and this one changes nothing.
    let mut mappers = vec![json!({"filter": the_filters_own()})];
    for vocabulary in [Vocabulary::Anthropic, Vocabulary::OpenAi] {
        mappers.extend(cases.iter().map(|(when, problem)| mapper(vocabulary, when, problem, filter)));
    }
    json!({"mappers": mappers})
}

fn mapper(vocabulary: Vocabulary, when: &Value, problem: &Problem, filter: &FilterConfig) -> Value {
    let filter = match vocabulary {
        Vocabulary::Anthropic => json!({"and_filter": {"filters": [when, speaks_anthropic(filter)]}}),
        Vocabulary::OpenAi => when.clone(),
    };
    // The same reply as everywhere else, but for the id: Envoy makes one up in the header, and the body repeats it.
    let reply = problem.reply(vocabulary, "%UNIQUE_ID%");
    let added = reply.headers.iter().filter(|(name, _)| *name != "content-type");
    json!({
        "filter": filter,
        "status_code": reply.status,
        "headers_to_add": added.map(|(name, value)| overwrite(name, value)).collect::<Vec<_>>(),
        "body_format_override": {"json_format": problem.body(vocabulary, "%RESP(REQUEST-ID)%")},
    })
}

fn the_filters_own() -> Value {
    json!({"extension_filter": {
        "name": "envoy.access_loggers.extension_filters.cel",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
            "expression": "response.code_details.startsWith('otari_')",
        },
    }})
}

/// By the path on the inference endpoints, by Anthropic's own headers where both vendors share a path.
fn speaks_anthropic(filter: &FilterConfig) -> Value {
    let messages = format!("{}/+messages.*", any_root(filter));
    let path = json!({"name": ":path", "string_match": {"safe_regex": {"regex": messages}}});
    let own = header::ANTHROPIC.iter().map(|name| json!({"name": name, "present_match": true}));
    let signs: Vec<Value> =
        std::iter::once(path).chain(own).map(|header| json!({"header_filter": {"header": header}})).collect();
    json!({"or_filter": {"filters": signs}})
}

fn cut_at_the_sidecar() -> Value {
    json!({"and_filter": {"filters": [
        {"header_filter": {"header": {"name": header::ROUTE, "string_match": {"exact": header::ROUTE_SIDECAR}}}},
        flagged(CUT),
    ]}})
}

/// No code runs there, so the request may be sent again.
fn cut_on_own_paths(filter: &FilterConfig) -> Value {
    let own = format!("{}/(?:(?:{})(?:[/?].*)?|{}.*)", any_root(filter), SIDECAR_PATHS.join("|"), kept_answers());
    json!({"and_filter": {"filters": [
        {"header_filter": {"header": {"name": ":path", "string_match": {"safe_regex": {"regex": own}}}}},
        flagged(CUT),
    ]}})
}

fn flagged(flags: &[&str]) -> Value {
    json!({"response_flag_filter": {"flags": flags}})
}

fn status(status: u16) -> Value {
    json!({"status_code_filter": {"comparison": {
        "op": "EQ",
        "value": {"default_value": status, "runtime_key": format!("otari.local_reply.{status}")},
    }}})
}
