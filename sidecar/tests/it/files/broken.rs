//! Uploads that are too large, too slow, cut off or too many, or that find no room: a refusal, and nothing is left.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::form::{Form, TYPE};
use super::{VENDORS, Vendor, blobs, ids, nothing_is_left};
use crate::support::{KEY, Sidecar, start, start_with};

/// Sends the head of an upload and these bytes of its body.
async fn begun(sidecar: &Sidecar, length: Option<usize>, bytes: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(sidecar.config.data_dir.join("sidecar.sock")).await.unwrap();
    let secret = &sidecar.hop_secret;
    let length = length.map_or("transfer-encoding: chunked".to_owned(), |bytes| format!("content-length: {bytes}"));
    let head = format!("POST /v1/files HTTP/1.1\r\nhost: s\r\nx-otari-hop: {secret}\r\notari-key: {KEY}\r\n");
    stream.write_all(format!("{head}content-type: {TYPE}\r\n{length}\r\n\r\n").as_bytes()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// The answer, which is JSON, whether or not all of the request was read.
async fn answer(stream: &mut UnixStream) -> String {
    let mut answer = Vec::new();
    let read = async { while !answer.ends_with(b"}") && stream.read_buf(&mut answer).await.unwrap() > 0 {} };
    tokio::time::timeout(Duration::from_secs(30), read).await.expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Waits until some of an upload has reached the store.
async fn being_stored(sidecar: &Sidecar) {
    let stored = async {
        while blobs(sidecar).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), stored).await.expect("a blob in the making");
}

#[tokio::test]
async fn a_file_over_the_limit_is_a_413_that_names_it_and_leaves_nothing() {
    let sidecar = start_with("files: {max_bytes: 100000}").await;
    for vendor in VENDORS {
        let kind = if vendor == Vendor::OpenAi { "invalid_request_error" } else { "request_too_large" };
        let form = |bytes: usize| Form::default().named("a.bin", &vec![7; bytes]);
        for bytes in [100_001, 1_000_000] {
            let whole = vendor.upload(&sidecar, form(bytes)).await;
            let chunked = form(bytes).on(vendor.call(&sidecar, "POST", "/v1/files")).chunked().send().await;
            for answer in [whole, chunked] {
                let (message, _) = vendor.refused(&answer, 413, kind);
                assert!(message.contains("100000") && message.contains("files.max_bytes"), "{message}");
            }
        }
        nothing_is_left(&sidecar).await;
        let most = vendor.upload(&sidecar, form(100_000)).await;
        assert_eq!(most.status, 200, "{:?}", most.body);
        let id = most.json()["id"].as_str().unwrap().to_owned();
        vendor.call(&sidecar, "DELETE", &format!("/v1/files/{id}")).send().await;
    }
}

#[tokio::test]
async fn more_than_a_frameworks_usual_limit_is_no_matter() {
    let sidecar = start().await;
    for bytes in [(2 << 20) + 1, (32 << 20) + 1] {
        let file = Vendor::OpenAi.store(&sidecar, "a.bin", &vec![b'\r'; bytes]).await;
        assert_eq!(file["bytes"], bytes);
    }
}

#[tokio::test]
async fn a_client_that_sends_all_before_it_reads_gets_its_refusal() {
    let sidecar = start_with("files: {max_bytes: 100000}").await;
    let form = Form::default().named("a.bin", &vec![7; 8 << 20]).body();
    for announced in [Some(form.len()), None] {
        let chunk = format!("{:x}\r\n", form.len()).into_bytes();
        let body =
            if announced.is_some() { form.clone() } else { [chunk, form.clone(), b"\r\n0\r\n\r\n".to_vec()].concat() };
        let mut stream = begun(&sidecar, announced, &body).await;
        let answer = answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
}

#[tokio::test]
async fn an_upload_that_is_cut_off_leaves_nothing() {
    let sidecar = start().await;
    let form = Form::default().named("a.bin", &vec![7; 1 << 20]).unfinished();
    let mut cut = begun(&sidecar, Some(form.len() + 1000), &form).await;
    being_stored(&sidecar).await;
    assert_eq!(ids(&Vendor::OpenAi.get(&sidecar, "/v1/files").await.json()), Vec::<&str>::new());
    cut.shutdown().await.unwrap();
    drop(cut);
    nothing_is_left(&sidecar).await;
}

#[tokio::test]
async fn a_store_that_fails_is_a_500_without_its_reasons_and_leaves_no_file() {
    let sidecar = start().await;
    let folder = sidecar.config.data_dir.join("files");
    std::fs::remove_dir_all(&folder).ok();
    std::fs::write(&folder, b"no folder").unwrap();
    for vendor in VENDORS {
        let kind = if vendor == Vendor::OpenAi { "server_error" } else { "api_error" };
        let answer = vendor.upload(&sidecar, Form::default().named("a", &vec![7; 1 << 20])).await;
        let (message, _) = vendor.refused(&answer, 500, kind);
        assert!(!message.contains('/'), "{message}");
        assert_eq!(ids(&vendor.get(&sidecar, "/v1/files").await.json()), Vec::<&str>::new());
    }
}

#[tokio::test]
async fn silence_and_slowness_end_an_upload() {
    let form = Form::default().named("a.bin", &vec![7; 1000]).unfinished();
    for limits in [
        "http: {body_timeout_ms: 100, drain_timeout_ms: 100}",
        // The patience with silence is longer than the test's.
        "http: {body_timeout_ms: 100000, drain_timeout_ms: 100}\nfiles: {upload_deadline_ms: 1000}",
    ] {
        let sidecar = start_with(limits).await;
        let mut stream = begun(&sidecar, Some(form.len() + 1000), &form).await;
        let answer = answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("took too long"), "{answer}");
        nothing_is_left(&sidecar).await;
    }
}

#[tokio::test]
async fn the_deadline_of_other_bodies_is_not_that_of_an_upload() {
    let limits = "http: {body_deadline_ms: 10, body_timeout_ms: 60000, drain_timeout_ms: 100}";
    let sidecar = start_with(limits).await;
    let form = Form::default().named("a.bin", b"1234").body();
    let mut stream = begun(&sidecar, Some(form.len()), &form[..form.len() - 1]).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    stream.write_all(&form[form.len() - 1..]).await.unwrap();
    let answer = answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_full_workspace_is_told_so_in_each_vendors_words() {
    for (limits, key) in [
        ("files: {workspace_max_bytes: 10}", "files.workspace_max_bytes"),
        ("files: {workspace_max_files: 1}", "files.workspace_max_files"),
    ] {
        let sidecar = start_with(limits).await;
        Vendor::OpenAi.store(&sidecar, "first", b"123456").await;
        let again = async |vendor: Vendor| vendor.upload(&sidecar, Form::default().named("second", b"123456")).await;
        let refused = again(Vendor::OpenAi).await;
        let (message, _) = Vendor::OpenAi.refused(&refused, 400, "invalid_request_error");
        assert!(message.contains(key), "{message}");
        assert_eq!(refused.json()["error"]["code"], "storage_quota_exceeded");
        let refused = again(Vendor::Anthropic).await;
        Vendor::Anthropic.refused(&refused, 400, "invalid_request_error");
        assert_eq!(refused.json()["error"]["details"], json!({"error_code": "storage_quota_exceeded"}));
    }
}

#[tokio::test]
async fn a_name_that_anthropics_service_refuses_is_refused_to_its_clients_alone() {
    let sidecar = start_with("").await;
    for letter in ["<", ">", ":", "|", "?", "*"] {
        let form = || Form::default().named(&format!("a{letter}b.csv"), b"1");
        let refused = Vendor::Anthropic.upload(&sidecar, form()).await;
        let (message, _) = Vendor::Anthropic.refused(&refused, 400, "invalid_request_error");
        assert!(message.contains("characters < > : \" | ? *") && message.contains("another one"), "{message}");
        assert_eq!(Vendor::OpenAi.upload(&sidecar, form()).await.json()["filename"], format!("a{letter}b.csv"));
    }
}

#[tokio::test]
async fn when_as_many_uploads_run_as_may_the_next_is_told_to_come_back() {
    let sidecar = start_with("files: {max_concurrent_uploads: 1}\nhttp: {drain_timeout_ms: 100}").await;
    let form = Form::default().named("a.bin", &vec![7; 1 << 20]).unfinished();
    let first = begun(&sidecar, Some(form.len() + 1000), &form).await;
    being_stored(&sidecar).await;
    let second = Vendor::Anthropic.upload(&sidecar, Form::default().named("b", b"1")).await;
    let (message, _) = Vendor::Anthropic.refused(&second, 529, "overloaded_error");
    assert!(message.contains("files.max_concurrent_uploads"), "{message}");
    assert_eq!(second.header("retry-after"), Some("1"));
    drop(first);
    Vendor::OpenAi.store(&sidecar, "c", b"1").await;
}

#[tokio::test]
async fn files_that_are_switched_off_are_a_404_before_anything_else() {
    let sidecar = start_with("files: {enabled: false}").await;
    for vendor in VENDORS {
        let kind = if vendor == Vendor::OpenAi { "invalid_request_error" } else { "not_found_error" };
        for (method, path) in [
            ("POST", "/v1/files"),
            ("GET", "/v1/files"),
            ("GET", "/v1/files/file-x"),
            ("DELETE", "/api/v1/files/file-x"),
            ("GET", "/v1/files/file-x/content"),
        ] {
            // Without a key.
            let call = sidecar.bare_call(method, path).header("x-otari-hop", &sidecar.hop_secret);
            let (message, _) = vendor.refused(&vendor.speak(call).send().await, 404, kind);
            assert!(message.contains("files.enabled"), "{message}");
        }
    }
}
