//! `Content-Disposition`: read from the parts of an upload, written on a download.
//!
//! INVARIANT: what is written is one header of visible ASCII, whatever the file's name, and always says `attachment`.

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

use super::parameters::{ParameterError, Parameters};

/// What a part of a form says about itself.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) struct Disposition {
    /// Name of the form's field.
    pub(in crate::http) field: String,
    /// Name of the file, as the client says it; most clients leave it out for bytes without a name.
    pub(in crate::http) file_name: Option<String>,
}

/// Why a part's header is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum DispositionError {
    /// It is not there.
    #[error("it is missing")]
    Missing,
    /// Its parameters cannot be read.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// It is not `form-data`.
    #[error("it does not say `form-data`")]
    NotFormData,
    /// The part has no name.
    #[error("the part has no `name`")]
    NoName,
    /// A name is in another charset.
    #[error("a name is not UTF-8")]
    NotUtf8,
    /// `filename*` is not as RFC 8187 has it.
    #[error("`filename*` is not UTF-8''… with percent-escapes, as RFC 8187 has it")]
    Extended,
}

impl Disposition {
    /// Reads the header of a part. A plain `filename` is taken as it stands, percent signs included; `filename*`
    /// (RFC 8187) goes before it.
    pub(super) fn read(header: Option<&[u8]>) -> Result<Self, DispositionError> {
        let parameters = Parameters::read(header.ok_or(DispositionError::Missing)?)?;
        if !parameters.word.eq_ignore_ascii_case(b"form-data") {
            return Err(DispositionError::NotFormData);
        }
        let field = text(parameters.get("name").ok_or(DispositionError::NoName)?)?;
        let plain = parameters.get("filename").map(text).transpose()?;
        let extended = parameters.get("filename*").map(extended).transpose()?;
        Ok(Self { field, file_name: extended.or(plain) })
    }
}

fn text(value: &[u8]) -> Result<String, DispositionError> {
    String::from_utf8(value.to_vec()).map_err(|_| DispositionError::NotUtf8)
}

/// `UTF-8'en'na%C3%AFve.txt`.
fn extended(value: &[u8]) -> Result<String, DispositionError> {
    let mut pieces = value.splitn(3, |&byte| byte == b'\'');
    let (Some(charset), Some(_language), Some(encoded)) = (pieces.next(), pieces.next(), pieces.next()) else {
        return Err(DispositionError::Extended);
    };
    if !charset.eq_ignore_ascii_case(b"utf-8") || !encoded.is_ascii() {
        return Err(DispositionError::Extended);
    }
    let decoded = percent_decode(encoded).decode_utf8().map_err(|_| DispositionError::NotUtf8)?;
    Ok(decoded.into_owned())
}

/// What a value of RFC 8187 may hold unescaped, beside letters and digits.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// The header of a download: a name that every client can read, and the whole one (RFC 6266).
pub(in crate::http) fn attachment(file_name: &str) -> HeaderValue {
    let plain: String = file_name.chars().filter(|letter| !letter.is_control()).map(plain).collect();
    let plain = if plain.trim_matches(['_', '.', ' ']).is_empty() { "download" } else { plain.trim() };
    let whole = percent_encode(file_name.as_bytes(), ESCAPED);
    let header = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{whole}");
    HeaderValue::try_from(header).unwrap_or(HeaderValue::from_static("attachment"))
}

/// Some clients read an escape where a percent sign stands; quotes and backslashes end or escape the value.
fn plain(letter: char) -> char {
    match letter {
        '"' | '\\' | '%' | '/' => '_',
        letter if letter.is_ascii() => letter,
        _ => '_',
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(header: &str) -> Result<Disposition, DispositionError> {
        Disposition::read(Some(header.as_bytes()))
    }

    fn file_name(header: &str) -> Option<String> {
        read(header).unwrap().file_name
    }

    #[test]
    fn a_file_may_be_named_in_every_form_that_clients_use() {
        for (rest, expected) in [
            ("", None),
            ("; filename=\"a b é.csv\"", Some("a b é.csv")),
            ("; filename=a.csv", Some("a.csv")),
            ("; filename=\"\"", Some("")),
            ("; filename=\"测试.docx\"", Some("测试.docx")),
            ("; filename=\"100%25.txt\"", Some("100%25.txt")),
            (r#"; filename="C:\dir\a.txt""#, Some(r"C:\dir\a.txt")),
            (r#"; filename="a\"b.txt""#, Some("a\"b.txt")),
            ("; filename*=UTF-8''%e6%b5%8b%20x.docx", Some("测 x.docx")),
            ("; filename*=utf-8'en'a.txt; filename=\"b.txt\"", Some("a.txt")),
            ("; filename=\"b.txt\"; filename*=utf-8''a%27b.txt", Some("a'b.txt")),
        ] {
            let header = format!("form-data; name=\"file\"{rest}");
            let read = read(&header).unwrap();
            assert_eq!((read.field.as_str(), read.file_name.as_deref()), ("file", expected), "{header}");
        }
    }

    #[test]
    fn a_header_that_is_not_understood_is_refused_and_not_guessed_about() {
        assert_eq!(Disposition::read(None), Err(DispositionError::Missing));
        assert_eq!(Disposition::read(Some(b"form-data; name=\"\xff\"")), Err(DispositionError::NotUtf8));
        for (header, expected) in [
            ("", DispositionError::NotFormData),
            ("attachment; name=\"file\"", DispositionError::NotFormData),
            ("form-data; filename=\"a\"", DispositionError::NoName),
            ("form-data; name=\"a\"; filename*=a.txt", DispositionError::Extended),
            ("form-data; name=\"a\"; filename*=latin1''a.txt", DispositionError::Extended),
            ("form-data; name=\"a\"; filename*=utf-8''é", DispositionError::Extended),
            ("form-data; name=\"a\"; filename*=utf-8''%ff", DispositionError::NotUtf8),
            ("form-data; name=\"a\"; name=\"b\"", DispositionError::Parameters(ParameterError::Twice)),
        ] {
            assert_eq!(read(header), Err(expected), "{header}");
        }
    }

    #[test]
    fn a_download_is_named_for_old_clients_and_new_ones() {
        for (name, expected) in [
            ("a b.csv", "attachment; filename=\"a b.csv\"; filename*=UTF-8''a%20b.csv"),
            ("naïve.txt", "attachment; filename=\"na_ve.txt\"; filename*=UTF-8''na%C3%AFve.txt"),
            ("测试", "attachment; filename=\"download\"; filename*=UTF-8''%E6%B5%8B%E8%AF%95"),
            ("a\"b\\c;d%20.txt", "attachment; filename=\"a_b_c;d_20.txt\"; filename*=UTF-8''a%22b%5Cc%3Bd%2520.txt"),
            (
                "x\r\nset-cookie: a=b",
                "attachment; filename=\"xset-cookie: a=b\"; filename*=UTF-8''x%0D%0Aset-cookie%3A%20a%3Db",
            ),
            ("", "attachment; filename=\"download\"; filename*=UTF-8''"),
        ] {
            assert_eq!(attachment(name).to_str().unwrap(), expected);
        }
    }

    proptest! {
        #[test]
        fn what_a_download_is_named_is_what_the_upload_said(name in any::<String>()) {
            let header = attachment(&name);
            let header = header.to_str().unwrap();
            prop_assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            prop_assert!(header.starts_with("attachment; filename=\""));
            let as_part = header.replacen("attachment;", "form-data; name=\"file\";", 1);
            prop_assert_eq!(file_name(&as_part), Some(name));
        }

        #[test]
        fn no_header_makes_the_reader_stumble(header in proptest::collection::vec(any::<u8>(), 0..200)) {
            let plain = Disposition::read(Some(&header));
            let part = [b"form-data; name=f; ".as_slice(), &header].concat();
            let part = Disposition::read(Some(&part));
            prop_assert!(plain.is_err() || plain.is_ok());
            if let Ok(part) = part {
                prop_assert_eq!(part.field, "f");
            }
        }
    }
}
