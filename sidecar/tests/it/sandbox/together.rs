//! Commands side by side: each with its own words and its own end, all within one time and one set of limits.

use std::time::{Duration, Instant};

use sidecar::sandbox::{ExecutionResult, SandboxBackend, SandboxError, SessionId, ToolInput};

use super::bombs::{MIB, killed_for};
use super::{PATIENCE, Place, SandboxLimits, default_limits, request_of, runs, start, start_with, unique_sleep, until};

/// Long enough to begin anything, short enough to wait for.
const SHORT: Duration = Duration::from_millis(400);

/// Waits without a sleep until another command made a file.
fn meet(own: &str, other: &str) -> String {
    format!("echo {own}; touch {own}; until [ -e {other} ]; do :; done; echo met >&2")
}

async fn together(
    place: &Place,
    session: &SessionId,
    commands: &[&str],
    timeout: Duration,
) -> Vec<Result<ExecutionResult, SandboxError>> {
    let requests: Vec<_> = commands
        .iter()
        .map(|command| request_of(ToolInput::Bash { command: (*command).to_owned() }, timeout))
        .collect();
    place.sandbox.execute_together(session, &requests).await
}

async fn ran(place: &Place, session: &SessionId, commands: &[&str], timeout: Duration) -> Vec<ExecutionResult> {
    together(place, session, commands, timeout).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn commands_that_wait_for_each_other_end_and_their_words_stay_apart() {
    let place = start().await;
    let session = place.session().await;
    place.output(&session, "x = 41").await;
    assert!(place.sandbox.max_concurrent_calls() >= 4);
    // Twice: the second time the pipes are there already, for fewer and for more.
    for names in [["a", "b", "c"].as_slice(), &["d", "e"], &["f", "g", "h", "i"]] {
        let commands: Vec<String> =
            names.iter().zip(names.iter().cycle().skip(1)).map(|(own, other)| meet(own, other)).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let results = ran(&place, &session, &commands, PATIENCE).await;
        for (name, result) in names.iter().zip(&results) {
            let seen = (result.stdout.as_str(), result.stderr.as_str(), result.return_code);
            assert_eq!(seen, (format!("{name}\n").as_str(), "met\n", 0));
        }
        assert_eq!(results.len(), names.len());
    }
    assert_eq!(place.output(&session, "x + 1").await, "42\n");
}

#[tokio::test]
async fn each_has_its_own_return_code_and_no_descriptor_of_the_others() {
    let place = start().await;
    let session = place.session().await;
    let listed = "cd /proc/self/fd && echo *";
    let results = ran(&place, &session, &["exit 3", "kill -TERM $$", listed, "echo a\0b", "true"], PATIENCE).await;
    let codes: Vec<i32> = results.iter().map(|result| result.return_code).collect();
    assert_eq!(codes, [3, 143, 0, 126, 0]);
    let open = &results[2].stdout;
    assert!(open == "0 1 2 3\n" || open == "0 1 2 255\n", "{open}");
    assert!(results[3].stderr.contains("NUL"), "{results:?}");
    assert!([0, 1, 2, 4].iter().all(|at: &usize| results[*at].stderr.is_empty()), "{results:?}");
    // Nor has one that runs alone later.
    let open = place.shell(&session, listed).await;
    assert!(open == "0 1 2 3\n" || open == "0 1 2 255\n", "{open}");
}

#[tokio::test]
async fn the_deadline_cuts_short_who_still_runs_and_nobody_else() {
    let place = start().await;
    let session = place.session().await;
    place.output(&session, "x = 42").await;
    let told = unique_sleep();
    let deaf = format!("trap '' INT; echo deaf; sleep {told}; echo after");
    let slow = format!("echo slow; sleep {told}; echo after");
    let results = ran(&place, &session, &["echo quick; exit 5", &slow, &deaf, "echo also"], SHORT).await;
    let seen: Vec<(&str, i32)> = results.iter().map(|one| (one.stdout.as_str(), one.return_code)).collect();
    assert_eq!(seen, [("quick\n", 5), ("slow\n", 124), ("deaf\n", 124), ("also\n", 0)]);
    assert!(results[1].stderr.contains("interrupted") && results[0].stderr.is_empty(), "{results:?}");
    assert_eq!(place.output(&session, "x").await, "42\n");
    until("nothing of it runs", || !runs(&told)).await;
}

#[tokio::test]
async fn what_one_leaves_in_the_background_goes_on_with_the_next_call_and_can_still_speak() {
    let place = start().await;
    let session = place.session().await;
    let waits = "(until [ -e go ]; do sleep 0.01; done; echo late; touch done) &";
    ran(&place, &session, &["true", waits], PATIENCE).await;
    let next = place.bash(&session, "touch go; until [ -e done ]; do :; done; echo here").await;
    assert_eq!(next.return_code, 0, "{next:?}");
    assert!(next.stdout.contains("late\n") && next.stdout.contains("here\n"), "{next:?}");
}

#[tokio::test]
async fn who_passes_a_limit_of_the_session_ends_all_of_them_and_only_the_interpreter_is_lost() {
    let place = start_with(SandboxLimits { memory_bytes: 256 * MIB, ..default_limits() }).await;
    let session = place.session().await;
    place.output(&session, "x = 42").await;
    let told = unique_sleep();
    let hungry = "python3 -c 'import time; held = b\"x\" * (400 << 20); time.sleep(60)'";
    let results = ran(&place, &session, &[&format!("touch kept; sleep {told}"), hungry], PATIENCE).await;
    for result in &results {
        killed_for(result, "memory");
    }
    until("nothing of it runs", || !runs(&told)).await;
    assert_eq!(place.shell(&session, "ls").await, "kept\n");
    assert!(place.run(&session, "x").await.stderr.contains("NameError"));
}

#[tokio::test]
async fn one_that_is_refused_does_not_hold_up_the_others_and_no_others_of_its_kind_run_as_one() {
    let place = start().await;
    let session = place.session().await;
    let long = format!("# {}", "x".repeat(131_072));
    let results = together(&place, &session, &["echo a", &long, "echo b"], PATIENCE).await;
    let told = |at: usize| results[at].as_ref().map(|result| result.stdout.clone()).ok();
    assert_eq!([told(0), told(2)], [Some("a\n".to_owned()), Some("b\n".to_owned())]);
    assert!(matches!(&results[1], Err(SandboxError::Refused { .. })), "{results:?}");
    // What cannot overlap runs in its order.
    let inputs = [
        ToolInput::Python { code: "y = 1; open('y', 'w').write('1')".to_owned() },
        ToolInput::Bash { command: "cat y".to_owned() },
        ToolInput::Python { code: "y + 1".to_owned() },
    ];
    let requests: Vec<_> = inputs.into_iter().map(|input| request_of(input, PATIENCE)).collect();
    let results = place.sandbox.execute_together(&session, &requests).await;
    let told: Vec<String> = results.into_iter().map(|result| result.unwrap().stdout).collect();
    assert_eq!(told, ["", "1", "2\n"]);
}

#[tokio::test]
async fn dropping_them_stops_them_all_and_a_session_that_is_gone_says_so_to_each() {
    let place = start().await;
    let session = place.session().await;
    let (one, two) = (unique_sleep(), unique_sleep());
    let commands = [format!("touch up1; sleep {one}"), format!("touch up2; sleep {two}")];
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    {
        let running = together(&place, &session, &commands, PATIENCE);
        tokio::pin!(running);
        let up = async {
            let workspace = place.workspace();
            while !(workspace.join("up1").exists() && workspace.join("up2").exists()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let begun = Instant::now();
        tokio::select! {
            ended = &mut running => panic!("{ended:?}"),
            () = up => {}
        }
        assert!(begun.elapsed() < PATIENCE);
    }
    until("both are gone", || !runs(&one) && !runs(&two)).await;
    for result in together(&place, &session, &["true", "true"], PATIENCE).await {
        assert!(matches!(result, Err(SandboxError::UnknownSession)), "{result:?}");
    }
}
