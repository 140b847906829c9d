//! Which calls begin together.

use proptest::prelude::*;

use super::*;

fn an_input() -> impl Strategy<Value = ToolInput> {
    let edit = |command| Just(ToolInput::TextEditor(command));
    prop_oneof![
        1 => Just(ToolInput::Python { code: "1".to_owned() }),
        4 => Just(ToolInput::Bash { command: "true".to_owned() }),
        1 => edit(EditorCommand::View { path: "a".to_owned(), range: None }),
        1 => edit(EditorCommand::Create { path: "a".to_owned(), text: String::new() }),
    ]
}

proptest! {
    #[test]
    fn neighbouring_commands_begin_together_and_everything_else_waits_for_its_turn(
        inputs in prop::collection::vec(an_input(), 0..12), max_together in 1usize..5,
    ) {
        let mut waiting: VecDeque<_> = inputs.iter().cloned().enumerate().collect();
        let mut begun: Vec<Vec<(usize, ToolInput)>> = Vec::new();
        while !waiting.is_empty() {
            begun.push(next_calls(&mut waiting, max_together));
        }
        let order: Vec<usize> = begun.iter().flatten().map(|(call, _)| *call).collect();
        prop_assert_eq!(order, (0..inputs.len()).collect::<Vec<_>>(), "each once, in order");
        let is_bash = |(_, input): &(usize, ToolInput)| matches!(input, ToolInput::Bash { .. });
        for calls in &begun {
            prop_assert!((1..=max_together).contains(&calls.len()));
            prop_assert!(calls.len() == 1 || calls.iter().all(is_bash));
        }
        for pair in begun.windows(2) {
            let joins = pair[0].len() < max_together && is_bash(&pair[0][0]) && is_bash(&pair[1][0]);
            prop_assert!(!joins, "nothing waits that need not");
        }
    }
}
