//! Blobs, under keys made from ids alone, in whichever object store the configuration names.
//!
//! INVARIANT: nothing a user wrote is ever part of a key; and nobody but us can read what a local store keeps.

mod local;
mod read;
mod remote;
mod sweep;
mod unfinished;
mod write;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tokio_util::task::TaskTracker;

use super::id::FileId;
use super::target::StoreTarget;
use crate::private;

use remote::Remote;
use unfinished::Uploads;

pub(super) use sweep::{Listed, SHARDS};
pub(super) use unfinished::UnfinishedUpload;
pub(super) use write::BlobWriter;

/// Hex digits of an id that name its folder: 256 folders.
const SHARD_DIGITS: usize = 2;
/// Bytes written at once to a local store.
const LOCAL_PART_BYTES: usize = 1 << 20;

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder of a local store cannot be made, or cannot be closed to others.
    #[error("the folder {path} cannot be used", path = .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The store cannot be set up with these options.
    #[error("files.url and its options make no store")]
    Setup(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Unfinished uploads cannot be listed.
    #[error("unfinished uploads cannot be listed")]
    List(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A file that is there has no blob.
    #[error("the blob is missing")]
    Missing,
    /// A blob has fewer bytes than its file says.
    #[error("the blob ends early")]
    Short,
    /// The store's own words.
    #[error("the store failed")]
    Failed(#[source] object_store::Error),
    /// The process is stopping.
    #[error("the work was stopped")]
    Stopped,
}

/// An object store with our keys.
#[derive(Clone)]
pub struct FileStore {
    store: Arc<dyn ObjectStore>,
    /// In front of all our keys.
    prefix: Path,
    /// The folder of a local store.
    local: Option<PathBuf>,
    /// Unfinished uploads, where the store can list them.
    uploads: Option<Uploads>,
    /// Bytes of a part; stores that ask for parts of one size get them.
    part_bytes: usize,
    /// Calls that must not be dropped half-way run here.
    tasks: TaskTracker,
}

impl FileStore {
    /// Opens a store, for blobs of up to `max_bytes`. `tasks`: where calls run that must not be dropped half-way.
    pub fn open(target: &StoreTarget, max_bytes: u64, tasks: TaskTracker) -> Result<Self, StoreError> {
        let (store, local): (Arc<dyn ObjectStore>, _) = match target {
            StoreTarget::Local(path) => {
                let folder = |source| StoreError::Folder { path: path.clone(), source };
                // Files are made with the mode of any file: it is their folder that closes them to others.
                private::folder(path, false).and_then(|()| private::close(path)).map_err(folder)?;
                (Arc::new(LocalFileSystem::new_with_prefix(path).map_err(StoreError::from)?), Some(path.clone()))
            }
            StoreTarget::Memory => (Arc::new(InMemory::new()), None),
            StoreTarget::Remote(target) => {
                let Remote { store, prefix, uploads } = remote::open(target)?;
                return Ok(Self {
                    store,
                    prefix,
                    local: None,
                    uploads,
                    part_bytes: remote::part_bytes(max_bytes),
                    tasks,
                });
            }
        };
        Ok(Self { store, prefix: Path::default(), local, uploads: None, part_bytes: LOCAL_PART_BYTES, tasks })
    }

    /// Begins a blob.
    pub(super) fn write(&self, id: &FileId) -> BlobWriter {
        BlobWriter::new(self.clone(), id.clone())
    }

    /// `range` of a blob, of which the first piece was read. The stream ends with an error unless it has all of them.
    pub(super) async fn read(
        &self,
        id: &FileId,
        range: Range<u64>,
    ) -> Result<BoxStream<'static, Result<Bytes, StoreError>>, StoreError> {
        if range.is_empty() {
            return Ok(stream::empty().boxed());
        }
        read::open(&*self.store, &self.key(id), range).await
    }

    /// Removes a blob and what was written of it; one that is not there is fine.
    pub(super) async fn delete(&self, id: &FileId) -> Result<(), StoreError> {
        if let Some(root) = &self.local {
            let id = id.clone();
            return local::blocking(root, move |root| local::delete(&root, &id)).await;
        }
        match self.store.delete(&self.key(id)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            deleted => Ok(deleted?),
        }
    }

    fn key(&self, id: &FileId) -> Path {
        self.prefix.clone().join(shard_of(id)).join(id.digits())
    }
}

/// The folder of a blob.
fn shard_of(id: &FileId) -> &str {
    id.digits().get(..SHARD_DIGITS).unwrap_or_default()
}

impl From<object_store::Error> for StoreError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { .. } => Self::Missing,
            other => Self::Failed(other),
        }
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileStore").field(&self.store.to_string()).finish()
    }
}
