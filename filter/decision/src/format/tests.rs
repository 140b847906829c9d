use super::{ApiFormat, Endpoint, classify};
use crate::config::default_roots;

fn check(path: &str, expected: Endpoint) {
    assert_eq!(classify(path.as_bytes(), &default_roots()), expected, "{path}");
}

#[test]
fn inference_endpoints_in_every_spelling() {
    for path in [
        "/v1/messages",
        "/api/v1/messages",
        "/v1/messages?beta=true",
        "/v1//messages",
        "//v1/messages/",
        "/v1/%6dessages",
        "/v1/%6Dessages",
        "/v1%2fmessages",
        "/v1/./messages",
        "/v1/x/../messages",
        "/../v1/messages",
        "/v1/files/../messages#top",
        "v1/messages",
    ] {
        check(path, Endpoint::Inference(ApiFormat::Messages));
    }
    check("/v1/chat/completions", Endpoint::Inference(ApiFormat::ChatCompletions));
    check("/v1/chat//completions", Endpoint::Inference(ApiFormat::ChatCompletions));
    check("/v1/responses", Endpoint::Inference(ApiFormat::Responses));
}

#[test]
fn files_and_control_by_whole_segments() {
    check("/v1/files", Endpoint::Files);
    check("/v1/files/file-otr1/content", Endpoint::Files);
    check("/api/v1/containers/c/files/f", Endpoint::Files);
    check("/v1/tools", Endpoint::Control);
    check("/v1/workspaces/w/code-execution-policy", Endpoint::Control);
    check("/v1/settings", Endpoint::Control);
    check("/otari", Endpoint::Control);
    check("/otari/internal/snapshot", Endpoint::Control);
    check("/healthz", Endpoint::Control);
    check("/healthz/filter", Endpoint::Control);
    for path in ["/v1/filesystem", "/v1/toolsets", "/otariana", "/healthz2", "/files"] {
        check(path, Endpoint::Other);
    }
}

#[test]
fn neighbours_of_inference_endpoints_are_other() {
    for path in [
        "/v1/messages/count_tokens",
        "/v1/messages/batches",
        "/v1/responses/resp_1",
        "/v1/chat",
        "/V1/messages",
        "/v1/Messages",
        "/v1/%256dessages",
        "/v1/mess%61ge",
        "/v1messages",
        "/messages",
        "/v1/\u{0}",
        "/v1/messages%",
        "/v1/messages%0",
        "/",
        "",
    ] {
        check(path, Endpoint::Other);
    }
    assert_eq!(classify(b"/v1/\xff", &default_roots()), Endpoint::Other);
}

#[test]
fn roots_come_from_the_configuration() {
    let roots = ["/llm".to_owned(), String::new()];
    assert_eq!(classify(b"/llm/messages", &roots), Endpoint::Inference(ApiFormat::Messages));
    assert_eq!(classify(b"/messages", &roots), Endpoint::Inference(ApiFormat::Messages));
    assert_eq!(classify(b"/v1/messages", &roots), Endpoint::Other);
}
