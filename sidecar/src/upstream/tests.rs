use super::*;

#[test]
fn hop_by_hop_headers_go_with_those_that_connection_names() {
    let mut headers = HeaderMap::new();
    for (name, value) in
        [("connection", "close, X-Private"), ("x-private", "1"), ("te", "trailers"), ("request-id", "req_1")]
    {
        headers.insert(HeaderName::from_bytes(name.as_bytes()).expect("name"), HeaderValue::from_static(value));
    }
    strip_hop_by_hop(&mut headers);
    assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["request-id"]);
}

#[tokio::test]
async fn a_target_that_does_not_listen_is_unreachable() {
    let folder = tempfile::tempdir().expect("folder");
    let target = ModelTarget::Unix(folder.path().join("nobody.sock"));
    let client = ModelClient::new(target, ModelLimits::default()).expect("client");
    let call = ModelCall {
        provider: "local".to_owned(),
        path: "/v1/messages".to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    assert!(matches!(client.send(call).await, Err(UpstreamError::Unreachable(_))));
}
