use super::{EditorCommand, EditorFault, EditorReport, ToolInput};

fn text(length: usize) -> String {
    "x".repeat(length)
}

/// An input whose longest text has `length` bytes, for each text there is.
fn inputs(length: usize) -> Vec<(&'static str, ToolInput)> {
    let (path, long) = (text(4), text(length));
    let editor = |name, command| (name, ToolInput::TextEditor(command));
    vec![
        ("code", ToolInput::Python { code: long.clone() }),
        ("command", ToolInput::Bash { command: long.clone() }),
        editor("text of the file", EditorCommand::Create { path: path.clone(), text: long.clone() }),
        editor("old text", EditorCommand::StrReplace { path: path.clone(), old: long.clone(), new: text(1) }),
        editor("new text", EditorCommand::StrReplace { path: path.clone(), old: text(1), new: long.clone() }),
        editor("inserted text", EditorCommand::Insert { path, line: 0, text: long }),
    ]
}

#[test]
fn each_text_has_a_limit_and_is_named_without_being_quoted() {
    for (name, input) in inputs(10) {
        assert_eq!(input.check(10), Ok(()), "{name}");
    }
    for (name, input) in inputs(11) {
        assert_eq!(input.check(10), Err(format!("the {name} has 11 bytes, the limit is 10")));
    }
}

#[test]
fn a_command_fits_the_kernel_and_a_path_too_whatever_the_limit() {
    let command = |length| ToolInput::Bash { command: text(length) }.check(1 << 20);
    assert_eq!(command(131_071), Ok(()));
    assert_eq!(command(131_072), Err("the command has 131072 bytes, the limit is 131071".to_owned()));
    let view = |length| EditorCommand::View { path: text(length), range: None };
    assert_eq!(ToolInput::TextEditor(view(4095)).check(1 << 20), Ok(()));
    assert!(ToolInput::TextEditor(view(4096)).check(1 << 20).is_err());
}

#[test]
fn a_report_fits_its_command_or_does_not() {
    let viewed = EditorReport::Viewed { start_line: 1, num_lines: 1, total_lines: 1 };
    let created = EditorReport::Created { is_file_update: false };
    let edited = EditorReport::Edited { old_start: 1, old_lines: 0, new_start: 1, new_lines: 0, lines: None };
    let path = || "a".to_owned();
    let commands = [
        EditorCommand::View { path: path(), range: None },
        EditorCommand::Create { path: path(), text: String::new() },
        EditorCommand::StrReplace { path: path(), old: path(), new: String::new() },
        EditorCommand::Insert { path: path(), line: 0, text: String::new() },
        EditorCommand::UndoEdit { path: path() },
    ];
    let fitting = |report| commands.each_ref().map(|command| command.can_end_in(&report));
    assert_eq!(fitting(viewed), [true, false, false, false, false]);
    assert_eq!(fitting(EditorReport::Listed { entries: 0 }), [true, false, false, false, false]);
    assert_eq!(fitting(created), [false, true, false, false, false]);
    assert_eq!(fitting(edited), [false, false, true, true, true]);
    let told = |count| EditorReport::Edited {
        old_start: 1,
        old_lines: 0,
        new_start: 1,
        new_lines: 0,
        lines: Some(vec!["+".to_owned(); count]),
    };
    assert_eq!(fitting(told(8192)), [false, false, true, true, true]);
    assert_eq!(fitting(told(8193)), [false; 5]);
    assert_eq!(fitting(EditorReport::Failed(EditorFault::Unavailable)), [true; 5]);
}
