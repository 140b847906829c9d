//! The grammar of a JSON number, a byte at a time.

/// A number being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    place: Place,
    /// Its value, while it is a plain integer that fits.
    value: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Number {
    /// A number that begins with this byte.
    pub(super) fn begin(byte: u8) -> Option<Self> {
        let place = match byte {
            b'-' => Place::Minus,
            b'0' => Place::Zero,
            b'1'..=b'9' => Place::Integer,
            _ => return None,
        };
        Some(Self { place, value: digit(byte) })
    }

    /// Takes the next byte; `false` if it is not part of the number.
    pub(super) fn push(&mut self, byte: u8) -> bool {
        let place = match (self.place, byte) {
            (Place::Minus, b'0') => Place::Zero,
            (Place::Minus, b'1'..=b'9') => Place::Integer,
            (Place::Integer, b'0'..=b'9') => {
                self.value = self.value.and_then(|value| value.checked_mul(10)?.checked_add(digit(byte)?));
                Place::Integer
            }
            (Place::Zero | Place::Integer, b'.') => Place::Point,
            (Place::Point | Place::Fraction, b'0'..=b'9') => Place::Fraction,
            (Place::Zero | Place::Integer | Place::Fraction, b'e' | b'E') => Place::Exponent,
            (Place::Exponent, b'+' | b'-') => Place::ExponentSign,
            (Place::Exponent | Place::ExponentSign | Place::ExponentDigits, b'0'..=b'9') => Place::ExponentDigits,
            _ => return false,
        };
        if !matches!(place, Place::Integer) {
            self.value = None;
        }
        self.place = place;
        true
    }

    /// May it end here?
    pub(super) fn is_complete(self) -> bool {
        matches!(self.place, Place::Zero | Place::Integer | Place::Fraction | Place::ExponentDigits)
    }

    /// The value, if it is a plain unsigned integer that fits.
    pub(super) fn value(self) -> Option<u32> {
        self.value
    }
}

fn digit(byte: u8) -> Option<u32> {
    byte.checked_sub(b'0').filter(|digit| *digit < 10).map(u32::from)
}
