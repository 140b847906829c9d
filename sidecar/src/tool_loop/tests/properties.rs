//! What holds between every two wires, whatever a model says and however its bytes come.

use decision::format::ApiFormat::{self, ChatCompletions, Messages, Responses};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::answers::{End, check_stream, events};
use super::sans::play;
use super::scripts::{Said, WIRES, asked, code, lookup, text, thought, turn};
use super::support::Answer;

fn anything() -> impl Strategy<Value = Said> {
    prop_oneof![
        "[a-zé\n\"]{1,12}".prop_map(|said| text(&said)),
        "[a-zé ]{1,12}".prop_map(|said| thought(&said)),
        "[a-z\"\\\\\né]{1,12}".prop_map(|source| code("c", &source)),
        "[a-z{}\":]{0,12}".prop_map(|text| Said::Call("g".to_owned(), "code_execution".to_owned(), text)),
        Just(lookup("l")),
    ]
}

/// Every id once.
fn numbered(said: Vec<Said>) -> Vec<Said> {
    let number = |(at, one)| match one {
        Said::Call(id, name, arguments) => Said::Call(format!("{id}{at}"), name, arguments),
        other => other,
    };
    said.into_iter().enumerate().map(number).collect()
}

/// The ids of the calls of the code tool.
fn owned(turns: &[Vec<Said>]) -> impl Iterator<Item = &str> {
    turns.iter().flatten().filter_map(|one| match one {
        Said::Call(id, name, _) if name == "code_execution" => Some(id.as_str()),
        _ => None,
    })
}

fn script(model: ApiFormat, turns: &[Vec<Said>]) -> Vec<Answer> {
    turns.iter().map(|said| turn(model, true, said)).collect()
}

/// Tokens that the model wrote, as the answer counts them; chat counts only for who asked.
fn written(caller: ApiFormat, client: &str) -> Option<u64> {
    let place = match caller {
        ChatCompletions => return None,
        Messages => "/usage/output_tokens",
        Responses => "/response/usage/output_tokens",
    };
    events(client).iter().rev().find_map(|(_, event)| event.pointer(place)?.as_u64())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn between_every_two_wires_an_answer_is_well_formed_and_independent_of_the_pieces(
        mut turns in prop::collection::vec(prop::collection::vec(anything(), 1..5).prop_map(numbered), 1..4),
        max_turns in 1u32..4, piece in 1usize..40,
    ) {
        // A model may call without end; the script must reach one.
        turns.push(vec![text("done")]);
        for caller in WIRES {
            for model in WIRES {
                let mut asked = asked(caller, model, true);
                asked.run.max_iterations = max_turns;
                let script = script(model, &turns);
                let whole = play(&asked, &script, usize::MAX);
                prop_assert_eq!(check_stream(caller, &whole.client), End::Finished, "{:?} of {:?}", caller, model);
                prop_assert_eq!(&play(&asked, &script, piece), &whole);
                for id in owned(&turns) {
                    prop_assert!(!whole.client.contains(&format!("\"{id}\"")), "{id} leaked: {}", whole.client);
                }
                prop_assert!(whole.turns <= max_turns as usize + 1);
                if let Some(written) = written(caller, &whole.client) {
                    prop_assert_eq!(written, 5 * whole.turns as u64, "the sum of the turns");
                }
            }
        }
    }
}

/// Between two cuts: every byte takes minutes, and this number is no multiple of what recurs in a stream.
const STEP: usize = 17;

/// What a stream of this wire must have said for its turn to be whole.
fn end_mark(model: ApiFormat) -> &'static str {
    match model {
        ChatCompletions => "\"finish_reason\":\"tool_calls\"",
        Messages => "\"message_stop\"",
        Responses => "\"response.completed\"",
    }
}

#[test]
fn a_stream_cut_anywhere_ends_with_an_error_of_the_callers_wire_and_nothing_unfinished() {
    let said = [thought("t"), text("Let me."), code("c1", "print(6*7)"), lookup("l1")];
    for caller in WIRES {
        for model in WIRES {
            let asked = asked(caller, model, true);
            let body = turn(model, true, &said).body;
            for cut in (0..body.len()).step_by(STEP) {
                let answer = Answer { body: body[..cut].to_vec(), ..turn(model, true, &said) };
                let is_whole = String::from_utf8_lossy(&answer.body).contains(end_mark(model));
                let client = play(&asked, &[answer], usize::MAX).client;
                match check_stream(caller, &client) {
                    End::Finished => assert!(is_whole, "{caller:?} of {model:?}, cut at {cut}: {client}"),
                    End::Failed(_, words) => assert!(words.contains("broke off"), "{words}"),
                }
            }
        }
    }
}

/// Ways in which a provider ends a stream badly, and words by which the caller knows it.
fn endings(model: ApiFormat) -> Vec<(String, &'static str)> {
    let error = json!({"type": "overloaded_error", "code": "server_error", "message": "overheated"});
    let broken = match model {
        ChatCompletions => vec![json!({"error": error})],
        Messages => vec![json!({"type": "error", "error": error})],
        Responses => vec![
            json!({"type": "error", "error": error}),
            json!({"type": "response.failed", "response": {"status": "failed", "error": error}}),
        ],
    };
    let frame = |event: &Value| match event["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    let mut endings: Vec<_> = broken.iter().map(|event| (frame(event), "overheated")).collect();
    endings.push(("data: nonsense\n\n".to_owned(), "malformed"));
    endings
}

#[test]
fn a_providers_error_and_nonsense_in_a_stream_reach_the_caller_in_its_own_words() {
    let said = [text("Let me."), code("c1", "print(6*7)")];
    for caller in WIRES {
        for model in WIRES {
            let body = String::from_utf8(turn(model, true, &said).body).expect("text");
            let borders: Vec<usize> = body.match_indices("\n\n").map(|(at, _)| at + 2).collect();
            let (_, inside) = borders.split_last().expect("frames");
            for (ending, words) in endings(model) {
                for border in inside.iter().filter(|border| !body[..**border].contains(end_mark(model))) {
                    let answer = Answer::stream(&format!("{}{ending}", &body[..*border]));
                    let client = play(&asked(caller, model, true), &[answer], usize::MAX).client;
                    let End::Failed(kind, told) = check_stream(caller, &client) else { panic!("{client}") };
                    assert!(told.contains(words), "{caller:?} of {model:?}: {told}");
                    assert!(!kind.is_empty(), "{client}");
                }
            }
        }
    }
}
