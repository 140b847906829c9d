//! Runs every case of `corpus/` and holds its answer against what the case expects.
//!
//! INVARIANT: the answer's bytes do not depend on how the body was cut.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail its test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A case file. `config` names one of `_shared.json`, all else is as `decision::explain` takes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    name: String,
    #[serde(default, rename = "why")]
    _why: Option<String>,
    request: Box<RawValue>,
    config: String,
    #[serde(default)]
    snapshot: Option<Box<RawValue>>,
    #[serde(default)]
    point: Option<String>,
    expect: Expect,
}

/// What a case says about its answer; what it leaves out, it does not care about.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    decision: String,
    reason: String,
    #[serde(default)]
    target: Option<String>,
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    upstream_model: Option<String>,
    #[serde(default)]
    workspace: Option<String>,
    /// Fields of the run.
    #[serde(default)]
    run: BTreeMap<String, Value>,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    error_type: Option<String>,
    /// Texts the public message holds.
    #[serde(default)]
    mentions: Vec<String>,
    /// All header edits.
    #[serde(default)]
    edits: Option<Value>,
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn case_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            case_files(&path, found);
        } else if path.file_name().unwrap() != "_shared.json" {
            found.push(path);
        }
    }
}

/// The case as `explain` takes it; its body keeps its very bytes.
fn explained(case: &CaseFile, configs: &BTreeMap<String, Box<RawValue>>) -> String {
    let snapshot = case.snapshot.as_ref().map_or("null", |snapshot| snapshot.get());
    format!(
        r#"{{"request": {}, "config": {}, "snapshot": {snapshot}, "point": "{}"}}"#,
        case.request.get(),
        configs[&case.config].get(),
        case.point.as_deref().unwrap_or("filter"),
    )
}

fn check(expect: &Expect, answer: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut same = |what: &str, seen: &Value, expected: Value| {
        if *seen != expected {
            wrong.push(format!("{what}: expected {expected}, got {seen}"));
        }
    };
    same("decision", &answer["decision"], expect.decision.as_str().into());
    same("reason", &answer["reason"], expect.reason.as_str().into());
    same("target", &answer["target"], expect.target.clone().into());
    if expect.decision != "refuse" {
        same("reply", &answer["reply"], Value::Null);
    }
    let fields =
        [("provider", &expect.provider), ("upstream_model", &expect.upstream_model), ("workspace", &expect.workspace)];
    for (field, expected) in fields {
        if let Some(expected) = expected {
            same(field, &answer[field], expected.as_str().into());
        }
    }
    for (field, expected) in &expect.run {
        same(field, &answer["run"][field], expected.clone());
    }
    if let Some(edits) = &expect.edits {
        same("edits", &answer["edits"], edits.clone());
    }
    let error = &answer["reply"]["body"]["error"];
    same("status", &answer["reply"]["status"], expect.status.into());
    same("error type", &error["type"], expect.error_type.clone().into());
    for mention in &expect.mentions {
        if !error["message"].as_str().unwrap_or_default().contains(mention) {
            wrong.push(format!("the message does not mention `{mention}`: {}", error["message"]));
        }
    }
    wrong
}

#[test]
fn every_case_is_answered_as_it_expects() {
    let shared = fs::read(corpus().join("_shared.json")).unwrap();
    let shared: BTreeMap<String, BTreeMap<String, Box<RawValue>>> = serde_json::from_slice(&shared).unwrap();
    let mut files = Vec::new();
    case_files(&corpus(), &mut files);
    files.sort();
    assert!(files.len() >= 150, "only {} cases in {}", files.len(), corpus().display());

    let mut failures = String::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let case: CaseFile = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(file.file_stem().unwrap().to_str().unwrap(), case.name.replace(' ', "-"));
        let asked = explained(&case, &shared["configs"]);
        let whole = decision::explain::explain(asked.as_bytes());
        for chunk_bytes in [1, 2, 3, 7, 64] {
            let cut = decision::explain::explain_in_chunks(asked.as_bytes(), chunk_bytes);
            assert_eq!(text_of(&cut), text_of(&whole), "{} in chunks of {chunk_bytes}", file.display());
        }
        let answer: Value = serde_json::from_slice(&whole).unwrap();
        for wrong in check(&case.expect, &answer) {
            writeln!(failures, "{}: {wrong}", file.strip_prefix(corpus()).unwrap().display()).unwrap();
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

#[test]
fn a_case_that_cannot_be_read_says_so() {
    for case in ["", "{}", r#"{"request": {"path": "/"}}"#, r#"{"request": {"path": "/", "body_text": {"hex": "f"}}}"#]
    {
        let answer: Value = serde_json::from_slice(&decision::explain::explain(case.as_bytes())).unwrap();
        assert!(answer["error"].is_string(), "{case}");
    }
}

fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
