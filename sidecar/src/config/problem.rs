//! What is wrong with a config file, in words that say what to write instead.

use std::fmt;

/// Shown in place of a value that may be a secret.
pub(super) const HIDDEN: &str = "(hidden)";

/// One thing wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Where: dotted path in the file, or the name of the environment variable.
    pub key: String,
    /// What stands there, if it may be shown.
    pub value: String,
    /// What to write instead.
    pub fix: String,
}

impl ConfigProblem {
    /// A problem with a value.
    pub fn new(key: impl Into<String>, value: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into(), fix: fix.into() }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}: {}", self.key, self.fix)
        } else {
            write!(f, "{}: `{}`: {}", self.key, self.value, self.fix)
        }
    }
}
