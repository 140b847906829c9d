//! Contract v1 as we serve it: each operation, status and tolerance over raw HTTP, what means harm, and our own client.

mod client;
mod daemon;
mod exec;
mod files;
mod hostile;
mod sessions;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sidecar::app::{Parts, SandboxDaemon};
use sidecar::clock::SystemClock;
use sidecar::config::{Config, Environment, ListenAddress};
use sidecar::ids::SystemIds;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{Answer, Call};

const TOKEN: &str = "token-of-the-tests-0";

/// A sandbox that is served.
struct Served {
    folder: TempDir,
    address: ListenAddress,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

/// Serves on a Unix socket, with these keys of `sandbox` and these other lines.
async fn serve_with(sandbox: &str, lines: &str) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", folder.path().join("contract.sock").display());
    serve_in(folder, &socket, sandbox, lines).await
}

async fn serve() -> Served {
    serve_with("", "").await
}

async fn serve_in(folder: TempDir, address: &str, sandbox: &str, lines: &str) -> Served {
    let text = format!(
        "data_dir: {}\nsandbox: {{serve: \"{address}\", warm_sessions: 0, {sandbox}}}\n{lines}\n",
        folder.path().join("data").display()
    );
    let env: Environment = [("SANDBOX_TOKEN".to_owned(), TOKEN.to_owned())].into_iter().collect();
    let config = Config::parse(&text, &env).unwrap_or_else(|problems| panic!("{problems:?}"));
    let parts = Parts { clock: Arc::new(SystemClock), ids: Arc::new(SystemIds), program: PathBuf::new() };
    let daemon = SandboxDaemon::build(&config, parts).await.unwrap_or_else(|error| panic!("{error}"));
    let address = daemon.address().clone();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let running = TaskTracker::new().spawn(async move { daemon.run(stopped.cancelled_owned()).await });
    Served { folder, address, stop, running }
}

impl Served {
    fn socket(&self) -> &PathBuf {
        let ListenAddress::Unix(socket) = &self.address else { panic!("served on TCP") };
        socket
    }

    fn call(&self, method: &str, path: &str) -> Call {
        Call::new(self.socket(), method, path)
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path).json(body).send().await
    }

    async fn get(&self, path: &str) -> Answer {
        self.call("GET", path).send().await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path).send().await
    }

    /// A fresh session's path.
    async fn session(&self) -> String {
        let answer = self.post("/sessions", &json!({})).await;
        assert_eq!(answer.status, 201, "{:?}", answer.body);
        format!("/sessions/{}", answer.json()["session_id"].as_str().unwrap())
    }

    /// Runs Python.
    async fn run(&self, session: &str, code: &str) -> Answer {
        self.post(&format!("{session}/exec"), &python(code)).await
    }

    /// Standard output of Python that succeeds.
    async fn output(&self, session: &str, code: &str) -> String {
        let answer = self.run(session, code).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        let content = &answer.json()["result_block"]["content"];
        assert_eq!((&content["return_code"], &content["stderr"]), (&json!(0), &json!("")), "{code}");
        content["stdout"].as_str().unwrap().to_owned()
    }

    async fn put(&self, session: &str, path: &str, content: &[u8]) -> Answer {
        self.form(session, &[("path", None, path.as_bytes()), ("file", Some("sent.bin"), content)]).send().await
    }

    /// A form of these parts: name, file name, content.
    fn form(&self, session: &str, parts: &[(&str, Option<&str>, &[u8])]) -> Call {
        let call = self.call("POST", &format!("{session}/files"));
        call.header("content-type", FORM_TYPE).body(form(parts))
    }

    async fn alive(&self) -> u64 {
        self.get("/health").await.json()["session_count"].as_u64().unwrap()
    }

    /// The directory of all sessions.
    fn sessions(&self) -> PathBuf {
        self.folder.path().join("data/sandbox/sessions")
    }

    /// Begins a request by hand.
    async fn raw(&self, head: &str) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket()).await.unwrap();
        stream.write_all(format!("{head}\r\nhost: s\r\n\r\n").as_bytes()).await.unwrap();
        stream
    }

    async fn stopped(self) -> TempDir {
        self.stop.cancel();
        self.running.await.unwrap();
        self.folder
    }
}

const FORM_TYPE: &str = "multipart/form-data; boundary=edge";

fn form(parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file_name, content) in parts {
        let file_name = file_name.map_or_else(String::new, |name| format!("; filename=\"{name}\""));
        body.extend(format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"{file_name}\r\n\r\n").bytes());
        body.extend_from_slice(content);
        body.extend(b"\r\n");
    }
    body.extend(b"--edge--\r\n");
    body
}

fn python(code: &str) -> Value {
    json!({"tool": "code_execution", "input": {"code": code}})
}

/// Everything that comes until the other end closes, or nothing more comes for a while.
async fn all_of(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    drop(tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut bytes)).await);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An answer of this status that says so in words and quotes nothing of `canary`.
#[track_caller]
fn assert_refused(answer: &Answer, status: u16, says: &str) {
    assert_eq!(answer.status, status, "{:?}", answer.body);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains(says) && !detail.contains("canary"), "{detail}");
}
