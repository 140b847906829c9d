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
        body: Bytes::new().into(),
    };
    assert!(matches!(client.send(call).await, Err(UpstreamError::Unreachable(_))));
}

#[tokio::test]
async fn a_path_that_would_be_rewritten_is_not_sent() {
    let folder = tempfile::tempdir().expect("folder");
    let target = ModelTarget::Unix(folder.path().join("nobody.sock"));
    let client = ModelClient::new(target, ModelLimits::default()).expect("client");
    for path in [r"/v1\messages", "/v1//../messages", "/v1/%2e%2e/x", "/v1/é", "/v1/x?a=<b>", "/v1/x#y\t", "/a/./b"] {
        let call = ModelCall {
            provider: "local".to_owned(),
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new().into(),
        };
        assert!(matches!(client.send(call).await, Err(UpstreamError::PathChanged)), "{path}");
    }
}

/// Serves one connection on a Unix socket with these bytes, and gives what it read of the request.
fn serve_once(answer: &'static [u8], limits: ModelLimits) -> (ModelClient, tokio::sync::oneshot::Receiver<String>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("model.sock");
    let listener = tokio::net::UnixListener::bind(&path).expect("socket");
    let (read, reading) = tokio::sync::oneshot::channel();
    tokio_util::task::TaskTracker::new().spawn(async move {
        let _folder = folder;
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = Vec::new();
        while !request.ends_with(b"{\"a\":1}") {
            let mut chunk = [0; 1024];
            let size = stream.read(&mut chunk).await.expect("a request");
            request.extend_from_slice(&chunk[..size]);
        }
        stream.write_all(answer).await.expect("written");
        read.send(String::from_utf8(request).expect("text")).expect("somebody waits");
        // Open until the client closes.
        drop(stream.read(&mut [0; 1]).await);
    });
    (ModelClient::new(ModelTarget::Unix(path), limits).expect("client"), reading)
}

fn call() -> ModelCall {
    let mut headers = HeaderMap::new();
    headers.insert("x-client", HeaderValue::from_static("1"));
    headers.insert("content-length", HeaderValue::from_static("99"));
    headers.insert("host", HeaderValue::from_static("elsewhere"));
    let body = Bytes::from_static(b"{\"a\":1}");
    ModelCall { provider: "local".to_owned(), path: "/v1/messages?x=1".to_owned(), headers, body: body.into() }
}

#[tokio::test]
async fn a_call_over_a_unix_socket_keeps_the_clients_headers_and_names_the_provider() {
    let answer = b"HTTP/1.1 307 Moved\r\nlocation: /elsewhere\r\nkeep-alive: x\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nbody";
    let (client, request) = serve_once(answer, ModelLimits::default());
    let answer = client.send(call()).await.expect("an answer");
    assert_eq!(answer.status, StatusCode::TEMPORARY_REDIRECT, "redirects are the caller's to see");
    assert!(answer.headers.contains_key("location") && !answer.headers.contains_key("keep-alive"));
    let body: Vec<Bytes> = answer.body.map(|chunk| chunk.expect("bytes")).collect().await;
    assert_eq!(body.concat(), b"body", "nothing is decoded");
    let request = request.await.expect("a request").to_ascii_lowercase();
    assert!(request.starts_with("post /v1/messages?x=1 http/1.1\r\n"), "{request}");
    for line in ["x-client: 1", "x-otari-provider: local", "content-length: 7", "host: model"] {
        assert!(request.contains(&format!("\r\n{line}\r\n")), "{line} in {request}");
    }
}

#[tokio::test]
async fn silence_before_and_within_an_answer_ends_the_call() {
    let limits = ModelLimits { header_timeout: Duration::ZERO, ..ModelLimits::default() };
    let (client, _) = serve_once(b"", limits);
    assert!(matches!(client.send(call()).await, Err(UpstreamError::TimedOut)));

    let limits = ModelLimits { idle_timeout: Duration::ZERO, ..ModelLimits::default() };
    let (client, _request) = serve_once(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n", limits);
    let mut answer = client.send(call()).await.expect("a head");
    assert!(matches!(answer.body.next().await, Some(Err(UpstreamError::TimedOut))));
    assert!(answer.body.next().await.is_none());
}

#[tokio::test]
async fn a_mesh_is_not_told_of_providers() {
    use tokio::io::AsyncReadExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let client = ModelClient::new(ModelTarget::Url(url), ModelLimits::default()).expect("client");
    let reading = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = Vec::new();
        while !request.ends_with(b"{\"a\":1}") {
            stream.read_buf(&mut request).await.expect("a request");
        }
        String::from_utf8(request).expect("text")
    };
    let (answer, request) = tokio::join!(client.send(call()), reading);
    assert!(answer.is_err(), "it was never answered");
    assert!(request.starts_with("POST /v1/messages?x=1 HTTP/1.1\r\n") && request.contains("x-client: 1"), "{request}");
    assert!(!request.contains("otari"), "{request}");
}
