//! What holds whatever a model says, however its bytes come, and whichever of its calls ends first.

use proptest::prelude::*;

use super::*;

/// What the client saw, deltas of one block joined.
fn seen(run: &Run) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut text: Option<String> = None;
    for output in &run.outputs {
        let piece = match output {
            Output::Emit(ClientEvent::Block(BlockEvent::Delta(Delta::Text(p) | Delta::Arguments(p), _))) => Some(p),
            Output::Emit(ClientEvent::CodeDelta { text, .. }) => Some(text),
            _ => None,
        };
        match (piece, output) {
            (Some(piece), _) => text.get_or_insert_default().push_str(piece),
            (None, Output::Emit(_) | Output::Finish(_) | Output::Fail(_)) => {
                out.extend(text.take());
                out.push(format!("{output:?}"));
            }
            (None, _) => {}
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_a_model_does_the_answer_is_well_formed(
        turns in prop::collection::vec(a_turn(), 1..5), max_turns in 1u32..4, piece in 1usize..9, order in 0usize..8,
    ) {
        let run = play_with(settings(max_turns), &turns, piece, order);
        let mut terminals = 0;
        let mut opened = 0;
        let mut unanswered = std::collections::BTreeSet::new();
        let mut next_call = 0;
        for output in &run.outputs {
            prop_assert_eq!(terminals, 0, "something follows the end");
            match output {
                Output::Finish(ended) => {
                    terminals += 1;
                    prop_assert_eq!(ended.usage.output, 5 * u64::from(run.turns));
                    prop_assert_eq!(ended.usage.input, 3 * u64::from(run.turns));
                }
                Output::Fail(_) => terminals += 1,
                Output::Emit(ClientEvent::Opened(_)) => opened += 1,
                Output::Emit(ClientEvent::CodeStart { call, .. }) => {
                    prop_assert_eq!(*call, next_call);
                    next_call += 1;
                    unanswered.insert(*call);
                }
                Output::Emit(ClientEvent::CodeResult { call, .. }) => {
                    prop_assert_eq!(unanswered.pop_first(), Some(*call), "results come in the order of the calls");
                }
                Output::Emit(ClientEvent::Block(BlockEvent::Start(BlockKind::Call { name, .. }, _))) => {
                    prop_assert_eq!(name, "lookup", "a code call leaked");
                }
                Output::OpenTurn(next) => {
                    prop_assert!(unanswered.is_empty(), "the model goes on before every result was told");
                    prop_assert!(!next.results.is_empty());
                }
                _ => {}
            }
        }
        prop_assert_eq!(terminals, 1);
        prop_assert_eq!(opened, 1);
        prop_assert!(unanswered.is_empty(), "a code call without a result");
    }

    #[test]
    fn the_answer_does_not_depend_on_the_pieces(
        turns in prop::collection::vec(a_turn(), 1..4), piece in 1usize..9,
    ) {
        prop_assert_eq!(seen(&play(&turns, 3, piece)), seen(&play(&turns, 3, 1000)));
    }

    #[test]
    fn the_answer_does_not_depend_on_which_call_ends_first(
        turns in prop::collection::vec(a_turn(), 1..4), order in 0usize..8,
    ) {
        let run = play_with(settings(3), &turns, 1000, order);
        let given = |run: &Run| {
            let turns = run.outputs.iter().filter(|output| matches!(output, Output::OpenTurn(_)));
            turns.map(|turn| format!("{turn:?}")).collect::<Vec<_>>()
        };
        let in_order = play(&turns, 3, 1000);
        prop_assert_eq!(seen(&run), seen(&in_order));
        prop_assert_eq!(given(&run), given(&in_order), "the model gets them in the order of its calls");
    }

    #[test]
    fn a_failure_at_any_moment_leaves_no_call_without_a_result(
        turn in a_turn(), cut in 0usize..40, gone in any::<bool>(),
    ) {
        let mut machine = ToolLoop::new(settings(3));
        let mut outputs = Vec::new();
        machine = machine.handle(Input::TurnOpened, &mut outputs);
        for event in events(&turn, 3).into_iter().take(cut) {
            machine = machine.handle(Input::Event(event), &mut outputs);
        }
        let was_over = machine.is_over();
        let before = outputs.len();
        let end = if gone { Input::ClientGone } else { Input::Failed(cut_off()) };
        machine = machine.handle(end, &mut outputs);
        prop_assert!(machine.is_over());
        if gone || was_over {
            prop_assert!(outputs[before..].iter().all(|output| *output == Output::CancelTools));
        } else {
            let count = |wanted: fn(&Output) -> bool| outputs.iter().filter(|output| wanted(output)).count();
            let starts = count(|output| matches!(output, Output::Emit(ClientEvent::CodeStart { .. })));
            let stops = count(|output| matches!(output, Output::Emit(ClientEvent::CodeStop { .. })));
            let results = count(|output| matches!(output, Output::Emit(ClientEvent::CodeResult { .. })));
            prop_assert_eq!((stops, results), (starts, starts));
            prop_assert!(matches!(outputs.last(), Some(Output::Fail(_))));
        }
    }
}
