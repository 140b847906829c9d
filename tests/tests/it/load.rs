//! Very many at once: nobody is lost, and nobody gets what is another's.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use harness::gathering::Gathering;
use harness::stack::{Setup, Stack, eventually};
use serde_json::json;

use crate::support::{DATED, ask, question, start};

/// Streamed code turns at once; the sandbox answers none before all of them wait for it.
const TURNS: usize = 1_000;
/// What the sidecar may take for them.
const MEMORY_BYTES: u64 = 300 << 20;
/// For sessions to be handed back after their answers.
const CLEARED_WITHIN: Duration = Duration::from_secs(30);

/// Runs all of them and says how much memory the sidecar had then.
async fn all_at_once(stack: &Stack, round: usize) -> u64 {
    let turn = async |number: usize| {
        let marker = format!("marker-{round}-{number:04}-end");
        let mut request = question("code-marked", &marker, &[DATED]);
        request["messages"] = json!([{"role": "user", "content": marker}]);
        request["stream"] = json!(true);
        let answer = stack.send(ask(&request)).await;
        (marker, answer)
    };
    let mut seen = BTreeSet::new();
    for (marker, answer) in join_all((0..TURNS).map(turn)).await {
        let text = answer.text();
        assert_eq!(answer.status, 200, "{text}");
        assert!(text.contains("event: message_stop"), "{text}");
        // In the code's result, and in the model's words; the code itself comes in pieces.
        assert!(text.contains(&format!("\"stdout\":\"{marker}\"")), "{marker} is not in {text}");
        let others = text.match_indices("marker-").filter(|(at, _)| !text[*at..].starts_with(&marker));
        assert_eq!(others.filter(|(at, _)| text[*at..].contains("-end\"")).count(), 0, "{marker}: {text}");
        seen.insert(marker);
    }
    assert_eq!(seen.len(), TURNS);
    stack.sidecar().resident_bytes().unwrap()
}

#[tokio::test]
async fn a_thousand_streamed_code_turns_at_once() {
    let sandbox = Gathering::start(TURNS).await.unwrap();
    let setup = Setup::default().set("http", "{max_connections: 4096}").set(
        "sandbox",
        &format!(
            "{{backend: http, url: \"{}\", max_sessions: {TURNS}, max_sessions_per_workspace: {TURNS}}}",
            sandbox.url()
        ),
    );
    let stack = start(setup).await;
    let first = all_at_once(&stack, 1).await;
    assert!(first < MEMORY_BYTES, "{first} bytes");
    let cleared = eventually(CLEARED_WITHIN, async || sandbox.left().0 == 0).await;
    assert!(cleared, "{:?}", sandbox.left());
    let second = all_at_once(&stack, 2).await;
    assert!(second < MEMORY_BYTES && second < first + first / 4, "it grows: {first}, then {second} bytes");
    assert!(eventually(CLEARED_WITHIN, async || sandbox.left() == (0, 0)).await, "{:?}", sandbox.left());
    assert_eq!(stack.vm_reloads().await.unwrap(), 0);
}
