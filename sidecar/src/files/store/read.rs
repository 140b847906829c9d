//! Reading a blob, piece by piece.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{GetOptions, GetResultPayload, ObjectStore};

use super::StoreError;

/// Bytes read at once from a local file.
const PIECE_BYTES: u64 = 256 << 10;

type Pieces = BoxStream<'static, Result<Bytes, StoreError>>;

/// `range` of a blob, not empty, of which the first piece was read.
pub(super) async fn open(store: &dyn ObjectStore, key: &Path, range: Range<u64>) -> Result<Pieces, StoreError> {
    let options = GetOptions { range: Some(range.clone().into()), ..GetOptions::default() };
    let found = store.get_opts(key, options).await?;
    if found.range != range {
        return Err(StoreError::Short);
    }
    let pieces = match found.payload {
        GetResultPayload::File(file, _) => of_file(file, range.clone()),
        GetResultPayload::Stream(pieces) => pieces.map_err(StoreError::from).boxed(),
    };
    primed(whole(pieces, range.end - range.start)).await
}

/// The store's own reader takes 8 KiB at a time, and goes on for ever with a file that ends early.
fn of_file(file: File, range: Range<u64>) -> Pieces {
    stream::try_unfold((Arc::new(file), range), |(file, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let end = range.end.min(range.start.saturating_add(PIECE_BYTES));
        let length = usize::try_from(end - range.start).unwrap_or(usize::MAX);
        let (from, at) = (Arc::clone(&file), range.start);
        let read = move || {
            let mut piece = vec![0; length];
            from.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece))
        };
        let piece = tokio::task::spawn_blocking(read).await.map_err(|_| StoreError::Stopped)?;
        let piece = piece.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => StoreError::Short,
            _ => StoreError::Failed(object_store::Error::Generic { store: "file", source: error.into() }),
        })?;
        Ok(Some((piece, (file, end..range.end))))
    })
    .boxed()
}

/// The same pieces, and an error at the end if they are not `length` bytes.
fn whole(pieces: Pieces, length: u64) -> Pieces {
    stream::try_unfold((pieces, length), |(mut pieces, left)| async move {
        match pieces.try_next().await? {
            None if left == 0 => Ok(None),
            None => Err(StoreError::Short),
            Some(piece) => match left.checked_sub(piece.len() as u64) {
                Some(left) => Ok(Some((piece, (pieces, left)))),
                None => Err(StoreError::Short),
            },
        }
    })
    .boxed()
}

/// Reads the first piece: what fails at once is an error of the whole.
async fn primed(mut pieces: Pieces) -> Result<Pieces, StoreError> {
    let first = pieces.try_next().await?;
    Ok(stream::iter(first.map(Ok)).chain(pieces).boxed())
}
