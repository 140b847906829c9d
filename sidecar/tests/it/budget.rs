//! Bodies have limits of size and time, over all connections; and connections have a limit that leaves some room.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
            let metrics = sidecar.admin("GET", "/otari/metrics").send().await;
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

/// A file under the longest name there is, which JSON makes twice as long.
async fn store_one(sidecar: &Sidecar) {
    let name = "\\\"".repeat(255);
    let form = format!("--x\r\ncontent-disposition: form-data; name=file; filename=\"{name}\"\r\n\r\n1\r\n--x--\r\n");
    let call = sidecar.call("POST", "/v1/files").header("content-type", "multipart/form-data; boundary=x");
    let answer = call.body(form).send().await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
}

#[tokio::test]
async fn a_list_counts_until_it_has_left() {
    let sidecar = start_with("http: {max_buffered_bytes_per_workspace: 67108864, drain_timeout_ms: 100}").await;
    // As if they had been uploaded.
    sqlx::any::install_default_drivers();
    let database = format!("sqlite://{}", sidecar.config.data_dir.join("otari.db").display());
    let database = sqlx::AnyPool::connect(&database).await.unwrap();
    let rows = "INSERT INTO files (id, user_id, workspace_id, state, filename, mime_type, purpose, size_bytes, sha256, \
         created_at_ms, sweep_at_ms) \
         WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3000) \
         SELECT printf('file-otr%032x', n), 'default', 'default', 'stored', printf('%.*c', 255, '\"'), 'text/csv', \
         'user_data', 1, 'x', n, 9223372036854775807 FROM c";
    sqlx::query(rows).execute(&database).await.unwrap();
    database.close().await;
    counts_until_it_has_left(&sidecar, "/v1/files").await;
    let whole = sidecar.call("GET", "/v1/files").send().await;
    assert_eq!(whole.json()["data"].as_array().unwrap().len(), 3000);
    assert_eq!(whole.header("content-length"), Some(&*whole.body.len().to_string()));
    held(&sidecar, 0).await;
}

/// What is answered here is more than sockets and queues hold, and nobody reads it.
async fn counts_until_it_has_left(sidecar: &Sidecar, path: &str) {
    let unread = sidecar.call("GET", path).open().await;
    let some = async {
        loop {
            let metrics = sidecar.admin("GET", "/otari/metrics").send().await;
            let text = String::from_utf8_lossy(&metrics.body).into_owned();
            let held = text.lines().find_map(|line| line.strip_prefix("otari_sidecar_buffered_bytes "));
            if held.unwrap().parse::<u64>().unwrap() > 1_000_000 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), some).await.unwrap();
    drop(unread);
    held(sidecar, 0).await;
}

const KEPT: &str = "resp_otr00000000000000000000000000000001";

/// As if it had been answered: 2 MiB that were said, and as many in the answer.
async fn keep_one(sidecar: &Sidecar) {
    sqlx::any::install_default_drivers();
    let database = format!("sqlite://{}", sidecar.config.data_dir.join("otari.db").display());
    let database = sqlx::AnyPool::connect(&database).await.unwrap();
    let row = "INSERT INTO stored_responses (id, user_id, workspace_id, input, output, size_bytes, created_at_ms, \
         expires_at_ms, envelope) VALUES ($1, 'default', 'default', $2, $3, 1, 1, 9223372036854775807, '{\"id\":\"r\"}')";
    let text = "x".repeat(2 << 20);
    let input = json!([{"role": "user", "content": text}]).to_string();
    let output = json!([{"type": "message", "id": "msg_otr1", "content": text}]).to_string();
    sqlx::query(row).bind(KEPT).bind(input).bind(output).execute(&database).await.unwrap();
    database.close().await;
}

#[tokio::test]
async fn a_kept_answer_counts_until_it_has_left() {
    let sidecar = start_with("http: {max_buffered_bytes_per_workspace: 67108864, drain_timeout_ms: 100}").await;
    keep_one(&sidecar).await;
    for (path, items) in [("", "output"), ("/input_items", "data")] {
        let path = format!("/v1/responses/{KEPT}{path}");
        counts_until_it_has_left(&sidecar, &path).await;
        let whole = sidecar.call("GET", &path).send().await;
        assert_eq!(whole.json()[items].as_array().unwrap().len(), 1);
        assert_eq!(whole.header("content-length"), Some(&*whole.body.len().to_string()));
        held(&sidecar, 0).await;
    }
}

#[tokio::test]
async fn a_kept_answer_that_is_too_much_for_the_workspace_is_told_to_come_back() {
    let sidecar = start_with("max_body_bytes: 4096\nhttp: {max_buffered_bytes_per_workspace: 1048576}").await;
    let upstream = Upstream::answering(&sidecar.config.model_socket(), 200, &[], b"{}");
    keep_one(&sidecar).await;
    let next = json!({"model": "gpt-x", "input": "And?", "previous_response_id": KEPT});
    for call in [
        sidecar.call("GET", &format!("/v1/responses/{KEPT}")),
        sidecar.call("GET", &format!("/v1/responses/{KEPT}/input_items")),
        sidecar.call("POST", "/v1/responses").json(&next),
    ] {
        let refused = call.send().await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{:?}", refused.body);
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("http.max_buffered_bytes_per_workspace"), "{message}");
        held(&sidecar, 0).await;
    }
    assert!(upstream.recorded().is_empty());
}

#[tokio::test]
async fn a_list_that_is_too_much_for_the_workspace_is_told_to_come_back() {
    let sidecar = start_with("max_body_bytes: 4096\nhttp: {max_buffered_bytes_per_workspace: 4096}").await;
    for _ in 0..8 {
        store_one(&sidecar).await;
    }
    let refused = sidecar.call("GET", "/v1/files").send().await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("http.max_buffered_bytes_per_workspace"), "{message}");
    let few = sidecar.call("GET", "/v1/files?limit=2").send().await;
    assert_eq!(few.status, 200);
}

#[tokio::test]
async fn who_does_not_read_an_answer_loses_the_connection_and_who_waits_for_one_does_not() {
    let sidecar = start_with("http: {stall_timeout_ms: 200, drain_timeout_ms: 100}").await;
    let content = vec![7; 32 << 20];
    let form = [&b"--x\r\ncontent-disposition: form-data; name=file\r\n\r\n"[..], &content, b"\r\n--x--\r\n"].concat();
    let call = sidecar.call("POST", "/v1/files").header("content-type", "multipart/form-data; boundary=x");
    let id = call.body(form).send().await.json()["id"].as_str().unwrap().to_owned();
    let mut unread = sidecar.call("GET", &format!("/v1/files/{id}/content")).open().await;
    // It says so itself when it has given up.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut bytes = 0;
    let broke = loop {
        match unread.piece().await {
            Ok(Some(piece)) => bytes += piece.len(),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broke && bytes < content.len(), "{bytes} bytes came after all");
    // Silence of a model's is none of its client's.
    let (_upstream, pieces) = Upstream::streaming(&sidecar.config.model_socket());
    let mut answer = Box::pin(sidecar.call("POST", "/v1/messages").body(BODY).open());
    let mut open = tokio::select! {
        open = &mut answer => open,
        () = async {
            pieces.send(Ok(hyper::body::Frame::data(bytes::Bytes::from_static(b"data: 1\n\n")))).await.unwrap();
            std::future::pending::<()>().await;
        } => unreachable!("it waits for ever"),
    };
    assert!(open.piece().await.unwrap().is_some());
    tokio::time::sleep(Duration::from_millis(600)).await;
    pieces.send(Ok(hyper::body::Frame::data(bytes::Bytes::from_static(b"data: 2\n\n")))).await.unwrap();
    assert_eq!(open.piece().await.unwrap().unwrap(), "data: 2\n\n");
}

#[tokio::test]
async fn a_client_that_sends_all_before_it_reads_gets_its_early_answer() {
    let sidecar = start_with("max_body_bytes: 4096").await;
    let body = vec![b' '; 8 << 20];
    for hop in [&*sidecar.hop_secret, "wrong"] {
        let mut stream = UnixStream::connect(sidecar.config.data_dir.join("sidecar.sock")).await.unwrap();
        let head = format!("POST /v1/messages HTTP/1.1\r\nhost: s\r\nx-otari-hop: {hop}\r\notari-key: {KEY}\r\n");
        stream.write_all(format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes()).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let mut answer = Vec::new();
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
        assert!(answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    }
}

#[tokio::test]
async fn a_body_that_trickles_for_ever_has_a_deadline() {
    let limits = "http: {body_timeout_ms: 20000, body_deadline_ms: 200, drain_timeout_ms: 100}";
    let sidecar = start_with(limits).await;
    let mut stream = unfinished(&sidecar).await;
    // The patience with silence is a hundred times as long, and longer than the test's.
    let mut answer = Vec::new();
    let answered = stream.read_buf(&mut answer);
    tokio::time::timeout(Duration::from_secs(15), answered).await.expect("an answer").unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn health_and_the_snapshot_are_answered_when_every_connection_is_taken() {
    let sidecar = start_with("http: {max_connections: 2, drain_timeout_ms: 100}").await;
    let _upstream = Upstream::answering(&sidecar.config.model_socket(), 200, &[], b"{}");
    let (first, second) = (unfinished(&sidecar).await, unfinished(&sidecar).await);
    let refused = sidecar.call("POST", "/v1/messages").body(BODY).send().await;
    assert_eq!((refused.status, refused.header("retry-after")), (529, Some("1")));
    assert_eq!(sidecar.admin("GET", "/otari/metrics").send().await.status, 503);
    // More often than there are connections in reserve: each is given back with its answer.
    for _ in 0..100 {
        assert_eq!(sidecar.bare_call("GET", "/healthz").send().await.status, 200);
        let snapshot = sidecar.call("GET", "/otari/internal/snapshot").send().await;
        assert_eq!((snapshot.status, snapshot.header("connection")), (200, Some("close")));
    }
    drop((first, second));
    let served = async {
        while sidecar.call("POST", "/v1/messages").body(BODY).send().await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), served).await.expect("the places are free again");
}
