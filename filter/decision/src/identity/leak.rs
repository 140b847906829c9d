//! Keys of ours in places where nobody takes them off.
//!
//! INVARIANT: what is let through holds no key of ours but where [`super::Carriers`] or the control headers end it.

use memchr::memmem;

use super::{KEY_PREFIX, carried};
use crate::exchange::RequestHead;
use crate::format::path::decode_fully;
use crate::header;
use crate::problem::Problem;
use crate::reason::Reason;

/// Hexadecimal digits after [`KEY_PREFIX`] that make a key: half of what one has, so that no opaque token has them
/// by chance.
const MIN_DIGITS: usize = 16;
/// A shorter credential counts only as a word of its own: it may stand in other words by chance.
const MIN_SUBSTRING: usize = 8;

/// Refuses a head in which the caller's credential, or any key this gateway minted, would travel on to a provider.
pub(crate) fn keep_keys_here(head: &RequestHead<'_>, credential: Option<&[u8]>) -> Result<(), (Reason, Problem)> {
    for (name, value) in head.headers {
        let in_name = holds_key(name, credential);
        let ends_here = || {
            *name == header::KEY.as_bytes()
                || carried(name, value).is_some_and(|key| Some(key) == credential || is_minted(key))
        };
        if !in_name && (!holds_key(value, credential) || ends_here()) {
            continue;
        }
        let place = match *name {
            b":path" => "the path or query string holds".to_owned(),
            _ if in_name => "the name of a header holds".to_owned(),
            _ => format!("the header `{}` holds", String::from_utf8_lossy(name)),
        };
        let message = format!(
            "{place} a key of this gateway, which would travel on to the provider: send the key in one header only, \
             `{}`, `authorization: Bearer …` or `x-api-key`",
            header::KEY,
        );
        return Err((Reason::KeyMisplaced, Problem::invalid(message)));
    }
    Ok(())
}

/// A key begins so that this gateway made.
pub(super) fn is_minted(key: &[u8]) -> bool {
    let digits = key.strip_prefix(KEY_PREFIX.as_bytes()).and_then(|digits| digits.get(..MIN_DIGITS));
    digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// As it stands, percent-encoded, or in the base64 of basic authentication.
fn holds_key(text: &[u8], credential: Option<&[u8]>) -> bool {
    let plain = |text: &[u8]| holds_minted(text) || credential.is_some_and(|key| holds(text, key));
    plain(text)
        || text.contains(&b'%') && plain(&decode_fully(text))
        || basic(text).is_some_and(|decoded| plain(&decoded))
}

/// Looks for the prefix by its last letter, which is rare in headers; a search for the whole would spend longer on its
/// preparation than all headers of a request are worth.
fn holds_minted(text: &[u8]) -> bool {
    const LEAD: usize = KEY_PREFIX.len() - 1;
    const LAST: u8 = match KEY_PREFIX.as_bytes() {
        [.., last] => *last,
        [] => 0,
    };
    text.len() >= KEY_PREFIX.len().saturating_add(MIN_DIGITS)
        && memchr::memchr_iter(LAST, text).any(|at| {
            let key = at.checked_sub(LEAD).and_then(|start| text.get(start..));
            key.is_some_and(is_minted)
        })
}

fn holds(text: &[u8], key: &[u8]) -> bool {
    if text.len() < key.len() {
        return false;
    }
    if key.len() >= MIN_SUBSTRING {
        return memmem::find(text, key).is_some();
    }
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    memmem::find_iter(text, key).any(|at| {
        let before = at.checked_sub(1).and_then(|at| text.get(at));
        let after = text.get(at.saturating_add(key.len()));
        !before.is_some_and(is_letter) && !after.is_some_and(is_letter)
    })
}

/// What stands in `Basic <base64>`, either alphabet; up to the first letter that is none.
fn basic(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, text) = value.trim_ascii().split_at_checked(b"basic".len())?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let (mut decoded, mut held, mut bits) = (Vec::new(), 0_u32, 0_u32);
    for &letter in text.trim_ascii() {
        let value = match letter {
            b'A'..=b'Z' => letter.wrapping_sub(b'A'),
            b'a'..=b'z' => letter.wrapping_sub(b'a').wrapping_add(26),
            b'0'..=b'9' => letter.wrapping_sub(b'0').wrapping_add(52),
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => break,
        };
        held = (held << 6) | u32::from(value);
        bits = bits.wrapping_add(6);
        if let Some(left) = bits.checked_sub(8) {
            bits = left;
            decoded.push(u8::try_from((held >> bits) & 0xff).unwrap_or(0));
            held &= !(u32::MAX << bits);
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINTED: &str = "otk_0123456789abcdef0123456789abcdef";

    fn refused(name: &str, value: &str, credential: &str) -> Option<String> {
        let headers = [(name.as_bytes(), value.as_bytes())];
        let kept = keep_keys_here(&RequestHead { headers: &headers }, Some(credential.as_bytes()));
        kept.err().map(|(reason, problem)| {
            assert_eq!(reason, Reason::KeyMisplaced);
            assert!(!problem.message.contains(credential), "{}", problem.message);
            problem.message
        })
    }

    #[test]
    fn a_key_is_found_wherever_it_would_travel_on() {
        for key in ["sk-house-1", MINTED] {
            for (name, value) in [
                ("authorization", key.to_owned()),
                ("authorization", format!("Token {key}")),
                ("authorization", format!("Bearer\t{key}")),
                ("authorization", format!("Bearer Bearer {key}")),
                ("x-api-key", format!("Bearer {key}")),
                ("api-key", key.to_owned()),
                ("cookie", format!("a=b; k={key}")),
                ("referer", format!("https://x/?key={key}")),
                (":path", format!("/v1/messages?key={key}&x")),
                (":path", format!("/v1/{key}/x")),
                (":path", format!("/v1/messages?key={}", key.replace('k', "%256b"))),
            ] {
                assert!(refused(name, &value, key).is_some(), "{name}: {value}");
            }
            // `Basic` of ":KEY" by a known encoder: see the next test for the decoder itself.
            assert!(refused("authorization", &format!("bearer {key}"), key).is_none());
            assert!(refused("x-api-key", key, key).is_none());
            assert!(refused("otari-key", &format!("Bearer {key}"), key).is_none());
        }
        assert!(refused("x-other", MINTED, "sk-house-1").is_some(), "another key of ours");
        assert!(refused("authorization", &format!("Bearer {MINTED}"), "sk-house-1").is_none(), "is taken off");
        assert!(refused(MINTED, "1", "sk-house-1").is_some());
        assert!(refused("authorization", "Basic OnNrLWhvdXNlLTE=", "sk-house-1").is_some());
    }

    #[test]
    fn what_only_looks_alike_passes() {
        for value in ["otk_", "otk_zz", "otk_0123456789abcde", "b3RrXw.otk_is-no-key", "sk-hous", "sk-house-2"] {
            assert_eq!(refused("x-other", value, "sk-house-1"), None, "{value}");
        }
        assert_eq!(
            refused("accept", "application/json", "json"),
            Some(refused("x", "json", "json").unwrap().replace("`x`", "`accept`")),
            "a short key is found as a word"
        );
        assert_eq!(refused("accept", "application/jsonl", "json"), None);
    }

    #[test]
    fn basic_credentials_are_decoded() {
        assert_eq!(basic(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==").unwrap(), b"Aladdin:open sesame");
        assert_eq!(basic(b"basic  _-8").unwrap(), b"\xff\xef");
        assert_eq!(basic(b"Basic").unwrap(), b"");
        assert_eq!(basic(b"Bearer x"), None);
    }
}
