use super::*;

fn said(bytes: &[u8], max_chars: usize) -> Extracted {
    let mut said = Said::new(max_chars);
    said.bytes.extend_from_slice(bytes);
    said.finish(true)
}

#[test]
fn text_is_cleaned_and_cut_between_characters() {
    let all = said("\n\n a\u{1b}[2J\0b\r\n\n\n\n\n\tc \n".as_bytes(), 100);
    assert_eq!((all.text.as_str(), all.is_cut, all.is_broken), ("a[2Jb\n\n\tc", false, false));
    let cut = said("äöüß".as_bytes(), 3);
    assert_eq!((cut.text.as_str(), cut.is_cut), ("äöü", true));
    assert!(!said("äöü\n\n".as_bytes(), 3).is_cut);
    assert_eq!(said(b"a\xff\xe2\x82", 9).text, "a\u{fffd}\u{fffd}");
}
