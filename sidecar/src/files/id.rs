//! Ids of files. Nothing that is not exactly of our form reaches the database or the store.

use decision::request::OWN_FILE;

use crate::ids::IdSource;

/// Prefix of the same file inside a container on the OpenAI wire.
const IN_CONTAINER: &str = "cfile_otr";
/// Hex digits of an id.
const DIGITS: usize = 32;

/// The id of a file of ours: [`OWN_FILE`] and 32 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(String);

impl FileId {
    /// A new one.
    pub fn mint(ids: &dyn IdSource) -> Self {
        Self(ids.mint(OWN_FILE))
    }

    /// Reads one; `None` for whatever is not exactly of the form.
    pub fn parse(text: &str) -> Option<Self> {
        Self::of_digits(text.strip_prefix(OWN_FILE)?)
    }

    /// Reads the name that a file has inside a container on the OpenAI wire.
    pub fn parse_in_container(text: &str) -> Option<Self> {
        Self::of_digits(text.strip_prefix(IN_CONTAINER)?)
    }

    /// The name that the file has inside a container on the OpenAI wire.
    pub fn in_container(&self) -> String {
        format!("{IN_CONTAINER}{}", self.digits())
    }

    /// The id itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its hex digits.
    pub(super) fn digits(&self) -> &str {
        self.0.strip_prefix(OWN_FILE).unwrap_or_default()
    }

    /// The id of these hex digits.
    pub(super) fn of_digits(digits: &str) -> Option<Self> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (digits.len() == DIGITS && digits.bytes().all(hex)).then(|| Self(format!("{OWN_FILE}{digits}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SystemIds;

    #[test]
    fn only_ids_of_our_form_are_ids() {
        let id = FileId::mint(&SystemIds);
        assert_eq!(FileId::parse(id.as_str()), Some(id.clone()));
        assert_eq!(FileId::parse_in_container(&id.in_container()), Some(id.clone()));
        assert_eq!(FileId::parse(&id.in_container()), None);
        let digits = id.digits();
        for wrong in [
            String::new(),
            "file-otr".to_owned(),
            digits.to_owned(),
            format!("file-{digits}"),
            format!("file-otr{digits}0"),
            format!("file-otr{}", &digits[1..]),
            format!("file-otr{}\0", &digits[1..]),
            format!("file-otr{}A", &digits[1..]),
            format!("file-otr../{}", &digits[3..]),
            format!("file-otr{}é", &digits[2..]),
            format!(" {}", id.as_str()),
        ] {
            assert_eq!(FileId::parse(&wrong), None, "{wrong:?}");
        }
    }
}
