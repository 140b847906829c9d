//! What the text editor shows: the lines of a file, the names in a directory, and a clear word about anything else.

use sidecar::sandbox::{EditorFault, EditorReport, ViewRange};

use super::editor::{create, refused};
use super::{EditorCommand, ExecutionResult, Place, SandboxLimits, SessionId, default_limits, start, start_with};

/// The most a view gives.
const SHOWN_BYTES: usize = 256 << 10;

async fn view(place: &Place, session: &SessionId, path: &str) -> ExecutionResult {
    place.edit(session, EditorCommand::View { path: path.to_owned(), range: None }).await
}

async fn part(place: &Place, session: &SessionId, path: &str, first: u32, last: Option<u32>) -> ExecutionResult {
    let range = Some(ViewRange { first, last });
    place.edit(session, EditorCommand::View { path: path.to_owned(), range }).await
}

fn lines(result: &ExecutionResult) -> (u32, u32, u32, &str) {
    let Some(EditorReport::Viewed { start_line, num_lines, total_lines }) = result.editor else { panic!("{result:?}") };
    assert_eq!(result.return_code, 0, "{result:?}");
    (start_line, num_lines, total_lines, &result.stdout)
}

#[tokio::test]
async fn a_file_is_shown_as_it_is_and_in_parts() {
    let place = start().await;
    let session = place.session().await;
    place.edit(&session, create("a", "one\r\ntw\u{f6} \"2\"\n\u{1}three")).await;
    let all = view(&place, &session, "a").await;
    assert_eq!(lines(&all), (1, 3, 3, "one\r\ntw\u{f6} \"2\"\n\u{1}three"));
    assert_eq!(all.stderr, "");
    for (first, last, expected) in [
        (1, Some(1), (1, 1, 3, "one\r\n")),
        (2, Some(3), (2, 2, 3, "tw\u{f6} \"2\"\n\u{1}three")),
        (3, None, (3, 1, 3, "\u{1}three")),
        (2, Some(99), (2, 2, 3, "tw\u{f6} \"2\"\n\u{1}three")),
    ] {
        assert_eq!(lines(&part(&place, &session, "a", first, last).await), expected);
    }
    for (first, last, words) in
        [(0, None, "starts at line 0"), (4, None, "has 3 lines"), (3, Some(2), "ends at line 2")]
    {
        refused(&part(&place, &session, "a", first, last).await, EditorFault::InvalidInput, words);
    }
    for (text, total) in [("", 0), ("\n", 1), ("x", 1), ("x\n", 1), ("x\n\n", 2)] {
        place.edit(&session, create("b", text)).await;
        assert_eq!(lines(&view(&place, &session, "b").await), (1, total, total, text));
    }
    // From any place, and after a command of the shell.
    place.shell(&session, "mkdir -p d; echo deep > d/f; ln -s d link").await;
    place.output(&session, "import os\nos.chdir('d')").await;
    for path in ["d/f", "/workspace/d/f", "./link/../d//f", "link/f", "/workspace/link/f"] {
        assert_eq!(view(&place, &session, path).await.stdout, "deep\n", "{path}");
    }
}

#[tokio::test]
async fn a_long_file_is_shown_up_to_a_limit_and_says_so() {
    let place = start().await;
    let session = place.session().await;
    place.shell(&session, "yes 123456789 | head -n 100000 > long; head -c 1000000 /dev/zero | tr '\\0' '\\001' > line; truncate -s 90M sparse; truncate -s 9M big").await;
    let long = view(&place, &session, "long").await;
    let fitting = u32::try_from(SHOWN_BYTES / 10).unwrap();
    assert_eq!(lines(&long), (1, fitting, 100_000, "123456789\n".repeat(SHOWN_BYTES / 10).as_str()));
    assert!(long.stderr.contains(&format!("Only lines 1 to {fitting} of 100000 are shown")), "{}", long.stderr);
    assert_eq!(lines(&part(&place, &session, "long", 99_999, None).await).1, 2);
    // The worst a text can be: one line, every character of which is escaped on its way.
    let line = view(&place, &session, "line").await;
    assert_eq!(lines(&line), (1, 1, 1, "\u{1}".repeat(SHOWN_BYTES).as_str()));
    assert!(line.stderr.contains("line 1 is longer than that"), "{}", line.stderr);
    for path in ["sparse", "big"] {
        refused(&view(&place, &session, path).await, EditorFault::InvalidInput, "longer than the 8388608 bytes");
    }
    assert_eq!(place.output(&session, "'in step'").await, "'in step'\n");
    place.destroy(&session).await;

    let place = start_with(SandboxLimits { output_bytes: 4096, ..default_limits() }).await;
    let session = place.session().await;
    place.shell(&session, "yes 123456789 | head -n 1000 > long").await;
    let short = view(&place, &session, "long").await;
    assert_eq!(lines(&short), (1, 409, 1000, "123456789\n".repeat(409).as_str()));
}

#[tokio::test]
async fn a_directory_is_listed_two_levels_deep_within_a_limit() {
    let place = start().await;
    let session = place.session().await;
    let names = r"import os
for path in ('a/b/c', 'z', '.hidden'): os.makedirs(path)
for path in ('a/file', 'a/b/c/deep', 'line\nend', b'bad\xff', '.dot', 'q'): open(path, 'w').close()
os.symlink('/etc', 'link')
os.mkfifo('z/fifo')";
    place.output(&session, names).await;
    let top = view(&place, &session, ".").await;
    assert_eq!(top.stdout, "a/\na/b/\na/file\nbad\\udcff\nline\\u000aend\nlink\nq\nz/\nz/fifo\n");
    assert_eq!((top.editor, top.stderr.as_str(), top.return_code), (Some(EditorReport::Listed { entries: 9 }), "", 0));
    assert_eq!(view(&place, &session, "/workspace/a/").await.stdout, "b/\nb/c/\nfile\n");
    refused(&part(&place, &session, "a", 1, None).await, EditorFault::InvalidInput, "is a directory");
    place.shell(&session, "mkdir many m2; cd many; touch $(seq 2000); cd ../m2; touch x; chmod 0 ../z").await;
    let many = view(&place, &session, "many").await;
    assert_eq!(many.editor, Some(EditorReport::Listed { entries: 1000 }));
    assert!(many.stderr.contains("Not everything"), "{}", many.stderr);
    let closed = view(&place, &session, ".").await;
    assert!(closed.stdout.contains("m2/\nm2/x\nmany/\n") && closed.stderr.contains("Not everything"));
    place.shell(&session, "chmod 700 z").await;
}

#[tokio::test]
async fn what_is_no_text_in_the_workspace_is_refused_by_name() {
    let place = start().await;
    let session = place.session().await;
    place.shell(&session, "mkfifo fifo; ln -s /etc/passwd out; ln -s fifo to-fifo; ln -s /dev/zero zero; ln -s nowhere gone; printf '\\211PNG\\r\\n\\032\\n\\0' > p.png; printf '%%PDF-1.7\\377' > p.pdf; printf 'a\\0b' > nul; printf '\\377' > latin; echo x > shut; chmod 0 shut").await;
    for path in ["out", "zero", "/proc/self/environ", "/dev/zero", "/etc", "..", "a/../..", "/tmp"] {
        refused(&view(&place, &session, path).await, EditorFault::InvalidInput, "outside the workspace");
    }
    for (path, words) in [
        ("fifo", "not a regular file"),
        ("to-fifo", "not a regular file"),
        ("p.png", "a PNG image"),
        ("p.pdf", "a PDF document"),
        ("nul", "but binary"),
        ("latin", "but binary"),
    ] {
        refused(&view(&place, &session, path).await, EditorFault::InvalidInput, words);
    }
    for path in ["none", "gone", "nul/x", "none/none"] {
        refused(&view(&place, &session, path).await, EditorFault::FileNotFound, "no file or directory");
    }
    refused(&view(&place, &session, "shut").await, EditorFault::Unavailable, "Permission denied");
}

#[tokio::test]
async fn what_others_print_meanwhile_is_no_part_of_a_file() {
    let place = start().await;
    let session = place.session().await;
    place.edit(&session, create("a", "text\n")).await;
    place.output(&session, "import threading, time\ndef talk():\n    while True: print('noise', flush=True)\nthreading.Thread(target=talk, daemon=True).start()").await;
    let mut heard = false;
    for _ in 0..50 {
        let shown = view(&place, &session, "a").await;
        assert_eq!(lines(&shown), (1, 1, 1, "text\n"));
        heard |= shown.stderr.contains("noise");
        if heard {
            break;
        }
    }
    assert!(heard);
}
