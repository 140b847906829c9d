//! The contract-v1 client against a real HTTP server that keeps the contract, stretches it, and breaks it clause by clause.

mod files;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sidecar::sandbox::remote::{HttpLimits, HttpSandbox, HttpSettings};
use sidecar::sandbox::{EditorCommand, SandboxBackend, SandboxError, SessionId, SessionSpec, ToolInput, ViewRange};

use super::{PATIENCE, request, request_of};

/// One request as it came.
#[derive(Debug, Clone)]
struct Seen {
    line: String,
    headers: Vec<String>,
    /// As JSON; null if it is none.
    body: Value,
    raw: Vec<u8>,
}

/// A server that answers every request with what it was given, byte for byte, and closes.
struct Server {
    address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// An empty answer means: never answer.
    fn start(answer: impl Fn(&Seen) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let Some(request) = read(&stream) else { continue };
                let bytes = answer(&request);
                record.lock().unwrap().push(request);
                // The client may have hung up already.
                drop(stream.write_all(&bytes));
                if bytes.is_empty() {
                    silent.push(stream);
                }
            }
        });
        Self { address, seen }
    }

    fn fixed(status: u16, body: impl Into<String>) -> Self {
        let body = body.into();
        Self::start(move |_| reply(status, "", &body))
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn client(&self) -> HttpSandbox {
        client(&self.address, None, HttpLimits::default())
    }
}

fn read(stream: &TcpStream) -> Option<Seen> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let length = lines.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    (!lines.is_empty()).then(|| Seen {
        line: lines.remove(0),
        headers: lines,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        raw: body,
    })
}

fn reply(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
        .into_bytes()
}

fn client(url: &str, token: Option<&str>, limits: HttpLimits) -> HttpSandbox {
    HttpSandbox::new(HttpSettings { url: url.to_owned(), token: token.map(str::to_owned), limits }).unwrap()
}

fn result(stdout: &str) -> String {
    json!({"tool_use_id": "call", "result_block": {"type": "code_execution_tool_result", "tool_use_id": "call", "content": {
        "type": "code_execution_result", "stdout": stdout, "stderr": null, "return_code": 0, "content": []}}, "new": true})
    .to_string()
}

fn session() -> SessionId {
    SessionId("sbx_1".to_owned())
}

#[tokio::test]
async fn a_whole_life_is_spoken_as_the_contract_says() {
    let server = Server::start(|seen| match seen.line.split(' ').next() {
        Some("DELETE") => b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n".to_vec(),
        _ if seen.line.contains("/exec") => reply(200, "", &result("out")),
        _ => reply(201, "", r#"{"session_id": "sbx_1", "extra": {"a": 1}, "idle_timeout_seconds": null}"#),
    });
    for (suffix, token) in [("/base/path/", Some("hush")), ("/base/path", None)] {
        let sandbox = client(&format!("{}{suffix}", server.address), token, HttpLimits::default());
        let spec = SessionSpec {
            workspace: "not told".to_owned(),
            idle_timeout: Some(Duration::from_millis(1500)),
            max_lifetime: Some(Duration::from_mins(5)),
        };
        let session = sandbox.create_session(&spec).await.unwrap().id;
        let ran = sandbox.execute(&session, &request("print(1)", Duration::from_millis(2500))).await.unwrap();
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.return_code), ("out", "", 0));
        sandbox.destroy_session(&session).await.unwrap();
        assert_eq!(sandbox.create_session(&SessionSpec::default()).await.unwrap().id, session);
    }
    let seen = server.seen();
    let lines: Vec<_> = seen.iter().map(|request| request.line.as_str()).collect();
    let life = [
        "POST /base/path/sessions HTTP/1.1",
        "POST /base/path/sessions/sbx_1/exec HTTP/1.1",
        "DELETE /base/path/sessions/sbx_1 HTTP/1.1",
        "POST /base/path/sessions HTTP/1.1",
    ];
    assert_eq!(lines, [life, life].concat());
    assert_eq!(seen[0].body, json!({"idle_timeout_seconds": 2, "max_lifetime_seconds": 300}));
    assert_eq!(
        seen[1].body,
        json!({
        "tool": "code_execution", "input": {"code": "print(1)"}, "timeout_seconds": 3, "tool_use_id": "call"})
    );
    assert_eq!(seen[3].body, json!({}));
    for (index, request) in seen.iter().enumerate() {
        let token = request.headers.iter().find(|line| line.to_lowercase().starts_with("authorization:"));
        assert_eq!(token.map(String::as_str), (index < 4).then_some("authorization: Bearer hush"), "{request:?}");
    }
}

#[tokio::test]
async fn each_tool_is_asked_for_by_its_name_and_with_its_own_input() {
    let server = Server::fixed(200, result("out"));
    let sandbox = server.client();
    let path = || "a".to_owned();
    let view = |range| EditorCommand::View { path: path(), range };
    let text = || "t".to_owned();
    let range = |last| view(Some(ViewRange { first: 2, last }));
    let editor = |command, input| (ToolInput::TextEditor(command), "text_editor_code_execution", input);
    let asked = [
        (ToolInput::Bash { command: text() }, "bash_code_execution", json!({"command": "t"})),
        editor(view(None), json!({"command": "view", "path": "a"})),
        editor(range(Some(3)), json!({"command": "view", "path": "a", "view_range": [2, 3]})),
        editor(range(None), json!({"command": "view", "path": "a", "view_range": [2, -1]})),
        editor(
            EditorCommand::Create { path: path(), text: text() },
            json!({"command": "create", "path": "a", "file_text": "t"}),
        ),
        editor(
            EditorCommand::StrReplace { path: path(), old: text(), new: String::new() },
            json!({"command": "str_replace", "path": "a", "old_str": "t", "new_str": ""}),
        ),
        editor(
            EditorCommand::Insert { path: path(), line: 0, text: text() },
            json!({"command": "insert", "path": "a", "insert_line": 0, "new_str": "t"}),
        ),
        editor(EditorCommand::UndoEdit { path: path() }, json!({"command": "undo_edit", "path": "a"})),
    ];
    for (input, _, _) in &asked {
        let ran = sandbox.execute(&session(), &request_of(input.clone(), PATIENCE)).await.unwrap();
        assert_eq!((ran.stdout.as_str(), ran.editor), ("out", None));
    }
    let seen = server.seen();
    assert_eq!(seen.len(), asked.len());
    for ((_, tool, input), seen) in asked.iter().zip(seen) {
        let expected = json!({"tool": tool, "input": input, "timeout_seconds": 30, "tool_use_id": "call"});
        assert_eq!(seen.body, expected);
    }
    // One that does not serve a tool is told by the tool's name, and by nothing that was sent.
    for status in [400, 422] {
        let server = Server::fixed(status, r#"{"detail": "unknown tool"}"#);
        let input = ToolInput::Bash { command: "canary".to_owned() };
        match server.client().execute(&session(), &request_of(input, PATIENCE)).await {
            Err(SandboxError::Refused { reason }) => {
                let expected = format!("answered {status} to `bash_code_execution`: it does not serve this tool");
                assert!(reason.contains(&expected) && !reason.contains("canary"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn every_status_has_its_meaning_and_no_body_is_quoted() {
    type Check = fn(&SandboxError) -> bool;
    let meanings: [(u16, Check); 11] = [
        (400, |error| matches!(error, SandboxError::Refused { .. })),
        (401, |error| matches!(error, SandboxError::Unauthorized)),
        (403, |error| matches!(error, SandboxError::Unauthorized)),
        (404, |error| matches!(error, SandboxError::UnknownSession)),
        (413, |error| matches!(error, SandboxError::Refused { .. })),
        (422, |error| matches!(error, SandboxError::Refused { .. })),
        (429, |error| matches!(error, SandboxError::Unreachable { .. })),
        (500, |error| matches!(error, SandboxError::Unreachable { .. })),
        (503, |error| matches!(error, SandboxError::AtCapacity { retry_after: None })),
        (504, |error| matches!(error, SandboxError::Unreachable { .. })),
        (307, |error| matches!(error, SandboxError::Unreachable { .. })),
    ];
    for (status, means) in meanings {
        let server = Server::fixed(status, "{\"detail\": \"canary\"}");
        let sandbox = server.client();
        let created = sandbox.create_session(&SessionSpec::default()).await.unwrap_err();
        let executed = sandbox.execute(&session(), &request("canary", PATIENCE)).await.unwrap_err();
        for error in [created, executed] {
            assert!(means(&error), "{status}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
        let destroyed = sandbox.destroy_session(&session()).await;
        assert_eq!(destroyed.is_ok(), status == 404, "{status}: {destroyed:?}");
    }
    let any_success = Server::fixed(202, result("out"));
    assert_eq!(any_success.client().execute(&session(), &request("1", PATIENCE)).await.unwrap().stdout, "out");
}

#[tokio::test]
async fn a_full_server_says_when_to_come_back() {
    for (header, expected) in
        [("retry-after: 7\r\n", Some(7)), ("retry-after: 1234567\r\n", None), ("retry-after: soon\r\n", None)]
    {
        let server = Server::start(move |_| reply(503, header, ""));
        match server.client().create_session(&SessionSpec::default()).await {
            Err(SandboxError::AtCapacity { retry_after }) => assert_eq!(retry_after, expected.map(Duration::from_secs)),
            other => panic!("{other:?}"),
        }
        // Never tried again by the client itself.
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn answers_that_break_the_contract_are_errors_that_quote_nothing() {
    let broken = [
        reply(200, "", ""),
        reply(200, "", "canary"),
        reply(200, "", "{\"session_id\": {\"canary\": 1}}"),
        reply(200, "", "{\"session_id\": \"canary"),
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"session_id\": \"canary\"}".to_vec(),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        b"canary\r\n\r\n".to_vec(),
    ];
    for bytes in broken {
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        let server = Server::start(move |_| bytes.clone());
        let sandbox = server.client();
        let created = sandbox.create_session(&SessionSpec::default()).await.unwrap_err();
        let executed = sandbox.execute(&session(), &request("code", PATIENCE)).await.unwrap_err();
        for error in [created, executed] {
            assert!(matches!(error, SandboxError::Unreachable { .. }), "{shown}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{shown}: {error:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_has_a_longest_length_declared_or_not() {
    let limits = HttpLimits { answer_bytes: 1000, ..HttpLimits::default() };
    let long = result(&"x".repeat(1000));
    let undeclared = [b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".as_slice(), long.as_bytes()].concat();
    for bytes in [reply(200, "", &long), undeclared] {
        let server = Server::start(move |_| bytes.clone());
        let sandbox = client(&server.address, None, limits.clone());
        let error = sandbox.execute(&session(), &request("1", PATIENCE)).await.unwrap_err();
        assert!(error.to_string().contains("longer than 1000 bytes"), "{error}");
    }
    let server = Server::fixed(200, result(&"x".repeat(500)));
    let sandbox = client(&server.address, None, limits);
    assert_eq!(sandbox.execute(&session(), &request("1", PATIENCE)).await.unwrap().stdout.len(), 500);
}

#[tokio::test]
async fn a_silent_server_is_waited_for_as_long_as_the_code_may_run_and_a_little_more() {
    let server = Server::start(|_| Vec::new());
    let grace = Duration::from_millis(300);
    let limits = HttpLimits { execute_grace: grace, call_timeout: grace, ..HttpLimits::default() };
    let sandbox = client(&server.address, None, limits);
    let granted = Duration::from_millis(400);
    let begun = Instant::now();
    let executed = sandbox.execute(&session(), &request("1", granted)).await;
    assert!(matches!(executed, Err(SandboxError::TimedOut)), "{executed:?}");
    assert!(begun.elapsed() >= granted + grace);
    assert!(matches!(sandbox.create_session(&SessionSpec::default()).await, Err(SandboxError::TimedOut)));
    assert!(matches!(sandbox.destroy_session(&session()).await, Err(SandboxError::TimedOut)));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("http://{}/secret-path", listener.local_addr().unwrap());
    drop(listener);
    let error = client(&address, Some("hush"), HttpLimits::default())
        .create_session(&SessionSpec::default())
        .await
        .unwrap_err();
    assert!(matches!(error, SandboxError::Unreachable { source: Some(_), .. }), "{error:?}");
    assert!(!format!("{error:?}").contains("secret-path") && !format!("{error:?}").contains("hush"), "{error:?}");
}
