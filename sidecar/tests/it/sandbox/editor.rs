//! The text editor's changes: what they come to, what they refuse, and that they never spoil a file.

use super::{EditorCommand, ExecutionResult, Place, SandboxLimits, SessionId, default_limits, start, start_with};
use sidecar::sandbox::{EditorFault, EditorReport};

pub(super) fn create(path: &str, text: &str) -> EditorCommand {
    EditorCommand::Create { path: path.to_owned(), text: text.to_owned() }
}

pub(super) fn replace(path: &str, old: &str, new: &str) -> EditorCommand {
    EditorCommand::StrReplace { path: path.to_owned(), old: old.to_owned(), new: new.to_owned() }
}

pub(super) fn insert(path: &str, line: u32, text: &str) -> EditorCommand {
    EditorCommand::Insert { path: path.to_owned(), line, text: text.to_owned() }
}

/// The act failed for this reason and says these words, and nothing else was said.
pub(super) fn refused(result: &ExecutionResult, fault: EditorFault, words: &str) {
    assert_eq!((result.return_code, result.stdout.as_str()), (1, ""), "{result:?}");
    assert_eq!(result.editor, Some(EditorReport::Failed(fault)), "{result:?}");
    assert!(result.stderr.contains(words) && result.stderr.ends_with(".\n"), "{result:?}");
}

pub(super) fn edited(old: (u32, u32), new: (u32, u32), lines: &[&str]) -> EditorReport {
    let lines = Some(lines.iter().map(|line| (*line).to_owned()).collect());
    EditorReport::Edited { old_start: old.0, old_lines: old.1, new_start: new.0, new_lines: new.1, lines }
}

/// What the file holds, as a Python literal.
pub(super) async fn held(place: &Place, session: &SessionId, path: &str) -> String {
    place.output(session, &format!("open({path:?}, 'rb').read()")).await
}

#[tokio::test]
async fn a_file_is_created_with_its_directories_or_overwritten() {
    let place = start().await;
    let session = place.session().await;
    let made = place.edit(&session, create("deep/er/note.txt", "h\u{e9}llo\n\"quoted\"\\\t\u{1}")).await;
    assert_eq!(made.editor, Some(EditorReport::Created { is_file_update: false }));
    assert_eq!(
        (made.stdout.as_str(), made.stderr.as_str(), made.return_code),
        ("`deep/er/note.txt` was created.\n", "", 0)
    );
    assert_eq!(held(&place, &session, "deep/er/note.txt").await, "b'h\\xc3\\xa9llo\\n\"quoted\"\\\\\\t\\x01'\n");
    place.shell(&session, "chmod 750 deep/er/note.txt; ln -s er/note.txt deep/link").await;
    let again = place.edit(&session, create("/workspace/deep/link", "new")).await;
    assert_eq!(again.editor, Some(EditorReport::Created { is_file_update: true }));
    assert_eq!(
        place.shell(&session, "cat deep/er/note.txt; stat -c ' %a' deep/er/note.txt; readlink deep/link").await,
        "new 750\ner/note.txt\n"
    );
    assert_eq!(place.edit(&session, create("empty", "")).await.return_code, 0);
    // Nothing of ours stays, whatever happens.
    assert_eq!(
        place.shell(&session, "find . -mindepth 1 | sort").await,
        "./deep\n./deep/er\n./deep/er/note.txt\n./deep/link\n./empty\n"
    );
    for (path, words) in [
        ("deep", "is a directory"),
        (".", "names a directory"),
        ("new/", "names a directory"),
        ("empty/x", "leads through a file"),
    ] {
        refused(&place.edit(&session, create(path, "x")).await, EditorFault::InvalidInput, words);
    }
}

#[tokio::test]
async fn one_place_is_replaced_and_the_lines_are_told() {
    let place = start().await;
    let session = place.session().await;
    place.edit(&session, create("a", "one\ntwo\nthree\nfour")).await;
    let result = place.edit(&session, replace("a", "wo", "wo!\nmore")).await;
    assert_eq!(result.editor, Some(edited((2, 1), (2, 2), &["-two", "+two!", "+more"])));
    assert_eq!(
        (result.stdout.as_str(), result.stderr.as_str(), result.return_code),
        ("`a` was edited at line 2.\n", "", 0)
    );
    assert_eq!(held(&place, &session, "a").await, "b'one\\ntwo!\\nmore\\nthree\\nfour'\n");
    // Deletes, joins lines, and keeps the missing line end at the end.
    let deleted = place.edit(&session, replace("a", "more\n", "")).await;
    assert_eq!(deleted.editor, Some(edited((3, 1), (3, 0), &["-more"])));
    let joined = place.edit(&session, replace("a", "\nfour", "4")).await;
    assert_eq!(joined.editor, Some(edited((3, 2), (3, 1), &["-three", "-four", "+three4"])));
    assert_eq!(held(&place, &session, "a").await, "b'one\\ntwo!\\nthree4'\n");
    // Lines around the change that stand in both texts are no part of it.
    let inner = place.edit(&session, replace("a", "one\ntwo!\nthree4", "one\n2\nthree4")).await;
    assert_eq!(inner.editor, Some(edited((2, 1), (2, 1), &["-two!", "+2"])));
    assert_eq!(place.edit(&session, replace("a", "2", "2")).await.editor, Some(edited((3, 0), (3, 0), &[])));
    let long = place.edit(&session, replace("a", "2", &"x".repeat(40_000))).await;
    assert!(matches!(long.editor, Some(EditorReport::Edited { lines: None, new_lines: 1, .. })), "{long:?}");

    place.edit(&session, create("b", "aaa\nb\nb\n")).await;
    for (old, words) in [
        ("", "must not be empty"),
        ("nothing", "does not stand"),
        ("b", "in lines 2 and 3"),
        ("aa", "in lines 1 and 1"),
    ] {
        refused(&place.edit(&session, replace("b", old, "x")).await, EditorFault::InvalidInput, words);
    }
    refused(&place.edit(&session, replace("c", "a", "x")).await, EditorFault::FileNotFound, "no file or directory `c`");
    assert_eq!(held(&place, &session, "b").await, "b'aaa\\nb\\nb\\n'\n");
}

#[tokio::test]
async fn lines_are_inserted_whole() {
    let place = start().await;
    let session = place.session().await;
    for (before, line, text, after) in [
        ("one", 1, "two", "one\\ntwo"),
        ("one", 1, "two\n", "one\\ntwo\\n"),
        ("one\n", 1, "two", "one\\ntwo\\n"),
        ("one\n", 0, "zero", "zero\\none\\n"),
        ("one\nthree", 1, "two\n", "one\\ntwo\\nthree"),
        ("one\nthree", 1, "two\nand", "one\\ntwo\\nand\\nthree"),
        ("one\n\n", 1, "", "one\\n\\n\\n"),
        ("", 0, "first", "first"),
    ] {
        place.edit(&session, create("a", before)).await;
        let result = place.edit(&session, insert("a", line, text)).await;
        assert_eq!((result.return_code, result.stderr.as_str()), (0, ""), "{before:?} {text:?}");
        assert_eq!(held(&place, &session, "a").await, format!("b'{after}'\n"), "{before:?} {text:?}");
    }
    place.edit(&session, create("a", "one\nthree")).await;
    assert_eq!(place.edit(&session, insert("a", 1, "two")).await.editor, Some(edited((2, 0), (2, 1), &["+two"])));
    assert_eq!(place.edit(&session, insert("a", 3, "four")).await.editor, Some(edited((4, 0), (4, 1), &["+four"])));
    refused(&place.edit(&session, insert("a", 5, "x")).await, EditorFault::InvalidInput, "it may be 0 to 4");
    refused(&place.edit(&session, insert("b", 0, "x")).await, EditorFault::FileNotFound, "no file or directory `b`");
}

#[tokio::test]
async fn line_ends_of_windows_are_kept_and_mixed_ones_left_alone() {
    let place = start().await;
    let session = place.session().await;
    place.edit(&session, create("a", "one\r\ntwo\r\nthree\r\n")).await;
    let result = place.edit(&session, replace("a", "one\ntwo", "1\n2")).await;
    assert_eq!(result.editor, Some(edited((1, 2), (1, 2), &["-one", "-two", "+1", "+2"])));
    place.edit(&session, insert("a", 2, "and\r\nmore")).await;
    assert_eq!(held(&place, &session, "a").await, "b'1\\r\\n2\\r\\nand\\r\\nmore\\r\\nthree\\r\\n'\n");
    place.edit(&session, create("b", "one\r\ntwo\nthree\rfour")).await;
    refused(&place.edit(&session, replace("b", "one\ntwo", "x")).await, EditorFault::InvalidInput, "does not stand");
    assert_eq!(place.edit(&session, replace("b", "two\nthree", "2\n3")).await.return_code, 0);
    assert_eq!(held(&place, &session, "b").await, "b'one\\r\\n2\\n3\\rfour'\n");
}

#[tokio::test]
async fn nothing_outside_the_workspace_and_nothing_but_a_file_is_changed() {
    let place = start().await;
    let session = place.session().await;
    place.shell(&session, "mkfifo fifo; echo kept > /tmp/out; ln -s /tmp/out out; ln -s loop loop; ln -s .. up; mkdir closed; echo x > closed/f; chmod 500 closed; ln -s /workspace/closed in").await;
    place.output(&session, "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('socket')").await;
    let outside = [
        "/tmp/out",
        "../x",
        "a/../../x",
        "out",
        "up/x",
        "/proc/self/mem",
        "/etc/passwd",
        "/workspaces/x",
        "/",
        "//tmp/out",
        "~/../../tmp/out",
    ];
    for path in outside {
        for command in [create(path, "x"), replace(path, "kept", "x"), insert(path, 0, "x")] {
            refused(&place.edit(&session, command).await, EditorFault::InvalidInput, "outside the workspace");
        }
    }
    for (path, words) in [
        ("fifo", "not a regular file"),
        ("socket", "not a regular file"),
        ("loop", "too many symbolic links"),
        ("", "must be a name"),
        ("a\0b", "must be a name"),
    ] {
        for command in [create(path, "x"), replace(path, "kept", "x"), insert(path, 0, "x")] {
            refused(&place.edit(&session, command).await, EditorFault::InvalidInput, words);
        }
    }
    refused(&place.edit(&session, create("in/g", "x")).await, EditorFault::Unavailable, "Permission denied");
    refused(&place.edit(&session, replace("in/f", "x", "y")).await, EditorFault::Unavailable, "Permission denied");
    refused(&place.edit(&session, create(&"n".repeat(300), "x")).await, EditorFault::Unavailable, "File name too long");
    assert_eq!(
        place.shell(&session, "cat /tmp/out closed/f; ls; chmod 700 closed").await,
        "kept\nx\nclosed\nfifo\nin\nloop\nout\nsocket\nup\n"
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_written_whole_stays_as_it_was() {
    let place = start_with(SandboxLimits { file_bytes: 100_000, ..default_limits() }).await;
    let session = place.session().await;
    place.edit(&session, create("a", "kept\n")).await;
    let long = "x".repeat(150_000);
    for command in [create("a", &long), replace("a", "kept", &long), create("b", &long)] {
        refused(&place.edit(&session, command).await, EditorFault::Unavailable, "File too large");
    }
    assert_eq!(place.shell(&session, "ls -A; cat a").await, "a\nkept\n");
}

#[tokio::test]
async fn functions_that_a_cell_replaced_are_not_the_editors_and_a_lie_is_told_from_an_answer() {
    let place = start().await;
    let session = place.session().await;
    let replaced = "import builtins, io, json, os, posix, re\nfor module, names in ((os, 'open read write stat rename scandir'), (posix, 'open read write stat rename scandir lstat readlink'), (json, 'dumps loads'), (io, 'open'), (builtins, 'open len print min enumerate sorted map sum reversed isinstance memoryview')):\n    for name in names.split(): setattr(module, name, None)";
    assert_eq!(place.run(&session, replaced).await.return_code, 0);
    let made = place.edit(&session, create("a", "one\n")).await;
    assert_eq!(made.editor, Some(EditorReport::Created { is_file_update: false }), "{made:?}");
    assert_eq!(place.edit(&session, replace("a", "one", "two")).await.return_code, 0);
    assert_eq!(place.edit(&session, EditorCommand::View { path: "a".to_owned(), range: None }).await.stdout, "two\n");

    // Frames that no driver sends end the interpreter, and only that.
    for (report, words) in [
        (r#"{"viewed":{"start_line":1,"num_lines":1,"total_lines":1}}"#, "answer to other work"),
        (r#"{"created":{"is_file_update":"yes"}}"#, "malformed frame"),
    ] {
        let session = place.session().await;
        let lie = format!(
            r#"import os, sys
frame = sys._getframe()
while frame.f_back: frame = frame.f_back
def lie(*_):
    text = '{{"id":%d,"return_code":0,"figures":[],"edit":{{"report":{report},"stdout":"","stderr":""}}}}' % frame.f_globals['call']
    n = os.write(3, len(text).to_bytes(4, 'big') + text.encode())
frame.f_globals['edit'] = lie"#
        );
        place.output(&session, &lie).await;
        let result = place.edit(&session, create("a", "x")).await;
        assert_eq!((result.return_code, &result.editor), (137, &None), "{result:?}");
        assert!(result.stderr.contains(words), "{result:?}");
        assert_eq!(place.output(&session, "'in step'").await, "'in step'\n");
    }
}

#[tokio::test]
async fn an_edit_that_hangs_ends_at_the_deadline_and_one_that_is_stopped_keeps_the_state() {
    use std::time::Duration;

    use super::{SandboxBackend, ToolInput, request_of};
    let place = start().await;
    let session = place.session().await;
    let hang = "import sys, time\nx = 42\nframe = sys._getframe()\nwhile frame.f_back: frame = frame.f_back\nframe.f_globals['attempt'] = lambda *_: time.sleep(1000)";
    place.output(&session, hang).await;
    let stopped = request_of(ToolInput::TextEditor(create("a", "x")), Duration::from_millis(300));
    let result = place.sandbox.execute(&session, &stopped).await.unwrap();
    assert_eq!((result.return_code, &result.editor), (124, &None), "{result:?}");
    assert!(result.stderr.contains("time limit of 0.3 s"), "{result:?}");
    assert_eq!(place.output(&session, "x").await, "42\n");
    place.output(&session, "def wait(*_):\n    while True:\n        try: time.sleep(1000)\n        except KeyboardInterrupt: pass\nframe.f_globals['attempt'] = wait").await;
    let result = place.sandbox.execute(&session, &stopped).await.unwrap();
    assert_eq!((result.return_code, &result.editor), (137, &None), "{result:?}");
    assert_eq!(place.edit(&session, create("a", "x")).await.return_code, 0);
}
