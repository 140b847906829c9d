//! Habits of the code base that no compiler checks: who may use whom, and what stays out of the filter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the table stands of who may use whom in the sidecar.
const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";

/// First and last row of that table's head.
const TABLE_HEAD: &str = "| module | owns | may use |";

/// Sources of time and identifiers, which know nothing of ours.
const OPEN_TO_ALL: &[&str] = &["clock", "ids", "shares"];

/// Crates that need an operating system or a browser, and would ask Envoy for imports it does not offer.
const NOT_IN_FILTER: &[&str] = &["tokio", "getrandom", "wasm-bindgen", "rand", "mio", "chrono"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The modules that a source text names as `crate::NAME` or in `use crate::{NAME, …}`, comments aside.
fn used(text: &str) -> BTreeSet<String> {
    let code: Vec<&str> = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code)).collect();
    let code = code.join("\n");
    let mut names = BTreeSet::new();
    for (_, rest) in code.match_indices("crate::").map(|(at, found)| (at, &code[at + found.len()..])) {
        let list = match rest.strip_prefix('{') {
            Some(group) => group.split_once('}').map_or(group, |(group, _)| group),
            None => rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default(),
        };
        for item in list.split(',') {
            let name: String = item.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                names.insert(name);
            }
        }
    }
    names
}

/// The table of `text`: each module, and the modules it may use besides itself and those [`OPEN_TO_ALL`].
fn may_use(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let rows = text.lines().skip_while(|line| *line != TABLE_HEAD).skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [module, _, list] = cells[..] else { panic!("three cells in {row}") };
        (module.trim_matches('`'), list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect())
    })
    .collect()
}

#[test]
fn modules_of_the_sidecar_use_just_whom_the_architecture_says() {
    let source = root().join("sidecar/src");
    let text = std::fs::read_to_string(root().join(ARCHITECTURE)).unwrap();
    let table = may_use(&text);
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in rust_files(&source) {
        let first = file.strip_prefix(&source).unwrap().components().next().unwrap();
        let module = first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned();
        let names = used(&std::fs::read_to_string(&file).unwrap());
        let others: Vec<String> =
            names.into_iter().filter(|name| *name != module && table.contains_key(name.as_str())).collect();
        uses.entry(module).or_default().extend(others);
    }
    for name in OPEN_TO_ALL.iter().chain(["main", "lib"].iter()) {
        uses.remove(*name);
    }
    let rows: Vec<&str> = uses.keys().map(String::as_str).collect();
    assert_eq!(rows, table.keys().copied().collect::<Vec<_>>(), "modules, and rows of the table");
    for (module, names) in &uses {
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(&names, &table[module.as_str()], "whom `{module}` uses, and whom it may use");
    }
}

#[test]
fn the_reader_of_uses_sees_groups_and_paths_but_no_comments() {
    let text = "use crate::{http, app::Parts};\nlet a = crate::wire::sse::Frame; // crate::cli\n//! [`crate::keys`]\n";
    let names: Vec<String> = used(text).into_iter().collect();
    assert_eq!(names, ["app", "http", "wire"]);
}

#[test]
fn the_filter_needs_no_operating_system() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(["--package", "filter", "--target", "wasm32-unknown-unknown"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let crates: BTreeSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(crates.contains("decision"), "{crates:?}");
    let found: Vec<&&str> = NOT_IN_FILTER.iter().filter(|name| crates.contains(**name)).collect();
    assert!(found.is_empty(), "the filter's tree holds {found:?}");
}

#[test]
fn no_committed_file_holds_a_build_machines_path_or_a_registrys_address() {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output().unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    // Put together here, so that this file does not hold them either.
    let needles = [["/ro", "ot/.cargo"], ["/wo", "rk/wt"], ["/wo", "rk/main"], ["registry.npm", "js.org"]]
        .map(|parts| parts.concat());
    for file in files.lines() {
        let Ok(text) = std::fs::read_to_string(root().join(file)) else { continue };
        for needle in &needles {
            assert!(!text.contains(needle.as_str()), "{file} holds {needle}");
        }
    }
}

#[test]
fn every_test_the_field_reports_name_exists() {
    let text = std::fs::read_to_string(root().join("docs/field-reports.md")).unwrap();
    let sources: String = ["filter", "sidecar", "tests"]
        .iter()
        .flat_map(|folder| rust_files(&root().join(folder)))
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    // A test's name is a sentence; settings and files in the same marks are not.
    let names: Vec<&str> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.matches('_').count() > 1 && *name != "max_body_bytes")
        .collect();
    assert!(names.len() > 20, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "no such test: {missing:?}");
}
