//! What a files request leaves in the log and the counters: ids and sizes, nothing that its caller wrote.

use serde_json::{Value, json};

use super::Vendor;
use super::form::Form;
use crate::access::Serving;
use crate::support::start;

#[tokio::test(flavor = "multi_thread")]
async fn a_files_request_leaves_one_line_with_the_file_and_its_size() {
    let mut serving = Serving::start("");
    let form = Form::default().typed("canary-name.csv", "text/x-canary-type", b"canary-content");
    let uploaded = form.on(serving.call("POST", "/v1/files")).send().await.json();
    let id = uploaded["id"].as_str().unwrap().to_owned();
    let mut lines = vec![serving.line("request")];
    assert_eq!(lines[0]["fields"]["received_bytes"], 14);
    for (method, path, status) in [
        ("GET", format!("/v1/files/{id}"), 200),
        ("GET", format!("/v1/files/{id}/content"), 200),
        ("DELETE", format!("/v1/files/{id}"), 200),
        ("GET", format!("/v1/files/{id}"), 404),
        ("GET", "/v1/files/canary-id".to_owned(), 404),
        ("GET", "/v1/files?purpose=canary-word".to_owned(), 400),
    ] {
        let answer = serving.call(method, &path).send().await;
        assert_eq!(answer.status, status, "{path}");
        let line = serving.line("request");
        let route = path.split('?').next().unwrap().replace(&id, "{id}").replace("canary-id", "{id}");
        assert_eq!(line["fields"]["http.route"], route, "{line}");
        let file = if status == 200 { json!(id) } else { Value::Null };
        assert_eq!(line["fields"]["file.id"], file, "{line}");
        lines.push(line);
    }
    assert_eq!((&lines[2]["fields"]["sent_bytes"], &lines[2]["fields"]["end"]), (&json!(14), &json!("complete")));
    assert!(!json!(lines).to_string().contains("canary"), "{lines:?}");
}

#[tokio::test]
async fn bytes_of_files_are_counted_both_ways() {
    let sidecar = start().await;
    let file = Vendor::OpenAi.store(&sidecar, "a", &vec![7; 100_000]).await;
    let path = format!("/v1/files/{}/content", file["id"].as_str().unwrap());
    Vendor::OpenAi.get(&sidecar, &path).await;
    sidecar.call("GET", &path).header("range", "bytes=0-9").send().await;
    let metrics = sidecar.admin("GET", "/otari/metrics").send().await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    for line in [
        r#"otari_sidecar_file_bytes_total{direction="received"} 100000"#,
        r#"otari_sidecar_file_bytes_total{direction="sent"} 100010"#,
        r#"otari_sidecar_requests_total{route="/v1/files",status="200",end="complete"} 1"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
}
