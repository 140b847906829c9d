//! Which headers reach the model, and which of its headers reach the client.

use decision::format::ApiFormat;
use http::{HeaderName, HeaderValue};
use serde_json::json;

use super::support::{Bench, chat_text, request, run_request};
use crate::tool_loop::Limits;

#[tokio::test]
async fn a_model_of_another_wire_gets_the_credential_under_its_own_name_and_nothing_of_ours() {
    let bench = Bench::new(vec![chat_text("x")], Limits::default()).await;
    let mut asked = run_request(ApiFormat::ChatCompletions, &request(true));
    for name in ["otari-key", "otari-code-execution", "anthropic-version", "accept-encoding"] {
        asked.forward_headers.insert(HeaderName::from_static(name), HeaderValue::from_static("secret"));
    }
    bench.ask(asked).await.expect("an answer");
    let headers = &bench.model.received()[0].headers;
    assert_eq!(headers["authorization"], "Bearer the-clients-own");
    assert_eq!(headers["accept-encoding"], "identity");
    for name in
        ["x-api-key", "anthropic-beta", "anthropic-version", "otari-key", "otari-code-execution", "x-otari-provider"]
    {
        assert!(!headers.contains_key(name), "{name} leaked");
    }
}

#[tokio::test]
async fn a_model_of_the_same_wire_gets_the_clients_headers_without_the_betas_of_code_execution() {
    let bench = Bench::new(vec![chat_text("x")], Limits::default()).await;
    bench.ask(run_request(ApiFormat::Messages, &request(true))).await.expect("a stream");
    let headers = &bench.model.received()[0].headers;
    assert_eq!(
        (&headers["anthropic-beta"], &headers["x-api-key"]),
        (&"other-1".into_value(), &"the-clients-own".into_value())
    );
}

#[tokio::test]
async fn the_client_gets_the_providers_ids_and_limits_and_what_was_dropped() {
    let mut answer = chat_text("x");
    answer.headers.extend([("x-ratelimit-remaining-requests", "9"), ("server", "hidden"), ("set-cookie", "hidden")]);
    let mut body = request(true);
    body["top_k"] = json!(3);
    body["é\r\n"] = json!(3);
    let bench = Bench::new(vec![answer], Limits::default()).await;
    let reply = bench.ask(run_request(ApiFormat::ChatCompletions, &body)).await.expect("an answer");
    let shown: Vec<&str> = reply.headers.keys().map(HeaderName::as_str).collect();
    assert_eq!(
        shown,
        ["request-id", "x-ratelimit-remaining-requests", "otari-dropped", "content-type", "cache-control"]
    );
    assert_eq!(
        (&reply.headers["request-id"], &reply.headers["otari-dropped"]),
        (&"req_model".into_value(), &r"top_k, \u{e9}\r\n".into_value())
    );
}

trait IntoValue {
    fn into_value(self) -> HeaderValue;
}

impl IntoValue for &'static str {
    fn into_value(self) -> HeaderValue {
        HeaderValue::from_static(self)
    }
}
