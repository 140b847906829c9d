//! Names of files: what a client may call one, and what one is called in a session's workspace.

use std::collections::{BTreeMap, BTreeSet};

/// Longest name, in bytes: the file system's own limit.
pub const NAME_MAX_BYTES: usize = 255;
/// What a file is called that has no name of its own.
const NAMELESS: &str = "file";

/// What Anthropic's service allows in no name, beside separators and control characters; no more does Windows.
const RESERVED: [char; 7] = ['<', '>', ':', '"', '|', '?', '*'];

/// Why a name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing is left of it.
    #[error("the file name is empty")]
    Empty,
    /// It has a control character.
    #[error("the file name has a control character")]
    Control,
    /// It has a character that changes the direction of text, and so can show another name than it is.
    #[error("the file name has a character that changes the direction of text")]
    Direction,
    /// It has one of [`RESERVED`].
    #[error("the file name has one of the characters < > : \" | ? *")]
    Reserved,
    /// It is longer than [`NAME_MAX_BYTES`].
    #[error("the file name has more than {NAME_MAX_BYTES} bytes")]
    TooLong,
}

/// The name of a file that a client calls so: the last component of a path of whichever system.
pub fn clean(name: &str) -> Result<String, NameError> {
    let last = last_component(name);
    if matches!(last, "" | "." | "..") {
        return Err(NameError::Empty);
    }
    if last.chars().any(char::is_control) {
        return Err(NameError::Control);
    }
    if last.chars().any(turns_text) {
        return Err(NameError::Direction);
    }
    if last.len() > NAME_MAX_BYTES {
        return Err(NameError::TooLong);
    }
    Ok(last.to_owned())
}

/// Refuses a name that Anthropic's service refuses as well.
pub fn check_reserved(name: &str) -> Result<(), NameError> {
    if name.contains(RESERVED) { Err(NameError::Reserved) } else { Ok(()) }
}

/// Gives each file of a workspace a name of its own: `data.csv`, `data-2.csv`, `data-3.csv`.
#[derive(Debug, Default)]
pub struct Names {
    taken: BTreeSet<String>,
    /// How often a name was asked for.
    asked: BTreeMap<String, u64>,
}

impl Names {
    /// Nothing is taken yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name for a file whose owner calls it so. What cannot be a name in a workspace becomes one.
    pub fn take(&mut self, name: &str) -> String {
        let wanted = fitting(last_component(name), "");
        let asked = self.asked.entry(wanted.clone()).or_insert(0);
        loop {
            *asked = asked.saturating_add(1);
            let suffix = if *asked == 1 { String::new() } else { format!("-{asked}") };
            let candidate = fitting(&wanted, &suffix);
            if self.taken.insert(candidate.clone()) {
                return candidate;
            }
        }
    }
}

fn last_component(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or_default()
}

/// `name` with `suffix` before its last extension, no longer than the file system takes.
fn fitting(name: &str, suffix: &str) -> String {
    let plain: String = name.chars().filter(|c| !c.is_control() && !turns_text(*c)).collect();
    let name = if matches!(plain.as_str(), "" | "." | "..") { NAMELESS } else { &plain };
    // A dot at the front begins no extension, and one at the end has none behind it.
    let dot = name.rfind('.').filter(|at| *at > 0 && *at + 1 < name.len()).unwrap_or(name.len());
    let (stem, extension) = name.split_at(dot);
    // An extension that leaves no room is cut like the rest.
    let room = NAME_MAX_BYTES.saturating_sub(suffix.len());
    let (stem, extension) = if extension.len() < room { (stem, extension) } else { (name, "") };
    let stem = &stem[..stem.floor_char_boundary(room.saturating_sub(extension.len()))];
    format!("{stem}{suffix}{extension}")
}

/// Bidirectional formatting characters (Unicode, UAX 9): they can show `gpj.exe` as `exe.jpg`.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_client_may_call_a_file_what_a_person_would() {
        let long = "x".repeat(255);
        for (name, cleaned) in [
            ("data.csv", "data.csv"),
            ("a b é.csv", "a b é.csv"),
            ("测试.docx", "测试.docx"),
            ("C:\\dir\\a.txt", "a.txt"),
            ("../../etc/passwd", "passwd"),
            ("say \"hi\"; x=1.txt", "say \"hi\"; x=1.txt"),
            ("100%25.txt", "100%25.txt"),
            (".env", ".env"),
            (long.as_str(), long.as_str()),
        ] {
            assert_eq!(clean(name), Ok(cleaned.to_owned()));
        }
    }

    #[test]
    fn a_name_that_is_none_or_deceives_is_refused() {
        for (name, error) in [
            ("", NameError::Empty),
            (".", NameError::Empty),
            ("a/..", NameError::Empty),
            ("folder/", NameError::Empty),
            ("a\0b", NameError::Control),
            ("a\r\nb", NameError::Control),
            ("a\u{85}b", NameError::Control),
            ("a\u{202e}gpj.exe", NameError::Direction),
            ("\u{2066}a", NameError::Direction),
            (&"é".repeat(128), NameError::TooLong),
        ] {
            assert_eq!(clean(name), Err(error), "{name:?}");
        }
    }

    #[test]
    fn a_name_may_hold_what_one_vendor_refuses_unless_it_is_asked() {
        for letter in RESERVED {
            let name = format!("a{letter}b.csv");
            assert_eq!((clean(&name), check_reserved(&name)), (Ok(name.clone()), Err(NameError::Reserved)));
        }
        assert_eq!(check_reserved("a b é'&%#;=(1).csv"), Ok(()));
    }

    #[test]
    fn files_of_one_name_get_names_of_their_own_before_the_last_extension() {
        let mut names = Names::new();
        let mut take = |name: &str| names.take(name);
        assert_eq!(take("data.csv"), "data.csv");
        assert_eq!(take("other/data.csv"), "data-2.csv");
        assert_eq!(take("C:\\data.csv"), "data-3.csv");
        assert_eq!(take("Makefile"), "Makefile");
        assert_eq!(take("Makefile"), "Makefile-2");
        assert_eq!(take(".env"), ".env");
        assert_eq!(take(".env"), ".env-2");
        assert_eq!(take("a.tar.gz"), "a.tar.gz");
        assert_eq!(take("a.tar.gz"), "a.tar-2.gz");
        assert_eq!(take(""), "file");
        assert_eq!(take(".."), "file-2");
        assert_eq!(take("file"), "file-3");
        assert_eq!(take("测试.docx"), "测试.docx");
        assert_eq!(take("文档.docx"), "文档.docx");
    }

    #[test]
    fn a_suffix_that_somebody_uses_as_a_name_is_passed_over() {
        let mut names = Names::new();
        assert_eq!(
            ["data-2.csv", "data.csv", "data.csv"].map(|name| names.take(name)),
            ["data-2.csv", "data.csv", "data-3.csv"]
        );
    }

    proptest! {
        #[test]
        fn names_never_collide_and_are_always_names(wanted in proptest::collection::vec("(\\PC{0,3}|a|a\\.b|é{120,130}|x{250,260}\\.t|\\.y{254,260})", 1..30)) {
            let mut names = Names::new();
            let mut seen = BTreeSet::new();
            for name in &wanted {
                let name = names.take(name);
                prop_assert!(!name.is_empty() && name.len() <= NAME_MAX_BYTES && name != "." && name != "..");
                prop_assert!(!name.contains(['/', '\\', '\0']));
                prop_assert!(seen.insert(name));
            }
        }
    }
}
