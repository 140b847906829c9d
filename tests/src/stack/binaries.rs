//! Where the programs of a stack are found.

use std::path::{Path, PathBuf};

/// A program of this workspace: beside the running one, or in `BIN_DIR`.
pub fn binary(name: &str) -> Result<PathBuf, String> {
    let folder = if let Some(folder) = std::env::var_os("BIN_DIR") {
        PathBuf::from(folder)
    } else {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        // Test programs stand one folder deeper, in `deps`.
        let folder = own.parent().unwrap_or(Path::new("."));
        if folder.ends_with("deps") { folder.parent().unwrap_or(folder).to_owned() } else { folder.to_owned() }
    };
    present(folder.join(name), "run `make build`, or set BIN_DIR to the folder of the programs")
}

/// Envoy: `ENVOY_BIN`, or the one that the Makefile installs.
pub fn envoy() -> Result<PathBuf, String> {
    let path = std::env::var_os("ENVOY_BIN").map_or_else(|| root().join(".tools/envoy/bin/envoy"), PathBuf::from);
    present(path, "run `make setup`, or set ENVOY_BIN to an Envoy of version 1.40 or newer")
}

/// The filter: `FILTER_WASM`, or what `make filter` builds.
pub fn filter_wasm() -> Result<PathBuf, String> {
    let path = std::env::var_os("FILTER_WASM").map_or_else(|| root().join("target/filter.wasm"), PathBuf::from);
    present(path, "run `make filter`, or set FILTER_WASM to the built filter")
}

/// The folder of the workspace.
fn root() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

fn present(path: PathBuf, otherwise: &str) -> Result<PathBuf, String> {
    if path.is_file() { Ok(path) } else { Err(format!("{} is not there: {otherwise}", path.display())) }
}
