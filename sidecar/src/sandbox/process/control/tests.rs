use std::io::Write;
use std::os::unix::net::UnixStream as StdStream;

use super::{Control, ControlFault, Done, Edit, MAX_EDIT_FRAME_BYTES, MAX_FRAME_BYTES, Shell, request};
use crate::sandbox::process::work::Work;
use crate::sandbox::{EditorCommand, EditorReport, ToolInput, ViewRange};

fn python() -> ToolInput {
    ToolInput::Python { code: "1".to_owned() }
}

fn view() -> ToolInput {
    ToolInput::TextEditor(EditorCommand::View { path: "a".to_owned(), range: None })
}

fn frame(text: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

async fn answer(bytes: &[u8]) -> Result<Done, ControlFault> {
    answer_to(&python(), bytes).await
}

async fn answer_to(input: &ToolInput, bytes: &[u8]) -> Result<Done, ControlFault> {
    let (mut control, theirs) = Control::pair().unwrap();
    let mut theirs = StdStream::from(theirs);
    let bytes = bytes.to_vec();
    // From a thread: a long answer does not fit into the socket at once.
    let writer = std::thread::spawn(move || drop(theirs.write_all(&bytes)));
    let done = control.done(7, &Work::of(input)).await;
    drop(control);
    writer.join().unwrap();
    done
}

#[tokio::test]
async fn a_good_frame_is_read_and_its_sender_known() {
    let (mut control, theirs) = Control::pair().unwrap();
    let mut theirs = StdStream::from(theirs);
    theirs.write_all(&frame(r#"{"ready":true}"#)).unwrap();
    assert_eq!(control.ready().await.unwrap(), rustix::process::getpid());
    theirs.write_all(&frame(r#"{"id":7,"return_code":3,"figures":["a.png"]}"#)).unwrap();
    let done = control.done(7, &Work::of(&python())).await.unwrap();
    assert_eq!(done, Done { id: 7, return_code: 3, figures: vec!["a.png".to_owned()], edit: None, shells: None });
}

#[tokio::test]
async fn an_answer_before_its_call_is_a_fault() {
    let (mut control, theirs) = Control::pair().unwrap();
    let mut theirs = StdStream::from(theirs);
    assert_ne!(control.send(&Work::of(&python())).await.unwrap(), control.send(&Work::of(&python())).await.unwrap());
    theirs.write_all(&frame(r#"{"id":1,"return_code":0,"figures":[]}"#)).unwrap();
    assert!(matches!(control.send(&Work::of(&python())).await, Err(ControlFault::Forged("an answer to no call"))));
    let two = [frame(r#"{"ready":true}"#), frame(r#"{"ready":true}"#)].concat();
    let (mut control, theirs) = Control::pair().unwrap();
    StdStream::from(theirs).write_all(&two).unwrap();
    control.ready().await.unwrap();
    assert!(matches!(control.send(&Work::of(&python())).await, Err(ControlFault::Forged("an answer to no call"))));
}

#[tokio::test]
async fn anything_else_is_a_fault() {
    let good = r#"{"id":8,"return_code":0,"figures":[]}"#;
    assert!(matches!(answer(&frame(good)).await, Err(ControlFault::Forged("the answer to another call"))));
    for text in ["", "{}", "null", r#"{"id":7,"return_code":0}"#, r#"{"id":7,"return_code":999,"figures":[]}"#] {
        assert!(matches!(answer(&frame(text)).await, Err(ControlFault::Forged("a malformed frame"))), "{text}");
    }
    let oversize = u32::try_from(MAX_FRAME_BYTES + 1).unwrap().to_be_bytes();
    assert!(matches!(answer(&oversize).await, Err(ControlFault::Forged("an oversize frame"))));
    assert!(matches!(answer(b"").await, Err(ControlFault::Closed)));
    assert!(matches!(answer(&frame(good)[..9]).await, Err(ControlFault::Closed)));
}

#[tokio::test]
async fn an_edit_is_answered_by_a_report_of_its_kind() {
    let viewed = r#"{"viewed":{"start_line":1,"num_lines":2,"total_lines":3}}"#;
    let frame_of =
        |return_code: u8, edit: &str| frame(&format!(r#"{{"id":7,"return_code":{return_code},"figures":[]{edit}}}"#));
    let edit = |report: &str| format!(r#","edit":{{"report":{report},"stdout":"a\nb","stderr":""}}"#);
    let done = answer_to(&view(), &frame_of(0, &edit(viewed))).await.unwrap();
    let report = EditorReport::Viewed { start_line: 1, num_lines: 2, total_lines: 3 };
    assert_eq!(done.edit, Some(Edit { report, stdout: "a\nb".to_owned(), stderr: String::new() }));
    assert!(answer_to(&view(), &frame_of(130, "")).await.is_ok());

    for (input, bytes) in [
        (view(), frame_of(0, &edit(r#"{"created":{"is_file_update":true}}"#))),
        (view(), frame_of(0, "")),
        (view(), frame_of(1, "")),
        (view(), frame(r#"{"id":7,"return_code":130,"figures":["a.png"]}"#)),
        (python(), frame_of(0, &edit(viewed))),
    ] {
        let refused = answer_to(&input, &bytes).await;
        assert!(matches!(refused, Err(ControlFault::Forged("the answer to other work"))), "{refused:?}");
    }
    for report in [
        r#""viewed""#,
        r#"{"failed":"whatever"}"#,
        r#"{"viewed":{"start_line":-1,"num_lines":2,"total_lines":3}}"#,
        r#"{"viewed":{"start_line":1,"num_lines":2,"total_lines":3,"more":1}}"#,
    ] {
        let refused = answer_to(&view(), &frame_of(0, &edit(report))).await;
        assert!(matches!(refused, Err(ControlFault::Forged("a malformed frame"))), "{report}: {refused:?}");
    }
}

#[tokio::test]
async fn commands_are_answered_by_one_end_for_each() {
    let answer_to = async |count: usize, text: &str| {
        let (mut control, theirs) = Control::pair().unwrap();
        StdStream::from(theirs).write_all(&frame(text)).unwrap();
        control.done(7, &Work::Shells(vec!["true"; count])).await
    };
    let both = r#"{"id":7,"return_code":0,"figures":[],"shells":[[3,false],[130,true]]}"#;
    let done = answer_to(2, both).await.unwrap();
    assert_eq!(done.shells, Some(vec![Shell(3, false), Shell(130, true)]));
    assert_eq!([0, 1].map(|call| (done.code(call), done.is_cut(call))), [(3, false), (130, true)]);
    for (count, text) in [
        (1, both),
        (3, both),
        (1, r#"{"id":7,"return_code":0,"figures":[]}"#),
        (1, r#"{"id":7,"return_code":0,"figures":["a.png"],"shells":[[0,false]]}"#),
    ] {
        let refused = answer_to(count, text).await;
        assert!(matches!(refused, Err(ControlFault::Forged("the answer to other work"))), "{text}: {refused:?}");
    }
    let of_python = answer(&frame(r#"{"id":7,"return_code":0,"figures":[],"shells":[]}"#)).await;
    assert!(matches!(of_python, Err(ControlFault::Forged("the answer to other work"))), "{of_python:?}");
}

#[tokio::test]
async fn an_answer_is_as_long_as_its_kind_may_be() {
    let long = "x".repeat(MAX_FRAME_BYTES);
    let viewed = r#"{"viewed":{"start_line":1,"num_lines":1,"total_lines":1}}"#;
    let text = format!(
        r#"{{"id":7,"return_code":0,"figures":[],"edit":{{"report":{viewed},"stdout":"{long}","stderr":""}}}}"#
    );
    assert_eq!(answer_to(&view(), &frame(&text)).await.unwrap().edit.unwrap().stdout, long);
    let oversize = |limit: usize| u32::try_from(limit + 1).unwrap().to_be_bytes();
    let refused = answer_to(&view(), &oversize(MAX_EDIT_FRAME_BYTES)).await;
    assert!(matches!(refused, Err(ControlFault::Forged("an oversize frame"))), "{refused:?}");
    let bash = ToolInput::Bash { command: "true".to_owned() };
    let refused = answer_to(&bash, &oversize(MAX_FRAME_BYTES)).await;
    assert!(matches!(refused, Err(ControlFault::Forged("an oversize frame"))), "{refused:?}");
}

#[test]
fn a_request_is_its_texts_each_after_its_length() {
    let told = |input: &ToolInput| request(1, &Work::of(input)).unwrap();
    let head = |length: u8| [0, 0, 0, length, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(told(&python()), [&head(23)[..], b"\0\0\0\x06python", b"\0\0\0\x011"].concat());
    let range = Some(ViewRange { first: 2, last: None });
    let part = ToolInput::TextEditor(EditorCommand::View { path: "\u{e9}".to_owned(), range });
    let both = Work::Shells(vec!["a", "bc"]);
    let texts = [&head(27)[..], b"\0\0\0\x04bash", b"\0\0\0\x01a", b"\0\0\0\x02bc"].concat();
    assert_eq!(request(1, &both).unwrap(), texts);
    let texts = [b"\0\0\0\x04view".as_slice(), "\0\0\0\x02\u{e9}".as_bytes(), b"\0\0\0\x012", b"\0\0\0\0"].concat();
    assert_eq!(told(&part), [&head(31)[..], &texts].concat());
}
