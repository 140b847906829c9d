//! Habits of the code base that no compiler checks: who may use whom, and what stays out of the filter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules of the sidecar, and the modules each may use besides itself and those [`OPEN_TO_ALL`].
const MAY_USE: &[(&str, &[&str])] = &[
    ("main", &[]),
    ("cli", &["app", "config", "envoy_config", "keys", "private", "repository", "telemetry"]),
    (
        "app",
        &["config", "http", "keys", "policy", "private", "repository", "sandbox", "telemetry", "tool_loop", "upstream"],
    ),
    (
        "http",
        &["config", "keys", "policy", "private", "repository", "sandbox", "telemetry", "tool_loop", "upstream", "wire"],
    ),
    ("tool_loop", &["sandbox", "telemetry", "upstream", "wire"]),
    // `config` knows the limits of the parts it configures, and nothing of what they do.
    ("config", &["envoy_config", "repository", "sandbox", "tool_loop", "upstream"]),
    ("envoy_config", &[]),
    ("policy", &["keys", "repository", "telemetry"]),
    ("keys", &["config", "private", "repository"]),
    ("private", &[]),
    ("repository", &["private"]),
    ("telemetry", &["config"]),
    ("sandbox", &[]),
    ("upstream", &["telemetry"]),
    ("wire", &[]),
    ("clock", &[]),
    ("ids", &[]),
    ("lib", &[]),
];

/// Sources of time and identifiers, which know nothing of ours.
const OPEN_TO_ALL: &[&str] = &["clock", "ids"];

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

#[test]
fn modules_of_the_sidecar_use_only_whom_they_may() {
    let source = root().join("sidecar/src");
    let table: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut offences = Vec::new();
    for file in rust_files(&source) {
        let inside = file.strip_prefix(&source).unwrap();
        let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        let module = first.trim_end_matches(".rs");
        let Some(allowed) = table.get(module) else {
            offences.push(format!("{module} has no row in the table: say whom it may use"));
            continue;
        };
        let names = used(&std::fs::read_to_string(&file).unwrap());
        for name in names.iter().filter(|name| table.contains_key(name.as_str())) {
            if name != module && !allowed.contains(&name.as_str()) && !OPEN_TO_ALL.contains(&name.as_str()) {
                offences.push(format!("{} uses {name}", inside.display()));
            }
        }
    }
    assert!(offences.is_empty(), "{offences:#?}");
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
        .args(["--package", "filter", "--target", "all"])
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
