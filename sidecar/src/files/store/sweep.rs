//! What the sweep needs of a store: deleting many blobs, and looking through shards.

use std::collections::BTreeSet;
use std::future;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions};

use super::super::id::FileId;
use super::{FileStore, StoreError, UnfinishedUpload, local};

/// Deletions on their way at once.
const DELETIONS: usize = 16;
/// Entries of a local folder read at once.
const LISTED_AT_ONCE: usize = 1000;
/// Shards there are: what [`super::SHARD_DIGITS`] hex digits can name.
pub(in crate::files) const SHARDS: u32 = 256;
/// Name of the object by which a store is known. No shard has it.
const MARK: &str = "otari-file-store";

/// A blob as the store lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::files) struct Listed {
    /// Whose it would be.
    pub(in crate::files) id: FileId,
    /// Its name in its shard.
    pub(in crate::files) name: String,
    /// When it was last written to, milliseconds since the epoch.
    pub(in crate::files) modified_ms: i64,
    /// It is not whole: somebody writes it, or has given up.
    pub(in crate::files) unfinished: bool,
}

impl FileStore {
    /// Removes blobs. The answer has those that may still be there, each with the reason.
    pub(in crate::files) async fn delete_many(&self, ids: &[FileId]) -> Vec<(FileId, StoreError)> {
        if let Some(root) = &self.local {
            let all = ids.to_vec();
            let work = move |root: std::path::PathBuf| {
                Ok(all.into_iter().filter_map(|id| local::delete(&root, &id).err().map(|error| (id, error))).collect())
            };
            return match local::blocking(root, work).await {
                Ok(failed) => Vec::into_iter(failed).map(|(id, error)| (id, local_error(error))).collect(),
                Err(_) => ids.iter().map(|id| (id.clone(), StoreError::Stopped)).collect(),
            };
        }
        // In bulk where the store can. An error does not always say whose it is, so what is not known to be gone is
        // deleted by itself.
        let keys: Vec<Path> = ids.iter().map(|id| self.key(id)).collect();
        let bulk = self.store.delete_stream(stream::iter(keys.into_iter().map(Ok)).boxed());
        let gone: BTreeSet<Path> = bulk.filter_map(|deleted| future::ready(deleted.ok())).collect().await;
        let left: Vec<FileId> = ids.iter().filter(|id| !gone.contains(&self.key(id))).cloned().collect();
        let deleted = stream::iter(left).map(|id| {
            let store = self.clone();
            async move { store.delete(&id).await.err().map(|error| (id, error)) }
        });
        deleted.buffer_unordered(DELETIONS).filter_map(future::ready).collect().await
    }

    /// Blobs of a shard as the store lists them, page by page. What is not ours is left out.
    pub(in crate::files) fn list(&self, shard: u32) -> BoxStream<'static, Result<Vec<Listed>, StoreError>> {
        let shard = format!("{shard:02x}");
        if let Some(root) = self.local.clone() {
            return stream::try_unfold(None, move |lister| {
                let shard = shard.clone();
                let work = move |root: std::path::PathBuf| {
                    let mut lister = match lister {
                        Some(lister) => lister,
                        None => local::Lister::new(&root, &shard)?,
                    };
                    let page = lister.next(LISTED_AT_ONCE)?;
                    Ok((!page.is_empty()).then_some((page, Some(lister))))
                };
                let root = root.clone();
                async move { local::blocking(&root, work).await }
            })
            .boxed();
        }
        let folder = self.prefix.clone().join(shard.as_str());
        let objects = self.store.list(Some(&folder)).map_err(StoreError::from);
        let listed = objects.try_filter_map(move |object| future::ready(Ok(listed(&object, &folder, &shard))));
        listed.try_chunks(LISTED_AT_ONCE).map_err(|error| error.1).boxed()
    }

    /// Removes a blob that was listed.
    pub(in crate::files) async fn delete_listed(&self, listed: &Listed) -> Result<(), StoreError> {
        let Some(root) = &self.local else { return self.delete(&listed.id).await };
        let (shard, name) = (super::shard_of(&listed.id).to_owned(), listed.name.clone());
        local::blocking(root, move |root| local::delete_listed(&root, &shard, &name)).await
    }

    /// Uploads in parts that began before a time and are not finished. None where the store has no such, or none to list.
    pub(in crate::files) async fn unfinished_before(&self, time_ms: i64) -> Result<Vec<UnfinishedUpload>, StoreError> {
        match &self.uploads {
            Some(uploads) => {
                let mut unfinished = uploads.before(time_ms, &self.prefix).await?;
                unfinished.retain(|upload| upload.key == self.key(&upload.id));
                Ok(unfinished)
            }
            None => Ok(Vec::new()),
        }
    }

    /// Ends one of them.
    pub(in crate::files) async fn abort_unfinished(&self, upload: &UnfinishedUpload) -> Result<(), StoreError> {
        match &self.uploads {
            Some(uploads) => uploads.abort(upload).await,
            None => Ok(()),
        }
    }

    /// The mark that stands in the store, if there is one.
    pub(in crate::files) async fn mark(&self) -> Result<Option<String>, StoreError> {
        match self.store.get(&self.prefix.clone().join(MARK)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            found => Ok(Some(String::from_utf8_lossy(&found?.bytes().await?).trim().to_owned())),
        }
    }

    /// Puts the mark there, unless somebody else just did where the store can tell; it has to be read again.
    pub(in crate::files) async fn put_mark(&self, mark: &str) -> Result<(), StoreError> {
        use object_store::Error::{AlreadyExists, NotImplemented, NotSupported};
        let key = self.prefix.clone().join(MARK);
        let put = async |mode| {
            let options = PutOptions { mode, ..PutOptions::default() };
            self.store.put_opts(&key, mark.to_owned().into_bytes().into(), options).await.map(drop)
        };
        match put(PutMode::Create).await {
            Err(AlreadyExists { .. }) => Ok(()),
            Err(NotImplemented { .. } | NotSupported { .. }) => Ok(put(PutMode::Overwrite).await?),
            done => Ok(done?),
        }
    }
}

/// `None` for what is not ours: others may keep things beside our blobs, and below our shards.
fn listed(object: &ObjectMeta, folder: &Path, shard: &str) -> Option<Listed> {
    let name = object.location.filename()?;
    let id = FileId::of_digits(name)?;
    let is_here = name.starts_with(shard) && object.location == folder.clone().join(name);
    let modified_ms = object.last_modified.timestamp_millis();
    is_here.then(|| Listed { id, name: name.to_owned(), modified_ms, unfinished: false })
}

fn local_error(error: std::io::Error) -> StoreError {
    StoreError::Failed(object_store::Error::Generic { store: "file", source: error.into() })
}
