//! Files through a real Envoy: streamed both ways, by the mesh's own identity, past its other filters, and kept secret.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use harness::client::{Answer, Call};
use harness::stack::{Setup, Stack, eventually};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::mesh::{self, mesh_of};
use crate::support::{start, tag};

const TYPE: &str = "multipart/form-data; boundary=a-boundary";
const HEAD: &str = "--a-boundary\r\nContent-Disposition: form-data; name=\"file\"; filename=";
const END: &str = "\r\n--a-boundary--\r\n";
/// For whatever should happen at once.
const SOON: Duration = Duration::from_secs(20);

fn upload(name: &str, media_type: &str, content: &[u8]) -> Call {
    let head = format!("{HEAD}\"{name}\"\r\nContent-Type: {media_type}\r\n\r\n");
    let body = [head.as_bytes(), content, END.as_bytes()].concat();
    Call::new(Method::POST, "/v1/files").header("content-type", TYPE).bytes(body)
}

fn id(answer: &Answer) -> String {
    answer.json()["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned()
}

/// Blobs in the store, whole or not; beside their folders it keeps a mark of its own.
fn blobs(stack: &Stack) -> usize {
    let mut count = 0;
    let mut folders = vec![stack.data_dir().join("files")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "otari-file-store") {
                count += 1;
            }
        }
    }
    count
}

/// An upload of which the head and this much of the content is sent.
async fn begun(stack: &Stack, content: &[u8], rest: usize) -> TcpStream {
    let head = format!("{HEAD}\"a.bin\"\r\n\r\n");
    let bytes = head.len() + content.len() + rest + END.len();
    let mut socket = TcpStream::connect(stack.address()).await.unwrap();
    let request = format!("POST /v1/files HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\n", stack.key());
    let request = format!("{request}content-type: {TYPE}\r\ncontent-length: {bytes}\r\n\r\n{head}");
    socket.write_all(request.as_bytes()).await.unwrap();
    socket.write_all(content).await.unwrap();
    socket
}

async fn answer(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read =
        async { while !answer.trim_ascii_end().ends_with(b"}") && socket.read_buf(&mut answer).await.unwrap() > 0 {} };
    tokio::time::timeout(SOON, read).await.expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

async fn list(stack: &Stack) -> Vec<Value> {
    let list = stack.send(Call::get("/v1/files")).await;
    list.json()["data"].as_array().unwrap_or_else(|| panic!("{}", list.text())).clone()
}

#[tokio::test]
async fn an_upload_reaches_the_store_while_it_is_sent_and_one_cut_off_leaves_nothing() {
    let stack = start(Setup::default()).await;
    let content = vec![b'\n'; 4 << 20];
    let mut whole = begun(&stack, &content, 1).await;
    assert!(eventually(SOON, async || blobs(&stack) == 1).await, "nothing of it has reached the store");
    assert_eq!(list(&stack).await, Vec::<Value>::new());
    whole.write_all(format!("\n{END}").as_bytes()).await.unwrap();
    let said = answer(&mut whole).await;
    assert!(said.starts_with("HTTP/1.1 200 ") && said.contains(&format!("\"bytes\":{}", content.len() + 1)), "{said}");
    drop(begun(&stack, &content, 1).await);
    let cut = begun(&stack, &content, 1).await;
    assert!(eventually(SOON, async || blobs(&stack) > 1).await);
    drop(cut);
    assert!(eventually(SOON, async || blobs(&stack) == 1).await, "{} blobs", blobs(&stack));
    assert_eq!(list(&stack).await.len(), 1);
}

#[tokio::test]
async fn a_file_longer_than_any_other_body_may_be_goes_under_either_root() {
    let stack = start(Setup::default()).await;
    // Over `max_body_bytes`, which is 64 MiB.
    let pieces = vec![Bytes::from(vec![7; 1 << 20]); 70];
    let head = Bytes::from(format!("{HEAD}\"a.bin\"\r\n\r\n"));
    let body = [vec![head], pieces, vec![Bytes::from_static(END.as_bytes())]].concat();
    for root in ["/v1", "/api/v1"] {
        let call = Call::new(Method::POST, format!("{root}/files")).header("content-type", TYPE).chunks(body.clone());
        let file = stack.send(call).await;
        assert_eq!(file.json()["bytes"], 70 << 20, "{}", file.text());
        let path = format!("{root}/files/{}/content", id(&file));
        let open = Call::get(path).bearer(stack.key()).open(stack.address()).await.unwrap();
        assert_eq!(open.discard().await.unwrap(), 70 << 20);
    }
}

#[tokio::test]
async fn an_upload_may_take_longer_than_other_bodies() {
    let stack = start(Setup::default().set("http", "{body_deadline_ms: 300}")).await;
    let mut slow = begun(&stack, b"1", 50).await;
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        slow.write_all(b"2").await.unwrap();
    }
    slow.write_all(END.as_bytes()).await.unwrap();
    let said = answer(&mut slow).await;
    assert!(said.starts_with("HTTP/1.1 200 ") && said.contains("\"bytes\":51"), "{said}");
}

#[tokio::test]
async fn an_upload_over_the_limit_is_told_to_who_sends_it_all_first() {
    let stack = start(Setup::default().set("files", "{max_bytes: 1000000}")).await;
    for chunked in [false, true] {
        let call = upload("a.bin", "application/x-own", &vec![7; 64 << 20]);
        let pieces = vec![Bytes::from(vec![7; 1 << 20]); 64];
        let head = Bytes::from(format!("{HEAD}\"a.bin\"\r\n\r\n"));
        let call = if chunked { call.chunks([vec![head], pieces].concat()) } else { call };
        let answer = stack.send(call).await;
        assert_eq!(answer.status, 413, "{}", answer.text());
        assert!(answer.text().contains("files.max_bytes"), "{}", answer.text());
    }
    assert_eq!(list(&stack).await, Vec::<Value>::new());
    assert!(eventually(SOON, async || blobs(&stack) == 0).await);
}

#[tokio::test]
async fn a_sidecar_that_dies_under_an_upload_is_told_in_words_about_files() {
    let stack = start(Setup::default()).await;
    let mut upload = begun(&stack, &vec![7; 4 << 20], 1).await;
    assert!(eventually(SOON, async || blobs(&stack) == 1).await);
    stack.sidecar().kill();
    let said = answer(&mut upload).await;
    assert!(said.starts_with("HTTP/1.1 502 ") && said.contains("the gateway lost the request"), "{said}");
    // Nothing ran: whoever sends it again does no harm.
    assert!(!said.contains("x-should-retry") && !said.contains("model"), "{said}");
    let down = Call::get("/v1/files").header("anthropic-beta", "any").bearer(stack.key()).send(stack.address()).await;
    let down = down.unwrap();
    assert_eq!((down.status, down.json()["error"]["type"].as_str()), (529, Some("overloaded_error")));
}

#[tokio::test]
async fn in_a_mesh_files_belong_to_who_the_mesh_says_and_no_compressor_changes_them() {
    const COMPRESSOR: &str = r#"          - name: envoy.filters.http.compressor
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.compressor.v3.Compressor
              compressor_library:
                name: gzip
                typed_config: {"@type": type.googleapis.com/envoy.extensions.compression.gzip.compressor.v3.Gzip}
"#;
    const ROUTER: &str = "          - name: envoy.filters.http.router\n";
    let envoy = include_str!("../../../envoy/mesh.yaml");
    assert!(envoy.contains(ROUTER));
    let stack = mesh_of("", "", &envoy.replace(ROUTER, &format!("{COMPRESSOR}{ROUTER}"))).await;
    let send = async |call: Call, key: &str| call.bearer(key).send(stack.address()).await.unwrap();
    let content = vec![b'a'; 100_000];
    for media_type in ["text/plain", "image/png", "application/json"] {
        let mine = id(&send(upload("a", media_type, &content), mesh::KEY).await);
        let path = format!("/v1/files/{mine}/content");
        let zipped = send(Call::get(&path).header("accept-encoding", "gzip, br"), mesh::KEY).await;
        assert_eq!((zipped.status, zipped.header("content-type")), (200, Some(media_type)));
        assert!(zipped.body == content && zipped.header("content-encoding").is_none(), "{:?}", zipped.headers);
        assert_eq!(zipped.header("content-length"), Some("100000"));
        // Whoever the client says it is.
        let claimed = Call::get(&path).header("x-mesh-user", "bob").header("x-mesh-workspace", "red");
        assert_eq!(send(claimed, mesh::KEY).await.status, 200);
        assert_eq!(send(Call::get(&path), "nobody").await.status, 401);
    }
    // The compressor is there: it takes what is not forbidden.
    let list = send(Call::get("/v1/files").header("accept-encoding", "gzip"), mesh::KEY).await;
    assert_eq!(list.header("content-encoding"), Some("gzip"), "{:?}", list.headers);
}

#[tokio::test]
async fn content_and_names_stay_out_of_logs_metrics_and_errors() {
    let stack = start(Setup::default().set("files", "{max_bytes: 100000}")).await;
    let canary = tag();
    let name = format!("name-{canary}.txt");
    let content = format!("content-{canary}");
    let file = id(&stack.send(upload(&name, "text/plain", content.as_bytes())).await);
    let key = "gw-canary-key-of-nobody";
    let long = content.repeat(10_000);
    let mut told = String::new();
    let mut ask = async |call: Call, key: &str| -> io::Result<()> {
        let answer = call.bearer(key).send(stack.address()).await?;
        assert!(answer.status >= 400, "{}", answer.text());
        told += &answer.text();
        Ok(())
    };
    let odd = |disposition: &str, content: &str| {
        let body = format!("--a-boundary\r\nContent-Disposition: {disposition}\r\n\r\n{content}{END}");
        Call::new(Method::POST, "/v1/files").header("content-type", TYPE).bytes(body)
    };
    for call in [
        upload(&name, "text/plain", b""),
        upload(&name, "text", content.as_bytes()),
        upload(&name, "text/plain", long.as_bytes()),
        odd("form-data; name=\"file\"; filename=\"\"", &content),
        odd(&format!("form-data; name=\"file\"; filename=\"{name}\u{202e}\""), &content),
        odd("form-data; name=\"purpose\"", &content),
        odd("attachment; name=\"file\"", &content),
        upload(&name, "text/plain", content.as_bytes()).header("content-encoding", "gzip"),
        Call::get(format!("/v1/files?purpose={canary}")),
        Call::get(format!("/v1/files?limit={canary}")),
        Call::get(format!("/v1/files/{file}/content")).header("range", "bytes=99999-"),
        Call::new(Method::PATCH, format!("/v1/files/{file}")),
    ] {
        ask(call.clone(), stack.key()).await.unwrap();
        ask(call, key).await.unwrap();
    }
    // A blob that is lost is told with its whole cause, to the log alone.
    std::fs::remove_dir_all(stack.data_dir().join("files")).unwrap();
    ask(Call::get(format!("/v1/files/{file}/content")), stack.key()).await.unwrap();
    let metrics = Call::get("/otari/metrics").bearer(stack.master_key()).send(stack.address()).await.unwrap();
    let logs = stack.sidecar().log() + &stack.envoy().log() + &metrics.text();
    for secret in [&*canary, key, stack.key()] {
        assert!(!logs.contains(secret), "{secret} is in the logs or metrics");
        assert!(!told.contains(secret), "{secret} is in {told}");
    }
    assert!(logs.contains(&file), "the log names the file by its id");
    assert!(!told.contains(&*stack.data_dir().to_string_lossy()), "{told}");
    assert_eq!(json!(stack.vm_reloads().await.unwrap()), 0);
}
