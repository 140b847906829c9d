//! The sweep as an operator sees it: with the sidecar, and as a command.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, UNIX_EPOCH};

use crate::support::{config_text, start_in};

/// A blob that no row knows, last written to long ago.
fn left_behind(data_dir: &Path) -> PathBuf {
    let path = data_dir.join("files/ab/ab000000000000000000000000000001");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = std::fs::File::create(&path).unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();
    path
}

fn sweep(config: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_otari-sidecar"));
    command.arg("sweep").args(args).arg("--config").arg(config).env_clear().output().unwrap()
}

#[tokio::test]
async fn a_sweep_runs_with_the_sidecar_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let blob = left_behind(folder.path());
    let sidecar = start_in(folder, "files: {sweep_interval_sec: 1}").await;
    loop {
        let metrics = sidecar.admin("GET", "/otari/metrics").send().await;
        let text = String::from_utf8(metrics.body.to_vec()).unwrap();
        if text.contains("otari_sidecar_files_swept_total{what=\"unknown\"} 1") {
            assert!(!blob.exists());
            assert!(text.contains("otari_sidecar_sweeps_total{end=\"done\"}"), "{text}");
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _folder = sidecar.stopped().await;
}

#[test]
fn the_command_says_what_it_would_sweep_and_then_does() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("otari.yaml");
    std::fs::write(&config, config_text(&folder, "")).unwrap();
    let blob = left_behind(folder.path());
    let said = |output: Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = said(sweep(&config, &["--dry-run"]));
    let counts = "0 expired, 0 given up, 0 deleted before, 1 blobs without a row, 0 unfinished uploads; 0 could not be removed\n";
    assert_eq!(text, format!("would sweep: {counts}"));
    assert!(blob.exists());
    assert_eq!(said(sweep(&config, &[])), format!("swept: {counts}"));
    assert!(!blob.exists());
    std::fs::write(&config, config_text(&folder, "files: {enabled: false}")).unwrap();
    let refused = sweep(&config, &[]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("files.enabled is off"));
}
