//! The JSON grammar as a machine over bytes; the schema is told only what it asked to hear.
//!
//! INVARIANT: every turn of the loop consumes a byte, or changes to a state whose next turn does.

use super::number::Number;
use super::schema::{Kind, Plan, Schema};
use super::text::{self, Mode, Text};
use super::{Fault, MAX_DEPTH, ScanErrorKind};
use crate::request::RequestView;

// A bit for each container.
const _: () = assert!(MAX_DEPTH <= u128::BITS);

/// The grammar's state. Small and of fixed size, whatever the body.
#[derive(Debug, Default)]
pub(super) struct Lexer {
    state: State,
    /// Containers open.
    depth: u32,
    /// A bit per open container, the innermost lowest: set for an object.
    objects: u128,
    /// Depth of the outermost container the schema does not read; 0 when it reads where we are.
    skipped_from: u32,
    text: Text,
    schema: Schema,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// Before the top-level value.
    #[default]
    Start,
    /// A value must come.
    Value,
    /// After `[`: a value or `]`.
    FirstElement,
    /// After `{`: a key or `}`.
    FirstKey,
    /// After `,` in an object.
    Key,
    /// After a key.
    Colon,
    /// Inside a string.
    Text,
    /// Inside a number.
    Number(Number),
    /// Inside `true`, `false` or `null`, with what is left of it.
    Literal(&'static [u8]),
    /// After a value.
    After,
    /// After the top-level value.
    End,
}

impl Lexer {
    /// Reads all of `rest`; on an error it is left at the byte at fault.
    pub(super) fn read(&mut self, rest: &mut &[u8]) -> Result<(), Fault> {
        while let Some((&byte, after)) = rest.split_first() {
            match self.state {
                State::Text => {
                    if self.text.step(rest)? {
                        self.text_ended()?;
                    }
                }
                State::Number(number) => self.number(number, rest)?,
                State::Literal(left) => match left.split_first() {
                    Some((&expected, left)) if expected == byte => {
                        self.state = if left.is_empty() { State::After } else { State::Literal(left) };
                        *rest = after;
                    }
                    _ => return Err(ScanErrorKind::UnexpectedByte.into()),
                },
                _ if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') => *rest = after,
                state => self.token(state, byte, after, rest)?,
            }
        }
        Ok(())
    }

    /// The body is over.
    pub(super) fn finish(self) -> Result<RequestView, Fault> {
        match self.state {
            State::End => Ok(self.schema.finish(self.text.marks)),
            State::Start => Err(ScanErrorKind::Empty.into()),
            _ => Err(ScanErrorKind::UnexpectedEnd.into()),
        }
    }

    /// The first byte of a token, and the whole token where that is cheap.
    fn token<'a>(&mut self, state: State, byte: u8, after: &'a [u8], rest: &mut &'a [u8]) -> Result<(), Fault> {
        match (state, byte) {
            (State::After, b',') => self.state = if self.in_object() { State::Key } else { State::Value },
            (State::Colon, b':') => self.state = State::Value,
            (State::FirstKey | State::Key, b'"') => return self.key(after, rest),
            (State::After | State::FirstKey, b'}') => self.close(true)?,
            (State::After | State::FirstElement, b']') => self.close(false)?,
            (State::Start | State::Value | State::FirstElement, b'{' | b'[') => self.open(byte == b'{')?,
            (State::Value | State::FirstElement | State::Start, b'"') => return self.string(after, rest),
            (State::Start, 0xef) => return Err(ScanErrorKind::ByteOrderMark.into()),
            (State::Value | State::FirstElement | State::Start, _) => {
                self.scalar(byte)?;
                *rest = after;
                return Ok(());
            }
            (State::End, _) => return Err(ScanErrorKind::TrailingData.into()),
            _ => return Err(ScanErrorKind::UnexpectedByte.into()),
        }
        // Punctuation, after which most writers put a blank.
        *rest = after.strip_prefix(b" ").unwrap_or(after);
        Ok(())
    }

    fn key<'a>(&mut self, after: &'a [u8], rest: &mut &'a [u8]) -> Result<(), Fault> {
        let reads = self.reads();
        let Some((key, tail)) = text::whole_key(after) else {
            *rest = after;
            self.begin_text(if reads { Mode::Key } else { Mode::SkippedKey });
            return Ok(());
        };
        // Before the schema is asked: the fault of a key shows when it has been read, however it was cut.
        *rest = tail;
        if reads {
            self.schema.key(key)?;
        }
        self.state = State::Colon;
        Ok(())
    }

    /// A string value.
    fn string<'a>(&mut self, after: &'a [u8], rest: &mut &'a [u8]) -> Result<(), Fault> {
        let plan = if self.reads() { self.schema.begin(Kind::Text)? } else { Plan::Skip };
        *rest = after;
        if let Plan::Keep(limit) = plan {
            self.begin_text(Mode::Kept(limit));
        } else if let Some(tail) = text::whole_value(after) {
            *rest = tail;
            self.state = State::After;
        } else {
            self.begin_text(Mode::Fresh);
        }
        Ok(())
    }

    /// A value that is neither container nor string.
    fn scalar(&mut self, byte: u8) -> Result<(), Fault> {
        let (kind, state) = match byte {
            b't' => (Kind::True, State::Literal(b"rue")),
            b'f' => (Kind::False, State::Literal(b"alse")),
            b'n' => (Kind::Null, State::Literal(b"ull")),
            _ => match Number::begin(byte) {
                Some(number) => (Kind::Number, State::Number(number)),
                None => return Err(ScanErrorKind::UnexpectedByte.into()),
            },
        };
        if self.reads() {
            self.schema.begin(kind)?;
        }
        self.state = state;
        Ok(())
    }

    /// The rest of a number; the byte after it is left where it is.
    fn number(&mut self, mut number: Number, rest: &mut &[u8]) -> Result<(), Fault> {
        while let Some((&byte, after)) = rest.split_first() {
            if number.push(byte) {
                *rest = after;
            } else if number.is_complete() {
                if self.reads() {
                    self.schema.number(number.value());
                }
                self.state = State::After;
                return Ok(());
            } else {
                return Err(ScanErrorKind::UnexpectedByte.into());
            }
        }
        self.state = State::Number(number);
        Ok(())
    }

    fn open(&mut self, object: bool) -> Result<(), Fault> {
        if self.depth >= MAX_DEPTH {
            return Err(ScanErrorKind::TooDeep.into());
        }
        let plan =
            if self.reads() { self.schema.begin(if object { Kind::Object } else { Kind::Array })? } else { Plan::Skip };
        self.depth = self.depth.saturating_add(1);
        self.objects = (self.objects << 1) | u128::from(object);
        if self.reads() && plan != Plan::Enter {
            self.skipped_from = self.depth;
        }
        self.state = if object { State::FirstKey } else { State::FirstElement };
        Ok(())
    }

    fn close(&mut self, object: bool) -> Result<(), Fault> {
        if self.in_object() != object {
            return Err(ScanErrorKind::UnexpectedByte.into());
        }
        if self.reads() {
            self.schema.close()?;
        } else if self.skipped_from == self.depth {
            self.skipped_from = 0;
        }
        self.depth = self.depth.saturating_sub(1);
        self.objects >>= 1;
        self.state = if self.depth == 0 { State::End } else { State::After };
        Ok(())
    }

    fn begin_text(&mut self, mode: Mode) {
        self.text.begin(mode);
        self.state = State::Text;
    }

    fn text_ended(&mut self) -> Result<(), Fault> {
        let (kept, too_long) = self.text.kept();
        match self.text.mode() {
            Mode::Key => {
                if too_long {
                    return Err(ScanErrorKind::KeyTooLong.into());
                }
                self.schema.key(kept)?;
                self.state = State::Colon;
            }
            Mode::SkippedKey => self.state = State::Colon,
            Mode::Kept(limit) => {
                self.schema.text(kept, too_long.then_some(limit))?;
                self.state = State::After;
            }
            Mode::Fresh | Mode::Watched | Mode::Skipped => self.state = State::After,
        }
        Ok(())
    }

    /// Does the schema read where we are?
    fn reads(&self) -> bool {
        self.skipped_from == 0
    }

    fn in_object(&self) -> bool {
        self.objects & 1 == 1
    }
}
