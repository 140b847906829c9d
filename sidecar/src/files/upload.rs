//! An upload: the part its caller holds, and the task that writes for it.
//!
//! INVARIANT: the task alone touches row and blob. It ends with a stored file, or it has taken back what it made as far
//! as the database and the store let it; a caller who drops the upload ends it in the second way.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use decision::identity::Identity;
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::id::FileId;
use super::record::{FileRecord, NewFile};
use super::store::{BlobWriter, StoreError};
use super::{FilesError, Inside, Turn, kill_point};
use crate::ids;
use crate::repository::StoredFile;
use crate::telemetry;

/// Pieces that wait for the task.
const QUEUED_PIECES: usize = 4;
/// How often the database hears that an upload goes on; far less than its patience.
const SIGN_OF_LIFE: Duration = Duration::from_mins(10);
/// What a file may have before any of the quota is taken for it: small ones need no transaction for that.
const UNRESERVED_BYTES: u64 = 8 << 20;
/// What is taken of the quota at once.
const RESERVE_BYTES: u64 = 64 << 20;

/// A file being written. Dropped before it is finished it is given up: blob and row go in the background, and the sweep
/// takes what is left.
pub struct Upload {
    pieces: mpsc::Sender<Message>,
    failure: Option<oneshot::Receiver<FilesError>>,
    size_bytes: u64,
    max_bytes: u64,
}

enum Message {
    Piece(Bytes),
    Finish(NewFile, oneshot::Sender<Result<FileRecord, FilesError>>),
}

/// What the task works with.
struct Writing {
    inside: Arc<Inside>,
    /// Given back when everything is over.
    _turn: Turn,
    owner: Identity,
    id: FileId,
    blob: BlobWriter,
    hash: Sha256,
    size_bytes: u64,
    max_bytes: u64,
    /// Taken of the quota.
    reserved: u64,
}

impl Upload {
    pub(super) async fn begin(
        inside: &Arc<Inside>,
        turn: Turn,
        owner: &Identity,
        max_bytes: u64,
    ) -> Result<Self, FilesError> {
        let id = FileId::mint(&*inside.ids);
        let (pieces, messages) = mpsc::channel(QUEUED_PIECES);
        let (fail, failure) = oneshot::channel();
        let (made, begun) = oneshot::channel();
        let writing = Writing {
            blob: inside.store.write(&id),
            inside: Arc::clone(inside),
            _turn: turn,
            owner: owner.clone(),
            id,
            hash: Sha256::new(),
            size_bytes: 0,
            max_bytes,
            reserved: 0,
        };
        // The row too is made by the task: a caller who leaves meanwhile must not leave it behind.
        inside.tasks.spawn(async move {
            let counted =
                writing.inside.repository.begin_file(&writing.owner, writing.id.as_str(), writing.inside.quota());
            let counted = counted.await.map_err(FilesError::from).and_then(|counted| writing.inside.counted(counted));
            kill_point::reached("begun");
            let go_on = counted.is_ok();
            // If nobody waits for it, the channel of pieces is closed as well, and the task gives up by itself.
            drop(made.send(counted));
            if go_on {
                writing.run(messages, fail).await;
            }
        });
        begun.await.unwrap_or_else(|_| Err(StoreError::Stopped.into()))?;
        Ok(Self { pieces, failure: Some(failure), size_bytes: 0, max_bytes })
    }

    /// Takes more bytes. Errors: [`FilesError::TooLarge`], [`FilesError::WorkspaceBytes`], [`FilesError::Deleted`], and
    /// failures of store and database; after any of them there is nothing more to write.
    pub async fn write(&mut self, piece: Bytes) -> Result<(), FilesError> {
        self.size_bytes = self.size_bytes.saturating_add(piece.len() as u64);
        if self.size_bytes > self.max_bytes {
            return Err(FilesError::TooLarge { limit: self.max_bytes });
        }
        match self.pieces.send(Message::Piece(piece)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failed().await),
        }
    }

    /// Bytes taken so far.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes the file may have.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Makes the file visible. A caller who leaves meanwhile has no file.
    pub async fn finish(mut self, new: NewFile) -> Result<FileRecord, FilesError> {
        if self.size_bytes > self.max_bytes {
            return Err(FilesError::TooLarge { limit: self.max_bytes });
        }
        let (reply, answer) = oneshot::channel();
        if self.pieces.send(Message::Finish(new, reply)).await.is_err() {
            return Err(self.failed().await);
        }
        match answer.await {
            Ok(answer) => answer,
            // It failed over a piece before that.
            Err(_) => Err(self.failed().await),
        }
    }

    async fn failed(&mut self) -> FilesError {
        match self.failure.take() {
            Some(failure) => failure.await.unwrap_or_else(|_| StoreError::Stopped.into()),
            None => StoreError::Stopped.into(),
        }
    }
}

impl Writing {
    async fn run(mut self, mut messages: mpsc::Receiver<Message>, fail: oneshot::Sender<FilesError>) {
        let mut signs = interval_at(Instant::now() + SIGN_OF_LIFE, SIGN_OF_LIFE);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                message = messages.recv() => match message {
                    Some(Message::Piece(piece)) => self.take(piece).await,
                    Some(Message::Finish(new, reply)) => return self.finish(new, reply).await,
                    None => return self.give_up().await,
                },
                _ = signs.tick() => self.reserve(0).await,
            };
            if let Err(error) = done {
                messages.close();
                drop(fail.send(error));
                return self.give_up().await;
            }
        }
    }

    async fn take(&mut self, piece: Bytes) -> Result<(), FilesError> {
        self.size_bytes = self.size_bytes.saturating_add(piece.len() as u64);
        if self.size_bytes > self.reserved.max(UNRESERVED_BYTES) {
            let needed = self.size_bytes.saturating_sub(self.reserved);
            let wanted = RESERVE_BYTES.min(self.max_bytes.saturating_sub(self.reserved)).max(needed);
            match self.reserve(wanted).await {
                // There may still be room for what is here, if not for what may come.
                Err(FilesError::WorkspaceBytes { .. }) if wanted > needed => self.reserve(needed).await?,
                reserved => reserved?,
            }
        }
        self.hash.update(&piece);
        Ok(self.blob.write(piece).await?)
    }

    /// Takes so much more of the quota, and says that the upload goes on.
    async fn reserve(&mut self, more: u64) -> Result<(), FilesError> {
        let (owner, id, quota) = (&self.owner, self.id.as_str(), self.inside.quota());
        self.inside.counted(self.inside.repository.reserve_file(owner, id, more, quota).await?)?;
        kill_point::reached("reserved");
        self.reserved = self.reserved.saturating_add(more);
        Ok(())
    }

    async fn finish(mut self, new: NewFile, reply: oneshot::Sender<Result<FileRecord, FilesError>>) {
        if reply.is_closed() {
            return self.give_up().await;
        }
        match self.store(new).await {
            Err(error) => {
                drop(reply.send(Err(error)));
                self.give_up().await;
            }
            Ok(record) => {
                if reply.send(Ok(record)).is_err() {
                    self.give_up().await;
                }
            }
        }
    }

    async fn store(&mut self, new: NewFile) -> Result<FileRecord, FilesError> {
        self.blob.commit().await?;
        kill_point::reached("committed");
        let sha256 = ids::hex(&std::mem::take(&mut self.hash).finalize());
        let retention = self.inside.limits.retention.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        let lifetime_ms = new.lifetime_ms.or(retention);
        let stored = StoredFile {
            filename: &new.filename,
            mime_type: &new.mime_type,
            purpose: new.purpose.as_str(),
            size_bytes: self.size_bytes,
            sha256: &sha256,
            lifetime_ms,
        };
        let (repository, quota) = (&self.inside.repository, self.inside.quota());
        let stored = repository.store_file(&self.owner, self.id.as_str(), &stored, self.reserved, quota);
        let (counted, created_at_ms) = stored.await?;
        kill_point::reached("stored");
        self.inside.counted(counted)?;
        Ok(FileRecord {
            id: self.id.as_str().to_owned(),
            owner: self.owner.clone(),
            filename: new.filename,
            mime_type: new.mime_type,
            purpose: new.purpose,
            size_bytes: self.size_bytes,
            sha256,
            created_at_ms,
            expires_at_ms: lifetime_ms.map(|time| created_at_ms.saturating_add(time)),
        })
    }

    /// Takes the file back, be it stored or not: out of sight first, then its blob, then its row.
    async fn give_up(self) {
        let id = self.id.as_str();
        let abandoned = self.inside.repository.abandon_file(id).await;
        kill_point::reached("abandoned");
        if let Err(error) = &abandoned {
            let error = telemetry::chain(error);
            tracing::warn!(file = id, error, "the row of an upload that was given up stays until the sweep");
            if self.blob.is_committed() {
                // The row may say that it is stored, and then the blob has to be there.
                return;
            }
        }
        if let Err(error) = self.blob.abort().await {
            let error = telemetry::chain(&error);
            tracing::warn!(file = id, error, "the blob of an upload that was given up stays until the sweep");
            return;
        }
        kill_point::reached("aborted");
        if abandoned.is_ok()
            && let Err(error) = self.inside.repository.forget_files(&[id]).await
        {
            let error = telemetry::chain(&error);
            tracing::warn!(file = id, error, "the row of an upload that was given up stays until the sweep");
        }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}
