//! What becomes of an upload: a file, or a refusal that leaves nothing.

use serde_json::{Value, json};

use super::form::{Form, TYPE};
use super::{VENDORS, Vendor, blobs, nothing_is_left};
use crate::support::start;

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
