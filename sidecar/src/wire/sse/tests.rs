use proptest::prelude::*;

use super::*;

fn decode(bytes: &[u8], cuts: &[usize]) -> Vec<(String, String)> {
    let mut decoder = SseDecoder::new(1000);
    let mut frames = Vec::new();
    let mut from = 0;
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    cuts.push(bytes.len());
    for to in cuts {
        let each = |frame| {
            frames.push(frame);
            Ok::<(), FrameTooLong>(())
        };
        decoder.feed(&bytes[from..to], each).expect("within the limit");
        from = to;
    }
    frames.extend(decoder.finish());
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).expect("text");
    frames.iter().map(|frame| (text(&frame.event), text(&frame.data))).collect()
}

fn check(bytes: &str, expected: &[(&str, &str)]) {
    let expected: Vec<(String, String)> =
        expected.iter().map(|(event, data)| ((*event).to_owned(), (*data).to_owned())).collect();
    assert_eq!(decode(bytes.as_bytes(), &[]), expected, "{bytes:?}");
    let every_byte: Vec<usize> = (0..bytes.len()).collect();
    assert_eq!(decode(bytes.as_bytes(), &every_byte), expected, "byte by byte: {bytes:?}");
}

#[test]
fn frames_of_every_dialect() {
    check("event: a\ndata: 1\n\n", &[("a", "1")]);
    check("event:a\r\ndata:1\r\n\r\ndata: 2\r\n\r\n", &[("a", "1"), ("", "2")]);
    check("event: a\rdata: 1\r\rdata: 2\r\r", &[("a", "1"), ("", "2")]);
    check(": comment\n\nid: 7\nretry: 1\ndata: 1\ndata:  2\ndata\n\n", &[("", "1\n 2\n")]);
    check("data: 1\r\n\ndata: 2\r\n\n", &[("", "1"), ("", "2")]);
    check("\u{feff}data: 1\n\n", &[("", "1")]);
    check("event: lonely\n\ndata: 1\n\n", &[("", "1")]);
}

#[test]
fn the_last_frame_needs_no_blank_line() {
    check("data: 1\n\ndata: [DONE]", &[("", "1"), ("", "[DONE]")]);
    check("data: 1\n", &[("", "1")]);
}

#[test]
fn a_frame_over_the_limit_is_refused_and_many_small_ones_are_not() {
    let feed = |bytes: &[u8]| SseDecoder::new(10).feed(bytes, |_| Ok::<(), FrameTooLong>(()));
    assert_eq!(feed(b"data: 12345678901"), Err(FrameTooLong { limit: 10 }));
    assert_eq!(feed(b"data: 123456\ndata: 7890\ndata: 1\n\n"), Err(FrameTooLong { limit: 10 }));
    assert_eq!(feed(&b"data: 1\n\n".repeat(50)), Ok(()));
}

#[test]
fn what_is_written_is_read_back() {
    let mut out = BytesMut::new();
    write_frame(&mut out, b"ping", b"{\"a\":1}");
    write_frame(&mut out, b"", b"two\nlines");
    // A model's word for its event, which could bring events of its own.
    write_frame(&mut out, b"x\n\nevent: response.completed\ndata: {}", b"3");
    check(std::str::from_utf8(&out).expect("text"), &[("ping", "{\"a\":1}"), ("", "two\nlines"), ("", "3")]);
}

proptest! {
    #[test]
    fn frames_do_not_depend_on_the_cuts(
        bytes in "(event: [a-z]{0,3}|data: ?[a-z:é]{0,5}|:|[a-z]{0,2}|\n|\r|\r\n){0,20}",
        cuts in prop::collection::vec(any::<usize>(), 0..8),
    ) {
        prop_assert_eq!(decode(bytes.as_bytes(), &cuts), decode(bytes.as_bytes(), &[]));
    }
}
