//! The sandbox with real bubblewrap, real Python, real processes; as root and as an ordinary user alike.

mod ages;
mod bash;
mod battery;
mod bombs;
mod editor;
mod escapes;
mod files;
mod isolation;
pub(crate) mod life;
mod limits;
mod packages;
mod pool;
mod remote;
mod repl;
mod start;
mod together;
mod undo;
mod view;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidecar::clock::SystemClock;
use sidecar::config::{Config, Environment, SandboxBackendConfig};
use sidecar::ids::SystemIds;
use sidecar::sandbox::process::{ProcessSandbox, ProcessSettings, SandboxLimits};
use sidecar::sandbox::{
    EditorCommand, ExecutionRequest, ExecutionResult, SandboxBackend, SandboxError, SessionId, SessionSpec, ToolInput,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(30);

/// A sandbox with a data directory of its own.
struct Place {
    sandbox: Arc<ProcessSandbox>,
    data: TempDir,
}

/// A directory that the sandbox's user may enter.
pub(crate) fn open_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o711)).unwrap();
    directory
}

/// What an empty configuration gives, for another data directory, and with no session but those that a test opens.
fn settings(data: &Path) -> ProcessSettings {
    let config = Config::parse("", &Environment::default()).unwrap();
    let SandboxBackendConfig::Embedded(settings) = config.sandbox.backend else { panic!("not embedded") };
    ProcessSettings { data_dir: data.to_owned(), warm_sessions: 0, ..*settings }
}

fn default_limits() -> SandboxLimits {
    settings(Path::new("/")).limits
}

async fn start_with(limits: SandboxLimits) -> Place {
    start_as(|settings| ProcessSettings { limits, ..settings }).await
}

/// Starts with settings that a test changed.
async fn start_as(change: impl FnOnce(ProcessSettings) -> ProcessSettings) -> Place {
    let data = open_directory();
    let settings = change(settings(data.path()));
    let sandbox = ProcessSandbox::start(settings, Arc::new(SystemIds), Arc::new(SystemClock))
        .await
        .unwrap_or_else(|refusal| panic!("{refusal}"));
    Place { sandbox, data }
}

async fn start() -> Place {
    start_with(default_limits()).await
}

fn request_of(input: ToolInput, timeout: Duration) -> ExecutionRequest {
    ExecutionRequest { input, timeout, call_id: "call".to_owned(), stop: CancellationToken::new() }
}

fn request(code: &str, timeout: Duration) -> ExecutionRequest {
    request_of(ToolInput::Python { code: code.to_owned() }, timeout)
}

impl Place {
    async fn session(&self) -> SessionId {
        self.sandbox.create_session(&SessionSpec::default()).await.unwrap().id
    }

    async fn run(&self, session: &SessionId, code: &str) -> ExecutionResult {
        self.run_for(session, code, PATIENCE).await
    }

    async fn run_for(&self, session: &SessionId, code: &str, timeout: Duration) -> ExecutionResult {
        self.sandbox.execute(session, &request(code, timeout)).await.unwrap()
    }

    /// Standard output of code that must succeed without a word on standard error.
    async fn output(&self, session: &SessionId, code: &str) -> String {
        let result = self.run(session, code).await;
        assert_eq!((result.return_code, result.stderr.as_str()), (0, ""), "{code}\n{}", result.stdout);
        result.stdout
    }

    async fn bash(&self, session: &SessionId, command: &str) -> ExecutionResult {
        self.bash_for(session, command, PATIENCE).await
    }

    async fn bash_for(&self, session: &SessionId, command: &str, timeout: Duration) -> ExecutionResult {
        let input = ToolInput::Bash { command: command.to_owned() };
        self.sandbox.execute(session, &request_of(input, timeout)).await.unwrap()
    }

    /// Standard output of a command that must succeed without a word on standard error.
    async fn shell(&self, session: &SessionId, command: &str) -> String {
        let result = self.bash(session, command).await;
        assert_eq!((result.return_code, result.stderr.as_str()), (0, ""), "{command}\n{}", result.stdout);
        result.stdout
    }

    async fn edit(&self, session: &SessionId, command: EditorCommand) -> ExecutionResult {
        self.sandbox.execute(session, &request_of(ToolInput::TextEditor(command), PATIENCE)).await.unwrap()
    }

    async fn destroy(&self, session: &SessionId) {
        self.sandbox.destroy_session(session).await.unwrap();
    }

    /// The only session's workspace, from outside.
    fn workspace(&self) -> PathBuf {
        let found: Vec<_> = fs::read_dir(self.sessions()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(found.len(), 1);
        found[0].clone()
    }

    fn sessions(&self) -> PathBuf {
        self.data.path().join("sandbox/sessions")
    }

    /// Directories of sessions, those on their way to the trash too.
    fn workspaces(&self) -> usize {
        [self.sessions(), self.data.path().join("sandbox/trash")]
            .map(|path| fs::read_dir(path).unwrap().count())
            .iter()
            .sum()
    }

    /// No session's directory is left, not in the trash either.
    fn assert_clean(&self) {
        for directory in [self.sessions(), self.data.path().join("sandbox/trash")] {
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "{}", directory.display());
        }
    }
}

/// Whether any process of the machine has `marker` in its command line.
pub(crate) fn runs(marker: &str) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes())
    })
}

/// Waits for something that happens outside of our reach.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A number of seconds for `sleep` that no other process of the machine uses.
pub(crate) fn unique_sleep() -> String {
    use sidecar::ids::IdSource;
    format!("9{}", u32::from_str_radix(&SystemIds.hex128()[..7], 16).unwrap())
}
