//! How servers may read a path: every spelling that some of them would take for one of our endpoints.
//!
//! INVARIANT: a path with an oddity is no endpoint itself; at most somebody reads it as one.

use super::{Endpoint, PLACES, Place, hex};

/// Longest path, without its query, whose oddities are looked at, in bytes: each costs a few dozen readings.
pub(super) const MAX_ODD: usize = 4096;
/// Layers of percent-escapes taken off one by one; what is left then comes off at once.
const MAX_DECODINGS: usize = 4;

/// The endpoint that somebody could read in a path.
pub(super) fn read(path: &[u8], roots: &[String]) -> Endpoint {
    let path = path.split(|&byte| byte == b'?').next().unwrap_or_default();
    if is_plain(path) {
        return match find(path, roots) {
            None => Endpoint::Other,
            Some((place, true)) => place.endpoint,
            Some((place, false)) => Endpoint::Misspelled(Some(place)),
        };
    }
    if path.len() > MAX_ODD {
        return Endpoint::Misspelled(None);
    }
    // An escape may come to be where something was overlooked.
    let overlooked: [fn(u8) -> bool; 3] = [|_| false, is_line, is_void];
    let place = overlooked.into_iter().find_map(|overlooked| disguised(path, roots, overlooked));
    place.map_or(Endpoint::Other, |place| Endpoint::Misspelled(Some(place)))
}

/// The endpoint in a path with oddities, layer by layer of its escapes. `overlooked`: what goes with each layer.
fn disguised(path: &[u8], roots: &[String], overlooked: fn(u8) -> bool) -> Option<&'static Place> {
    let mut text = path.to_vec();
    // Once more for what is left when all escapes are off.
    for layer in 0..=MAX_DECODINGS.saturating_add(1) {
        if let Some(place) = How::all(&text).find_map(|how| how.read(&text, roots)) {
            return Some(place);
        }
        let mut decoded = if layer < MAX_DECODINGS { decode_once(&text) } else { decode_fully(&text) };
        decoded.retain(|&byte| !overlooked(byte));
        if decoded == text {
            break;
        }
        text = decoded;
    }
    None
}

/// One way to read a path.
#[derive(Debug, Clone, Copy)]
struct How {
    /// `?` and `#` end it, else they are letters.
    cut_at_query: bool,
    /// Line breaks and tabs end it, else they are overlooked.
    cut_at_line: bool,
    /// Blanks and other control characters end it, else they are overlooked.
    cut_at_blank: bool,
    params: Params,
    dots: Dots,
}

/// `;` and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Params {
    /// Belongs to the segment.
    Kept,
    /// Ends the segment.
    CutSegment,
    /// Ends the path.
    CutPath,
}

/// The segments `.` and `..`.
#[derive(Debug, Clone, Copy)]
enum Dots {
    /// Like any other segment.
    Kept,
    /// Resolved as they stand, empty segments counting; then slashes are merged.
    First,
    /// Resolved after slashes have been merged.
    Last,
}

impl How {
    /// All that differ for this text.
    fn all(text: &[u8]) -> impl Iterator<Item = Self> + use<> {
        let has = |wanted: fn(u8) -> bool| text.iter().any(|&byte| wanted(byte));
        let either = |asked: bool| if asked { &[false, true][..] } else { &[false] };
        let (queries, lines, blanks) = (either(has(is_query)), either(has(is_line)), either(has(is_blank)));
        let params = [Params::Kept, Params::CutSegment, Params::CutPath];
        let params = params.into_iter().take(if has(|byte| byte == b';') { 3 } else { 1 });
        let dots = [Dots::Last, Dots::First, Dots::Kept];
        let dots = dots.into_iter().take(if has(|byte| byte == b'.') { 3 } else { 1 });
        let cuts = queries.iter().flat_map(move |query| {
            lines.iter().flat_map(move |line| blanks.iter().map(move |blank| (*query, *line, *blank)))
        });
        cuts.flat_map(move |(cut_at_query, cut_at_line, cut_at_blank)| {
            let dots = dots.clone();
            params.clone().flat_map(move |params| {
                dots.clone().map(move |dots| Self { cut_at_query, cut_at_line, cut_at_blank, params, dots })
            })
        })
    }

    fn read(self, text: &[u8], roots: &[String]) -> Option<&'static Place> {
        let text = self.without_blanks(text);
        let mut segments: Vec<&[u8]> = Vec::new();
        // Above the path's own top may stand anything: a host, or the path of a provider's base URL.
        let mut top_unknown = !text.starts_with(b"/") || text.starts_with(b"//");
        for segment in text.strip_prefix(b"/").unwrap_or(&text).split(|&byte| byte == b'/') {
            let segment = match self.params {
                Params::CutSegment => segment.split(|&byte| byte == b';').next().unwrap_or_default(),
                Params::Kept | Params::CutPath => segment,
            };
            top_unknown |= segment == b"..";
            match (segment, self.dots) {
                (b"..", Dots::First | Dots::Last) => drop(segments.pop()),
                (b".", Dots::First | Dots::Last) | (b"", Dots::Kept | Dots::Last) => {}
                _ => segments.push(segment),
            }
        }
        segments.retain(|segment| !segment.is_empty());
        // As many as root and place have, and one more.
        let most = roots.iter().map(|root| root.split('/').count()).max().unwrap_or(0).saturating_add(3);
        let tops = if top_unknown { segments.len() } else { 1 };
        (0..tops).find_map(|top| {
            let path = segments.iter().skip(top).take(most).flat_map(|segment| [b"/", *segment].concat());
            find(&path.collect::<Vec<u8>>(), roots).map(|(place, _)| place)
        })
    }

    /// The text up to where it is cut, its backslashes turned, without what is overlooked.
    fn without_blanks(self, text: &[u8]) -> Vec<u8> {
        let ends = |byte| {
            self.cut_at_query && is_query(byte)
                || self.cut_at_line && is_line(byte)
                || self.cut_at_blank && is_blank(byte)
                || self.params == Params::CutPath && byte == b';'
        };
        let read = text.iter().copied().take_while(|&byte| !ends(byte));
        let kept = read.filter(|&byte| !is_void(byte));
        kept.map(|byte| if byte == b'\\' { b'/' } else { byte }).collect()
    }
}

fn is_query(byte: u8) -> bool {
    matches!(byte, b'?' | b'#')
}

fn is_line(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r')
}

/// May be overlooked.
fn is_void(byte: u8) -> bool {
    is_line(byte) || is_blank(byte)
}

/// Also the plus sign, which forms write for a blank.
fn is_blank(byte: u8) -> bool {
    byte == b'+' || !is_line(byte) && (byte <= b' ' || byte == 0x7f)
}

/// Every server reads it alike, but for the case of its letters.
fn is_plain(path: &[u8]) -> bool {
    let odd = |&byte: &u8| !byte.is_ascii_graphic() || matches!(byte, b'%' | b'\\' | b';' | b'#' | b'+');
    let Some(segments) = path.strip_prefix(b"/") else { return false };
    segments.is_empty()
        || !path.iter().any(odd) && segments.split(|&byte| byte == b'/').all(|one| !matches!(one, b"" | b"." | b".."))
}

/// The endpoint of a path without oddities, and whether its letters have the right case.
fn find(path: &[u8], roots: &[String]) -> Option<(&'static Place, bool)> {
    let mut found = None;
    for place in PLACES {
        let roots = if place.rooted { roots } else { &[String::new()] };
        for root in roots {
            let Some((head, tail)) =
                path.split_at_checked(root.len().saturating_add(1).saturating_add(place.path.len()))
            else {
                continue;
            };
            if !(tail.is_empty() || place.has_children() && tail.starts_with(b"/")) {
                continue;
            }
            let name = [root.as_bytes(), b"/", place.path.as_bytes()].concat();
            if head == name {
                return Some((place, true));
            }
            if head.eq_ignore_ascii_case(&name) {
                found = Some((place, false));
            }
        }
    }
    found
}

/// Takes one layer of percent-escapes off.
fn decode_once(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        let escape = rest.first_chunk().copied().and_then(escaped);
        out.push(escape.unwrap_or(byte));
        rest = escape.and_then(|_| rest.get(3..)).unwrap_or(tail);
    }
    out
}

/// Takes percent-escapes off until none is left, in one pass: one that comes to be is taken off at once.
pub(crate) fn decode_fully(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        out.push(byte);
        while let Some(byte) = out.last_chunk().copied().and_then(escaped) {
            out.truncate(out.len().saturating_sub(3));
            out.push(byte);
        }
    }
    out
}

fn escaped(text: [u8; 3]) -> Option<u8> {
    let [b'%', high, low] = text else { return None };
    Some((hex(high)? << 4) | hex(low)?)
}
