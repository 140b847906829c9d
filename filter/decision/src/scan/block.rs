//! Sixty-four bytes of a string at once: quotes, backslashes and escapes as bits of a word, without a branch for each.
//!
//! INVARIANT: a block begins outside an escape; one that would end inside is cut before the backslash.

use lanes::Block;

/// Bytes of a block, and bits of a word.
const LEN: usize = 64;

/// What ended the part of a string that was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The closing quote, which is skipped too.
    End,
    /// An escape that is not one of the short ones; its backslash is skipped.
    Escape,
    /// There is no whole block left.
    Short,
}

/// How much of a string that begins outside an escape can be skipped block by block, and why no more.
pub(super) fn skip(bytes: &[u8]) -> (usize, Stop) {
    let mut rest = bytes;
    let stop = loop {
        let Some((block, tail)) = rest.split_first_chunk() else { break Stop::Short };
        let block = Block::load(block);
        if block.is_plain() {
            rest = tail;
            continue;
        }
        let (len, stop) = block.skip();
        rest = rest.get(len..).unwrap_or_default();
        if let Some(stop) = stop {
            break stop;
        }
    };
    (bytes.len().saturating_sub(rest.len()), stop)
}

impl Block {
    /// How much of it can be skipped, and why no more if that is for another reason than its end.
    #[inline]
    fn skip(&self) -> (usize, Option<Stop>) {
        let quotes = self.quotes();
        let backslashes = self.backslashes();
        if backslashes == 0 {
            return (index(quotes).saturating_add(1), Some(Stop::End));
        }
        let escaped = escaped(backslashes);
        let end = quotes & !escaped;
        let long = escaped & !(quotes | backslashes | self.escape_letters());
        // Bits below the first of `end`, all if there is none; the first of `end` alone.
        let before_end = !end & end.wrapping_sub(1);
        if long & before_end != 0 {
            return (index(long), Some(Stop::Escape));
        }
        if end != 0 {
            return (index(end).saturating_add(1), Some(Stop::End));
        }
        let cut = backslashes & !escaped & (1 << 63) != 0;
        (if cut { LEN.saturating_sub(1) } else { LEN }, None)
    }
}

/// The bytes that a backslash escapes: every second one of a run of backslashes, or what follows a run of odd length.
/// The sum carries a bit through each run that begins at an odd place, and so tells where such a run ends.
#[inline]
fn escaped(backslashes: u64) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let follows = backslashes << 1;
    let odd_starts = backslashes & !EVEN & !follows;
    let carried = odd_starts.wrapping_add(backslashes) << 1;
    (EVEN ^ carried) & follows
}

/// The place of the lowest bit.
fn index(bits: u64) -> usize {
    usize::try_from(bits.trailing_zeros()).unwrap_or(LEN)
}

/// A block in four vectors.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod lanes {
    use core::arch::wasm32::{
        u8x16, u8x16_all_true, u8x16_bitmask, u8x16_eq, u8x16_min, u8x16_splat, u8x16_swizzle, u64x2, v128, v128_and,
        v128_or, v128_xor,
    };

    pub(super) struct Block([v128; 4]);

    impl Block {
        #[inline]
        pub(super) fn load(bytes: &[u8; super::LEN]) -> Self {
            let (words, _) = bytes.as_chunks::<8>();
            let (pairs, _) = words.as_chunks::<2>();
            let mut vectors = [u8x16_splat(0); 4];
            for (vector, &[low, high]) in vectors.iter_mut().zip(pairs) {
                *vector = u64x2(u64::from_le_bytes(low), u64::from_le_bytes(high));
            }
            Self(vectors)
        }

        /// It has neither a quote nor a backslash.
        #[inline]
        pub(super) fn is_plain(&self) -> bool {
            // A lane is zero where one of the two stands. Comparisons would say the same, but the compiler widens their
            // results bit by bit before it asks whether there is one.
            let differing = |vector| {
                let quote = v128_xor(vector, u8x16_splat(b'"'));
                u8x16_min(quote, v128_xor(vector, u8x16_splat(b'\\')))
            };
            let [first, second, third, fourth] = self.0.map(differing);
            u8x16_all_true(u8x16_min(u8x16_min(first, second), u8x16_min(third, fourth)))
        }

        #[inline]
        pub(super) fn quotes(&self) -> u64 {
            bits(self.0.map(|vector| is(vector, b'"')))
        }

        #[inline]
        pub(super) fn backslashes(&self) -> u64 {
            bits(self.0.map(|vector| is(vector, b'\\')))
        }

        /// What stands after the backslash in a short escape, but for the quote and the backslash. All but `b` differ
        /// in their lower four bits: one look into a table by these tells the byte that it must be.
        #[inline]
        pub(super) fn escape_letters(&self) -> u64 {
            const LETTERS: v128 = u8x16(0xff, 0, b'r', 0, b't', 0, b'f', 0, 0, 0, 0, 0, 0, 0, b'n', b'/');
            bits(self.0.map(|vector| {
                let expected = u8x16_swizzle(LETTERS, v128_and(vector, u8x16_splat(0x0f)));
                v128_or(u8x16_eq(vector, expected), is(vector, b'b'))
            }))
        }
    }

    #[inline]
    fn is(vector: v128, byte: u8) -> v128 {
        u8x16_eq(vector, u8x16_splat(byte))
    }

    /// A bit for each byte that is set, the first byte lowest.
    #[inline]
    fn bits(vectors: [v128; 4]) -> u64 {
        let [first, second, third, fourth] = vectors.map(|vector| u64::from(u8x16_bitmask(vector)));
        first | (second << 16) | (third << 32) | (fourth << 48)
    }
}

/// The same, a byte at a time.
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
mod lanes {
    pub(super) struct Block([u8; super::LEN]);

    impl Block {
        pub(super) fn load(bytes: &[u8; super::LEN]) -> Self {
            Self(*bytes)
        }

        pub(super) fn is_plain(&self) -> bool {
            // Not `any`, which stops at the first: all of them at once is what the compiler makes vectors of.
            self.0.iter().fold(true, |plain, byte| plain & !matches!(byte, b'"' | b'\\'))
        }

        pub(super) fn quotes(&self) -> u64 {
            self.bits(|byte| byte == b'"')
        }

        pub(super) fn backslashes(&self) -> u64 {
            self.bits(|byte| byte == b'\\')
        }

        pub(super) fn escape_letters(&self) -> u64 {
            self.bits(|byte| matches!(byte, b'/' | b'b' | b'f' | b'n' | b'r' | b't'))
        }

        fn bits(&self, is: impl Fn(u8) -> bool) -> u64 {
            self.0.iter().rev().fold(0, |bits, byte| (bits << 1) | u64::from(is(*byte)))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LEN, Stop, skip};

    /// The same, byte by byte; `Short` at the end of all whole characters and escapes.
    fn slowly(bytes: &[u8]) -> (usize, Stop) {
        let mut at = 0;
        while at < bytes.len() {
            match (bytes[at], bytes.get(at + 1)) {
                (b'"', _) => return (at + 1, Stop::End),
                (b'\\', None) => return (at, Stop::Short),
                (b'\\', Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')) => at += 2,
                (b'\\', Some(_)) => return (at + 1, Stop::Escape),
                _ => at += 1,
            }
        }
        (at, Stop::Short)
    }

    fn agrees(bytes: &[u8]) -> Result<(), TestCaseError> {
        let (len, stop) = skip(bytes);
        if stop == Stop::Short {
            prop_assert!(bytes.len() - len < LEN);
            prop_assert_eq!(slowly(&bytes[..len]), (len, Stop::Short));
        } else {
            prop_assert_eq!((len, stop), slowly(bytes));
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn agrees_with_one_byte_at_a_time(
            bytes in proptest::collection::vec(
                prop_oneof![8 => Just(b'a'), 4 => Just(b'\\'), 1 => Just(b'"'), 2 => Just(b'n'), 1 => any::<u8>()],
                0..=2 * LEN,
            ),
            plain in 0..=2 * LEN,
        ) {
            let bytes = [vec![b' '; plain], bytes].concat();
            agrees(&bytes)?;
        }

        /// Long runs of the same bytes, which random ones hardly ever have.
        #[test]
        fn agrees_about_runs_of_backslashes(before in 0..=LEN, run in 0..=2 * LEN, after in 0_u8..=255) {
            let bytes = [vec![b' '; before], vec![b'\\'; run], vec![after; LEN]].concat();
            agrees(&bytes)?;
        }
    }
}
