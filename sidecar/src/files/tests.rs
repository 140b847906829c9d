//! On real databases and a real folder, with a clock that the test turns.

mod contract;
pub(in crate::files) mod kills;
mod lists;
mod properties;
mod sweeps;
mod uploads;

use tempfile::TempDir;

use super::*;
use crate::clock::TurnedClock;
use crate::ids::SystemIds;
use crate::repository::FileUsage;
use crate::repository::testing::{Kind, TestDatabase, on_both_databases};

const NOW: i64 = 1_700_000_000_000;

pub(super) struct Fixture {
    pub(super) files: Files,
    pub(super) clock: Arc<TurnedClock>,
    pub(super) folder: TempDir,
    pub(super) database: TestDatabase,
}

pub(super) fn limits() -> FilesLimits {
    FilesLimits {
        max_bytes: 64 << 20,
        output_max_files: 20,
        output_max_bytes: 64 << 20,
        retention: None,
        workspace_max_bytes: 1 << 30,
        workspace_max_files: 10_000,
        max_concurrent_uploads: 8,
        max_concurrent_uploads_per_workspace: 8,
    }
}

pub(super) async fn fixture(kind: Kind, limits: FilesLimits) -> Fixture {
    let (folder, database, clock) = (tempfile::tempdir().unwrap(), TestDatabase::new(kind), TurnedClock::at(NOW));
    let (repository, tasks) = (database.open(&clock).await, TaskTracker::new());
    let store = FileStore::open(&StoreTarget::Local(folder.path().join("files")), u64::MAX, tasks.clone()).unwrap();
    let files = Files::new(repository, store, Arc::new(SystemIds), limits, tasks);
    Fixture { files, clock, folder, database }
}

impl Fixture {
    /// What stands on the disk, temporary files and all.
    pub(super) fn blobs(&self) -> Vec<String> {
        let mut names = Vec::new();
        for shard in std::fs::read_dir(self.folder.path().join("files")).unwrap() {
            for blob in std::fs::read_dir(shard.unwrap().path()).into_iter().flatten() {
                names.push(blob.unwrap().file_name().into_string().unwrap());
            }
        }
        names.sort();
        names
    }

    /// Waits until everything in the background is over.
    pub(super) async fn settle(&self) {
        while !self.files.inside.tasks.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub(super) async fn usage(&self, owner: &Identity) -> FileUsage {
        self.files.inside.repository.file_usage(&owner.workspace).await.unwrap()
    }

    pub(super) async fn upload(&self, owner: &Identity, bytes: &[u8]) -> FileRecord {
        let mut upload = self.files.begin(owner, u64::MAX).await.unwrap();
        for piece in bytes.chunks(100_000) {
            upload.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        upload.finish(new("data.csv")).await.unwrap()
    }

    pub(super) async fn bytes(&self, file: &FileRecord, range: Range<u64>) -> Result<Vec<u8>, FilesError> {
        use futures_util::TryStreamExt as _;
        let pieces: Vec<Bytes> = self.files.read(file, range).await?.try_collect().await?;
        Ok(pieces.concat())
    }
}

pub(super) fn owner(user: &str, workspace: &str) -> Identity {
    Identity { user: user.to_owned(), workspace: workspace.to_owned() }
}

pub(super) fn ann() -> Identity {
    owner("ann", "team")
}

pub(super) fn new(filename: &str) -> NewFile {
    NewFile {
        filename: filename.to_owned(),
        mime_type: "text/csv".to_owned(),
        purpose: Purpose::UserData,
        lifetime_ms: None,
    }
}

/// Bytes that are not all alike, so that a part in the wrong place shows: blocks that begin with their number.
pub(super) fn some_bytes(length: usize) -> Vec<u8> {
    const BLOCK: usize = 997;
    let block: Vec<u8> = (0..BLOCK).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let mut bytes = Vec::with_capacity(length + BLOCK);
    while bytes.len() < length {
        let number = u32::try_from(bytes.len() / BLOCK).unwrap();
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes.extend_from_slice(&block[4..]);
    }
    bytes.truncate(length);
    bytes
}
