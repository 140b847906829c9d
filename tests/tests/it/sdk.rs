//! The official SDKs against the whole product: the suites of `tests/sdk/`, which `make test` installs.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::stack::Stack;

use crate::support::shared;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn installed(path: &str) -> PathBuf {
    let path = root().join(path);
    assert!(path.exists(), "{} is not installed: run `make sdk`", path.display());
    path
}

/// Runs a suite and shows what it printed.
async fn run(stack: &Stack, mut command: Command) {
    command.env("OTARI_BASE_URL", stack.base_url()).env("OTARI_KEY", stack.key());
    // The SDKs read these too, and would then ask somebody else.
    for vendor in ["ANTHROPIC", "OPENAI"] {
        for name in ["BASE_URL", "API_KEY", "AUTH_TOKEN"] {
            command.env_remove(format!("{vendor}_{name}"));
        }
    }
    for name in ["HTTP_PROXY", "http_proxy", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"] {
        command.env_remove(name);
    }
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    println!("{printed}");
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("passed") || printed.contains("# pass "), "no test ran: {printed}");
}

/// Runs the tests of a folder with the SDK that a list of packages names.
async fn python(suite: &str, folder: &str) {
    let stack = shared().await;
    let mut command = Command::new(installed(&format!(".tools/sdk/{suite}/bin/python")));
    command.args(["-m", "pytest"]).current_dir(root().join("tests/sdk").join(folder));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    run(&stack, command).await;
}

#[tokio::test]
async fn the_newest_python_sdk() {
    python("anthropic-newest", "python").await;
}

#[tokio::test]
async fn the_oldest_python_sdk() {
    python("anthropic-oldest", "python").await;
}

#[tokio::test]
async fn openais_newest_python_sdk() {
    python("openai-newest", "openai").await;
}

#[tokio::test]
async fn openais_oldest_python_sdk() {
    python("openai-oldest", "openai").await;
}

#[tokio::test]
async fn the_typescript_sdk() {
    let stack = shared().await;
    installed("tests/sdk/js/node_modules/@anthropic-ai/sdk");
    let mut command = Command::new("node");
    command.args(["--test", "--test-reporter=tap"]).current_dir(root().join("tests/sdk/js"));
    run(&stack, command).await;
}
