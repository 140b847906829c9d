//! The JSON grammar as a machine over bytes; the schema is told only what it asked to hear.
//!
//! INVARIANT: every step consumes at least one byte, or changes to a state whose next step does.

use super::number::Number;
use super::schema::{Kind, Plan, Schema};
use super::text::{Mode, Text};
use super::{MAX_DEPTH, ScanErrorKind};
use crate::request::RequestView;

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
    /// Reads on in `rest`, which is not empty; on an error it is left at the byte at fault.
    pub(super) fn step(&mut self, rest: &mut &[u8]) -> Result<(), ScanErrorKind> {
        if matches!(self.state, State::Text) {
            if self.text.step(rest)? {
                self.text_ended()?;
            }
            return Ok(());
        }
        let Some((&byte, after)) = rest.split_first() else { return Ok(()) };
        match self.state {
            State::Number(mut number) => {
                if number.push(byte) {
                    self.state = State::Number(number);
                } else if number.is_complete() {
                    // The byte belongs to what follows the number.
                    self.number_ended(number);
                    return Ok(());
                } else {
                    return Err(ScanErrorKind::UnexpectedByte);
                }
            }
            State::Literal(left) => match left.split_first() {
                Some((&expected, left)) if expected == byte => {
                    self.state = if left.is_empty() { State::After } else { State::Literal(left) };
                }
                _ => return Err(ScanErrorKind::UnexpectedByte),
            },
            _ if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') => {}
            _ => self.token(byte)?,
        }
        *rest = after;
        Ok(())
    }

    /// The body is over.
    pub(super) fn finish(self) -> Result<RequestView, ScanErrorKind> {
        match self.state {
            State::End => Ok(self.schema.finish(self.text.marks)),
            State::Start => Err(ScanErrorKind::Empty),
            _ => Err(ScanErrorKind::UnexpectedEnd),
        }
    }

    /// The first byte of a token.
    fn token(&mut self, byte: u8) -> Result<(), ScanErrorKind> {
        match (self.state, byte) {
            (State::Start, 0xef) => Err(ScanErrorKind::ByteOrderMark),
            (State::Start | State::Value | State::FirstElement, b'{' | b'[') => self.open(byte == b'{'),
            (State::FirstElement, b']') => self.close(false),
            (State::FirstKey, b'}') => self.close(true),
            (State::Start | State::Value | State::FirstElement, _) => self.value(byte),
            (State::FirstKey | State::Key, b'"') => {
                self.begin_text(if self.reads() { Mode::Key } else { Mode::SkippedKey });
                Ok(())
            }
            (State::Colon, b':') => {
                self.state = State::Value;
                Ok(())
            }
            (State::After, b',') => {
                self.state = if self.in_object() { State::Key } else { State::Value };
                Ok(())
            }
            (State::After, b'}') => self.close(true),
            (State::After, b']') => self.close(false),
            (State::End, _) => Err(ScanErrorKind::TrailingData),
            _ => Err(ScanErrorKind::UnexpectedByte),
        }
    }

    /// A value that is no container.
    fn value(&mut self, byte: u8) -> Result<(), ScanErrorKind> {
        let (kind, state) = match byte {
            b'"' => (Kind::Text, State::Text),
            b't' => (Kind::True, State::Literal(b"rue")),
            b'f' => (Kind::False, State::Literal(b"alse")),
            b'n' => (Kind::Null, State::Literal(b"ull")),
            _ => match Number::begin(byte) {
                Some(number) => (Kind::Number, State::Number(number)),
                None => return Err(ScanErrorKind::UnexpectedByte),
            },
        };
        let plan = if self.reads() { self.schema.begin(kind)? } else { Plan::Skip };
        if kind == Kind::Text {
            self.begin_text(match plan {
                Plan::Keep(limit) => Mode::Kept(limit),
                Plan::Enter | Plan::Skip => Mode::Fresh,
            });
        } else {
            self.state = state;
        }
        Ok(())
    }

    fn open(&mut self, object: bool) -> Result<(), ScanErrorKind> {
        if self.depth >= MAX_DEPTH {
            return Err(ScanErrorKind::TooDeep);
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

    fn close(&mut self, object: bool) -> Result<(), ScanErrorKind> {
        if self.in_object() != object {
            return Err(ScanErrorKind::UnexpectedByte);
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

    fn text_ended(&mut self) -> Result<(), ScanErrorKind> {
        let (kept, too_long) = self.text.kept();
        match self.text.mode() {
            Mode::Key => {
                if too_long {
                    return Err(ScanErrorKind::KeyTooLong);
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

    fn number_ended(&mut self, number: Number) {
        if self.reads() {
            self.schema.number(number.value());
        }
        self.state = State::After;
    }

    /// Does the schema read where we are?
    fn reads(&self) -> bool {
        self.skipped_from == 0
    }

    fn in_object(&self) -> bool {
        self.objects & 1 == 1
    }
}
