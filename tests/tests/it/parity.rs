//! One brain in three places: every case of the decision corpus gives equal bytes natively, in the filter inside Envoy,
//! and in the sidecar.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt as _, stream};
use harness::client::Call;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::support::shared;

/// Fewer cases than this mean that the corpus was not found.
const CASES_AT_LEAST: usize = 150;
/// Asked at the same time.
const AT_ONCE: usize = 4;

/// The parts of a case file that make the question. `config` names one of `_shared.json`.
#[derive(Deserialize)]
struct CaseFile {
    request: Box<RawValue>,
    config: String,
    #[serde(default)]
    snapshot: Option<Box<RawValue>>,
    #[serde(default)]
    point: Option<String>,
}

fn json_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            json_files(&path, found);
        } else if path.file_name().is_some_and(|name| name != "_shared.json") {
            found.push(path);
        }
    }
}

/// File and question of every case; the request keeps its very bytes.
fn corpus() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filter/decision/corpus");
    let shared = std::fs::read(folder.join("_shared.json")).unwrap();
    let shared: BTreeMap<String, BTreeMap<String, Box<RawValue>>> = serde_json::from_slice(&shared).unwrap();
    let mut files = Vec::new();
    json_files(&folder, &mut files);
    files.sort();
    assert!(files.len() >= CASES_AT_LEAST, "{} cases", files.len());
    let question = |file: PathBuf| {
        let case: CaseFile = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let question = format!(
            r#"{{"request": {}, "config": {}, "snapshot": {}, "point": "{}"}}"#,
            case.request.get(),
            shared["configs"][&case.config].get(),
            case.snapshot.as_ref().map_or("null", |snapshot| snapshot.get()),
            case.point.as_deref().unwrap_or("filter"),
        );
        (file, question)
    };
    files.into_iter().map(question).collect()
}

#[tokio::test]
async fn filter_sidecar_and_native_code_explain_every_case_alike() {
    let stack = shared().await;
    let ask = async |(file, question): (PathBuf, String)| {
        let here = decision::explain::explain(question.as_bytes());
        for path in ["/otari/filter/explain", "/otari/explain"] {
            let there = stack.send(Call::post_bytes(path, question.clone())).await;
            assert_eq!(there.status, 200, "{} at {path}: {}", file.display(), there.text());
            assert_eq!(there.text(), String::from_utf8_lossy(&here), "{} at {path}", file.display());
        }
    };
    stream::iter(corpus()).for_each_concurrent(AT_ONCE, ask).await;
    assert_eq!(stack.vm_reloads().await.unwrap(), 0);
}
