//! Workspaces in memory, some of whose files misbehave.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::Notify;

use super::support::lock;
use crate::sandbox::{
    ExecutionResult, FileContent, FileSource, FileStamp, ListedFile, Listing, ProducedFile, SandboxError, SessionId,
    WorkspacePath,
};

/// How a program begins that writes files: `write: NAME=TEXT; NAME=TEXT`. A name with a `!` in front is one that the
/// result names; one with a `?` is named and not written.
pub(super) const WRITE: &str = "write: ";
/// A file that is none when it is asked for.
pub(super) const GONE: &str = "(gone)";
/// A file of which nothing ever comes.
pub(super) const HANGS: &str = "(hangs)";
/// A file that says it has one byte and never ends.
pub(super) const ENDLESS: &str = "(endless)";

/// What each session has, by path: the bytes, and how often the path was written.
type Written = BTreeMap<(String, String), (Bytes, u64)>;

/// Every session's files.
#[derive(Debug, Default)]
pub(super) struct Workspaces {
    pub(super) written: Mutex<Written>,
    versions: AtomicU64,
    /// What the next file that is put in meets.
    pub(super) refusal: Mutex<Option<SandboxError>>,
    /// No listing is served.
    pub(super) unlisted: AtomicBool,
    /// Told when a file is asked for of which nothing comes.
    pub(super) hanging: Notify,
    /// Files that were asked for.
    pub(super) fetched: Mutex<Vec<String>>,
}

impl Workspaces {
    pub(super) fn write(&self, session: &SessionId, program: &str) -> ExecutionResult {
        let mut result = ExecutionResult::default();
        for file in program.trim_start_matches(WRITE).split("; ") {
            let (name, text) = file.split_once('=').expect("a name and a text");
            let path = name.trim_start_matches(['!', '?']);
            if path != name {
                result.files.push(ProducedFile { name: path.to_owned() });
            }
            if !name.starts_with('?') {
                self.set(session, path, Bytes::copy_from_slice(text.as_bytes()));
            }
        }
        result
    }

    pub(super) fn set(&self, session: &SessionId, path: &str, bytes: Bytes) {
        let version = self.versions.fetch_add(1, Ordering::Relaxed);
        lock(&self.written).insert((session.0.clone(), path.to_owned()), (bytes, version));
    }

    /// What a session has at a path.
    pub(super) fn read(&self, session: &str, path: &str) -> Option<Bytes> {
        lock(&self.written).get(&(session.to_owned(), path.to_owned())).map(|(bytes, _)| bytes.clone())
    }

    pub(super) async fn put(
        &self,
        session: &SessionId,
        path: &WorkspacePath,
        source: FileSource,
    ) -> Result<(), SandboxError> {
        if let Some(error) = lock(&self.refusal).take() {
            return Err(error);
        }
        let bytes: Vec<Bytes> = source.try_collect().await.map_err(SandboxError::Unreadable)?;
        self.set(session, &path.to_string(), bytes.concat().into());
        Ok(())
    }

    pub(super) fn list(&self, session: &SessionId) -> Result<Listing, SandboxError> {
        if self.unlisted.load(Ordering::Relaxed) {
            return Err(SandboxError::NotServed);
        }
        let written = lock(&self.written);
        let mine = written.iter().filter(|((owner, _), _)| *owner == session.0);
        let file = |((_, path), (bytes, version)): (&(String, String), &(Bytes, u64))| ListedFile {
            path: WorkspacePath::parse(path).expect("a path"),
            size_bytes: if &bytes[..] == ENDLESS.as_bytes() { 1 } else { bytes.len() as u64 },
            stamp: FileStamp([0, 0, *version, 0]),
        };
        Ok(Listing { files: mine.map(file).collect(), left_out: 0 })
    }

    pub(super) fn get(
        &self,
        session: &SessionId,
        path: &WorkspacePath,
        max_bytes: u64,
    ) -> Result<FileContent, SandboxError> {
        lock(&self.fetched).push(path.to_string());
        let bytes = self.read(&session.0, &path.to_string()).ok_or(SandboxError::UnknownFile)?;
        match std::str::from_utf8(&bytes) {
            Ok(GONE) => Err(SandboxError::UnknownFile),
            Ok(HANGS) => {
                self.hanging.notify_one();
                Ok(stream::iter([Ok(Bytes::from_static(b"x"))]).chain(stream::pending()).boxed())
            }
            Ok(ENDLESS) => Ok(stream::repeat_with(|| Ok(Bytes::from(vec![1; 1 << 16]))).boxed()),
            _ if bytes.len() as u64 > max_bytes => Err(SandboxError::FileTooLarge { limit: max_bytes }),
            // In pieces, as they come from everywhere.
            _ => {
                let pieces: Vec<_> = bytes.chunks(3).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
                Ok(stream::iter(pieces).boxed())
            }
        }
    }
}
