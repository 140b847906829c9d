//! Finds out about the configured interpreter, once, before anything runs in it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;

use super::workspace::reachable;
use super::{ProcessSettings, RunAs, StartupRefusal};

/// The session's side, in Python; compiled once for the configured interpreter, as one file.
const DRIVER: &str = concat!(
    include_str!("driver/cells.py"),
    include_str!("driver/shell.py"),
    include_str!("driver/editor.py"),
    include_str!("driver/serve.py"),
);
/// How the driver calls itself in a code object; its frames are cut from tracebacks by this name.
const DRIVER_NAME: &str = "<otari driver>";
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
const OLDEST: (u32, u32) = (3, 9);
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Prints what the launcher needs to know. The driver's source comes on stdin and goes back as a `.pyc` file in hex.
const PROBE: &str = r#"
import importlib.util, json, marshal, os, sys
source, wanted = sys.stdin.read(), sys.argv[2:]
driver = importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(source, sys.argv[1], "exec", dont_inherit=True))
prepared = os.path.join(sys.prefix, "share", "otari", "matplotlib")
print(json.dumps({"version": sys.version_info[:2], "executable": sys.executable, "real": os.path.realpath(sys.executable),
    "prefix": sys.prefix, "base_prefix": sys.base_prefix, "path": [p for p in sys.path if p], "driver": driver.hex(),
    "packages": [name for name in wanted if importlib.util.find_spec(name)],
    "plotting": [os.path.join(prepared, name) for name in os.listdir(prepared)] if os.path.isdir(prepared) else []}))
"#;
/// Packages people expect, by the names they are imported by; who has which is told.
const EXPECTED: [&str; 13] = [
    "numpy",
    "pandas",
    "matplotlib",
    "scipy",
    "sklearn",
    "seaborn",
    "sympy",
    "openpyxl",
    "xlsxwriter",
    "docx",
    "pptx",
    "pypdf",
    "PIL",
];

/// A usable interpreter.
#[derive(Debug)]
pub(super) struct Python {
    pub(super) executable: PathBuf,
    pub(super) prefix: String,
    pub(super) path: Vec<String>,
    /// Directories outside `/usr` that a session needs to see.
    pub(super) binds: Vec<PathBuf>,
    /// The driver as a `.pyc` file.
    pub(super) driver: Vec<u8>,
    /// Which of the packages people expect it can import.
    pub(super) packages: Vec<String>,
    /// What `sidecar/packages/prepare.py` wrote for matplotlib: the list of fonts, and settings.
    pub(super) plotting: Vec<PathBuf>,
}

#[derive(serde::Deserialize)]
struct Facts {
    version: (u32, u32),
    executable: PathBuf,
    real: PathBuf,
    prefix: String,
    base_prefix: PathBuf,
    path: Vec<String>,
    driver: String,
    packages: Vec<String>,
    plotting: Vec<PathBuf>,
}

impl Python {
    /// Asks the interpreter about itself, as the user that sandboxes run as.
    pub(super) async fn probe(settings: &ProcessSettings, owner: Option<RunAs>) -> Result<Self, StartupRefusal> {
        let shown = settings.python.display();
        if let Some(owner) = owner
            && settings.python.exists()
            && !reachable(&settings.python, owner)
        {
            return Err(StartupRefusal::new(
                format!("`sandbox.python: {shown}` lies in a directory that uid {} cannot enter", owner.uid),
                "move the interpreter to a directory that every user may enter, or start the sidecar as its owner",
            ));
        }
        let output = ask(&settings.python, owner).await.map_err(|error| {
            StartupRefusal::new(
                format!("`sandbox.python: {shown}` cannot be run: {error}"),
                "install Python 3 (`apt-get install python3`), or set `sandbox.python` to the path of an interpreter",
            )
        })?;
        let facts: Facts = serde_json::from_slice(&output).map_err(|_| {
            StartupRefusal::new(
                format!("`sandbox.python: {shown}` does not answer as a Python 3 interpreter does"),
                "set `sandbox.python` to the path of a CPython 3 interpreter",
            )
        })?;
        if facts.version < OLDEST {
            return Err(StartupRefusal::new(
                format!("`sandbox.python: {shown}` is version {}.{}", facts.version.0, facts.version.1),
                "set `sandbox.python` to CPython 3.9 or newer",
            ));
        }
        let driver = from_hex(&facts.driver).unwrap_or_default();
        let binds = binds(&facts, &settings.data_dir)?;
        let Facts { executable, prefix, path, packages, plotting, .. } = facts;
        Ok(Self { executable, prefix, path, binds, driver, packages, plotting })
    }

    /// Where a shell finds programs: those of the interpreter itself first, so that `python3` means it.
    pub(super) fn program_path(&self) -> String {
        if self.prefix.starts_with("/usr") {
            SYSTEM_PATH.to_owned()
        } else {
            format!("{}/bin:{SYSTEM_PATH}", self.prefix)
        }
    }

    /// What code can import of what people expect, in words.
    pub(super) fn stack(&self) -> String {
        if self.packages.is_empty() { "no packages".to_owned() } else { self.packages.join(", ") }
    }
}

async fn ask(python: &Path, owner: Option<RunAs>) -> std::io::Result<Vec<u8>> {
    let mut command = tokio::process::Command::new(python);
    command.args(["-I", "-c", PROBE, DRIVER_NAME]).args(EXPECTED).env_clear().current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(owner) = owner {
        command.uid(owner.uid).gid(owner.gid);
    }
    let mut child = command.spawn()?;
    let answer = async {
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read is no interpreter; what it says tells that.
            drop(stdin.write_all(DRIVER.as_bytes()).await);
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(PROBE_TIMEOUT, answer).await.map_err(std::io::Error::from)??;
    if output.status.success() { Ok(output.stdout) } else { Err(std::io::Error::other(output.status.to_string())) }
}

/// The directories to show a session so that the interpreter and its packages work.
fn binds(facts: &Facts, data_dir: &Path) -> Result<Vec<PathBuf>, StartupRefusal> {
    let prefix = Path::new(&facts.prefix);
    let beside = facts.real.parent().map(Path::to_path_buf);
    let mut wanted: Vec<PathBuf> = vec![prefix.to_path_buf(), facts.base_prefix.clone()];
    wanted.extend(beside);
    wanted.extend(facts.path.iter().map(PathBuf::from));
    wanted.retain(|path| !path.starts_with("/usr") && path.is_absolute() && path.exists());
    wanted.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in wanted {
        if kept.iter().any(|outer| path.starts_with(outer)) {
            continue;
        }
        // Showing a session `/`, `/home` or our own data would undo the isolation.
        if path.components().count() < 3 || data_dir.starts_with(&path) {
            return Err(StartupRefusal::new(
                format!("the interpreter needs `{}`, which no session may see", path.display()),
                "set `sandbox.python` to an interpreter with a directory of its own, such as a virtual environment outside `data_dir`",
            ));
        }
        kept.push(path);
    }
    Ok(kept)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Facts, binds, from_hex};

    fn facts(prefix: &str) -> Facts {
        Facts {
            version: (3, 11),
            executable: PathBuf::from("/usr/bin/python3"),
            real: PathBuf::from("/usr/bin/python3.11"),
            prefix: prefix.to_owned(),
            base_prefix: PathBuf::from("/usr"),
            path: vec!["/usr/lib/python3.11".to_owned()],
            driver: String::new(),
            packages: Vec::new(),
            plotting: Vec::new(),
        }
    }

    #[test]
    fn a_system_interpreter_needs_nothing_more_and_the_root_is_never_shown() {
        assert_eq!(binds(&facts("/usr"), Path::new("/var/lib/otari")).unwrap(), Vec::<PathBuf>::new());
        assert!(binds(&facts("/"), Path::new("/var/lib/otari")).is_err());
        assert!(binds(&facts("/home"), Path::new("/var/lib/otari")).is_err());
        assert!(binds(&facts("/var/lib"), Path::new("/var/lib/otari")).is_err());
    }

    #[test]
    fn hex_is_read_or_refused() {
        assert_eq!(from_hex("00ff"), Some(vec![0, 255]));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
