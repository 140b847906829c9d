//! The contract's operations on files: how they are asked for, and what a server may answer.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use sidecar::sandbox::{FileSource, SandboxBackend as _, SandboxError, WorkspacePath};

use super::{HttpSandbox, Server, reply, session};

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text).unwrap()
}

fn source(pieces: &[&'static str]) -> FileSource {
    let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
    stream::iter(pieces).boxed()
}

async fn put(sandbox: &HttpSandbox, name: &str, size: u64) -> Result<(), SandboxError> {
    sandbox.put_file(&session(), &path(name), size, source(&["one ", "two"])).await
}

async fn get(sandbox: &HttpSandbox, name: &str, max_bytes: u64) -> Result<String, SandboxError> {
    let content = sandbox.get_file(&session(), &path(name), max_bytes).await?;
    let pieces: Vec<Bytes> = content.try_collect().await?;
    Ok(String::from_utf8(pieces.concat()).unwrap())
}

/// An answer whose length nobody declares.
fn undeclared(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}").into_bytes()
}

#[tokio::test]
async fn files_are_put_listed_and_fetched_as_the_contract_says() {
    let server = Server::start(|seen| {
        if seen.line.starts_with("POST") {
            return reply(201, "", r#"{"path": "d/a b.csv", "size_bytes": 7, "new": 1}"#);
        }
        if seen.line.contains("/files/list") {
            let files = json!([{"path": "d/a b.csv", "size_bytes": 7, "mime_type": null, "modified_at": 1.5}]);
            return reply(200, "", &json!({"files": files}).to_string());
        }
        undeclared("one two")
    });
    let sandbox = server.client();
    put(&sandbox, "d/a b.csv", 7).await.unwrap();
    let listing = sandbox.list_files(&session()).await.unwrap();
    let [file] = listing.files.as_slice() else { panic!("{listing:?}") };
    assert_eq!((file.path.clone(), file.size_bytes, listing.left_out), (path("d/a b.csv"), 7, 0));
    assert_eq!(get(&sandbox, "d/a b.csv", 7).await.unwrap(), "one two");

    let seen = server.seen();
    let lines: Vec<_> = seen.iter().map(|request| request.line.as_str()).collect();
    let expected = [
        "POST /sessions/sbx_1/files HTTP/1.1",
        "GET /sessions/sbx_1/files/list?path=. HTTP/1.1",
        "GET /sessions/sbx_1/files?path=d%2Fa+b.csv HTTP/1.1",
    ];
    assert_eq!(lines, expected);
    let kind = seen[0].headers.iter().find_map(|line| line.strip_prefix("content-type: "));
    let boundary = kind.and_then(|kind| kind.strip_prefix("multipart/form-data; boundary=")).unwrap();
    let body = String::from_utf8(seen[0].raw.clone()).unwrap();
    let parts: Vec<_> = body.split(&format!("--{boundary}")).map(|part| part.trim_matches(['\r', '\n'])).collect();
    let [_, place, file, "--"] = parts.as_slice() else { panic!("{body}") };
    assert_eq!(*place, "Content-Disposition: form-data; name=\"path\"\r\n\r\nd/a b.csv");
    assert!(file.starts_with("Content-Disposition: form-data; name=\"file\"; filename="), "{file}");
    assert!(file.ends_with("\r\n\r\none two"), "{file}");
}

#[tokio::test]
async fn an_operation_may_be_missing_and_every_other_status_has_its_meaning() {
    type Check = fn(&SandboxError) -> bool;
    let not_served: Check = |error| matches!(error, SandboxError::NotServed);
    let broken: Check = |error| matches!(error, SandboxError::Unreachable { .. });
    let refused: Check = |error| matches!(error, SandboxError::Refused { .. });
    let bad_path: Check = |error| matches!(error, SandboxError::BadPath { .. });
    let unknown: Check = |error| matches!(error, SandboxError::UnknownFile);
    let unauthorized: Check = |error| matches!(error, SandboxError::Unauthorized);
    let busy: Check = |error| matches!(error, SandboxError::AtCapacity { .. });
    let meanings = [
        (404, [not_served, not_served, unknown]),
        (405, [not_served; 3]),
        (501, [not_served; 3]),
        (400, [refused; 3]),
        (401, [unauthorized; 3]),
        (403, [bad_path; 3]),
        (413, [refused; 3]),
        (500, [broken; 3]),
        (503, [busy; 3]),
    ];
    for (status, means) in meanings {
        let server = Server::fixed(status, r#"{"detail": "canary"}"#);
        let sandbox = server.client();
        let errors = [
            put(&sandbox, "a", 7).await.unwrap_err(),
            sandbox.list_files(&session()).await.unwrap_err(),
            get(&sandbox, "a", 100).await.unwrap_err(),
        ];
        for (position, (error, means)) in errors.iter().zip(means).enumerate() {
            assert!(means(error), "{status}, operation {position}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_file_that_is_too_large_is_not_read_or_not_to_its_end() {
    // The body that was declared never comes: who waits for it waits in vain.
    let declared = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n".to_vec();
    for answer in [declared, undeclared("one two!")] {
        let server = Server::start(move |_| answer.clone());
        let got = get(&server.client(), "a", 7).await;
        assert!(matches!(got, Err(SandboxError::FileTooLarge { limit: 7 })), "{got:?}");
    }
    let server = Server::start(|_| reply(200, "", ""));
    assert_eq!(get(&server.client(), "empty", 0).await.unwrap(), "");
    let cut_off = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\none".to_vec();
    let server = Server::start(move |_| cut_off.clone());
    let got = get(&server.client(), "a", 8).await;
    assert!(matches!(got, Err(SandboxError::Unreachable { .. })), "{got:?}");
}

#[tokio::test]
async fn a_file_is_kept_whole_or_that_is_an_error() {
    for answer in [r#"{"path": "a", "size_bytes": 6}"#, "canary", "[]"] {
        let server = Server::fixed(201, answer);
        let error = put(&server.client(), "a", 7).await.unwrap_err();
        assert!(matches!(error, SandboxError::Unreachable { .. }), "{error:?}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
    }
    let server = Server::fixed(201, r#"{"path": "a"}"#);
    put(&server.client(), "a", 7).await.unwrap();
    // Fewer bytes than were said, and more.
    for said in [8, 6] {
        let error = put(&server.client(), "a", said).await.unwrap_err();
        assert!(matches!(error, SandboxError::Unreadable(_)), "{said}: {error:?}");
    }
    let broken = stream::iter([Ok(Bytes::from_static(b"one ")), Err("the store is on fire".into())]).boxed();
    let error = server.client().put_file(&session(), &path("a"), 7, broken).await.unwrap_err();
    assert!(matches!(&error, SandboxError::Unreadable(cause) if cause.to_string().contains("on fire")), "{error:?}");
    let error = server.client().put_file(&session(), &WorkspacePath::parse(b"\xff").unwrap(), 0, source(&[])).await;
    assert!(matches!(error, Err(SandboxError::BadPath { .. })), "{error:?}");
}
