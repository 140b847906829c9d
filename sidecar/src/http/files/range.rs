//! Which part of a file a download asks for: `Range`, `If-Range`, `If-None-Match` (RFC 9110, sections 13 and 14).
//!
//! INVARIANT: what is not understood is answered with the whole file, never with another part than was asked for.

use std::ops::Range;

use http::HeaderMap;
use http::header::{IF_NONE_MATCH, IF_RANGE, RANGE};

/// What to answer with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// 200: all of it.
    Whole,
    /// 206: these bytes.
    Part(Range<u64>),
    /// 304: the client has it.
    Known,
    /// 416: no byte that is there.
    Unsatisfiable,
}

/// Reads the headers of a download of a file of this size and tag.
pub(super) fn wanted(headers: &HeaderMap, etag: &str, size_bytes: u64) -> Wanted {
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    if known.flat_map(|list| list.split(',')).any(|tag| names(tag, etag)) {
        return Wanted::Known;
    }
    let mut ranges = headers.get_all(RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return Wanted::Whole };
    // A date never matches: we send none. Nor does a weak tag.
    if headers.get(IF_RANGE).is_some_and(|condition| condition.as_bytes() != etag.as_bytes()) {
        return Wanted::Whole;
    }
    match range.to_str().ok().and_then(|range| part(range, size_bytes)) {
        None => Wanted::Whole,
        Some(part) if part.is_empty() => Wanted::Unsatisfiable,
        Some(part) => Wanted::Part(part),
    }
}

/// Whether a tag of `If-None-Match` is this one; weakness does not matter there, and `*` is any.
fn names(tag: &str, etag: &str) -> bool {
    let tag = tag.trim();
    tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag
}

/// `bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-COUNT`, cut to the file; empty if none of it is there. `None` for
/// anything else, several ranges among it.
fn part(range: &str, size_bytes: u64) -> Option<Range<u64>> {
    let (unit, set) = range.split_once('=')?;
    let (first, last) = set.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    match (first.trim(), last.trim()) {
        ("", count) => Some(size_bytes.saturating_sub(number(count)?)..size_bytes),
        (first, "") => Some(number(first)?..size_bytes),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| first..last.saturating_add(1).min(size_bytes))
        }
    }
}

/// Larger numbers than there are count as the largest.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::HeaderName;

    use super::*;

    const TAG: &str = "\"abc\"";

    fn of(pairs: &[(HeaderName, &str)], size_bytes: u64) -> Wanted {
        let headers = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| {
            map.append(name, value);
        });
        wanted(&map, TAG, size_bytes)
    }

    fn ranged(range: &str) -> Wanted {
        of(&[(RANGE, range)], 10)
    }

    #[test]
    fn one_range_of_bytes_is_given_and_cut_to_the_file() {
        for (range, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-9", 0..10),
            ("bytes=2-", 2..10),
            ("Bytes = 2 - 5", 2..6),
            ("bytes=9-99999999999999999999999", 9..10),
            ("bytes=-3", 7..10),
            ("bytes=-99", 0..10),
        ] {
            assert_eq!(ranged(range), Wanted::Part(expected), "{range}");
        }
    }

    #[test]
    fn a_range_without_a_byte_of_the_file_is_said_to_be_so() {
        for range in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99999999999999999999-"] {
            assert_eq!(ranged(range), Wanted::Unsatisfiable, "{range}");
        }
        assert_eq!(of(&[(RANGE, "bytes=0-")], 0), Wanted::Unsatisfiable);
    }

    #[test]
    fn what_is_no_single_range_is_answered_with_the_whole() {
        for range in
            ["", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-2", "bytes=0-1,3-4", "lines=0-1", "bytes=+1-2"]
        {
            assert_eq!(ranged(range), Wanted::Whole, "{range}");
        }
        assert_eq!(of(&[(RANGE, "bytes=0-1"), (RANGE, "bytes=2-3")], 10), Wanted::Whole);
        assert_eq!(of(&[], 10), Wanted::Whole);
    }

    #[test]
    fn a_condition_on_another_version_gets_the_whole_of_this_one() {
        for (condition, expected) in [
            (TAG, Wanted::Part(0..2)),
            ("\"abd\"", Wanted::Whole),
            ("W/\"abc\"", Wanted::Whole),
            ("Sun, 30 Nov 2025 08:00:00 GMT", Wanted::Whole),
        ] {
            assert_eq!(of(&[(RANGE, "bytes=0-1"), (IF_RANGE, condition)], 10), expected, "{condition}");
        }
    }

    #[test]
    fn what_the_client_has_is_not_sent_again() {
        for known in [TAG, "W/\"abc\"", "*", "\"x\", \"abc\"", " \"abc\" "] {
            assert_eq!(of(&[(IF_NONE_MATCH, known), (RANGE, "bytes=0-1")], 10), Wanted::Known, "{known}");
        }
        for other in ["\"x\"", "abc", "\"ABC\"", ""] {
            assert_eq!(of(&[(IF_NONE_MATCH, other)], 10), Wanted::Whole, "{other}");
        }
        assert_eq!(of(&[(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, TAG)], 10), Wanted::Known);
    }
}
