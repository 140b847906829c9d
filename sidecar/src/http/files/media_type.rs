//! What kind of content a file has: as its uploader says, or else by its name.
//!
//! INVARIANT: what is kept is a valid header value of `type/subtype` with or without parameters.

use decision::problem::Problem;

/// Says nothing about the content; most clients send it when they do not know better.
pub(super) const UNKNOWN: &str = "application/octet-stream";
/// Longest type, in bytes (wire.md 2.2).
const MAX_BYTES: usize = 255;

/// The extension for files that come without a name. By the types that clients name; the tables of extensions hold
/// dozens for one type, in no useful order.
const EXTENSIONS: &[(&str, &str)] = &[
    ("application/json", ".json"),
    ("application/pdf", ".pdf"),
    ("application/vnd.openxmlformats-officedocument.presentationml.presentation", ".pptx"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".xlsx"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", ".docx"),
    ("application/xml", ".xml"),
    ("application/zip", ".zip"),
    ("image/gif", ".gif"),
    ("image/jpeg", ".jpg"),
    ("image/png", ".png"),
    ("image/svg+xml", ".svg"),
    ("image/webp", ".webp"),
    ("text/csv", ".csv"),
    ("text/html", ".html"),
    ("text/markdown", ".md"),
    ("text/plain", ".txt"),
    ("text/xml", ".xml"),
];

/// The type of a file: as `declared` by its part, unless that says nothing; then by the name's extension.
pub(super) fn of(declared: Option<&[u8]>, file_name: &str) -> Result<String, Problem> {
    let declared = declared.map(<[u8]>::trim_ascii).filter(|declared| !declared.is_empty());
    let Some(declared) = declared else { return Ok(by_name(file_name)) };
    let text = std::str::from_utf8(declared).ok().filter(|text| is_type(text)).ok_or_else(|| {
        let text = format!("the `Content-Type` of the part `file` must be `type/subtype` of at most {MAX_BYTES} bytes");
        Problem::invalid(text).with_param("file")
    })?;
    if essence(text).eq_ignore_ascii_case(UNKNOWN) { Ok(by_name(file_name)) } else { Ok(text.to_owned()) }
}

/// What to put behind a made-up name; nothing for types that do not say.
pub(super) fn extension(media_type: &str) -> &'static str {
    let essence = essence(media_type).to_ascii_lowercase();
    EXTENSIONS.iter().find(|(known, _)| *known == essence).map_or("", |(_, extension)| extension)
}

fn by_name(file_name: &str) -> String {
    mime_guess::from_path(file_name).first_raw().unwrap_or(UNKNOWN).to_owned()
}

/// The type without its parameters.
fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

fn is_type(text: &str) -> bool {
    let is_token = |word: &str| !word.is_empty() && word.bytes().all(is_token_letter);
    let visible = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let parts = essence(text).split_once('/');
    text.len() <= MAX_BYTES && visible && parts.is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype))
}

/// RFC 9110, section 5.6.2.
fn is_token_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declared_type_counts_unless_it_says_nothing() {
        for (declared, name, expected) in [
            (Some("text/csv"), "a.bin", "text/csv"),
            (Some(" text/plain; charset=utf-8 "), "a", "text/plain; charset=utf-8"),
            (Some("application/octet-stream"), "a.csv", "text/csv"),
            (Some("Application/Octet-Stream; x=y"), "A.PDF", "application/pdf"),
            (Some(""), "a.png", "image/png"),
            (None, "chart.svg", "image/svg+xml"),
            (None, "noextension", UNKNOWN),
            (None, "odd.qqqq", UNKNOWN),
            (Some("x-own/thing+json"), "a.csv", "x-own/thing+json"),
        ] {
            assert_eq!(of(declared.map(str::as_bytes), name).as_deref(), Ok(expected), "{declared:?} {name}");
        }
    }

    #[test]
    fn a_type_that_is_none_is_refused() {
        let long = format!("text/{}", "a".repeat(251));
        for declared in ["text", "/", "text/", "/plain", "te xt/plain", "text/plain\u{1}", "text/é", "a/b/c", &long] {
            let problem = of(Some(declared.as_bytes()), "a.txt").unwrap_err();
            assert_eq!(problem.param.as_deref(), Some("file"), "{declared}");
        }
        assert!(of(Some(&long.as_bytes()[..255]), "a.txt").is_ok());
        assert!(of(Some(b"text/\xff"), "a.txt").is_err());
    }

    #[test]
    fn a_made_up_name_gets_the_usual_extension() {
        for (media_type, expected) in
            [("text/plain; charset=utf-8", ".txt"), ("IMAGE/JPEG", ".jpg"), (UNKNOWN, ""), ("x/y", "")]
        {
            assert_eq!(extension(media_type), expected);
        }
    }
}
