//! A text with places of it replaced, put together from the front.
//!
//! INVARIANT: every byte outside the replaced places stays.

use std::ops::Range;

/// The text in the making.
#[derive(Debug)]
pub struct Splice<'a> {
    whole: &'a [u8],
    /// How much of `whole` was copied or replaced.
    done: usize,
    out: Vec<u8>,
}

impl<'a> Splice<'a> {
    /// Begins. `more`: bytes that will be added, as far as they are known.
    pub fn new(whole: &'a [u8], more: usize) -> Self {
        Self { whole, done: 0, out: Vec::with_capacity(whole.len().saturating_add(more)) }
    }

    /// Where to write what stands in this place from now on. Places come in their order and do not overlap; an empty one
    /// inserts.
    pub fn replace(&mut self, place: &Range<usize>) -> &mut Vec<u8> {
        self.out.extend_from_slice(self.whole.get(self.done..place.start).unwrap_or_default());
        self.done = self.done.max(place.end);
        &mut self.out
    }

    /// Bytes of the whole text as far as they are known now.
    pub fn len_so_far(&self) -> usize {
        self.out.len().saturating_add(self.whole.len().saturating_sub(self.done))
    }

    /// The whole text.
    pub fn finish(mut self) -> Vec<u8> {
        self.out.extend_from_slice(self.whole.get(self.done..).unwrap_or_default());
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_replaced_and_all_else_stays() {
        let mut splice = Splice::new(b"one two three", 8);
        splice.replace(&(0..0)).extend_from_slice(b"zero ");
        splice.replace(&(4..7)).extend_from_slice(b"TWO");
        assert_eq!(splice.len_so_far(), 18);
        splice.replace(&(7..13));
        splice.replace(&(13..13)).extend_from_slice(b"!");
        assert_eq!(splice.finish(), b"zero one TWO!");
        assert_eq!(Splice::new(b"same", 0).finish(), b"same");
    }
}
