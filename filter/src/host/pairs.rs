//! Header lists as the ABI carries them: a count, then the sizes of each name and value, then both, each with a NUL.
//!
//! INVARIANT: values are bytes; nothing here assumes UTF-8, because any client can send something else.

/// A header name and its value.
pub(crate) type Pair<'a> = (&'a [u8], &'a [u8]);

/// Reads a list; `None` if the bytes are not one.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Pair<'_>>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let (count, rest) = take_u32(bytes)?;
    // Every pair needs eight bytes of sizes, which bounds the count by what is really there.
    let (mut sizes, mut data) = rest.split_at_checked(count.checked_mul(8)?)?;
    let mut pairs = Vec::with_capacity(count);
    while !sizes.is_empty() {
        let (name_size, after_name) = take_u32(sizes)?;
        let (value_size, after_value) = take_u32(after_name)?;
        let (name, after) = take_text(data, name_size)?;
        let (value, after) = take_text(after, value_size)?;
        pairs.push((name, value));
        (sizes, data) = (after_value, after);
    }
    Some(pairs)
}

/// Writes a list.
pub(super) fn encode<N: AsRef<[u8]>, V: AsRef<[u8]>>(pairs: &[(N, V)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_size(&mut bytes, pairs.len());
    for (name, value) in pairs {
        put_size(&mut bytes, name.as_ref().len());
        put_size(&mut bytes, value.as_ref().len());
    }
    for (name, value) in pairs {
        for text in [name.as_ref(), value.as_ref()] {
            bytes.extend_from_slice(text);
            bytes.push(0);
        }
    }
    bytes
}

fn take_u32(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}

fn take_text(bytes: &[u8], size: usize) -> Option<(&[u8], &[u8])> {
    let (text, rest) = bytes.split_at_checked(size)?;
    Some((text, rest.get(1..)?))
}

fn put_size(bytes: &mut Vec<u8>, size: usize) {
    // Our own lists are a few short headers; a size that does not fit would be refused by the host as malformed.
    bytes.extend_from_slice(&u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes());
}
