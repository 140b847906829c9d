//! Stopping in good order.

use std::time::Duration;

use bytes::Bytes;
use hyper::body::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use crate::support::{KEY, Sidecar, Upstream, start, start_with};

const BODY: &str = "{\"model\":\"claude-x\",\"messages\":[]}";

#[tokio::test]
async fn an_open_stream_is_finished_before_the_sidecar_ends() {
    let sidecar = start().await;
    let (_upstream, pieces) = Upstream::streaming(&sidecar.config.model_socket());
    pieces.send(Ok(Frame::data(Bytes::from_static(b"one")))).await.unwrap();
    let mut open = sidecar.call("POST", "/v1/messages").body(BODY).open().await;
    assert_eq!(open.piece().await.unwrap().unwrap(), "one");
    let socket = sidecar.config.data_dir.join("sidecar.sock");
    sidecar.stop();
    pieces.send(Ok(Frame::data(Bytes::from_static(b"two")))).await.unwrap();
    drop(pieces);
    assert_eq!(open.piece().await.unwrap().unwrap(), "two");
    assert!(open.piece().await.unwrap().is_none());
    let _folder = sidecar.stopped().await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_stream_that_does_not_end_is_given_up_at_the_deadline() {
    let sidecar = start_with("http: {drain_timeout_ms: 50}").await;
    let (_upstream, pieces) = Upstream::streaming(&sidecar.config.model_socket());
    pieces.send(Ok(Frame::data(Bytes::from_static(b"one")))).await.unwrap();
    let mut open = sidecar.call("POST", "/v1/messages").body(BODY).open().await;
    open.piece().await.unwrap();
    let _folder = sidecar.stopped().await;
    assert!(open.piece().await.is_err());
    pieces.closed().await;
}

/// A model that takes one call and answers it with these bytes, or not at all; gives the connection.
async fn called(sidecar: &Sidecar, listener: &UnixListener, answer: &str) -> (UnixStream, UnixStream) {
    let mut client = UnixStream::connect(sidecar.config.data_dir.join("sidecar.sock")).await.unwrap();
    let head = format!("POST /v1/messages HTTP/1.1\r\nhost: s\r\nx-otari-hop: {}\r\n", sidecar.hop_secret);
    let head = format!("{head}otari-key: {KEY}\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len());
    client.write_all(head.as_bytes()).await.unwrap();
    let (mut model, _) = listener.accept().await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(BODY.as_bytes()) {
        model.read_buf(&mut seen).await.unwrap();
    }
    model.write_all(answer.as_bytes()).await.unwrap();
    let mut told = Vec::new();
    while !answer.is_empty() && !told.ends_with(b"one\r\n") {
        client.read_buf(&mut told).await.unwrap();
    }
    (client, model)
}

#[tokio::test]
async fn a_client_that_leaves_during_the_drain_is_not_waited_for() {
    for answer in ["", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n"] {
        let sidecar = start_with("http: {drain_timeout_ms: 60000}").await;
        let listener = UnixListener::bind(sidecar.config.model_socket()).unwrap();
        let (client, mut model) = called(&sidecar, &listener, answer).await;
        let socket = sidecar.config.data_dir.join("sidecar.sock");
        sidecar.stop();
        // The listener goes when the sidecar has taken note.
        while socket.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(client);
        let mut rest = Vec::new();
        let ended = async {
            while model.read_buf(&mut rest).await.unwrap() > 0 {}
            sidecar.stopped().await
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the drain ends with the last client");
    }
}

#[tokio::test]
async fn a_second_sidecar_in_the_same_folder_is_refused_and_a_dead_ones_socket_is_not_in_the_way() {
    use sidecar::app::App;

    use crate::support::parts;

    let sidecar = start().await;
    let error = App::build(&sidecar.config, parts()).await.unwrap_err();
    assert!(sidecar::telemetry::chain(&error).contains("another sidecar"), "{error:?}");
    let config = sidecar.config.clone();
    let _folder = sidecar.stopped().await;
    let path = config.data_dir.join("sidecar.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    App::build(&config, parts()).await.unwrap();
}
