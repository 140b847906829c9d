//! Keys that say what one workspace may take of what all use.

use decision::config::IdentityConfig;

use super::keys::Key;
use super::reader::Reader;

/// How a share is reckoned that the file does not name.
#[derive(Clone, Copy)]
pub(super) struct Usual {
    /// One in so many of all.
    pub(super) part: u64,
    /// But no less than this, as far as there is so much.
    pub(super) least: u64,
}

/// Reads the share that `key` names of the `all` of the key `of`. Where there is one workspace, it has all.
pub(super) fn read(
    reader: &mut Reader<'_>,
    identity: &IdentityConfig,
    (of, all): (&Key, u64),
    key: &Key,
    usual: Usual,
) -> u64 {
    let share = match reader.optional_integer(key) {
        Some(share) => share,
        None if *identity == IdentityConfig::None => all,
        None => (all / usual.part.max(1)).max(usual.least).min(all),
    };
    if share > all {
        reader.problem(key.path, share.to_string(), format!("write no more than {}, or more there", of.path));
    }
    share
}
