//! Every caller's wire with every model's wire, streamed and whole: recorded turns, and what client and model get.

use decision::format::ApiFormat;

use super::answers::{End, check_stream};
use super::scripts::{Said, WIRES, asked, code, lookup, text, thought, turn};
use super::transcripts::play;

/// The recorded scripts: a name, and the model's turns.
fn scripts() -> Vec<(&'static str, Vec<Vec<Said>>)> {
    let last = vec![text("It is 42.")];
    vec![
        (
            "a code turn",
            vec![vec![thought("6*7 is easy"), text("Let me compute."), code("c1", "print(6*7)")], last.clone()],
        ),
        ("a failing program", vec![vec![code("c1", "1/0")], last.clone()]),
        ("two calls at once", vec![vec![code("c1", "print(6*7)"), code("c2", "warn()")], last]),
        ("the caller's function alone", vec![vec![text("Let me look."), lookup("l1")]]),
        ("a mixed turn", vec![vec![lookup("l1"), code("c1", "print(6*7)"), lookup("l2")]]),
    ]
}

#[tokio::test]
async fn recorded_scripts_give_the_expected_bytes_between_every_two_wires() {
    for caller in WIRES {
        for model in WIRES {
            for stream in [true, false] {
                let mut told = String::new();
                for (name, turns) in scripts() {
                    let script = || turns.iter().map(|said| turn(model, stream, said)).collect();
                    let played = play(|| asked(caller, model, stream), script).await;
                    if stream {
                        let (_, body) = played.split_once("== client: 200 OK\n").expect("an answer");
                        assert_eq!(check_stream(caller, body), End::Finished, "{name}: {caller:?} of {model:?}");
                    }
                    told.extend(["# ", name, "\n", &played, "\n\n"]);
                }
                let form = if stream { "streamed" } else { "whole" };
                insta::assert_snapshot!(format!("{}_of_{}_{form}", short(caller), short(model)), told);
            }
        }
    }
}

fn short(wire: ApiFormat) -> &'static str {
    match wire {
        ApiFormat::ChatCompletions => "chat",
        ApiFormat::Messages => "messages",
        ApiFormat::Responses => "responses",
    }
}
