//! UTF-8, checked byte by byte.
//!
//! INVARIANT: three bytes of state, so that a text may be cut anywhere.

/// Validates UTF-8 across chunks (table 3-7 of the Unicode standard).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Utf8 {
    /// Continuation bytes still to come.
    needed: u8,
    /// Bounds of the next one, where the lead byte narrows them.
    bounds: Option<(u8, u8)>,
}

impl Utf8 {
    /// No character is cut here.
    pub(super) fn is_complete(self) -> bool {
        self.needed == 0
    }

    /// `false` if this byte cannot follow.
    pub(super) fn push(&mut self, byte: u8) -> bool {
        if self.needed > 0 {
            let (low, high) = self.bounds.take().unwrap_or((0x80, 0xbf));
            self.needed = self.needed.saturating_sub(1);
            return (low..=high).contains(&byte);
        }
        let (needed, bounds) = match byte {
            0x00..=0x7f => (0, None),
            0xc2..=0xdf => (1, None),
            0xe0 => (2, Some((0xa0, 0xbf))),
            0xe1..=0xec | 0xee..=0xef => (2, None),
            0xed => (2, Some((0x80, 0x9f))),
            0xf0 => (3, Some((0x90, 0xbf))),
            0xf1..=0xf3 => (3, None),
            0xf4 => (3, Some((0x80, 0x8f))),
            _ => return false,
        };
        self.needed = needed;
        self.bounds = bounds;
        true
    }
}
