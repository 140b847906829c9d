//! Ids of files. Nothing that is not exactly of our form reaches the database or the store.

use decision::request::OWN_FILE;

use crate::ids::{self, IdSource};

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
        ids::is_minted(OWN_FILE, text).then(|| Self(text.to_owned()))
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
        Self::parse(&format!("{OWN_FILE}{digits}"))
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
        let in_container = ids::in_container(id.as_str());
        assert_eq!(ids::out_of_container(&in_container).as_deref(), Some(id.as_str()));
        assert_eq!(FileId::parse(&in_container), None);
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
