//! The command itself, as a process.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Call, KEY, POLICY, Sidecar, config_text, open_to_others, start, start_with_key};

fn command(config: &Path, args: &[&str]) -> Output {
    prepared(config, args).output().unwrap()
}

fn prepared(config: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otari-sidecar"));
    command.args(args).arg("--config").arg(config).env_clear().env("OTARI_BOOTSTRAP_KEY", KEY);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_key_made_beside_a_running_sidecar_works_at_once_and_a_revoked_one_soon_not() {
    let sidecar = start().await;
    let config = sidecar.folder.path().join("otari.yaml");
    std::fs::write(&config, config_text(&sidecar.folder, "")).unwrap();
    let args = ["keys", "create", "--user", "ann", "--workspace", "team"];
    let refused = command(&config, &args);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("--create-workspace"), "{}", text(&refused.stderr));
    let made = command(&config, &[&args[..], &["--create-workspace", "--expires-in", "1h"]].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let key = text(&made.stdout).trim().to_owned();
    assert!(key.starts_with("otk_") && !text(&made.stderr).contains(&key));
    let tools = |key: String| {
        sidecar
            .bare_call("GET", "/v1/tools")
            .header("x-otari-hop", &sidecar.hop_secret)
            .header("x-api-key", &key)
            .send()
    };
    assert_eq!(tools(key.clone()).await.status, 200, "newer than the snapshot");
    let list = text(&command(&config, &["keys", "list"]).stdout);
    assert!(!list.contains(&key));
    let line = list.lines().find(|line| line.contains("\tann\tteam\t")).unwrap();
    let id = line.split('\t').next().unwrap();
    assert!(command(&config, &["keys", "revoke", id]).status.success());
    assert!(!command(&config, &["keys", "revoke", "key_nothing"]).status.success());
    // A change by another process is seen at the next poll; asking for an unknown key brings it forward.
    assert_eq!(tools("otk_unknown".to_owned()).await.status, 401);
    assert_eq!(tools(key).await.status, 401);
}

#[tokio::test]
async fn no_command_and_no_start_takes_the_first_key_away() {
    let works = async |sidecar: &Sidecar, key: &str| {
        let call = sidecar.bare_call("GET", "/v1/tools").header("x-otari-hop", &sidecar.hop_secret);
        call.header("otari-key", key).send().await.status == 200
    };
    let folder = tempfile::tempdir().unwrap();
    // Started without a key in the environment: one is made.
    let sidecar = start_with_key(folder, None).await;
    let made = std::fs::read_to_string(sidecar.config.bootstrap_key_file()).unwrap().trim().to_owned();
    assert!(works(&sidecar, &made).await);
    // With one, both work; with another, that takes the place of the one given before.
    let sidecar = start_with_key(sidecar.stopped().await, Some("the-first-given-key")).await;
    assert!(works(&sidecar, &made).await && works(&sidecar, "the-first-given-key").await);
    let sidecar = start_with_key(sidecar.stopped().await, Some("the-second-given-key")).await;
    assert!(works(&sidecar, &made).await && works(&sidecar, "the-second-given-key").await);
    assert!(!works(&sidecar, "the-first-given-key").await);
    // Commands beside it have another environment, or none.
    let config = sidecar.folder.path().join("otari.yaml");
    std::fs::write(&config, config_text(&sidecar.folder, "")).unwrap();
    for args in [&["keys", "create"][..], &["keys", "list"], &["migrate"]] {
        assert!(command(&config, args).status.success());
    }
    assert!(!works(&sidecar, KEY).await, "the key of the command's own environment was never this gateway's");
    assert!(works(&sidecar, &made).await && works(&sidecar, "the-second-given-key").await);
    // Left out again: nothing is revoked.
    let sidecar = start_with_key(sidecar.stopped().await, None).await;
    assert!(works(&sidecar, &made).await && works(&sidecar, "the-second-given-key").await);
    // The made one given as well is the same key; what a person revoked stays revoked.
    let sidecar = start_with_key(sidecar.stopped().await, Some(&made)).await;
    assert!(works(&sidecar, &made).await && !works(&sidecar, "the-second-given-key").await);
    assert!(command(&config, &["keys", "revoke", "key_bootstrap"]).status.success());
    let sidecar = start_with_key(sidecar.stopped().await, Some(&made)).await;
    assert!(!works(&sidecar, &made).await);
    let sidecar = start_with_key(sidecar.stopped().await, None).await;
    assert!(!works(&sidecar, &made).await);
}

#[test]
fn check_config_tells_everything_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("otari.yaml");
    std::fs::write(&config, "listen: here\nlog: {format: xml}\n").unwrap();
    let bad = command(&config, &["check-config"]);
    let stderr = text(&bad.stderr);
    assert!(!bad.status.success() && bad.stdout.is_empty());
    assert!(stderr.contains("listen: `here`") && stderr.contains("log.format: `xml`"), "{stderr}");
    std::fs::write(&config, "").unwrap();
    assert!(command(&config, &["check-config"]).status.success());
    let warned = prepared(&config, &["check-config"]).env("OTARI_LISSTEN", "here").output().unwrap();
    assert!(warned.status.success());
    assert!(text(&warned.stderr).contains("OTARI_LISSTEN starts with OTARI_"), "{}", text(&warned.stderr));
    let missing = command(&folder.path().join("none.yaml"), &["check-config"]);
    assert!(text(&missing.stderr).contains("cannot be read"));
}

#[test]
fn migrate_makes_the_database_and_health_says_when_nobody_serves() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("otari.yaml");
    std::fs::write(&config, config_text(&folder, "")).unwrap();
    assert!(command(&config, &["migrate"]).status.success());
    assert!(folder.path().join("otari.db").exists());
    let health = command(&config, &["health"]);
    assert!(!health.status.success());
    assert!(text(&health.stderr).contains("sidecar.sock"), "{}", text(&health.stderr));
}

#[test]
fn envoy_config_is_rendered_with_the_secret_the_sidecar_will_use() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("otari.yaml");
    std::fs::write(&config, config_text(&folder, "")).unwrap();
    let filter = folder.path().join("filter.wasm");
    let missing = command(&config, &["envoy-config", "--filter", filter.to_str().unwrap()]);
    assert!(text(&missing.stderr).contains("make filter"), "{}", text(&missing.stderr));
    std::fs::write(&filter, b"\0asm").unwrap();
    let rendered = command(&config, &["envoy-config", "--filter", filter.to_str().unwrap()]);
    assert!(rendered.status.success(), "{}", text(&rendered.stderr));
    let secret = std::fs::read_to_string(folder.path().join("hop-secret")).unwrap();
    assert!(text(&rendered.stdout).contains(secret.trim()));
    assert!(text(&rendered.stdout).contains("provider_anthropic"));
    let output = folder.path().join("envoy.yaml");
    std::fs::write(&output, "an older one that all may read").unwrap();
    let args = ["envoy-config", "--filter", filter.to_str().unwrap(), "--output", output.to_str().unwrap()];
    assert_eq!(text(&command(&config, &args).stdout), "");
    assert_eq!(std::fs::read(&output).unwrap(), rendered.stdout);
    assert_eq!(open_to_others(folder.path()), [filter, config]);
}

#[test]
fn in_a_mesh_the_filters_configuration_is_all_there_is_to_print() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("otari.yaml");
    let lines = format!("data_dir: {}\nmodel_url: http://mesh:8080", folder.path().display());
    std::fs::write(&config, lines).unwrap();
    let refused = command(&config, &["envoy-config"]);
    assert!(text(&refused.stderr).contains("--plugin-config"), "{}", text(&refused.stderr));
    let printed = command(&config, &["envoy-config", "--plugin-config"]);
    let parsed = decision::config::FilterConfig::parse(&printed.stdout).unwrap();
    assert!(!parsed.providers_routed);
    let secret = std::fs::read_to_string(folder.path().join("hop-secret")).unwrap();
    assert_eq!(parsed.policy.hop_secret, secret.trim());
}

#[tokio::test]
async fn serve_answers_until_it_is_told_to_stop() {
    use rustix::process::{Pid, Signal, kill_process};

    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("otari.yaml");
    std::fs::write(&config, config_text(&folder, "log: {format: json}")).unwrap();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_otari-sidecar"));
    serve.args(["serve", "--config"]).arg(&config).env_clear();
    let mut child = serve.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut log = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.contains("\"serving\"")) {
        let mut line = String::new();
        assert!(std::io::BufRead::read_line(&mut log, &mut line).unwrap() > 0, "{lines:?}");
        lines.push(line);
    }
    assert!(command(&config, &["health"]).status.success());
    let secret = std::fs::read_to_string(folder.path().join("hop-secret")).unwrap();
    let key = std::fs::read_to_string(folder.path().join("bootstrap-key")).unwrap();
    let socket = folder.path().join("sidecar.sock");
    let call =
        Call::new(&socket, "GET", "/v1/tools").header("x-otari-hop", secret.trim()).header("otari-key", key.trim());
    assert_eq!(call.send().await.status, 200);
    let off = Call::new(&socket, "GET", POLICY).header("x-otari-hop", secret.trim()).header("otari-key", key.trim());
    assert_eq!(off.send().await.status, 403);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut log, &mut rest).unwrap();
    let line = rest.lines().chain(lines.iter().map(String::as_str)).find(|line| line.contains("/v1/tools")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["fields"]["http.status"], &line["fields"]["http.route"]), (&200.into(), &"/v1/tools".into()));
    assert!(!rest.contains(key.trim()) && !rest.contains(secret.trim()));
}
