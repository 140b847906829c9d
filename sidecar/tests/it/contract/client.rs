//! Our own client against our own server: every operation means the same as in the embedded sandbox.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use sidecar::config::ListenAddress;
use sidecar::sandbox::remote::{HttpLimits, HttpSandbox, HttpSettings};
use sidecar::sandbox::{
    EditorCommand, EditorFault, EditorReport, ExecutionRequest, ExecutionResult, FileSource, SandboxBackend as _,
    SandboxError, SessionId, SessionSpec, ToolInput, ViewRange, WorkspacePath,
};
use tokio_util::sync::CancellationToken;

use super::{Served, TOKEN, serve_in};

async fn serve(sandbox: &str) -> Served {
    let sandbox = format!("serve_token_env: SANDBOX_TOKEN, {sandbox}");
    serve_in(tempfile::tempdir().unwrap(), "127.0.0.1:0", &sandbox, "").await
}

fn client_with(served: &Served, base: &str, token: Option<&str>) -> HttpSandbox {
    let url = match &served.address {
        ListenAddress::Tcp(address) => format!("http://{address}{base}"),
        ListenAddress::Unix(socket) => format!("unix:{}", socket.display()),
    };
    HttpSandbox::new(HttpSettings { url, token: token.map(str::to_owned), limits: HttpLimits::default() }).unwrap()
}

fn client(served: &Served) -> HttpSandbox {
    client_with(served, "", Some(TOKEN))
}

fn request(input: ToolInput) -> ExecutionRequest {
    ExecutionRequest {
        input,
        timeout: Duration::from_secs(30),
        call_id: "call".to_owned(),
        stop: CancellationToken::new(),
    }
}

fn python(code: &str) -> ExecutionRequest {
    request(ToolInput::Python { code: code.to_owned() })
}

async fn session(sandbox: &HttpSandbox) -> SessionId {
    sandbox.create_session(&SessionSpec::default()).await.unwrap().id
}

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text).unwrap()
}

fn source(bytes: &[u8]) -> FileSource {
    stream::iter(bytes.chunks(100_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect::<Vec<_>>()).boxed()
}

async fn put(sandbox: &HttpSandbox, session: &SessionId, name: &str, bytes: &[u8]) -> Result<(), SandboxError> {
    sandbox.put_file(session, &path(name), bytes.len() as u64, source(bytes)).await
}

async fn get(sandbox: &HttpSandbox, session: &SessionId, name: &str, most: u64) -> Result<Vec<u8>, SandboxError> {
    let content = sandbox.get_file(session, &path(name), most).await?;
    Ok(content.try_collect::<Vec<Bytes>>().await?.concat())
}

#[tokio::test]
async fn a_session_lives_as_long_as_was_granted() {
    let served = serve("session_idle_s: 100, session_lifetime_s: 200").await;
    for base in ["", "/", "/base/path/"] {
        let sandbox = client_with(&served, base, Some(TOKEN));
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (idle, lifetime, granted) in [(None, None, (100, 200)), (seconds(7), seconds(300), (7, 200))] {
            let spec = SessionSpec { idle_timeout: idle, max_lifetime: lifetime, ..SessionSpec::default() };
            let opened = sandbox.create_session(&spec).await.unwrap();
            assert_eq!((opened.idle_timeout, opened.max_lifetime), (seconds(granted.0), seconds(granted.1)));
            sandbox.destroy_session(&opened.id).await.unwrap();
            sandbox.destroy_session(&opened.id).await.unwrap();
            let gone = sandbox.execute(&opened.id, &python("1")).await;
            assert!(matches!(gone, Err(SandboxError::UnknownSession)), "{gone:?}");
        }
    }
}

#[tokio::test]
async fn every_tool_comes_to_what_it_comes_to_without_a_wire() {
    let served = serve("").await;
    let sandbox = client(&served);
    let session = session(&sandbox).await;
    let run = async |input| sandbox.execute(&session, &request(input)).await.unwrap();
    let told = |result: ExecutionResult| (result.stdout, result.stderr, result.return_code);
    let text = |text: &str| text.to_owned();
    let code = ToolInput::Python { code: text("x = 1\nprint('out')\nimport sys\nsys.exit(3)") };
    assert_eq!(told(run(code).await), (text("out\n"), text(""), 3));
    let command = ToolInput::Bash { command: text("echo 東京; echo err >&2; exit 4") };
    assert_eq!(told(run(command).await), (text("東京\n"), text("err\n"), 4));
    let edit = |command| run(ToolInput::TextEditor(command));
    let name = || text("a.txt");
    let created = edit(EditorCommand::Create { path: name(), text: text("one\r\ntwo\r\nthree") }).await;
    assert_eq!(created.editor, Some(EditorReport::Created { is_file_update: false }));
    let range = Some(ViewRange { first: 2, last: None });
    let viewed = edit(EditorCommand::View { path: name(), range }).await;
    assert_eq!(viewed.stdout, "two\r\nthree");
    assert_eq!(viewed.editor, Some(EditorReport::Viewed { start_line: 2, num_lines: 2, total_lines: 3 }));
    let edited = edit(EditorCommand::StrReplace { path: name(), old: text("two\n"), new: String::new() }).await;
    let lines = Some(vec![text("-two")]);
    let report = EditorReport::Edited { old_start: 2, old_lines: 1, new_start: 2, new_lines: 0, lines };
    assert_eq!((edited.return_code, edited.editor), (0, Some(report)));
    let inserted = edit(EditorCommand::Insert { path: name(), line: 1, text: text("1.5") }).await;
    assert!(matches!(inserted.editor, Some(EditorReport::Edited { new_start: 2, new_lines: 1, .. })), "{inserted:?}");
    let undone = edit(EditorCommand::UndoEdit { path: name() }).await;
    assert!(matches!(undone.editor, Some(EditorReport::Edited { old_lines: 1, new_lines: 0, .. })), "{undone:?}");
    let listed = edit(EditorCommand::View { path: text("."), range: None }).await;
    assert_eq!((listed.stdout.as_str(), listed.editor), ("a.txt\n", Some(EditorReport::Listed { entries: 1 })));
    let failed = edit(EditorCommand::View { path: text("none"), range: None }).await;
    assert_eq!((failed.return_code, failed.editor), (1, Some(EditorReport::Failed(EditorFault::FileNotFound))));
    assert_eq!(told(run(ToolInput::Python { code: text("x") }).await).0, "1\n");
}

#[tokio::test]
async fn files_go_in_are_listed_and_come_out() {
    files_travel(&serve("max_file_bytes: 4000000").await).await;
}

#[tokio::test]
async fn a_unix_socket_is_as_good_as_an_address() {
    files_travel(&super::serve_with("max_file_bytes: 4000000", "").await).await;
}

async fn files_travel(served: &Served) {
    let sandbox = client(served);
    let session = session(&sandbox).await;
    let long: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    for (name, bytes) in
        [("a b é.csv", &b"x,y\n"[..]), ("d/long", &long), ("d/e/empty", b""), ("quote\"s;%41\\.txt", b"1")]
    {
        put(&sandbox, &session, name, bytes).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(get(&sandbox, &session, name, u64::MAX).await.unwrap() == bytes, "{name}");
    }
    let stamps = async || {
        let listing = sandbox.list_files(&session).await.unwrap();
        let mut files: Vec<_> =
            listing.files.into_iter().map(|file| (file.path, file.size_bytes, file.stamp)).collect();
        files.sort_by(|one, other| one.0.cmp(&other.0));
        files
    };
    let before = stamps().await;
    let names: Vec<_> = before.iter().map(|(path, size, _)| (path.as_bytes(), *size)).collect();
    let expected: [(&[u8], u64); 4] =
        [("a b é.csv".as_bytes(), 4), (b"d/e/empty", 0), (b"d/long", 3_000_000), (b"quote\"s;%41\\.txt", 1)];
    assert_eq!(names, expected);
    assert_eq!(stamps().await, before);
    let code = "import os\ns = os.stat('a b é.csv'); n = open('a b é.csv', 'w').write('y,x\\n'); os.utime('a b é.csv', ns=(s.st_atime_ns, s.st_mtime_ns))";
    assert_eq!(sandbox.execute(&session, &python(code)).await.unwrap().return_code, 0);
    let after = stamps().await;
    assert_eq!((after[0].0 == before[0].0, after[0].1, &after[1..]), (true, 4, &before[1..]));
    assert_ne!(after[0].2, before[0].2);
    // Nothing is written over, for the trait says so.
    let taken = put(&sandbox, &session, "d/long", b"1").await;
    assert!(matches!(taken, Err(SandboxError::BadPath { .. })), "{taken:?}");
    let too_large = put(&sandbox, &session, "large", &vec![0; 4_000_001]).await;
    assert!(matches!(too_large, Err(SandboxError::Refused { .. })), "{too_large:?}");
    let none = get(&sandbox, &session, "none", u64::MAX).await;
    assert!(matches!(none, Err(SandboxError::UnknownFile)), "{none:?}");
    let limited = get(&sandbox, &session, "d/long", 2_999_999).await;
    assert!(matches!(limited, Err(SandboxError::FileTooLarge { .. })), "{limited:?}");
    let broken: FileSource = stream::iter([Ok(Bytes::from_static(b"one")), Err("on fire".into())]).boxed();
    let unreadable = sandbox.put_file(&session, &path("broken"), 7, broken).await;
    assert!(matches!(unreadable, Err(SandboxError::Unreadable(_))), "{unreadable:?}");
    assert_eq!(stamps().await, after);
}

#[tokio::test]
async fn refusals_mean_what_they_mean_without_a_wire() {
    let served = serve("max_sessions: 1, exec_timeout_s: 1, max_code_bytes: 1024").await;
    let sandbox = client(&served);
    for token in [None, Some("another-token-of-16")] {
        let refused = client_with(&served, "", token).create_session(&SessionSpec::default()).await;
        assert!(matches!(refused, Err(SandboxError::Unauthorized)), "{refused:?}");
    }
    let session = session(&sandbox).await;
    let full = sandbox.create_session(&SessionSpec::default()).await;
    assert!(matches!(full, Err(SandboxError::AtCapacity { retry_after: Some(_) })), "{full:?}");
    let slow = sandbox.execute(&session, &python("import time\ntime.sleep(30)")).await.unwrap();
    assert_eq!(slow.return_code, 124);
    let long = sandbox.execute(&session, &python(&"#".repeat(1025))).await;
    assert!(matches!(long, Err(SandboxError::Refused { .. })), "{long:?}");
    let never = SessionId("never".to_owned());
    let errors = [
        sandbox.execute(&never, &python("1")).await.map(|_| ()),
        sandbox.list_files(&never).await.map(|_| ()),
        put(&sandbox, &never, "a", b"1").await,
        get(&sandbox, &never, "a", 1).await.map(|_| ()),
    ];
    assert!(matches!(
        errors,
        [
            Err(SandboxError::UnknownSession),
            Err(SandboxError::NotServed),
            Err(SandboxError::NotServed),
            Err(SandboxError::UnknownFile)
        ]
    ));
    sandbox.destroy_session(&never).await.unwrap();
}
