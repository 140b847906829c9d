//! `files.url` and its options: which store, and how it is opened.
//!
//! INVARIANT: options are secrets. Their values show in no log, no error and no `Debug`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where blobs are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreTarget {
    /// A folder of this host, absolute.
    Local(PathBuf),
    /// This process's memory: gone when it ends.
    Memory,
}

/// Options of a store, by the name its own tools give them.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StoreOptions(BTreeMap<String, String>);

impl StoreTarget {
    /// Reads `files.url`; a relative `file://` is inside `data_dir`. The error says what to write instead.
    pub fn parse(url: &str, data_dir: &Path) -> Result<Self, String> {
        let wanted = || "write file://FOLDER or memory://".to_owned();
        let (scheme, rest) = url.split_once("://").ok_or_else(wanted)?;
        match scheme {
            "file" if rest.is_empty() => Err("name a folder, as in file://files".to_owned()),
            "file" => Ok(Self::Local(data_dir.join(rest))),
            "memory" if rest.is_empty() => Ok(Self::Memory),
            _ => Err(wanted()),
        }
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
