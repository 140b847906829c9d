//! `sandboxd` as a process, and the contract beside a gateway.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::json;
use sidecar::sandbox::process::WORKSPACE;
use tempfile::TempDir;

use crate::sandbox::life::daemon;
use crate::sandbox::{runs, unique_sleep, until};
use crate::support::{Call, start_with};

fn command(folder: &TempDir, text: &str) -> Command {
    let config = folder.path().join("otari.yaml");
    std::fs::write(&config, format!("data_dir: {}\n{text}\n", folder.path().join("data").display())).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_otari-sidecar"));
    command.arg("sandboxd").arg("--config").arg(config).env_clear().stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn refused(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let Output { status, stdout, stderr } = command(&folder, text).output().unwrap();
    assert!(!status.success() && stdout.is_empty());
    String::from_utf8(stderr).unwrap()
}

/// Starts it and waits until it answers.
async fn started(folder: &TempDir) -> Child {
    let socket = folder.path().join("s.sock");
    let child = command(folder, &format!("sandbox: {{serve: \"unix:{}\"}}", socket.display())).spawn().unwrap();
    until("it listens", || socket.exists()).await;
    assert_eq!(Call::new(&socket, "GET", "/health").send().await.status, 200);
    child
}

/// Leaves something running in a session.
async fn busy(socket: &Path, seconds: &str) {
    let opened = Call::new(socket, "POST", "/sessions").send().await.json();
    let path = format!("/sessions/{}/exec", opened["session_id"].as_str().unwrap());
    let call = json!({"tool": "code_execution", "input": {"code": daemon(seconds)}});
    assert_eq!(Call::new(socket, "POST", &path).json(&call).send().await.status, 200);
    assert!(runs(seconds));
}

#[tokio::test]
async fn it_serves_until_it_is_told_to_stop_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = started(&folder).await;
    let (socket, seconds) = (folder.path().join("s.sock"), unique_sleep());
    busy(&socket, &seconds).await;
    // It needs no database, no keys and no secret.
    let entries = std::fs::read_dir(folder.path().join("data")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(entries.collect::<Vec<_>>(), ["sandbox"]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(status.success(), "{status} {log}");
    assert!(log.contains("stopped") && !log.contains("otari_sbx_"), "{log}");
    assert!(!runs(&seconds) && !socket.exists());
    assert_eq!(std::fs::read_dir(folder.path().join("data/sandbox/sessions")).unwrap().count(), 0);
}

#[tokio::test]
async fn nothing_survives_its_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = started(&folder).await;
    let (socket, seconds) = (folder.path().join("s.sock"), unique_sleep());
    busy(&socket, &seconds).await;
    child.kill().unwrap();
    child.wait().unwrap();
    until("the daemon is gone", || !runs(&seconds)).await;
    // The socket that it left is in nobody's way.
    let next = format!("sandbox: {{serve: \"unix:{}\", warm_sessions: 0}}", socket.display());
    let mut next = command(&folder, &next).spawn().unwrap();
    loop {
        if tokio::net::UnixStream::connect(&socket).await.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(std::fs::read_dir(folder.path().join("data/sandbox/sessions")).unwrap().count(), 0);
    next.kill().unwrap();
    next.wait().unwrap();
}

#[test]
fn a_config_that_serves_nothing_or_everybody_is_refused_with_what_to_write() {
    let nothing = refused("sandbox: {max_sessions: 3}");
    assert!(nothing.contains("sandbox.serve") && nothing.contains("unix:"), "{nothing}");
    let open = refused("sandbox: {serve: \"127.0.0.1:0\"}");
    assert!(open.contains("sandbox.serve_token_env") && open.contains("TCP"), "{open}");
    let remote = refused("sandbox: {backend: http, url: \"http://127.0.0.1:1\", serve: \"unix:/tmp/x\"}");
    assert!(remote.contains("sandbox.serve") && remote.contains("embedded"), "{remote}");
    let elsewhere = refused("sandbox: {serve: \"unix:/nonexistent/folder/x.sock\"}");
    assert!(elsewhere.contains("/nonexistent/folder/x.sock cannot be listened on"), "{elsewhere}");
}

#[tokio::test]
async fn a_gateway_serves_its_own_sandbox_beside_its_routes() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("c.sock");
    let sidecar = start_with(&format!("sandbox: {{serve: \"unix:{}\", max_sessions: 2}}", socket.display())).await;
    let seconds = unique_sleep();
    busy(&socket, &seconds).await;
    // Neither listener has the other's routes.
    assert_eq!(sidecar.call("POST", "/sessions").send().await.status, 404);
    assert_eq!(Call::new(&socket, "GET", "/v1/tools").send().await.status, 404);
    let where_it_runs = json!({"tool": "code_execution", "input": {"code": "import os; print(os.getcwd())"}});
    let opened = Call::new(&socket, "POST", "/sessions").send().await.json();
    let path = format!("/sessions/{}/exec", opened["session_id"].as_str().unwrap());
    let ran = Call::new(&socket, "POST", &path).json(&where_it_runs).send().await.json();
    assert_eq!(ran["result_block"]["content"]["stdout"], json!(format!("{WORKSPACE}\n")));
    // Both share the places.
    assert_eq!(Call::new(&socket, "POST", "/sessions").send().await.status, 503);
    let folder = sidecar.stopped().await;
    assert!(!runs(&seconds) && !socket.exists());
    assert_eq!(std::fs::read_dir(folder.path().join("sandbox/sessions")).unwrap().count(), 0);
}
