//! Sixty-four bytes of a string at once: quotes, backslashes and escapes as bits of a word, without a branch for each.
//!
//! INVARIANT: a block begins outside an escape; one that would end inside is cut before the backslash.

/// Bytes of a block, and bits of a word.
const LEN: usize = 64;

/// What ended the part of a block that was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The closing quote, which is skipped too.
    End,
    /// An escape that is not one of the short ones; its backslash is skipped.
    Escape,
    /// The block itself.
    Block,
    /// The block itself, and there was not even an escape in it.
    Nothing,
}

/// How much of a string that begins outside an escape can be skipped, and why no more.
pub(super) fn skip(block: &[u8; LEN]) -> (usize, Stop) {
    let quotes = positions(block, b"\"");
    let backslashes = positions(block, b"\\");
    if quotes | backslashes == 0 {
        return (LEN, Stop::Nothing);
    }
    let escaped = escaped(backslashes);
    let end = quotes & !escaped;
    let short = quotes | backslashes | positions(block, b"/bfnrt");
    let long = escaped & !short;
    // Bits below the first of `end`, all if there is none; the first of `end` alone.
    let before_end = !end & end.wrapping_sub(1);
    if long & before_end != 0 {
        return (index(long), Stop::Escape);
    }
    if end != 0 {
        return (index(end).saturating_add(1), Stop::End);
    }
    let cut = backslashes & !escaped & (1 << 63) != 0;
    (if cut { LEN.saturating_sub(1) } else { LEN }, Stop::Block)
}

/// The bytes that a backslash escapes: every second one of a run of backslashes, or what follows a run of odd length.
/// The sum carries a bit through each run that begins at an odd place, and so tells where such a run ends.
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

/// A bit for each byte that is one of these, the first byte lowest.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[inline(always)]
fn positions(block: &[u8; LEN], bytes: &[u8]) -> u64 {
    use core::arch::wasm32::{u8x16_bitmask, u8x16_eq, u8x16_splat, u64x2, v128_or};
    let (words, _) = block.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().rev().fold(0, |bits, &[low, high]| {
        let vector = u64x2(u64::from_le_bytes(low), u64::from_le_bytes(high));
        let hits = bytes.iter().fold(u8x16_splat(0), |hits, byte| v128_or(hits, u8x16_eq(vector, u8x16_splat(*byte))));
        (bits << 16) | u64::from(u8x16_bitmask(hits))
    })
}

#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
fn positions(block: &[u8; LEN], bytes: &[u8]) -> u64 {
    block.iter().rev().fold(0, |bits, byte| (bits << 1) | u64::from(bytes.contains(byte)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LEN, Stop, skip};

    /// The same, byte by byte.
    fn slowly(block: &[u8; LEN]) -> (usize, Stop) {
        let mut at = 0;
        while at < LEN {
            match (block[at], block.get(at + 1)) {
                (b'"', _) => return (at + 1, Stop::End),
                (b'\\', None) => return (at, Stop::Block),
                (b'\\', Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')) => at += 2,
                (b'\\', Some(_)) => return (at + 1, Stop::Escape),
                _ => at += 1,
            }
        }
        let plain = !block.iter().any(|byte| matches!(byte, b'"' | b'\\'));
        (LEN, if plain { Stop::Nothing } else { Stop::Block })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn agrees_with_one_byte_at_a_time(
            bytes in proptest::collection::vec(
                prop_oneof![8 => Just(b'a'), 4 => Just(b'\\'), 1 => Just(b'"'), 2 => Just(b'n'), 1 => any::<u8>()],
                LEN,
            ),
            plain_to in 0..=LEN,
        ) {
            let mut block = [b' '; LEN];
            block[plain_to..].copy_from_slice(&bytes[plain_to..]);
            prop_assert_eq!(skip(&block), slowly(&block));
        }
    }
}
