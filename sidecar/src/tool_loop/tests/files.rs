//! Files out of a session: what is kept, within which limits, and what becomes of failures.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use decision::format::ApiFormat::{ChatCompletions, Messages};
use decision::identity::Identity;
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::scripts::{Said, WIRES, asked_of, code, text, turn};
use super::support::{Answer, Bench, CountingIds, FixedClock, chat_request, lock, patient, request};
use super::workspaces::{ENDLESS, GONE, HANGS};
use crate::files::{FileRecord, Files, FilesError, FilesLimits, ListQuery, NewFile, Order, Purpose, Staged};
use crate::tool_loop::{Limits, ReplyBody, RunRequest};

pub(super) fn limits() -> FilesLimits {
    FilesLimits {
        max_bytes: 1 << 20,
        output_max_files: 20,
        output_max_bytes: 1 << 20,
        retention: None,
        workspace_max_bytes: 1 << 20,
        workspace_max_files: 100,
        max_concurrent_uploads: 1,
        max_concurrent_uploads_per_workspace: 1,
    }
}

/// A bench with files, and what they are kept in.
pub(super) struct FilesBench {
    pub(super) bench: Bench,
    pub(super) files: Files,
    _folder: TempDir,
}

impl FilesBench {
    pub(super) async fn new(script: Vec<Answer>, limits: FilesLimits) -> Self {
        Self::patient(script, limits, Limits::default()).await
    }

    pub(super) async fn patient(script: Vec<Answer>, limits: FilesLimits, loop_limits: Limits) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ids = Arc::new(CountingIds::default());
        let files = Files::in_folder_within(folder.path(), Arc::new(FixedClock), ids, limits).await;
        let mut bench = Bench::new(script, loop_limits).await;
        Arc::get_mut(&mut bench.engine).expect("nobody else has it").files = Some(files.clone());
        Self { bench, files, _folder: folder }
    }

    pub(super) async fn upload(&self, name: &str, bytes: &'static [u8]) -> Staged {
        let mut upload = self.files.begin(&owner(), u64::MAX).await.expect("an upload");
        upload.write(Bytes::from_static(bytes)).await.expect("room");
        let new = NewFile {
            filename: name.to_owned(),
            mime_type: "text/csv".to_owned(),
            purpose: Purpose::UserData,
            lifetime_ms: None,
        };
        Staged { name: name.to_owned(), file: upload.finish(new).await.expect("a file") }
    }

    /// What is kept of what code wrote, the oldest first: name and bytes.
    pub(super) async fn kept(&self) -> Vec<(String, String)> {
        let query = ListQuery {
            order: Order::Ascending,
            cursor: None,
            limit: 100,
            purpose: Some(Purpose::CodeExecutionOutput),
        };
        let mut kept = Vec::new();
        for file in self.files.list(&owner(), &query).await.expect("a list").files {
            kept.push((file.filename.clone(), self.bytes(&file).await));
        }
        kept
    }

    async fn bytes(&self, file: &FileRecord) -> String {
        let content = self.files.read(file, 0..file.size_bytes).await.expect("its bytes");
        let pieces: Vec<Bytes> = content.try_collect().await.expect("all of them");
        String::from_utf8(pieces.concat()).expect("text")
    }

    /// What the model was told of its last calls.
    fn told(&self) -> String {
        let received = self.bench.model.received();
        let body: Value = serde_json::from_slice(&received.last().expect("a request").body).expect("JSON");
        let messages = body["messages"].as_array().expect("messages").iter();
        messages.filter(|message| message["role"] == "tool").filter_map(|message| message["content"].as_str()).collect()
    }

    /// Nothing of an upload is left: the only permit is free, and nothing is pending.
    async fn assert_nothing_half_stored(&self) {
        let upload = patient(self.files.begin(&owner(), 1)).await.expect("the permit of the upload before");
        drop(upload);
    }
}

impl AsRef<Bench> for FilesBench {
    fn as_ref(&self) -> &Bench {
        &self.bench
    }
}

pub(super) fn owner() -> Identity {
    Identity { user: "ann".to_owned(), workspace: "team".to_owned() }
}

/// A turn of a model of the chat wire that runs these programs, one after the other, and the last word.
pub(super) fn script(programs: &[&str]) -> Vec<Answer> {
    let runs = programs.iter().enumerate().map(|(number, program)| vec![code(&format!("call_{number}"), program)]);
    let turns: Vec<Vec<Said>> = runs.chain([vec![text("Done.")]]).collect();
    turns.iter().map(|said| turn(ChatCompletions, false, said)).collect()
}

pub(super) fn asked(seeds: Vec<Staged>) -> RunRequest {
    RunRequest { owner: owner(), seeds, ..chat_request(ChatCompletions, &request(false)) }
}

pub(super) fn streamed(seeds: Vec<Staged>) -> RunRequest {
    RunRequest { owner: owner(), seeds, ..asked_of(Messages, ChatCompletions, true, &[]) }
}

#[tokio::test]
async fn what_code_writes_is_kept_for_its_caller_alone_and_told_to_the_model() {
    let programs = ["write: b.csv=1,2; out/chart.png=PNG; empty=; !named.txt=named first"];
    let bench = FilesBench::new(script(&programs), limits()).await;
    bench.bench.ask(asked(Vec::new())).await.expect("an answer");
    let kept = bench.kept().await;
    let kept: Vec<(&str, &str)> = kept.iter().map(|(name, bytes)| (name.as_str(), bytes.as_str())).collect();
    assert_eq!(kept, [("named.txt", "named first"), ("b.csv", "1,2"), ("empty", ""), ("chart.png", "PNG")]);
    let id = |number: u32| format!("file-otr{number:032x}");
    let expected = format!(
        "The code printed nothing.\nreturn code: 0\nfiles:\n- named.txt (file_id: {}, 11 bytes)\n- b.csv (file_id: {}, \
         3 bytes)\n- empty (file_id: {}, 0 bytes)\n- out/chart.png (file_id: {}, 3 bytes)",
        id(0),
        id(1),
        id(2),
        id(3)
    );
    assert_eq!(bench.told(), expected);
    let chart = bench.files.get(&owner(), &id(3)).await.expect("it is there");
    assert_eq!((chart.mime_type.as_str(), chart.purpose), ("image/png", Purpose::CodeExecutionOutput));
    let stranger = Identity { user: "bob".to_owned(), ..owner() };
    assert!(matches!(bench.files.get(&stranger, &id(3)).await, Err(FilesError::NotFound)));
}

#[tokio::test]
async fn nothing_comes_out_twice_and_nothing_that_went_in_unchanged() {
    let programs = [
        "write: data.csv=1,2; new=one",
        // Written over with what was there, and with something else of the same length.
        "write: data.csv=1,2; new=one; data.csv=1,2",
        "write: data.csv=9,9; new=two",
        "print(6*7)",
    ];
    let bench = FilesBench::new(script(&programs), limits()).await;
    let seeds = vec![bench.upload("data.csv", b"1,2").await];
    bench.bench.ask(asked(seeds)).await.expect("an answer");
    let kept = bench.kept().await;
    let kept: Vec<(&str, &str)> = kept.iter().map(|(name, bytes)| (name.as_str(), bytes.as_str())).collect();
    assert_eq!(kept, [("new", "one"), ("data.csv", "9,9"), ("new", "two")]);
    // Of a sandbox that lists nothing, what it names is known by its bytes.
    let programs = ["write: !a=one; b=two", "write: !a=one; ?gone=", "write: !a=two"];
    let bench = FilesBench::new(script(&programs), limits()).await;
    bench.bench.sandbox.workspaces.unlisted.store(true, Ordering::Relaxed);
    bench.bench.ask(asked(Vec::new())).await.expect("an answer");
    assert_eq!(bench.kept().await, [("a".to_owned(), "one".to_owned()), ("a".to_owned(), "two".to_owned())]);
    assert_eq!(bench.told().matches("- gone (not kept: it cannot be read)").count(), 1, "{}", bench.told());
}

#[tokio::test]
async fn beyond_the_limits_of_one_call_files_are_named_and_not_kept() {
    let limits = FilesLimits { output_max_files: 2, output_max_bytes: 10, ..limits() };
    let programs =
        [format!("write: a=12345678901; b=123456; c={ENDLESS}; d=1234; e={GONE}; f=; g="), "write: h=1".to_owned()];
    let programs: Vec<&str> = programs.iter().map(String::as_str).collect();
    let bench = FilesBench::new(script(&programs), limits).await;
    bench.bench.ask(asked(Vec::new())).await.expect("an answer");
    let told = bench.told();
    for line in [
        "- a (not kept: it has more than the 10 bytes that were left for it)",
        "- b (file_id: ",
        "- c (not kept: it has more than the 4 bytes that were left for it)",
        "- d (file_id: ",
        "- e (not kept: a call may return 2 files)",
        "- g (not kept: a call may return 2 files)",
        "- h (file_id: ",
    ] {
        assert!(told.contains(line), "{line} is not in\n{told}");
    }
    assert_eq!(bench.kept().await.len(), 3);
    // What the listing says is too large is never asked for.
    assert_eq!(*lock(&bench.bench.sandbox.workspaces.fetched), ["b", "c", "d", "h"]);
    bench.assert_nothing_half_stored().await;
}

#[tokio::test]
async fn what_went_in_and_is_touched_is_no_output_whatever_the_limits() {
    let limits = FilesLimits { output_max_files: 1, output_max_bytes: 3, ..limits() };
    // Written over with what was there; and then one that is new.
    let bench = FilesBench::new(script(&["write: data.csv=1,2,3,4,5", "write: data.csv=1,2,3,4,5; z=1"]), limits).await;
    let seeds = vec![bench.upload("data.csv", b"1,2,3,4,5").await];
    bench.bench.ask(asked(seeds)).await.expect("an answer");
    let told = bench.told();
    assert!(!told.contains("data.csv") && told.contains("- z (file_id: "), "{told}");
}

#[tokio::test]
async fn little_is_read_of_files_that_are_not_kept_and_few_of_them_are_asked_for() {
    let many = |content: &str| {
        let files: Vec<String> = (0..100).map(|number| format!("f{number:03}={content}")).collect();
        format!("write: {}", files.join("; "))
    };
    let asked_for = async |program: &str| {
        let bench = FilesBench::new(script(&[program]), limits()).await;
        bench.bench.ask(asked(Vec::new())).await.expect("an answer");
        bench.assert_nothing_half_stored().await;
        (lock(&bench.bench.sandbox.workspaces.fetched).len(), bench.told())
    };
    // None of which is there when it is asked for.
    let (fetched, told) = asked_for(&many(GONE)).await;
    assert_eq!((fetched, told.matches("(not kept: it cannot be read)").count()), (16, 64), "{told}");
    // Each of which says it has one byte and never ends: two are as much as may be kept, and one file more.
    let (fetched, told) = asked_for(&many(ENDLESS)).await;
    assert_eq!((fetched, told.matches("that were left for it)").count()), (2, 64), "{told}");
}

#[tokio::test]
async fn of_ten_thousand_files_few_are_named() {
    let names: Vec<String> = (0..200).map(|number| format!("f{number:03}=x")).collect();
    let program = format!("write: {}", names.join("; "));
    let bench = FilesBench::new(script(&[&program]), FilesLimits { output_max_files: 3, ..limits() }).await;
    bench.bench.ask(asked(Vec::new())).await.expect("an answer");
    let told = bench.told();
    assert_eq!(told.matches("\n- f").count(), 64, "{told}");
    assert!(told.ends_with("- and 136 more, not kept: too many, or too deep in directories"), "{told}");
    assert_eq!(bench.kept().await.len(), 3);
}

#[tokio::test]
async fn what_cannot_be_stored_is_told_and_the_run_goes_on() {
    let full = FilesLimits { workspace_max_files: 1, ..limits() };
    let bench = FilesBench::new(script(&["write: a=1; b=2", "print(6*7)"]), full).await;
    let reply = bench.bench.ask(asked(Vec::new())).await.expect("an answer");
    assert!(reply.body.contains("Done."), "{}", reply.body);
    let told = bench.told();
    assert!(told.contains("- b (not kept: the user's storage is full)") && told.contains("42"), "{told}");
    // One that takes too long gives way, with all behind it.
    let hasty = Limits { file_timeout: Duration::from_millis(200), ..Limits::default() };
    let program = format!("write: a=1; b={HANGS}; c=3");
    let bench = FilesBench::patient(script(&[&program]), limits(), hasty).await;
    bench.bench.ask(asked(Vec::new())).await.expect("an answer");
    for name in ["b", "c"] {
        let line = format!("- {name} (not kept: there was no time left for it)");
        assert!(bench.told().contains(&line), "{}", bench.told());
    }
    assert_eq!(bench.kept().await, [("a".to_owned(), "1".to_owned())]);
    bench.assert_nothing_half_stored().await;
}

#[tokio::test]
async fn a_client_that_leaves_stops_the_collecting_and_leaves_nothing_pending() {
    let program = format!("write: b={HANGS}");
    for stream in [false, true] {
        let script = vec![turn(ChatCompletions, stream, &[code("call_1", &program)])];
        let bench = FilesBench::new(script, limits()).await;
        let request = if stream { streamed(Vec::new()) } else { asked(Vec::new()) };
        let serving = bench.bench.engine.serve(request);
        let hanging = bench.bench.sandbox.workspaces.hanging.notified();
        if stream {
            let reply = patient(serving).await.expect("a stream");
            patient(hanging).await;
            drop(reply);
        } else {
            tokio::select! {
                reply = serving => panic!("{reply:?}"),
                () = patient(hanging) => {}
            }
        }
        patient(bench.bench.sandbox.destroyed.notified()).await;
        bench.assert_nothing_half_stored().await;
        assert_eq!(bench.kept().await, []);
    }
}

#[tokio::test]
async fn who_has_no_name_has_no_files() {
    let bench = FilesBench::new(script(&["write: a=1"]), limits()).await;
    let nobody = Identity { user: String::new(), workspace: String::new() };
    let asked = RunRequest { owner: nobody.clone(), ..asked(Vec::new()) };
    bench.bench.ask(asked).await.expect("an answer");
    assert!(!bench.told().contains("files:"), "{}", bench.told());
}

#[tokio::test]
async fn a_mixed_turn_remembers_the_files_beside_what_ran() {
    for model in WIRES {
        let said = [code("c1", "write: a.csv=1"), super::scripts::lookup("c2")];
        let script = vec![turn(model, false, &said), turn(model, false, &[text("Done.")])];
        let bench = FilesBench::new(script, limits()).await;
        let mut history = vec![json!({"role": "user", "content": "Go."})];
        let ask = |history: &[Value]| RunRequest { owner: owner(), ..asked_of(ChatCompletions, model, false, history) };
        let reply = bench.bench.ask(ask(&history)).await.expect("an answer");
        let answer: Value = serde_json::from_str(&reply.body).expect("JSON");
        history.push(answer["choices"][0]["message"].clone());
        history.push(json!({"role": "tool", "tool_call_id": "c2", "content": "found"}));
        bench.bench.ask(ask(&history)).await.expect("an answer");
        let received = bench.bench.model.received();
        let sent = String::from_utf8_lossy(&received[1].body);
        assert!(sent.contains(&format!("a.csv (file_id: file-otr{:032x}", 0)), "{model:?}: {sent}");
    }
}

#[tokio::test]
async fn a_reply_may_hang_on_a_file_without_losing_its_stream() {
    // Keep-alives go on while files are being stored.
    let hasty = Limits { keep_alive: Duration::from_millis(20), ..Limits::default() };
    let program = format!("write: b={HANGS}");
    let script = vec![turn(ChatCompletions, true, &[code("call_1", &program)])];
    let bench = FilesBench::patient(script, limits(), hasty).await;
    let reply = patient(bench.bench.engine.serve(streamed(Vec::new()))).await.expect("a stream");
    let ReplyBody::Stream(mut chunks) = reply.body else { panic!("not a stream") };
    patient(bench.bench.sandbox.workspaces.hanging.notified()).await;
    let mut seen = String::new();
    while seen.matches("event: ping").count() < 2 {
        let chunk = patient(futures_util::StreamExt::next(&mut chunks)).await.expect("more");
        seen.push_str(std::str::from_utf8(&chunk).expect("text"));
    }
}
