//! Keeps the head and the tail of a stream that may be endless, and says how much it left out.
//!
//! INVARIANT: never holds more than its limit, whatever is written.

use std::collections::VecDeque;

/// The kept part of one output stream.
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    dropped: u64,
}

impl Capture {
    /// Keeps at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: limit / 2, dropped: 0 }
    }

    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(head);
        // Of what does not fit into the tail only the end matters.
        let skipped = rest.len().saturating_sub(self.half);
        let rest = rest.get(skipped..).unwrap_or_default();
        let overflow = (self.tail.len() + rest.len()).saturating_sub(self.half);
        drop(self.tail.drain(..overflow));
        self.tail.extend(rest);
        self.dropped += (skipped + overflow) as u64;
    }

    /// The text, with a marker in the place of what was dropped. Bytes that are not UTF-8 become U+FFFD.
    pub(super) fn into_text(mut self) -> String {
        if self.dropped == 0 {
            self.head.extend(self.tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        // A character cut in two by our own limit is left out whole.
        let head = trim_end(&self.head);
        let tail = trim_start(self.tail.make_contiguous());
        let kept = head.len() + tail.len();
        let dropped = self.dropped + (self.half * 2 - kept) as u64;
        format!(
            "{}\n[{dropped} bytes of output dropped here: a stream keeps {} bytes]\n{}",
            String::from_utf8_lossy(head),
            self.half * 2,
            String::from_utf8_lossy(tail)
        )
    }
}

fn trim_end(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.get(..error.valid_up_to()).unwrap_or(bytes),
        _ => bytes,
    }
}

fn trim_start(bytes: &[u8]) -> &[u8] {
    const LONGEST_CHARACTER: usize = 4;
    let continuation = bytes.iter().take(LONGEST_CHARACTER - 1).take_while(|byte| **byte & 0xC0 == 0x80).count();
    bytes.get(continuation..).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::Capture;

    fn capture(limit: usize, chunks: &[&[u8]]) -> String {
        let mut capture = Capture::new(limit);
        for chunk in chunks {
            capture.push(chunk);
            assert!(capture.head.len() + capture.tail.len() <= limit);
        }
        capture.into_text()
    }

    #[test]
    fn what_fits_is_kept_whole() {
        assert_eq!(capture(8, &[b"", b"abc", b"defgh"]), "abcdefgh");
    }

    #[test]
    fn head_and_tail_stay_and_the_rest_is_counted() {
        let marker = "\n[3 bytes of output dropped here: a stream keeps 8 bytes]\n";
        assert_eq!(capture(8, &[b"abcdefghijk"]), format!("abcd{marker}hijk"));
        assert_eq!(capture(8, &[b"abcdef", b"gh", b"ij", b"k"]), format!("abcd{marker}hijk"));
    }

    #[test]
    fn a_character_is_never_cut_in_two() {
        // Half of 8 falls into the second `é` of the head and into one of the tail.
        let text = "aéé--------éé!";
        let kept = capture(8, &[text.as_bytes()]);
        assert!(kept.starts_with("aé\n["), "{kept}");
        assert!(kept.ends_with("]\né!"), "{kept}");
        assert!(!kept.contains('\u{FFFD}'), "{kept}");
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced() {
        assert_eq!(capture(8, &[b"a\xffb"]), "a\u{FFFD}b");
    }
}
