//! What a file is, by its first bytes; clients say too little: most send `application/octet-stream`.

use crate::extract::Document;
use crate::files::FileRecord;

/// Bytes from which it is told.
pub(super) const HEAD_BYTES: usize = 512;

/// What a file is, as far as models are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A picture of this media type, one that models take.
    Image(&'static str),
    /// A document that must be read to be text.
    Document(Document),
    /// Text, of whatever language.
    Text,
    /// Anything else.
    Other,
}

impl Kind {
    /// Reads the kind from a file's first bytes, all of them if there are fewer than [`HEAD_BYTES`].
    pub(super) fn of(file: &FileRecord, head: &[u8]) -> Self {
        let starts = |magic: &[u8]| head.starts_with(magic);
        if starts(b"\x89PNG\r\n\x1a\n") {
            return Self::Image("image/png");
        }
        if starts(b"\xff\xd8\xff") {
            return Self::Image("image/jpeg");
        }
        if starts(b"GIF87a") || starts(b"GIF89a") {
            return Self::Image("image/gif");
        }
        if starts(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
            return Self::Image("image/webp");
        }
        if starts(b"%PDF-") {
            return Self::Document(Document::Pdf);
        }
        // Which archive it is stands at its end.
        if starts(b"PK\x03\x04") {
            return Self::Document(Document::Office);
        }
        match (is_text(head), is_page(file)) {
            (true, true) => Self::Document(Document::Html),
            (true, false) => Self::Text,
            (false, _) => Self::Other,
        }
    }
}

fn is_page(file: &FileRecord) -> bool {
    let kind = file.mime_type.split(';').next().unwrap_or_default().trim();
    let extension = file.filename.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(kind, "text/html" | "application/xhtml+xml")
        || matches!(kind, "application/octet-stream" | "")
            && matches!(extension.as_deref(), Some("html" | "htm" | "xhtml"))
}

/// UTF-16 with its mark, or bytes without control characters that are UTF-8 or some older encoding of text.
fn is_text(head: &[u8]) -> bool {
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return true;
    }
    let is_control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b) || *byte == 0x7f;
    !head.iter().any(is_control)
}

/// The text of a file that is text.
pub(super) fn decode(bytes: &[u8]) -> String {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        char::decode_utf16(units).map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8_or_older(rest),
        _ => utf8_or_older(bytes),
    }
}

/// UTF-8, and what is none as windows-1252 has it: what most text is that says nothing and is not UTF-8.
fn utf8_or_older(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| windows_1252(*byte)));
    }
    text
}

fn windows_1252(byte: u8) -> char {
    /// 0x80 to 0x9f; the others are as in Latin-1. Five mean nothing.
    const FROM_0X80: [char; 32] = [
        '€', '\u{fffd}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{fffd}', 'Ž', '\u{fffd}',
        '\u{fffd}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{fffd}', 'ž', 'Ÿ',
    ];
    let at = usize::from(byte).checked_sub(0x80);
    at.and_then(|at| FROM_0X80.get(at)).copied().unwrap_or(char::from(byte))
}

#[cfg(test)]
mod tests {
    use decision::identity::Identity;

    use super::*;
    use crate::files::Purpose;

    fn kind(filename: &str, mime_type: &str, head: &[u8]) -> Kind {
        let owner = Identity { user: "u".to_owned(), workspace: "w".to_owned() };
        let file = FileRecord {
            id: String::new(),
            owner,
            filename: filename.to_owned(),
            mime_type: mime_type.to_owned(),
            purpose: Purpose::UserData,
            size_bytes: 0,
            sha256: String::new(),
            created_at_ms: 0,
            expires_at_ms: None,
        };
        Kind::of(&file, head)
    }

    #[test]
    fn the_first_bytes_tell_more_than_name_and_type() {
        let unknown = "application/octet-stream";
        for (name, mime_type, head, expected) in [
            ("a.bin", unknown, &b"\x89PNG\r\n\x1a\n..."[..], Kind::Image("image/png")),
            ("a.png", "image/png", b"\xff\xd8\xff\xe0", Kind::Image("image/jpeg")),
            ("a.png", "image/png", b"RIFF....WEBPVP8", Kind::Image("image/webp")),
            ("a.png", "image/png", b"\0\0\0", Kind::Other),
            ("a", unknown, b"%PDF-1.7\n\xff", Kind::Document(Document::Pdf)),
            ("a.docx", unknown, b"PK\x03\x04", Kind::Document(Document::Office)),
            ("a.htm", unknown, b"<p>", Kind::Document(Document::Html)),
            ("a.html", "text/plain", b"<p>", Kind::Text),
            ("a", "text/html; charset=utf-8", b"<p>", Kind::Document(Document::Html)),
            ("a.csv", unknown, "ä,ö\r\n1,2".as_bytes(), Kind::Text),
            ("a.csv", "text/csv", b"caf\xe9,1", Kind::Text),
            ("a.csv", "text/csv", b"a\0b", Kind::Other),
            ("a.txt", unknown, b"\xff\xfea\0", Kind::Text),
            ("empty", unknown, b"", Kind::Text),
        ] {
            assert_eq!(kind(name, mime_type, head), expected, "{name} {mime_type} {head:?}");
        }
    }

    #[test]
    fn text_of_several_encodings_is_read() {
        assert_eq!(decode(b"\xff\xfe\xe4\x00b\x00"), "äb");
        assert_eq!(decode(b"\xfe\xff\xd8\x00\x00b"), "\u{fffd}b");
        assert_eq!(decode(b"\xef\xbb\xbfab"), "ab");
        assert_eq!(decode(b"caf\xe9 \x80 \x9f \xff \x81"), "café € Ÿ ÿ \u{fffd}");
        assert_eq!(decode(b"\xc3\xa4\xe4\xe2\x82"), "ääâ‚", "each as far as it goes");
    }
}
