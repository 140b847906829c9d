//! What a local store has beside whole blobs: the files that unfinished ones are written to, which `object_store` does not
//! list and will not name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::super::id::FileId;
use super::{Listed, StoreError, shard_of};

/// What `object_store` puts behind the name of a blob that is being written: this and a number, 1 unless that is taken,
/// and no two write one blob.
const UNFINISHED: &str = "#1";
/// What separates the number from the name.
const MARK: char = '#';

/// Removes a blob and what was written of it; neither has to be there.
pub(super) fn delete(root: &Path, id: &FileId) -> io::Result<()> {
    let whole = root.join(shard_of(id)).join(id.digits());
    let mut unfinished = whole.clone().into_os_string();
    unfinished.push(UNFINISHED);
    gone(fs::remove_file(whole))?;
    gone(fs::remove_file(unfinished))
}

/// Removes what was listed.
pub(super) fn delete_listed(root: &Path, shard: &str, name: &str) -> io::Result<()> {
    gone(fs::remove_file(root.join(shard).join(name)))
}

/// Blobs of a shard, whole and unfinished, a bounded number at a time.
pub(super) struct Lister {
    entries: Option<fs::ReadDir>,
}

impl Lister {
    pub(super) fn new(root: &Path, shard: &str) -> io::Result<Self> {
        match fs::read_dir(root.join(shard)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self { entries: None }),
            entries => Ok(Self { entries: Some(entries?) }),
        }
    }

    /// The next ones, up to `limit`; none at the end.
    pub(super) fn next(&mut self, limit: usize) -> io::Result<Vec<Listed>> {
        let mut found = Vec::new();
        while found.len() < limit {
            let Some(entry) = self.entries.as_mut().and_then(Iterator::next) else { break };
            if let Some(listed) = listed(&entry?)? {
                found.push(listed);
            }
        }
        Ok(found)
    }
}

fn listed(entry: &fs::DirEntry) -> io::Result<Option<Listed>> {
    let Ok(name) = entry.file_name().into_string() else { return Ok(None) };
    let (digits, unfinished) = match name.split_once(MARK) {
        Some((digits, _)) => (digits, true),
        None => (name.as_str(), false),
    };
    let Some(id) = FileId::of_digits(digits) else { return Ok(None) };
    let modified = match entry.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata?.modified()?,
    };
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let modified_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    Ok(Some(Listed { id, name, modified_ms, unfinished }))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Runs what blocks where it may.
pub(super) async fn blocking<T: Send + 'static>(
    root: &Path,
    work: impl FnOnce(PathBuf) -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    let root = root.to_owned();
    let done = tokio::task::spawn_blocking(move || work(root)).await.map_err(|_| StoreError::Stopped)?;
    done.map_err(|error| StoreError::Failed(object_store::Error::Generic { store: "file", source: error.into() }))
}
