//! Files: what callers uploaded and what code made. Rows are the repository's, bytes the store's, and the order in which
//! the two change is this module's.
//!
//! INVARIANT: row pending, then the blob, then the row stored; to delete, the row first and then the blob. So whatever
//! stops half-way leaves a whole file, or something the sweep can tell by its row.

mod id;
mod kill_point;
pub mod name;
mod record;
mod store;
mod sweeper;
mod target;
mod upload;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use decision::identity::Identity;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::ids::IdSource;
use crate::repository::{Counted, FilePageQuery, FilePosition, FileQuota, Repository, RepositoryError};
use crate::shares::{Seat, Shares};
use crate::telemetry;

pub use id::FileId;
pub use record::{Cursor, FileRecord, ListQuery, NewFile, Order, Page, Purpose, Staged};
pub use store::{FileStore, StoreError};
pub use sweeper::{SweepReport, Sweeper};
pub use target::{OptionKind, RemoteKind, RemoteTarget, StoreOptions, StoreTarget};
pub use upload::Upload;

/// How long an upload waits for its turn when [`FilesLimits::max_concurrent_uploads`] are under way.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(5);

/// How much there may be. Every field is a config key under `files`.
#[derive(Debug, Clone)]
pub struct FilesLimits {
    /// Bytes of one file.
    pub max_bytes: u64,
    /// Files kept of one execution.
    pub output_max_files: usize,
    /// Bytes kept of one execution's files, together.
    pub output_max_bytes: u64,
    /// How long files are kept that do not say so themselves; `None`: for ever.
    pub retention: Option<Duration>,
    /// Bytes of all files of a workspace.
    pub workspace_max_bytes: u64,
    /// Files of a workspace.
    pub workspace_max_files: u64,
    /// Uploads under way at once, of everybody together.
    pub max_concurrent_uploads: usize,
    /// Of these, those of one workspace.
    pub max_concurrent_uploads_per_workspace: usize,
}

/// Why there is no file, or no more of it.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// Nothing that this owner can see has this id.
    #[error("there is no such file")]
    NotFound,
    /// The cursor of a list names no file of this owner's, or one that the sweep has removed.
    #[error("the cursor names no file")]
    CursorNotFound,
    /// More bytes than a file may have.
    #[error("the file has more than {limit} bytes")]
    TooLarge {
        /// What it may have.
        limit: u64,
    },
    /// The workspace would have more bytes than it may.
    #[error("the files of this workspace may have {limit} bytes together")]
    WorkspaceBytes {
        /// What it may have.
        limit: u64,
    },
    /// The workspace would have more files than it may.
    #[error("this workspace may have {limit} files")]
    WorkspaceFiles {
        /// What it may have.
        limit: u64,
    },
    /// Too many uploads are under way.
    #[error("too many uploads are under way")]
    Busy,
    /// The file went away while it was being written: deleted, or taken for given up.
    #[error("the file was deleted while it was being written")]
    Deleted,
    /// The store failed, or has lost a blob.
    #[error("the file store failed")]
    Storage(#[from] StoreError),
    /// The database failed.
    #[error("the database failed")]
    Repository(#[from] RepositoryError),
}

/// All files. Cheap to clone.
#[derive(Clone)]
pub struct Files {
    inside: Arc<Inside>,
}

struct Inside {
    repository: Repository,
    store: FileStore,
    ids: Arc<dyn IdSource>,
    limits: FilesLimits,
    uploads: Arc<Semaphore>,
    upload_shares: Shares,
    /// Uploads under way, and what is cleaned up behind those that were given up: a drain waits for them.
    tasks: TaskTracker,
}

/// What an upload holds while it is under way.
struct Turn {
    _seat: Seat,
    _permit: OwnedSemaphorePermit,
}

impl Files {
    /// Puts rows and blobs together. `tasks`: where everything runs that must not stop half-way.
    pub fn new(
        repository: Repository,
        store: FileStore,
        ids: Arc<dyn IdSource>,
        limits: FilesLimits,
        tasks: TaskTracker,
    ) -> Self {
        let uploads = Arc::new(Semaphore::new(limits.max_concurrent_uploads.min(Semaphore::MAX_PERMITS)));
        let upload_shares = Shares::new(limits.max_concurrent_uploads_per_workspace);
        Self { inside: Arc::new(Inside { repository, store, ids, limits, uploads, upload_shares, tasks }) }
    }

    /// For tests of others: real rows and blobs in a folder, and room enough.
    #[cfg(test)]
    pub(crate) async fn in_folder(folder: &std::path::Path, clock: Arc<dyn crate::clock::Clock>) -> Self {
        let limits = FilesLimits {
            max_bytes: 1 << 30,
            output_max_files: 20,
            output_max_bytes: 1 << 30,
            retention: None,
            workspace_max_bytes: 1 << 40,
            workspace_max_files: 1000,
            max_concurrent_uploads: 8,
            max_concurrent_uploads_per_workspace: 8,
        };
        Self::in_folder_within(folder, clock, Arc::new(crate::ids::SystemIds), limits).await
    }

    /// The same with ids and room of the test's choice.
    #[cfg(test)]
    pub(crate) async fn in_folder_within(
        folder: &std::path::Path,
        clock: Arc<dyn crate::clock::Clock>,
        ids: Arc<dyn IdSource>,
        limits: FilesLimits,
    ) -> Self {
        let database = crate::repository::Database::Sqlite(folder.join("files.db"));
        let repository = Repository::open(&database, clock).await.unwrap();
        let tasks = TaskTracker::new();
        let store = FileStore::open(&StoreTarget::Local(folder.join("files")), u64::MAX, tasks.clone()).unwrap();
        Self::new(repository, store, ids, limits, tasks)
    }

    /// How much there may be.
    pub fn limits(&self) -> &FilesLimits {
        &self.inside.limits
    }

    /// Begins a file of at most `max_bytes`, and never more than [`FilesLimits::max_bytes`]. Errors: [`FilesError::Busy`],
    /// [`FilesError::WorkspaceBytes`], [`FilesError::WorkspaceFiles`], and failures of the database.
    pub async fn begin(&self, owner: &Identity, max_bytes: u64) -> Result<Upload, FilesError> {
        let turn = async {
            // First its own share: who waits for that keeps nobody else waiting.
            let seat = self.inside.upload_shares.wait(&owner.workspace).await;
            Some(Turn { _seat: seat, _permit: Arc::clone(&self.inside.uploads).acquire_owned().await.ok()? })
        };
        let Ok(Some(turn)) = tokio::time::timeout(UPLOAD_PATIENCE, turn).await else { return Err(FilesError::Busy) };
        Upload::begin(&self.inside, turn, owner, max_bytes.min(self.inside.limits.max_bytes)).await
    }

    /// A visible file. [`FilesError::NotFound`] for everything else alike: foreign, expired, deleted, pending, unknown, or
    /// no id of ours at all.
    pub async fn get(&self, owner: &Identity, id: &str) -> Result<FileRecord, FilesError> {
        let id = FileId::parse(id).ok_or(FilesError::NotFound)?;
        let row = self.inside.repository.file(owner, id.as_str()).await?.ok_or(FilesError::NotFound)?;
        Ok(row.try_into()?)
    }

    /// The visible ones among these ids, each once, in the order in which they are named first.
    pub async fn get_many(&self, owner: &Identity, ids: &[String]) -> Result<Vec<FileRecord>, FilesError> {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, id) in ids.iter().enumerate().filter(|(_, id)| FileId::parse(id).is_some()) {
            places.entry(id).or_insert(place);
        }
        let named: Vec<&str> = places.keys().copied().collect();
        let mut rows = self.inside.repository.files(owner, &named).await?;
        rows.sort_by_key(|row| places.get(row.id.as_str()).copied());
        rows.into_iter().map(|row| Ok(row.try_into()?)).collect()
    }

    /// Bytes of a file, `range` of them. The first piece was read before this returns, so that a blob that is missing is
    /// an error and not a broken answer: [`FilesError::NotFound`] if the file was deleted since it was looked up. Whatever the store does, the stream ends with an error or has them all.
    pub async fn read(
        &self,
        file: &FileRecord,
        range: Range<u64>,
    ) -> Result<BoxStream<'static, Result<Bytes, FilesError>>, FilesError> {
        let id = FileId::parse(&file.id).ok_or(FilesError::NotFound)?;
        let range = range.start..range.end.min(file.size_bytes);
        match self.inside.store.read(&id, range).await {
            Ok(pieces) => Ok(pieces.map(|piece| Ok(piece?)).boxed()),
            Err(StoreError::Missing) => {
                // It may have been deleted since it was looked up; if not, the store has lost it.
                self.get(&file.owner, &file.id).await?;
                Err(StoreError::Missing.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a visible file: out of sight at once, its blob as soon as the store agrees.
    pub async fn delete(&self, owner: &Identity, id: &str) -> Result<(), FilesError> {
        // Looked up first: for what is not there no writer has to wait for its turn.
        let FileRecord { id, owner, .. } = self.get(owner, id).await?;
        let id = FileId::parse(&id).ok_or(FilesError::NotFound)?;
        let inside = Arc::clone(&self.inside);
        // A caller who leaves does not stop it half-way.
        let deletion = self.inside.tasks.spawn(async move {
            if !inside.repository.delete_file(&owner, id.as_str()).await? {
                return Err(FilesError::NotFound);
            }
            kill_point::reached("deleted");
            if let Err(error) = inside.store.delete(&id).await {
                let error = telemetry::chain(&error);
                tracing::warn!(file = id.as_str(), error, "a deleted file's blob stays until the sweep");
            }
            kill_point::reached("blob deleted");
            Ok(())
        });
        deletion.await.unwrap_or_else(|_| Err(StoreError::Stopped.into()))
    }

    /// A page of an owner's visible files.
    pub async fn list(&self, owner: &Identity, query: &ListQuery) -> Result<Page, FilesError> {
        let (id, backwards) = match &query.cursor {
            None => (None, false),
            Some(Cursor::After(id)) => (Some(id), false),
            Some(Cursor::Before(id)) => (Some(id), true),
        };
        let beyond = match id {
            None => None,
            Some(id) => Some(self.position(owner, id).await?),
        };
        let page = FilePageQuery {
            // What stands before a place is read from that place on, backwards, and turned round.
            descending: (query.order == Order::Descending) != backwards,
            beyond: beyond.as_ref(),
            purpose: query.purpose.map(Purpose::as_str),
            limit: query.limit.saturating_add(1),
        };
        let mut rows = self.inside.repository.file_page(owner, &page).await?;
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        if backwards {
            rows.reverse();
        }
        let files = rows.into_iter().map(FileRecord::try_from).collect::<Result<_, _>>()?;
        Ok(Page { files, has_more })
    }

    async fn position(&self, owner: &Identity, id: &str) -> Result<FilePosition, FilesError> {
        let id = FileId::parse(id).ok_or(FilesError::CursorNotFound)?;
        self.inside.repository.file_position(owner, id.as_str()).await?.ok_or(FilesError::CursorNotFound)
    }
}

impl Inside {
    fn quota(&self) -> FileQuota {
        FileQuota { max_bytes: self.limits.workspace_max_bytes, max_files: self.limits.workspace_max_files }
    }

    /// What the database's word on a change means to who asked for it.
    fn counted(&self, counted: Counted) -> Result<(), FilesError> {
        match counted {
            Counted::Done => Ok(()),
            Counted::TooManyBytes => Err(FilesError::WorkspaceBytes { limit: self.limits.workspace_max_bytes }),
            Counted::TooManyFiles => Err(FilesError::WorkspaceFiles { limit: self.limits.workspace_max_files }),
            Counted::Gone => Err(FilesError::Deleted),
        }
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inside.fmt(f)
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("store", &self.store).field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
