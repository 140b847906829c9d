//! The inside of a JSON string: kept, watched for an id of ours, or skipped as fast as memory allows.
//!
//! INVARIANT: a string that is not kept costs no allocation, however long it is.

mod utf8;

use super::block::{self, Stop};
use super::{Fault, ScanErrorKind};
use crate::format::hex;
use crate::request::{MINTED, OWN_FILES};
use utf8::Utf8;

/// What becomes of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mode {
    /// A key we read, kept up to the limit.
    Key,
    /// A key below the levels we read: checked, not kept.
    SkippedKey,
    /// A value we read, kept up to so many bytes.
    Kept(usize),
    /// A value we do not read, before its first byte.
    #[default]
    Fresh,
    /// A value we do not read that began like an id of ours.
    Watched,
    /// A value we do not read.
    Skipped,
}

/// Ids of ours seen in any string.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Marks {
    pub(super) own_file: bool,
    pub(super) minted: bool,
}

/// The string being read.
#[derive(Debug, Default)]
pub(super) struct Text {
    mode: Mode,
    /// Unescaped bytes kept so far; reused from string to string.
    kept: Vec<u8>,
    too_long: bool,
    escape: Escape,
    /// First half of a surrogate pair, waiting for the second.
    high: Option<u16>,
    utf8: Utf8,
    pub(super) marks: Marks,
}

#[derive(Debug, Clone, Copy, Default)]
enum Escape {
    #[default]
    None,
    /// After the backslash.
    Begun,
    /// After `\u` and so many digits.
    Unicode { digits: u8, value: u16 },
}

impl Text {
    /// A string begins, its quote already read.
    pub(super) fn begin(&mut self, mode: Mode) {
        self.mode = mode;
        self.kept.clear();
        self.too_long = false;
        self.escape = Escape::None;
        self.high = None;
        self.utf8 = Utf8::default();
    }

    /// What becomes of the current string.
    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// The kept text, unescaped, and whether there was more of it. Valid UTF-8 unless cut.
    pub(super) fn kept(&self) -> (&[u8], bool) {
        (&self.kept, self.too_long)
    }

    /// Reads on; `true` when the closing quote has been read.
    pub(super) fn step(&mut self, rest: &mut &[u8]) -> Result<bool, Fault> {
        match self.escape {
            Escape::None => self.plain(rest),
            Escape::Begun => self.escaped(rest).map(|()| false),
            Escape::Unicode { digits, value } => self.unicode(rest, digits, value).map(|()| false),
        }
    }

    /// Unescaped bytes, up to the quote, a backslash or the end of the chunk.
    fn plain(&mut self, rest: &mut &[u8]) -> Result<bool, Fault> {
        if self.mode == Mode::Fresh {
            self.mode = match rest.first() {
                Some(b'\\') => Mode::Watched,
                Some(first) if BEGINNINGS.iter().any(|[known, _]| known == first) => Mode::Watched,
                _ => Mode::Skipped,
            };
        }
        if self.mode == Mode::Skipped {
            return Ok(self.skip(rest));
        }
        let (run, tail) = rest.split_at_checked(plain_len(rest)).unwrap_or((rest, &[]));
        if !run.is_empty() {
            self.lone_surrogate()?;
            self.keep(rest, run)?;
        }
        *rest = tail;
        let Some((&byte, after)) = tail.split_first() else { return Ok(false) };
        if !self.utf8.is_complete() {
            return Err(ScanErrorKind::InvalidUtf8.into());
        }
        if byte == b'"' {
            self.lone_surrogate()?;
            if matches!(self.mode, Mode::Kept(_)) {
                self.mark();
            }
        } else {
            self.escape = Escape::Begun;
        }
        *rest = after;
        Ok(byte == b'"')
    }

    /// The hot loop. Raw control characters and invalid UTF-8 pass: they change no boundary, and nothing here is read.
    fn skip(&mut self, rest: &mut &[u8]) -> bool {
        // Code has an escape every few dozen bytes: looking at each by itself would cost more than all else here.
        let (len, stop) = block::skip(rest);
        *rest = rest.get(len..).unwrap_or_default();
        match stop {
            Stop::End => return true,
            Stop::Escape => {
                self.escape = Escape::Begun;
                return false;
            }
            Stop::Short => {}
        }
        loop {
            *rest = rest.get(plain_len(rest)..).unwrap_or_default();
            match rest {
                [] => return false,
                [b'"', after @ ..] => {
                    *rest = after;
                    return true;
                }
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', after @ ..] => *rest = after,
                // `\u`, something invalid, or an escape cut in two.
                [_, after @ ..] => {
                    self.escape = Escape::Begun;
                    *rest = after;
                    return false;
                }
            }
        }
    }

    fn escaped(&mut self, rest: &mut &[u8]) -> Result<(), Fault> {
        let Some((&byte, after)) = rest.split_first() else { return Ok(()) };
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.escape = Escape::Unicode { digits: 0, value: 0 };
                *rest = after;
                return Ok(());
            }
            _ => return Err(ScanErrorKind::InvalidEscape.into()),
        };
        self.lone_surrogate()?;
        self.keep_char(char::from(plain));
        self.escape = Escape::None;
        *rest = after;
        Ok(())
    }

    fn unicode(&mut self, rest: &mut &[u8], digits: u8, value: u16) -> Result<(), Fault> {
        let Some((&byte, after)) = rest.split_first() else { return Ok(()) };
        let digit = hex(byte).ok_or(ScanErrorKind::InvalidEscape)?;
        let value = (value << 4) | u16::from(digit);
        if digits < 3 {
            self.escape = Escape::Unicode { digits: digits.saturating_add(1), value };
        } else {
            self.code_unit(value)?;
            self.escape = Escape::None;
        }
        *rest = after;
        Ok(())
    }

    /// One UTF-16 code unit from a `\u` escape.
    fn code_unit(&mut self, unit: u16) -> Result<(), Fault> {
        if matches!(self.mode, Mode::Skipped | Mode::SkippedKey) {
            return Ok(());
        }
        let decoded = match self.high {
            Some(high) => char::decode_utf16([high, unit]).next(),
            None if (0xd800..0xdc00).contains(&unit) => None,
            None => char::decode_utf16([unit]).next(),
        };
        match decoded {
            None => self.high = Some(unit),
            Some(Ok(character)) => {
                self.high = None;
                self.keep_char(character);
            }
            Some(Err(_)) => {
                self.high = Some(unit);
                return self.lone_surrogate();
            }
        }
        Ok(())
    }

    /// Something other than its second half follows half a surrogate pair, if there is one.
    fn lone_surrogate(&mut self) -> Result<(), Fault> {
        match (self.high.take(), self.mode) {
            (None, _) => Ok(()),
            (Some(_), Mode::Key | Mode::Kept(_)) => Err(ScanErrorKind::InvalidEscape.into()),
            (Some(_), _) => {
                self.mode = Mode::Skipped;
                Ok(())
            }
        }
    }

    fn keep_char(&mut self, character: char) {
        let mut buffer = [0; 4];
        let bytes = character.encode_utf8(&mut buffer).as_bytes();
        match self.mode {
            Mode::Skipped | Mode::SkippedKey => {}
            Mode::Watched | Mode::Fresh => self.watch(bytes),
            Mode::Key => self.hold(bytes, super::MAX_KEY),
            Mode::Kept(limit) => self.hold(bytes, limit),
        }
    }

    /// Raw bytes of the string: `run`, the beginning of `rest`. On an error `rest` is left at the byte at fault.
    fn keep(&mut self, rest: &mut &[u8], run: &[u8]) -> Result<(), Fault> {
        let limit = match self.mode {
            Mode::Skipped => return Ok(()),
            Mode::Watched | Mode::Fresh => {
                self.watch(run);
                return Ok(());
            }
            Mode::SkippedKey => 0,
            Mode::Key => super::MAX_KEY,
            Mode::Kept(limit) => limit,
        };
        if !(self.utf8.is_complete() && run.iter().all(|byte| (0x20..0x80).contains(byte))) {
            for &byte in run {
                if !self.utf8.push(byte) {
                    return Err(ScanErrorKind::InvalidUtf8.into());
                }
                if byte < 0x20 {
                    return Err(ScanErrorKind::ControlCharacter.into());
                }
                *rest = rest.get(1..).unwrap_or_default();
            }
        }
        self.hold(run, limit);
        Ok(())
    }

    fn hold(&mut self, bytes: &[u8], limit: usize) {
        let room = limit.saturating_sub(self.kept.len());
        self.too_long |= bytes.len() > room;
        self.kept.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    /// Bytes of a string that so far begins like an id of ours.
    fn watch(&mut self, bytes: &[u8]) {
        let prefixes = || OWN_FILES.iter().chain(&MINTED).map(|prefix| prefix.as_bytes());
        for &byte in bytes {
            self.kept.push(byte);
            if !prefixes().any(|prefix| prefix.starts_with(&self.kept)) {
                self.mode = Mode::Skipped;
                return;
            }
            if prefixes().any(|prefix| prefix == self.kept) {
                self.mark();
                self.mode = Mode::Skipped;
                return;
            }
        }
    }

    fn mark(&mut self) {
        self.marks.own_file |= OWN_FILES.iter().any(|prefix| self.kept.starts_with(prefix.as_bytes()));
        self.marks.minted |= MINTED.iter().any(|prefix| self.kept.starts_with(prefix.as_bytes()));
    }
}

/// A short string value that matters to nobody and ends in this chunk: what stands after it. `None`: read it step by
/// step.
pub(super) fn whole_value(rest: &[u8]) -> Option<&[u8]> {
    // Begins like an id of ours, or may.
    match rest {
        [b'\\', ..] | [_] | [] => return None,
        [first, second, ..] if BEGINNINGS.contains(&[*first, *second]) => return None,
        _ => {}
    }
    // A longer one is skipped block by block, and need not be looked through here first.
    let (near, _) = rest.split_at_checked(NEAR_WORDS.saturating_mul(8)).unwrap_or((rest, &[]));
    match rest.get(plain_len(near)..)? {
        [b'"', tail @ ..] => Some(tail),
        _ => None,
    }
}

/// A key of plain ASCII that ends in this chunk, and what stands after it. `None`: read it step by step.
pub(super) fn whole_key(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let plain = |byte: &u8| (0x20..0x80).contains(byte) && !matches!(byte, b'"' | b'\\');
    let (key, tail) = rest.split_at_checked(rest.iter().take(super::MAX_KEY).position(|byte| !plain(byte))?)?;
    match tail {
        [b'"', tail @ ..] => Some((key, tail)),
        _ => None,
    }
}

/// How ids of ours begin.
const BEGINNINGS: [[u8; 2]; 9] = [
    beginning(OWN_FILES[0]),
    beginning(OWN_FILES[1]),
    beginning(MINTED[0]),
    beginning(MINTED[1]),
    beginning(MINTED[2]),
    beginning(MINTED[3]),
    beginning(MINTED[4]),
    beginning(MINTED[5]),
    beginning(MINTED[6]),
];
const _: () = assert!(OWN_FILES.len() + MINTED.len() == BEGINNINGS.len());

const fn beginning(prefix: &str) -> [u8; 2] {
    assert!(prefix.len() >= 2, "a prefix has two letters at least");
    match prefix.as_bytes() {
        [first, second, ..] => [*first, *second],
        _ => [0; 2],
    }
}

/// Words looked at before memchr is called: most strings of a request are shorter.
const NEAR_WORDS: usize = 4;

/// Length of the run before the next quote or backslash.
fn plain_len(rest: &[u8]) -> usize {
    let mut far = rest;
    let mut near: usize = 0;
    for _ in 0..NEAR_WORDS {
        let Some((word, tail)) = far.split_first_chunk::<8>() else { break };
        let word = u64::from_le_bytes(*word);
        let special = zero_bytes(word ^ every(b'"')) | zero_bytes(word ^ every(b'\\'));
        if special != 0 {
            // The lowest mark is exact; those above it may be carries.
            return near.saturating_add(usize::try_from(special.trailing_zeros() >> 3).unwrap_or(0));
        }
        near = near.saturating_add(8);
        far = tail;
    }
    near.saturating_add(memchr::memchr2(b'"', b'\\', far).unwrap_or(far.len()))
}

/// Marks the bytes of a word that are zero, at their highest bit.
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(every(0x01)) & !word & every(0x80)
}

/// This byte eight times.
const fn every(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}
