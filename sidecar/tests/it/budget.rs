//! Bodies of all connections together have a limit.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use crate::support::{KEY, Sidecar, Upstream, start_with};

const BODY: &str = "{\"model\": \"claude-x\"}";

/// Sends all of a body but its last byte.
async fn unfinished(sidecar: &Sidecar) -> UnixStream {
    let mut stream = UnixStream::connect(sidecar.config.data_dir.join("sidecar.sock")).await.unwrap();
    let secret = &sidecar.hop_secret;
    let head = format!("POST /v1/messages HTTP/1.1\r\nhost: s\r\nx-otari-hop: {secret}\r\notari-key: {KEY}\r\n");
    let body = format!("{BODY}{}", " ".repeat(1999 - BODY.len()));
    stream.write_all(format!("{head}content-length: 2000\r\n\r\n{body}").as_bytes()).await.unwrap();
    stream
}

/// Waits until so many bytes are held.
async fn held(sidecar: &Sidecar, bytes: u64) {
    let line = format!("otari_sidecar_buffered_bytes {bytes}\n");
    let seen = async {
        loop {
            let metrics = sidecar.call("GET", "/otari/metrics").send().await;
            if String::from_utf8_lossy(&metrics.body).contains(&line) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect(&line);
}

#[tokio::test]
async fn a_body_that_does_not_fit_beside_the_others_is_told_to_come_back() {
    let limits = "max_body_bytes: 4096\nhttp: {max_buffered_bytes: 4096, drain_timeout_ms: 100}";
    let sidecar = start_with(limits).await;
    let upstream = Upstream::answering(&sidecar.config.model_socket(), 200, &[], b"{}");
    let first = unfinished(&sidecar).await;
    held(&sidecar, 2048).await;
    let second = unfinished(&sidecar).await;
    held(&sidecar, 4096).await;
    let refused = sidecar.call("POST", "/v1/messages").body(BODY).send().await;
    assert_eq!((refused.status, refused.header("retry-after")), (529, Some("1")));
    assert_eq!(refused.json()["error"]["type"], "overloaded_error");
    let refused = sidecar.call("POST", "/v1/chat/completions").json(&json!({"model": "gpt-x"})).send().await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.json()["error"]["type"], "server_error");
    assert!(upstream.recorded().is_empty());
    drop(first);
    held(&sidecar, 2048).await;
    assert_eq!(sidecar.call("POST", "/v1/messages").body(BODY).send().await.status, 200);
    held(&sidecar, 2048).await;
    drop(second);
    held(&sidecar, 0).await;
}
