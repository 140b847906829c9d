//! `word; name=value; name="value"`: a header with parameters, read as the bytes it is.
//!
//! INVARIANT: a parameter stands once, or the header is not read at all: two readers may not see two values.

/// Parameters of one header; those we read have three at most.
const MAX_PARAMETERS: usize = 16;

/// A header such as `form-data; name="file"`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameters<'a> {
    /// What stands before the first semicolon, trimmed.
    pub(super) word: &'a [u8],
    /// Names in lower case, values without quotes and escapes.
    pairs: Vec<(String, Vec<u8>)>,
}

/// Why a header is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParameterError {
    /// Something that is no `name=value`.
    #[error("a parameter is not of the form name=value")]
    Malformed,
    /// A quote opens and does not close.
    #[error("a quoted value does not end")]
    Unterminated,
    /// More than anybody needs.
    #[error("it has more than {MAX_PARAMETERS} parameters")]
    TooMany,
    /// A name comes again.
    #[error("a parameter comes twice")]
    Twice,
}

impl<'a> Parameters<'a> {
    /// Reads a header's value.
    pub(super) fn read(value: &'a [u8]) -> Result<Self, ParameterError> {
        let (word, mut rest) = split(value, b';');
        let mut pairs: Vec<(String, Vec<u8>)> = Vec::new();
        while let Some(text) = rest {
            let text = text.trim_ascii_start();
            if text.is_empty() {
                break;
            }
            if let Some(after) = text.strip_prefix(b";") {
                rest = Some(after);
                continue;
            }
            let (name, Some(value)) = split(text, b'=') else { return Err(ParameterError::Malformed) };
            let name = String::from_utf8(name.to_ascii_lowercase()).map_err(|_| ParameterError::Malformed)?;
            if name.is_empty() || name.contains([';', '"']) {
                return Err(ParameterError::Malformed);
            }
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(ParameterError::Twice);
            }
            let value = value.trim_ascii_start();
            let (value, after) = if let Some(quoted) = value.strip_prefix(b"\"") {
                unquote(quoted)?
            } else {
                let (value, after) = split(value, b';');
                (value.to_vec(), after)
            };
            pairs.push((name, value));
            if pairs.len() > MAX_PARAMETERS {
                return Err(ParameterError::TooMany);
            }
            rest = after;
        }
        Ok(Self { word, pairs })
    }

    /// The value of a parameter; its name in lower case.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }
}

/// What stands before and after the first such byte; before it, trimmed.
fn split(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(at, text) {
        Some(found) => (text[..found].trim_ascii(), Some(&text[found + 1..])),
        None => (text.trim_ascii(), None),
    }
}

/// The value up to the closing quote, and what stands after the semicolon behind it. A backslash escapes a quote and
/// itself, and is a letter before anything else: Windows paths come so.
fn unquote(text: &[u8]) -> Result<(Vec<u8>, Option<&[u8]>), ParameterError> {
    let mut value = Vec::new();
    let mut rest = text;
    loop {
        match rest {
            [] => return Err(ParameterError::Unterminated),
            [b'"', after @ ..] => {
                let after = after.trim_ascii_start();
                return match after {
                    [] => Ok((value, None)),
                    [b';', after @ ..] => Ok((value, Some(after))),
                    _ => Err(ParameterError::Malformed),
                };
            }
            [b'\\', escaped @ (b'"' | b'\\'), after @ ..] => {
                value.push(*escaped);
                rest = after;
            }
            [letter, after @ ..] => {
                value.push(*letter);
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(header: &str, name: &str) -> Option<String> {
        let parameters = Parameters::read(header.as_bytes()).unwrap();
        parameters.get(name).map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn values_come_bare_or_quoted_with_blanks_wherever_clients_put_them() {
        for header in [
            r#"form-data; name="file"; filename="a b.csv""#,
            r#"form-data;name="file";filename="a b.csv";"#,
            r#"form-data ; filename = "a b.csv" ; NAME = file"#,
            r#"form-data;; ; name=file; filename="a b.csv""#,
        ] {
            assert_eq!(Parameters::read(header.as_bytes()).unwrap().word, b"form-data");
            assert_eq!(get(header, "name").as_deref(), Some("file"), "{header}");
            assert_eq!(get(header, "filename").as_deref(), Some("a b.csv"), "{header}");
        }
        assert_eq!(get("form-data; name=a=b c", "name").as_deref(), Some("a=b c"));
        assert_eq!(get("form-data; name=", "name").as_deref(), Some(""));
        assert_eq!(get("form-data", "name"), None);
        assert_eq!(get("", "name"), None);
    }

    #[test]
    fn a_backslash_escapes_quotes_and_itself_and_nothing_else() {
        assert_eq!(get(r#"f; name="a\"b\\c""#, "name").as_deref(), Some(r#"a"b\c"#));
        assert_eq!(get(r#"f; name="C:\dir\a.txt""#, "name").as_deref(), Some(r"C:\dir\a.txt"));
        assert_eq!(get(r#"f; name="x; name=y""#, "name").as_deref(), Some("x; name=y"));
        assert_eq!(get("f; name=\"é\u{301}\"", "name").as_deref(), Some("é\u{301}"));
        let raw = Parameters::read(b"f; name=\"\xff\"").unwrap();
        assert_eq!(raw.get("name"), Some(&b"\xff"[..]));
    }

    #[test]
    fn what_two_readers_could_read_in_two_ways_is_not_read() {
        for (header, expected) in [
            ("f; name", ParameterError::Malformed),
            ("f; =x", ParameterError::Malformed),
            ("f; a\"b=x", ParameterError::Malformed),
            ("f; a; b=x", ParameterError::Malformed),
            (r#"f; name="a" b"#, ParameterError::Malformed),
            (r#"f; name="a"#, ParameterError::Unterminated),
            (r#"f; name="a\""#, ParameterError::Unterminated),
            (r#"f; name="a"; Name="b""#, ParameterError::Twice),
            ("f;a=;b=;c=;d=;e=;f=;g=;h=;i=;j=;k=;l=;m=;n=;o=;p=;q=", ParameterError::TooMany),
        ] {
            assert_eq!(Parameters::read(header.as_bytes()), Err(expected), "{header}");
        }
    }
}
