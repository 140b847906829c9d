//! One brain in three places: every case of the decision corpus gives equal bytes natively, in the filter inside Envoy,
//! and in the sidecar.

use std::path::{Path, PathBuf};

use harness::client::Call;

use crate::support::shared;

/// Fewer cases than this mean that the corpus was not found.
const CASES_AT_LEAST: usize = 150;

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filter/decision/corpus");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    assert!(files.len() >= CASES_AT_LEAST, "{} cases", files.len());
    files
}

#[tokio::test]
async fn filter_sidecar_and_native_code_explain_every_case_alike() {
    let stack = shared().await;
    for file in corpus() {
        let case = std::fs::read(&file).unwrap();
        let native = decision::explain::explain(&case);
        for path in ["/otari/filter/explain", "/otari/explain"] {
            let answer = stack.send(Call::post_bytes(path, case.clone())).await;
            assert_eq!(answer.status, 200, "{} at {path}: {}", file.display(), answer.text());
            let (there, here) = (answer.text(), String::from_utf8_lossy(&native));
            assert_eq!(there, here, "{} at {path}", file.display());
        }
    }
    assert_eq!(stack.vm_reloads().await.unwrap(), 0);
}
