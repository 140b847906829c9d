//! `make run` as a newcomer meets it: it comes up, answers the request it printed, and leaves nothing behind.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::client::Call;
use harness::stack::{Process, descendants, eventually};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::support::{DATED, ask, question, ran_here, tag};

/// Longest wait for everything to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// Ends `make run` and all that it started, however the test ends.
struct MakeRun(Child);

impl MakeRun {
    fn group(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap()
    }
}

impl Drop for MakeRun {
    fn drop(&mut self) {
        for process in descendants(self.0.id()) {
            process.kill();
        }
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test]
async fn make_run_comes_up_answers_and_leaves_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // A shell that runs the tests in the background has them ignore Ctrl-C, and what they start after them.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT", "make", "--no-print-directory", "run", "PROFILE=dev"])
        .current_dir(root)
        .env("OTARI_LISTEN", format!("127.0.0.1:{port}"))
        .env("OTARI_DATA_DIR", folder.path().join("data"))
        // The variables of the make that runs the tests are not the newcomer's.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0);
    // Nor those of its cargo, on which build scripts depend: with them half of the dependencies would be built anew.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_") && !matches!(&*name, "CARGO_HOME" | "CARGO_TARGET_DIR") {
            command.env_remove(&*name);
        }
    }
    let mut run = MakeRun(command.spawn().unwrap());
    let output = run.0.stdout.take().unwrap();
    let said = tokio::task::spawn_blocking(move || {
        let mut said = String::new();
        for line in BufReader::new(output).lines() {
            let line = line.unwrap();
            said.push_str(&line);
            said.push('\n');
            if line.contains("Ctrl-C") {
                break;
            }
        }
        said
    })
    .await
    .unwrap();
    let base = format!("http://127.0.0.1:{port}");
    assert!(said.contains(&base) && said.contains("curl") && said.contains("from anthropic import"), "{said}");
    let key_file = folder.path().join("data/bootstrap-key");
    assert!(said.contains(&key_file.display().to_string()), "{said}");

    let key = std::fs::read_to_string(&key_file).unwrap();
    let address = format!("127.0.0.1:{port}").parse::<std::net::SocketAddr>().unwrap();
    let answer = ask(&question("demo", &tag(), &[DATED])).bearer(key.trim()).send(address).await.unwrap();
    assert!(ran_here(&answer.json()), "{}", answer.text());
    assert!(answer.text().contains("chart written to primes.png"), "{}", answer.text());

    let started = descendants(run.0.id());
    assert!(started.len() >= 3, "Envoy, sidecar and model: {started:?}");
    // What a terminal sends on Ctrl-C.
    kill_process_group(run.group(), Signal::INT).unwrap();
    let ended = eventually(GONE_WITHIN, async || run.0.try_wait().unwrap().is_some());
    assert!(ended.await, "make run does not end");
    let gone = eventually(GONE_WITHIN, async || !started.iter().any(Process::is_alive));
    assert!(gone.await, "processes are left: {started:?}");
    assert!(Call::get("/healthz").send(address).await.is_err());
    for socket in ["sidecar.sock", "model.sock", "admin.sock"] {
        let path = folder.path().join("data").join(socket);
        assert!(std::os::unix::net::UnixStream::connect(&path).is_err(), "{socket} still answers");
    }
}
