//! What becomes of an upload: a file, or a refusal that leaves nothing.

use std::time::Duration;

use serde_json::{Value, json};
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
async fn a_file_uploaded_in_either_vendors_words_is_there_in_both() {
    let sidecar = start().await;
    let content: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    for by in VENDORS {
        let file = by.store(&sidecar, "a b é.csv", &content).await;
        let id = file["id"].as_str().unwrap();
        assert!(id.starts_with("file-otr"));
        let openai = Vendor::OpenAi.get(&sidecar, &format!("/v1/files/{id}")).await.json();
        let anthropic = Vendor::Anthropic.get(&sidecar, &format!("/api/v1/files/{id}")).await.json();
        assert_eq!(file, if by == Vendor::OpenAi { openai.clone() } else { anthropic.clone() });
        let created_at = openai["created_at"].as_i64().unwrap();
        let expected = json!({
            "id": id, "object": "file", "bytes": 1 << 20, "created_at": created_at, "expires_at": null,
            "filename": "a b é.csv", "purpose": "user_data", "status": "processed", "status_details": null,
        });
        assert_eq!(openai, expected);
        let time = anthropic["created_at"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.len() == "2025-11-30T08:00:00.007000Z".len(), "{time}");
        assert_eq!(time.parse::<jiff::Timestamp>().unwrap().as_second(), created_at);
        let expected = json!({
            "id": id, "type": "file", "filename": "a b é.csv", "mime_type": "text/csv", "size_bytes": 1 << 20,
            "created_at": time, "expires_at": null, "downloadable": true,
        });
        assert_eq!(anthropic, expected);
        for vendor in VENDORS {
            let bytes = vendor.get(&sidecar, &format!("/v1/files/{id}/content")).await;
            assert!(bytes.status == 200 && bytes.body == content);
        }
        let (deleted, gone) = match by {
            Vendor::OpenAi => (json!({"id": id, "object": "file", "deleted": true}), "invalid_request_error"),
            Vendor::Anthropic => (json!({"id": id, "type": "file_deleted"}), "not_found_error"),
        };
        let delete = async || by.call(&sidecar, "DELETE", &format!("/v1/files/{id}")).send().await;
        assert_eq!(delete().await.json(), deleted);
        by.refused(&delete().await, 404, gone);
        for path in [format!("/v1/files/{id}"), format!("/v1/files/{id}/content")] {
            by.refused(&by.get(&sidecar, &path).await, 404, gone);
        }
    }
    nothing_is_left(&sidecar).await;
}

#[tokio::test]
async fn parts_come_in_any_order_with_or_without_a_length() {
    let sidecar = start().await;
    let before = Form::default().field("purpose", "assistants").named("a.txt", b"one");
    let after = Form::default().named("a.txt", b"one").field("purpose", "assistants");
    for form in [before, after] {
        let whole = Vendor::OpenAi.upload(&sidecar, form.clone()).await;
        let chunked = form.on(sidecar.call("POST", "/v1/files")).chunked().send().await;
        for answer in [whole, chunked] {
            assert_eq!(answer.status, 200, "{:?}", answer.body);
            assert_eq!(answer.json()["purpose"], "assistants");
        }
    }
    let expiry = |form: Form| form.field("expires_in_seconds", "3600");
    for form in [expiry(Form::default()).named("a", b"1"), expiry(Form::default().named("a", b"1"))] {
        let file = Vendor::Anthropic.upload(&sidecar, form).await.json();
        let time = |name: &str| file[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
        let life = time("expires_at") - time("created_at");
        assert!((3590..=3600).contains(&life), "{life}");
    }
}

#[tokio::test]
async fn bytes_without_a_name_get_one() {
    let sidecar = start().await;
    let typed = |kind: &str| Form::default().part(&format!("form-data; name=\"file\"\r\nContent-Type: {kind}"), b"1");
    for (vendor, kind, name, mime) in [
        (Vendor::Anthropic, "application/octet-stream", "unnamed", "application/octet-stream"),
        (Vendor::Anthropic, "text/plain; charset=utf-8", "unnamed.txt", "text/plain; charset=utf-8"),
        (Vendor::Anthropic, "application/pdf", "unnamed.pdf", "application/pdf"),
        (Vendor::OpenAi, "image/png", "upload.png", "image/png"),
    ] {
        let answer = vendor.upload(&sidecar, typed(kind)).await.json();
        assert_eq!(answer["filename"], name, "{answer}");
        let id = answer["id"].as_str().unwrap();
        let seen = Vendor::Anthropic.get(&sidecar, &format!("/v1/files/{id}")).await.json();
        assert_eq!(seen["mime_type"], mime);
    }
}

#[tokio::test]
async fn a_name_is_kept_as_a_person_wrote_it_or_refused() {
    let sidecar = start().await;
    let long = "x".repeat(255);
    for (disposition, expected) in [
        ("filename=\"测试.docx\"", "测试.docx"),
        ("filename*=UTF-8''%E6%96%87%E6%A1%A3.docx", "文档.docx"),
        ("filename=\"plain.txt\"; filename*=UTF-8''na%C3%AFve.txt", "naïve.txt"),
        ("filename=\"100%25.txt\"", "100%25.txt"),
        (r#"filename="C:\dir\a.txt""#, "a.txt"),
        ("filename=\"../../etc/passwd\"", "passwd"),
        (r#"filename="say \"hi\".txt""#, "say \"hi\".txt"),
        (&format!("filename=\"{long}\""), &long),
    ] {
        let form = Form::default().part(&format!("form-data; name=\"file\"; {disposition}"), b"1");
        let answer = Vendor::OpenAi.upload(&sidecar, form).await;
        assert_eq!(answer.json()["filename"], expected, "{disposition}");
    }
    let before = blobs(&sidecar).len();
    for disposition in [
        "filename=\"\"",
        "filename=\"..\"",
        "filename=\"folder/\"",
        "filename*=UTF-8''a%00b",
        "filename*=UTF-8''a%0D%0Ab",
        "filename*=UTF-8''a%E2%80%AEgpj.exe",
        "filename*=latin1''a.txt",
        "filename=\"a\u{1}b\"",
        "filename=\"a",
        &format!("filename=\"{long}x\""),
        &format!("filename=\"{}\"", "x".repeat(501)),
    ] {
        for vendor in VENDORS {
            let form = Form::default().part(&format!("form-data; name=\"file\"; {disposition}"), b"1");
            vendor.refused(&vendor.upload(&sidecar, form).await, 400, "invalid_request_error");
        }
    }
    assert_eq!(blobs(&sidecar).len(), before);
}

#[tokio::test]
async fn what_is_no_upload_is_refused_in_the_callers_words() {
    let sidecar = start().await;
    let good = || Form::default().named("a.txt", b"1");
    for vendor in VENDORS {
        let send = async |content_type: &str, body: Vec<u8>| {
            let call = vendor.call(&sidecar, "POST", "/v1/files").header("content-type", content_type).body(body);
            vendor.refused(&call.send().await, 400, "invalid_request_error")
        };
        let json = send("application/json", b"{}".to_vec()).await;
        assert!(json.0.contains("multipart/form-data"), "{json:?}");
        send("multipart/form-data", good().body()).await;
        send(TYPE, Vec::new()).await;
        send(TYPE, good().unfinished()).await;
        send(TYPE, b"no form at all".to_vec()).await;
        let odd = async |form: Form| send(TYPE, form.body()).await;
        assert!(odd(Form::default()).await.0.contains("no part `file`"));
        assert!(odd(good().named("b.txt", b"2")).await.0.contains("two parts `file`"));
        assert!(odd(Form::default().named("a.txt", b"")).await.0.contains("empty"));
        assert!(odd(Form::default().typed("a.txt", "text", b"1")).await.0.contains("Content-Type"));
        let (message, param) = odd(good().field("colour", "red")).await;
        assert!(message.contains("`colour`"), "{message}");
        assert_eq!(param, if vendor == Vendor::OpenAi { json!("colour") } else { Value::Null });
    }
    nothing_is_left(&sidecar).await;
}

#[tokio::test]
async fn expiry_is_honoured_or_refused_and_never_ignored() {
    let sidecar = start().await;
    let with = async |vendor: Vendor, fields: &[(&str, &str)]| {
        let form = fields.iter().fold(Form::default().named("a", b"1"), |form, (name, value)| form.field(name, value));
        vendor.upload(&sidecar, form).await
    };
    let seconds = "expires_after[seconds]";
    let anchored =
        async |value: &str| with(Vendor::OpenAi, &[("expires_after[anchor]", "created_at"), (seconds, value)]).await;
    assert_eq!(with(Vendor::OpenAi, &[]).await.json()["expires_at"], Value::Null);
    for value in ["3600", "2592000"] {
        let file = anchored(value).await.json();
        let life = file["expires_at"].as_i64().unwrap() - file["created_at"].as_i64().unwrap();
        let asked: i64 = value.parse().unwrap();
        assert!((asked - 10..=asked).contains(&life), "{life}");
    }
    for value in ["3599", "2592001", "-1", "1e9", "x"] {
        let (_, param) = Vendor::OpenAi.refused(&anchored(value).await, 400, "invalid_request_error");
        assert_eq!(param, seconds);
    }
    for fields in [
        &[("expires_after", "604800")][..],
        &[("expires_after.anchor", "created_at"), ("expires_after.seconds", "604800")],
        &[("expires_after[anchor]", "uploaded_at"), (seconds, "604800")],
        &[(seconds, "604800")],
        &[("expires_in_seconds", "3600")],
    ] {
        Vendor::OpenAi.refused(&with(Vendor::OpenAi, fields).await, 400, "invalid_request_error");
    }
    for fields in [[("expires_in_seconds", "3599")], [("expires_in_seconds", "7776001")], [(seconds, "3600")]] {
        Vendor::Anthropic.refused(&with(Vendor::Anthropic, &fields).await, 400, "invalid_request_error");
    }
}

#[tokio::test]
async fn a_purpose_is_one_of_openais() {
    let sidecar = start().await;
    for purpose in ["assistants", "batch", "fine-tune", "vision", "user_data", "evals"] {
        let form = Form::default().field("purpose", purpose).named("a", b"1");
        assert_eq!(Vendor::OpenAi.upload(&sidecar, form).await.json()["purpose"], purpose);
    }
    for purpose in ["asistants", "code_execution_output"] {
        let form = Form::default().field("purpose", purpose).named("a", b"1");
        let (message, param) =
            Vendor::OpenAi.refused(&Vendor::OpenAi.upload(&sidecar, form).await, 400, "invalid_request_error");
        assert!(param == "purpose" && message.contains("`user_data`"), "{message}");
    }
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
