//! Writing a blob: at once if it is small, in parts if it is not.
//!
//! INVARIANT: a blob that is given up is removed after the last call for it has ended: none can make it whole behind our
//! back. So a writer lives in a task that nobody drops, and ends in `commit` or `abort`.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload};
use tokio::task::JoinHandle;

use super::super::id::FileId;
use super::super::kill_point;
use super::{FileStore, StoreError};

/// Parts on their way at once, while the next one fills.
const PARTS_IN_FLIGHT: usize = 2;
/// Shorter pieces are copied together: each has a cost of its own, which for a byte is a hundred times the byte.
const LEAST_PIECE_BYTES: usize = 16 << 10;

/// A blob on its way into the store.
pub(in crate::files) struct BlobWriter {
    store: FileStore,
    id: FileId,
    /// What has not been sent; less than one part.
    pieces: Vec<Bytes>,
    /// What comes behind the pieces, copied together.
    tail: BytesMut,
    /// Bytes of both.
    held: usize,
    multipart: Option<Box<dyn MultipartUpload>>,
    committed: bool,
    in_flight: VecDeque<JoinHandle<object_store::Result<()>>>,
}

impl BlobWriter {
    pub(super) fn new(store: FileStore, id: FileId) -> Self {
        Self {
            store,
            id,
            pieces: Vec::new(),
            tail: BytesMut::new(),
            held: 0,
            multipart: None,
            committed: false,
            in_flight: VecDeque::new(),
        }
    }

    /// Takes more bytes. Waits while [`PARTS_IN_FLIGHT`] parts are on their way.
    pub(in crate::files) async fn write(&mut self, mut piece: Bytes) -> Result<(), StoreError> {
        while !piece.is_empty() {
            let room = self.store.part_bytes.saturating_sub(self.held);
            let some = piece.split_to(piece.len().min(room));
            self.held = self.held.saturating_add(some.len());
            self.hold(some);
            if self.held >= self.store.part_bytes {
                self.send_part().await?;
            }
        }
        Ok(())
    }

    /// Makes the blob whole.
    pub(in crate::files) async fn commit(&mut self) -> Result<(), StoreError> {
        if self.multipart.is_none() {
            let payload = self.take_payload();
            self.store.store.put(&self.store.key(&self.id), payload).await?;
        } else if self.held > 0 {
            self.send_part().await?;
        }
        self.settle(0).await?;
        if let Some(multipart) = &mut self.multipart {
            multipart.complete().await?;
        }
        // There is nothing to abort any more, only to delete.
        self.multipart = None;
        self.committed = true;
        Ok(())
    }

    /// Whether the blob is whole.
    pub(in crate::files) fn is_committed(&self) -> bool {
        self.committed
    }

    /// Takes everything back: parts, and the blob if it is whole already.
    pub(in crate::files) async fn abort(mut self) -> Result<(), StoreError> {
        // What the last calls came to is of no interest any more, that they are over is.
        while let Some(part) = self.in_flight.pop_front() {
            drop(part.await);
        }
        let aborted = match &mut self.multipart {
            Some(multipart) => multipart.abort().await,
            None => Ok(()),
        };
        // A commit may have got through though its answer did not; then there is nothing to abort, but a blob.
        self.store.delete(&self.id).await?;
        match aborted {
            // Over SFTP there is nothing but the blob.
            Err(object_store::Error::NotFound { .. } | object_store::Error::NotSupported { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn hold(&mut self, piece: Bytes) {
        if piece.len() >= LEAST_PIECE_BYTES {
            self.end_tail();
            self.pieces.push(piece);
            return;
        }
        self.tail.extend_from_slice(&piece);
        if self.tail.len() >= LEAST_PIECE_BYTES {
            self.end_tail();
        }
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push(std::mem::take(&mut self.tail).freeze());
        }
    }

    async fn send_part(&mut self) -> Result<(), StoreError> {
        if self.multipart.is_none() {
            self.multipart = Some(self.store.store.put_multipart(&self.store.key(&self.id)).await?);
            kill_point::reached("in parts");
        }
        self.settle(PARTS_IN_FLIGHT.saturating_sub(1)).await?;
        let payload = self.take_payload();
        if let Some(multipart) = &mut self.multipart {
            let part = multipart.put_part(payload);
            self.in_flight.push_back(self.store.tasks.spawn(part));
        }
        Ok(())
    }

    /// Waits until at most so many parts are on their way.
    async fn settle(&mut self, at_most: usize) -> Result<(), StoreError> {
        while self.in_flight.len() > at_most {
            if let Some(oldest) = self.in_flight.front_mut() {
                let done = oldest.await;
                drop(self.in_flight.pop_front());
                done.map_err(|_| StoreError::Stopped)??;
                kill_point::reached("part sent");
            }
        }
        Ok(())
    }

    fn take_payload(&mut self) -> PutPayload {
        self.held = 0;
        self.end_tail();
        std::mem::take(&mut self.pieces).into_iter().collect()
    }
}

impl std::fmt::Debug for BlobWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobWriter").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::task::TaskTracker;

    use super::super::super::target::StoreTarget;
    use super::*;
    use crate::ids::SystemIds;

    #[tokio::test]
    async fn a_blob_that_comes_byte_by_byte_takes_little_more_than_its_bytes() {
        const BYTES: usize = 1 << 20;
        let store = FileStore {
            part_bytes: 2 * BYTES,
            ..FileStore::open(&StoreTarget::Memory, 1, TaskTracker::new()).unwrap()
        };
        let id = FileId::mint(&SystemIds);
        let mut writer = store.write(&id);
        for at in 0..BYTES {
            // As they come off the wire: each with an allocation of its own behind it.
            writer.write(Bytes::from(vec![u8::try_from(at % 251).unwrap()])).await.unwrap();
        }
        assert_eq!(writer.held, BYTES);
        assert_eq!(writer.pieces.len(), BYTES / LEAST_PIECE_BYTES, "each piece is long");
        assert!(writer.tail.capacity() <= 2 * LEAST_PIECE_BYTES, "{}", writer.tail.capacity());
        let long = Bytes::from(vec![7; LEAST_PIECE_BYTES]);
        writer.write(Bytes::from_static(b"short")).await.unwrap();
        writer.write(long.clone()).await.unwrap();
        assert_eq!(writer.pieces.last().map(|piece| piece.as_ptr()), Some(long.as_ptr()), "a long one is not copied");
        writer.commit().await.unwrap();
        let whole = store.store.get(&store.key(&id)).await.unwrap().bytes().await.unwrap();
        assert_eq!(whole.len(), BYTES + 5 + LEAST_PIECE_BYTES);
        assert!(whole[..BYTES].iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251));
        assert_eq!((&whole[BYTES..BYTES + 5], whole[BYTES + 5]), (&b"short"[..], 7));
    }
}
