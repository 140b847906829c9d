//! The one line a request leaves in the log, and what of it is counted: turns, runs, and how the answer ended.

use std::io::BufRead as _;
use std::process::{Child, ChildStderr, Command, Stdio};

use bytes::Bytes;
use hyper::body::Frame;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::code::{CALL, TEXT};
use crate::support::{Call, KEY, Upstream, config_text, start};

/// The command `serve` as a process, whose log a test reads.
pub(crate) struct Serving {
    folder: TempDir,
    child: Child,
    log: std::io::BufReader<ChildStderr>,
}

impl Serving {
    pub(crate) fn start(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("otari.yaml");
        std::fs::write(&config, config_text(&folder, &format!("{lines}\nlog: {{format: json}}"))).unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_otari-sidecar"));
        serve.args(["serve", "--config"]).arg(&config).env_clear().env("OTARI_BOOTSTRAP_KEY", KEY);
        let mut child = serve.stderr(Stdio::piped()).spawn().unwrap();
        let log = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut serving = Self { folder, child, log };
        serving.line("serving");
        serving
    }

    /// The next line with this message.
    pub(crate) fn line(&mut self, message: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "the log ended without {message:?}");
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["fields"]["message"] == message {
                return line;
            }
        }
    }

    pub(crate) fn call(&self, method: &str, path: &str) -> Call {
        let secret = std::fs::read_to_string(self.folder.path().join("hop-secret")).unwrap();
        let call = Call::new(&self.folder.path().join("sidecar.sock"), method, path);
        call.header("x-otari-hop", secret.trim()).header("otari-key", KEY)
    }

    fn messages(&self, request: &Value) -> Call {
        self.call("POST", "/v1/messages").json(request)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn question(stream: bool) -> Value {
    json!({
        "model": "local-1", "max_tokens": 99, "stream": stream, "messages": [{"role": "user", "content": "6 times 7?"}],
        "tools": [{"type": "code_execution_20250522", "name": "code_execution"}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_turn_leaves_one_line_with_all_it_took() {
    let mut serving = Serving::start("sandbox: {backend: embedded}");
    let _upstream = Upstream::answering_each(&serving.folder.path().join("model.sock"), &[CALL, TEXT]);
    let answer = serving.messages(&question(false)).send().await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let line = serving.line("request");
    let fields = &line["fields"];
    assert_eq!(fields["http.route"], "/v1/messages", "{line}");
    assert_eq!((&fields["turns"], &fields["code_runs"]), (&json!(2), &json!(1)), "{line}");
    assert_eq!((&fields["decision"], &fields["reason"]), (&json!("otari"), &json!("otari_not_native")), "{line}");
    assert_eq!((&fields["sent_bytes"], &fields["end"]), (&json!(answer.body.len()), &json!("complete")), "{line}");
    assert!(fields["duration_ms"].is_u64() && line["level"] == "INFO", "{line}");
    assert!(!line.to_string().contains("6 * 7"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streams_line_tells_how_it_ended() {
    const CHUNK: &str = "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"local-1\",\
                         \"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Well\"}}]}\n\n";
    for (leaves, end, level) in [(true, "cancelled", "INFO"), (false, "broken", "WARN")] {
        let mut serving = Serving::start("sandbox: {backend: embedded}");
        let (_upstream, pieces) = Upstream::streaming(&serving.folder.path().join("model.sock"));
        pieces.send(Ok(Frame::data(Bytes::from_static(CHUNK.as_bytes())))).await.unwrap();
        let mut open = serving.messages(&question(true)).open().await;
        assert_eq!(open.status, 200);
        assert!(open.piece().await.unwrap().is_some());
        if leaves {
            drop(open);
        } else {
            pieces.send(Err(std::io::Error::other("the model died"))).await.unwrap();
            while open.piece().await.unwrap().is_some() {}
        }
        let line = serving.line("request");
        let fields = &line["fields"];
        assert_eq!((&fields["http.status"], &fields["end"]), (&json!(200), &json!(end)), "{line}");
        assert_eq!((&fields["turns"], &fields["code_runs"]), (&json!(1), &json!(0)), "{line}");
        assert_eq!(line["level"], level, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_a_relay_before_its_first_byte_is_no_error() {
    let mut serving = Serving::start("");
    let (_upstream, pieces) = Upstream::streaming(&serving.folder.path().join("model.sock"));
    let call = serving.messages(&json!({"model": "local-1", "messages": []}));
    // The head of the model's answer comes at once; nothing of its body ever does.
    drop(call.open().await);
    pieces.closed().await;
    let line = serving.line("request");
    assert_eq!((&line["fields"]["end"], &line["level"]), (&json!("cancelled"), &json!("INFO")), "{line}");
    assert_eq!((&line["fields"]["decision"], &line["fields"]["sent_bytes"]), (&json!("provider"), &json!(0)), "{line}");
}

#[tokio::test]
async fn a_filter_that_decided_otherwise_is_counted_and_not_obeyed() {
    let sidecar = start().await;
    let upstream = Upstream::answering(&sidecar.config.model_socket(), 200, &[], b"{}");
    let version = {
        let snapshot = sidecar.call("GET", "/otari/internal/snapshot").send().await;
        snapshot.json()["version"].as_u64().unwrap()
    };
    for verdict in [
        format!("outcome=provider reason=no_code_tool snapshot={version}"),
        "outcome=undecided reason=policy_missing snapshot=none".to_owned(),
        format!("outcome=otari reason=otari_by_pin snapshot={version}"),
        "outcome=otari reason=otari_by_pin snapshot=0".to_owned(),
        "outcome=provider reason=provider_native snapshot=none".to_owned(),
        "outcome=sideways".to_owned(),
    ] {
        let call = sidecar.call("POST", "/v1/messages").header("x-otari-decision", &verdict);
        assert_eq!(call.json(&json!({"model": "claude-x", "messages": []})).send().await.status, 200, "{verdict}");
    }
    assert_eq!(upstream.recorded().len(), 6, "every one went where the sidecar sends it");
    let metrics = sidecar.admin("GET", "/otari/metrics").send().await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    let mut counted: Vec<_> =
        text.lines().filter(|line| line.starts_with("otari_sidecar_decision_mismatches")).collect();
    counted.sort_unstable();
    assert_eq!(
        counted,
        [
            r#"otari_sidecar_decision_mismatches_total{filter="otari",sidecar="provider",snapshot="other"} 1"#,
            r#"otari_sidecar_decision_mismatches_total{filter="otari",sidecar="provider",snapshot="same"} 1"#,
            r#"otari_sidecar_decision_mismatches_total{filter="provider",sidecar="provider",snapshot="none"} 1"#,
            r#"otari_sidecar_decision_mismatches_total{filter="unreadable",sidecar="provider",snapshot="none"} 1"#,
        ]
    );
}
