//! Files of a caller's in a real session: read from the store, analysed by real code, and what it writes back in the store.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use decision::decide::{Dialect, Run};
use decision::format::ApiFormat;
use decision::identity::Identity;
use decision::request::{CodeTool, Keyword, ToolDeclaration};
use futures_util::TryStreamExt;
use http::HeaderMap;
use serde_json::{Value, json};
use sidecar::clock::SystemClock;
use sidecar::config::{Config, Environment, FilesConfig, SandboxBackendConfig};
use sidecar::files::name::Names;
use sidecar::files::{FileRecord, FileStore, Files, NewFile, Purpose, Staged};
use sidecar::ids::SystemIds;
use sidecar::repository::Repository;
use sidecar::sandbox::Reaper;
use sidecar::sandbox::process::{ProcessSandbox, ProcessSettings};
use sidecar::stored::Named;
use sidecar::tool_loop::{Engine, Memory, ReplyBody, RunRequest};
use sidecar::upstream::{ModelClient, ModelTarget};
use tokio_util::task::TaskTracker;

use crate::code::TEXT;
use crate::sandbox::open_directory;
use crate::support::Upstream;

/// Adds up a column of both files, whose names were one, and writes the sum.
const ADDS: &str = r#"{"id": "1", "object": "chat.completion", "created": 1, "model": "local-1", "choices": [{"index": 0,
    "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1",
    "type": "function", "function": {"name": "code_execution", "arguments":
    "{\"code\": \"import csv\\nrows = [row for name in ('data.csv', 'data-2.csv') for row in csv.reader(open(name))]\\nn = open('sum.txt', 'w').write(str(sum(int(row[1]) for row in rows)))\"}"}}]}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}"#;

fn ann() -> Identity {
    Identity { user: "ann".to_owned(), workspace: "team".to_owned() }
}

async fn files(data: &Path, tasks: &TaskTracker) -> Files {
    let config = Config::parse(&format!("data_dir: {}", data.display()), &Environment::default()).unwrap();
    let repository = Repository::open(&config.database, Arc::new(SystemClock)).await.unwrap();
    let Some(FilesConfig { store, limits, .. }) = config.files else { panic!("files are on") };
    let store = FileStore::open(&store, u64::MAX, tasks.clone()).unwrap();
    Files::new(repository, store, Arc::new(SystemIds), limits, tasks.clone())
}

async fn upload(files: &Files, bytes: Vec<u8>) -> FileRecord {
    let mut upload = files.begin(&ann(), u64::MAX).await.unwrap();
    for piece in bytes.chunks(100_000) {
        upload.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    let (filename, mime_type) = ("data.csv".to_owned(), "text/csv".to_owned());
    upload.finish(NewFile { filename, mime_type, purpose: Purpose::UserData, lifetime_ms: None }).await.unwrap()
}

async fn engine(data: &Path, model: &Path, files: Files, tasks: TaskTracker) -> Arc<Engine> {
    let config = Config::parse("", &Environment::default()).unwrap();
    let SandboxBackendConfig::Embedded(settings) = config.sandbox.backend else { panic!("not embedded") };
    let settings = ProcessSettings { data_dir: data.to_owned(), warm_sessions: 0, ..*settings };
    let sandbox = ProcessSandbox::start(settings, Arc::new(SystemIds), Arc::new(SystemClock))
        .await
        .unwrap_or_else(|why| panic!("{why}"));
    let (reaper, work) = Reaper::new(sandbox, 4);
    tasks.spawn(work);
    Arc::new(Engine {
        models: ModelClient::new(ModelTarget::Unix(model.to_owned()), config.upstream).unwrap(),
        reaper: Some(reaper),
        containers: None,
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        limits: config.tool_loop,
        stored: None,
        files: Some(files),
        memory: Arc::new(Memory::new(config.tool_loop.memory)),
        tasks,
    })
}

fn asked(seeds: Vec<Staged>) -> RunRequest {
    let tool = json!({"type": "code_execution_20250522", "name": "code_execution"});
    let body = json!({"model": "local-1", "max_tokens": 99, "messages": [{"role": "user", "content": "Add."}],
        "tools": [tool]});
    let declaration = ToolDeclaration {
        index: 0,
        keyword: Keyword::Dated("20250522".to_owned()),
        name: Some("code_execution".to_owned()),
        purpose_hint: None,
    };
    RunRequest {
        request_id: "req_otr1".to_owned(),
        owner: ann(),
        caller: ApiFormat::Messages,
        model_wires: vec![ApiFormat::ChatCompletions],
        provider: "local".to_owned(),
        provider_kind: None,
        upstream_model: None,
        forward_headers: HeaderMap::new(),
        body: body.to_string().into(),
        named: Named::default(),
        seeds,
        container: None,
        dropped: Vec::new(),
        run: Run {
            dialect: Dialect::Native,
            claimed: vec![declaration],
            tools: vec![CodeTool::Python],
            max_iterations: 10,
            exec_timeout_s: 60,
            purpose_hint: None,
            image: None,
            container: None,
        },
        stream: false,
        tally: Arc::default(),
    }
}

#[tokio::test]
async fn uploads_of_one_name_are_read_by_code_and_its_result_is_a_file() {
    let data = open_directory();
    let tasks = TaskTracker::new();
    let files = files(data.path(), &tasks).await;
    let rows = |value: u32| format!("row,{value}\n").repeat(100_000).into_bytes();
    let mut names = Names::new();
    let mut seeds = Vec::new();
    for value in [1, 2] {
        let file = upload(&files, rows(value)).await;
        seeds.push(Staged { name: names.take(&file.filename), file });
    }
    let model = data.path().join("model.sock");
    let _upstream = Upstream::answering_each(&model, &[ADDS, TEXT]);
    let engine = engine(data.path(), &model, files.clone(), tasks).await;
    let reply = engine.serve(asked(seeds)).await.unwrap_or_else(|problem| panic!("{problem:?}"));
    let ReplyBody::Whole(body) = reply.body else { panic!("a stream") };
    let answer: Value = serde_json::from_slice(&body).unwrap();
    let result = &answer["content"][1]["content"];
    assert_eq!((&result["return_code"], &result["stderr"]), (&json!(0), &json!("")), "{answer}");
    let outputs = result["content"].as_array().unwrap();
    assert_eq!(outputs.len(), 1, "what went in does not come out: {answer}");
    let sum = files.get(&ann(), outputs[0]["file_id"].as_str().unwrap()).await.unwrap();
    assert_eq!((sum.filename.as_str(), sum.purpose), ("sum.txt", Purpose::CodeExecutionOutput));
    let pieces: Vec<Bytes> = files.read(&sum, 0..sum.size_bytes).await.unwrap().try_collect().await.unwrap();
    assert_eq!(pieces.concat(), b"300000");
}
