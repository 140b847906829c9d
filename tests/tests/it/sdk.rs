//! Official SDKs and common client libraries against the whole product: the suites of `tests/sdk/`, which `make sdk`
//! installs. Each is unchanged, pinned, and holds the same conversations.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::stack::Stack;

use crate::support::{FILES_MAX_BYTES, shared, tag};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn installed(path: &str) -> PathBuf {
    let path = root().join(path);
    assert!(path.exists(), "{} is not installed: run `make sdk`", path.display());
    path
}

/// Runs a suite, with two users of its own for files, and shows what it printed.
async fn run(stack: &Stack, command: Command) {
    let users = [tag(), tag()].map(|user| stack.make_key(&user, "sdk").unwrap());
    let printed = print(stack, command, &users).await;
    assert!(printed.contains("passed") || printed.contains("# pass "), "no test ran: {printed}");
}

/// Runs a program of a suite; gives what it printed.
async fn print(stack: &Stack, mut command: Command, [files_key, other_key]: &[String; 2]) -> String {
    command.env("OTARI_BASE_URL", stack.base_url()).env("OTARI_KEY", stack.key());
    command.env("OTARI_FILES_KEY", files_key).env("OTARI_OTHER_KEY", other_key);
    command.env("OTARI_FILES_MAX_BYTES", FILES_MAX_BYTES.to_string());
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
    printed.into_owned()
}

/// Runs the tests of a folder of `tests/sdk/python` with the packages that a list there names.
async fn python(packages: &str, folder: &str) {
    let stack = shared().await;
    let mut command = interpreter(packages);
    command.args(["-m", "pytest", folder]);
    run(&stack, command).await;
}

/// Python with the packages that a list in `tests/sdk/python` names.
fn interpreter(packages: &str) -> Command {
    let mut command = Command::new(installed(&format!(".tools/sdk/{packages}/bin/python")));
    command.current_dir(root().join("tests/sdk/python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs the tests of a folder of `tests/sdk/js`.
async fn javascript(folder: &str) {
    let stack = shared().await;
    installed("tests/sdk/js/node_modules");
    let suite = root().join("tests/sdk/js");
    let entries = std::fs::read_dir(suite.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.to_string_lossy().ends_with(".test.js"));
    let mut command = Command::new("node");
    command.args(["--test", "--test-reporter=tap"]).args(files).current_dir(suite);
    run(&stack, command).await;
}

#[tokio::test]
async fn anthropics_newest_python_sdk() {
    python("anthropic-newest", "anthropic_client").await;
}

#[tokio::test]
async fn anthropics_last_python_sdk_before_two() {
    python("anthropic-1", "anthropic_client").await;
}

#[tokio::test]
async fn anthropics_oldest_python_sdk() {
    python("anthropic-oldest", "anthropic_client").await;
}

#[tokio::test]
async fn anthropics_typescript_sdk() {
    javascript("anthropic").await;
}

#[tokio::test]
async fn openais_newest_python_sdk() {
    python("openai-newest", "openai_client").await;
}

#[tokio::test]
async fn openais_oldest_python_sdk() {
    python("openai-oldest", "openai_client").await;
}

#[tokio::test]
async fn openais_javascript_sdk() {
    javascript("openai").await;
}

#[tokio::test]
async fn a_file_that_one_sdk_uploaded_is_read_by_every_other() {
    let stack = shared().await;
    let users = [tag(), tag()].map(|user| stack.make_key(&user, "sdk").unwrap());
    let sdks = ["anthropic-oldest", "anthropic-1", "anthropic-newest", "openai-oldest", "openai-newest"];
    let mut ids = Vec::new();
    for sdk in sdks {
        let mut upload = interpreter(sdk);
        upload.args(["exchange_files.py", "upload"]);
        ids.push(print(&stack, upload, &users).await.trim().to_owned());
    }
    for sdk in sdks {
        let mut read = interpreter(sdk);
        read.args(["exchange_files.py", "read"]).args(&ids);
        print(&stack, read, &users).await;
    }
}

#[tokio::test]
async fn vercels_ai_sdk() {
    javascript("vercel").await;
}

#[tokio::test]
async fn langchain() {
    python("langchain", "langchain_client").await;
}

#[tokio::test]
async fn pydantic_ai() {
    python("pydantic-ai", "pydantic_ai_client").await;
}

#[tokio::test]
async fn llama_index() {
    python("llama-index", "llama_index_client").await;
}

#[tokio::test]
async fn any_llm() {
    python("any-llm", "any_llm_client").await;
}
