//! The text editor takes its changes back, byte for byte, or says why it does not.

use sidecar::sandbox::{EditorCommand, EditorFault, EditorReport, SandboxBackend as _};

use super::editor::{create, edited, held, insert, refused, replace};
use super::{Place, SandboxLimits, SessionId, default_limits, start, start_with};

fn undo(path: &str) -> EditorCommand {
    EditorCommand::UndoEdit { path: path.to_owned() }
}

/// Does these acts, all of which succeed.
async fn edit_all<const N: usize>(place: &Place, session: &SessionId, commands: [EditorCommand; N]) {
    for command in commands {
        let result = place.edit(session, command.clone()).await;
        assert_eq!(result.return_code, 0, "{command:?}: {result:?}");
    }
}

#[tokio::test]
async fn edits_are_taken_back_one_by_one_to_the_last_byte() {
    let place = start().await;
    let session = place.session().await;
    // Line ends as on Windows, and a last line without one.
    for text in ["one\ntwo\nthree\n", "one\r\ntwo\r\nthree", "one\ntwo\r\nthree", "one two three", "é\n\u{1f600}two\n"]
    {
        let mut past = Vec::new();
        for command in [
            create("a.txt", text),
            replace("a.txt", "two", "2\n3"),
            insert("a.txt", 1, "between"),
            insert("a.txt", 0, "first\n"),
            replace("a.txt", "2", ""),
        ] {
            edit_all(&place, &session, [command]).await;
            past.push(held(&place, &session, "a.txt").await);
        }
        past.pop();
        while let Some(before) = past.pop() {
            let undone = place.edit(&session, undo("a.txt")).await;
            assert!(matches!(undone.editor, Some(EditorReport::Edited { .. })), "{undone:?}");
            assert!(undone.stdout.ends_with("was undone.\n") && undone.stderr.is_empty(), "{undone:?}");
            assert_eq!(held(&place, &session, "a.txt").await, before);
        }
    }
}

#[tokio::test]
async fn what_was_undone_is_told_by_its_lines() {
    let place = start().await;
    let session = place.session().await;
    edit_all(&place, &session, [create("a", "one\ntwo\nthree\n"), replace("a", "two\n", "2\n")]).await;
    let undone = place.edit(&session, undo("/workspace/a")).await;
    assert_eq!(undone.editor, Some(edited((2, 1), (2, 1), &["-2", "+two"])));
    assert_eq!(undone.stdout, "The last edit of `/workspace/a`, at line 2, was undone.\n");
    // A deletion, by its empty new text.
    edit_all(&place, &session, [replace("a", "two\n", "")]).await;
    assert_eq!(place.edit(&session, undo("a")).await.editor, Some(edited((2, 0), (2, 1), &["+two"])));
    assert_eq!(held(&place, &session, "a").await, "b'one\\ntwo\\nthree\\n'\n");
}

#[tokio::test]
async fn a_file_that_was_written_over_comes_back_and_one_that_was_made_stays() {
    let place = start().await;
    let session = place.session().await;
    place.shell(&session, "printf 'by hand' > a; chmod 750 a; mkdir d; ln -s ../a d/link").await;
    // Known by where it lies, not by how it was named.
    edit_all(&place, &session, [create("d/link", "by the editor"), undo("a")]).await;
    assert_eq!(place.shell(&session, "cat a; stat -c ' %a' a").await, "by hand 750\n");
    edit_all(&place, &session, [create("new", "text")]).await;
    let made = place.edit(&session, undo("new")).await;
    refused(&made, EditorFault::InvalidInput, "made it; remove it with bash");
    assert_eq!(place.shell(&session, "cat new").await, "text");
    // What is no text can be written over, and does not come back.
    place.shell(&session, "printf '\\377' > binary").await;
    edit_all(&place, &session, [create("binary", "text")]).await;
    refused(
        &place.edit(&session, undo("binary")).await,
        EditorFault::InvalidInput,
        "No edit of `binary` is remembered",
    );
}

#[tokio::test]
async fn each_file_has_its_own_past_and_what_changed_otherwise_is_left_alone() {
    let place = start().await;
    let session = place.session().await;
    edit_all(
        &place,
        &session,
        [create("a", "a1"), create("b", "b1"), replace("a", "a1", "a2"), replace("b", "b1", "b2"), undo("a")],
    )
    .await;
    assert_eq!(place.shell(&session, "cat a b").await, "a1b2");
    place.shell(&session, "printf b3 > b").await;
    refused(&place.edit(&session, undo("b")).await, EditorFault::InvalidInput, "was changed by other means");
    assert_eq!(place.shell(&session, "cat b").await, "b3");
    // Set back by hand, it is what the editor knows.
    place.shell(&session, "printf b2 > b").await;
    edit_all(&place, &session, [undo("b")]).await;
    assert_eq!(place.shell(&session, "cat b").await, "b1");
    place.shell(&session, "rm a").await;
    refused(&place.edit(&session, undo("a")).await, EditorFault::FileNotFound, "There is no file");
    refused(&place.edit(&session, undo("never")).await, EditorFault::InvalidInput, "No edit of `never` is remembered");
    refused(&place.edit(&session, undo("../a")).await, EditorFault::InvalidInput, "outside the workspace");
    refused(&place.edit(&session, undo(".")).await, EditorFault::InvalidInput, "No edit");
}

#[tokio::test]
async fn so_many_edits_are_remembered_and_so_long_ones() {
    let place = start_with(SandboxLimits { code_bytes: 6 << 20, ..default_limits() }).await;
    let session = place.session().await;
    edit_all(&place, &session, [create("a", "0\n")]).await;
    for number in 1..=70 {
        edit_all(&place, &session, [insert("a", 0, &format!("{number}\n"))]).await;
    }
    for _ in 0..64 {
        edit_all(&place, &session, [undo("a")]).await;
    }
    refused(&place.edit(&session, undo("a")).await, EditorFault::InvalidInput, "No edit of `a` is remembered");
    assert_eq!(place.shell(&session, "head -c 2 a").await, "6\n");
    // Two of these are more than is kept: the older one went.
    let long = |letter: &str| letter.repeat(5 << 20);
    edit_all(&place, &session, [create("b", &long("x")), create("b", &long("y")), create("b", "z"), undo("b")]).await;
    assert_eq!(place.shell(&session, "head -c 1 b; wc -c < b").await, "y5242880\n");
    refused(&place.edit(&session, undo("b")).await, EditorFault::InvalidInput, "No edit of `b` is remembered");
}

#[tokio::test]
async fn the_past_ends_with_the_interpreter() {
    let place = start().await;
    let session = place.session().await;
    edit_all(&place, &session, [create("a", "1"), replace("a", "1", "2")]).await;
    place.run(&session, "import os\nos._exit(1)").await;
    refused(&place.edit(&session, undo("a")).await, EditorFault::InvalidInput, "No edit of `a` is remembered");
    place.sandbox.destroy_session(&session).await.unwrap();
}
