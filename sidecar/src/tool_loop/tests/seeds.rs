//! Files into a session: there before any code runs, or nothing runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use decision::format::ApiFormat::ChatCompletions;
use decision::format::Vocabulary;
use decision::problem::ProblemKind;

use super::files::{FilesBench, asked, limits, owner, script, streamed};
use super::scripts::{code, turn};
use super::support::{lock, patient, until};
use crate::sandbox::SandboxError;

#[tokio::test]
async fn what_was_uploaded_lies_in_the_workspace_before_any_code_runs() {
    let bench = FilesBench::new(script(&["print(6*7)", "1/0"]), limits()).await;
    let seeds = vec![bench.upload("data.csv", b"1,2\n").await, bench.upload("empty", b"").await];
    bench.bench.ask(asked(seeds)).await.expect("an answer");
    assert_eq!(*lock(&bench.bench.sandbox.ran), ["put data.csv", "put empty", "print(6*7)", "1/0"]);
    assert_eq!(bench.bench.sandbox.workspaces.read("0", "data.csv").unwrap(), "1,2\n");
    assert_eq!(bench.bench.sandbox.workspaces.read("0", "empty").unwrap(), "");
    assert_eq!(bench.kept().await, [], "nothing that went in comes out");
}

#[tokio::test]
async fn without_code_nothing_is_carried_anywhere() {
    let bench = FilesBench::new(script(&[]), limits()).await;
    let seeds = vec![bench.upload("data.csv", b"1,2\n").await];
    bench.bench.ask(asked(seeds)).await.expect("an answer");
    assert_eq!(bench.bench.sandbox.created.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_file_that_the_sandbox_refuses_fails_the_request_and_gives_the_session_back() {
    let refusals = [
        (SandboxError::FileTooLarge { limit: 7 }, "the sandbox has room for 7 bytes"),
        (SandboxError::BadPath { reason: "canary" }, "the sandbox takes no file of this name"),
        (SandboxError::NotServed, "this sandbox takes no files"),
        (SandboxError::Refused { reason: "canary".to_owned() }, "the sandbox refused it"),
        (SandboxError::Unauthorized, "the sandbox is not available"),
    ];
    for (refusal, words) in refusals {
        let bench = FilesBench::new(script(&["print(6*7)"]), limits()).await;
        let seeds = vec![bench.upload("data.csv", b"1,2\n").await];
        *lock(&bench.bench.sandbox.workspaces.refusal) = Some(refusal);
        let problem = bench.bench.ask(asked(seeds)).await.expect_err("no answer");
        assert_eq!(
            (problem.kind, problem.status(Vocabulary::OpenAi)),
            (ProblemKind::SandboxFailed, 502),
            "{problem:?}"
        );
        let expected = format!("the file `data.csv` did not get into the sandbox: {words}");
        assert!(problem.message.starts_with(&expected) && !problem.message.contains("canary"), "{}", problem.message);
        assert!(!problem.side_effects, "nothing ran");
        patient(bench.bench.sandbox.destroyed.notified()).await;
        assert_eq!(*lock(&bench.bench.sandbox.ran), ["put data.csv"]);
    }
}

#[tokio::test]
async fn a_stream_that_has_begun_ends_with_that_error() {
    let bench = FilesBench::new(vec![turn(ChatCompletions, true, &[code("call_1", "print(6*7)")])], limits()).await;
    let seeds = vec![bench.upload("data.csv", b"1,2\n").await];
    *lock(&bench.bench.sandbox.workspaces.refusal) = Some(SandboxError::NotServed);
    let body = bench.bench.ask(streamed(seeds)).await.expect("a stream").body;
    let last = body.trim_end().rsplit("\n\n").next().expect("an event");
    assert!(last.starts_with("event: error") && last.contains("`data.csv` did not get into the sandbox"), "{body}");
    patient(bench.bench.sandbox.destroyed.notified()).await;
}

#[tokio::test]
async fn a_file_that_is_gone_by_now_fails_the_request() {
    let bench = FilesBench::new(script(&["print(6*7)"]), limits()).await;
    let seed = bench.upload("data.csv", b"1,2\n").await;
    bench.files.delete(&owner(), &seed.file.id).await.expect("it is there");
    let problem = bench.bench.ask(asked(vec![seed])).await.expect_err("no answer");
    assert!(problem.message.contains("it cannot be read"), "{}", problem.message);
    assert_eq!(*lock(&bench.bench.sandbox.ran), [] as [&str; 0]);
    // And so does one that was promised where no files are kept.
    let mut bench = FilesBench::new(script(&["print(6*7)"]), limits()).await;
    let seed = bench.upload("data.csv", b"1,2\n").await;
    Arc::get_mut(&mut bench.bench.engine).expect("nobody else has it").files = None;
    let problem = bench.bench.ask(asked(vec![seed])).await.expect_err("no answer");
    assert!(problem.message.contains("files are switched off"), "{}", problem.message);
}

#[tokio::test]
async fn a_session_that_was_lost_gets_its_files_again() {
    let bench = FilesBench::new(script(&["lost()", "print(6*7)"]), limits()).await;
    let seeds = vec![bench.upload("data.csv", b"1,2\n").await];
    bench.bench.ask(asked(seeds)).await.expect("an answer");
    assert_eq!(*lock(&bench.bench.sandbox.ran), ["put data.csv", "lost()", "put data.csv", "print(6*7)"]);
    // One that does not get them runs nothing more, and code has run by now.
    let bench = FilesBench::new(script(&["lost()", "print(6*7)"]), limits()).await;
    let seed = bench.upload("data.csv", b"1,2\n").await;
    let (asking, losing) = (bench.bench.ask(asked(vec![seed])), async {
        until(|| lock(&bench.bench.sandbox.ran).iter().any(|ran| ran == "lost()")).await;
        *lock(&bench.bench.sandbox.workspaces.refusal) = Some(SandboxError::NotServed);
    });
    let (answer, ()) = tokio::join!(asking, losing);
    let problem = answer.expect_err("no answer");
    assert!(problem.side_effects && problem.message.contains("data.csv"), "{problem:?}");
}
