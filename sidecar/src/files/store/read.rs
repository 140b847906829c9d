//! Reading a blob, piece by piece.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{GetOptions, GetResultPayload, ObjectStore};

use super::StoreError;

/// Bytes read at once from a local file. Each piece is a hop to another thread, and waits in memory for its reader.
const PIECE_BYTES: u64 = 512 << 10;

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
    stream::try_unfold((file, range), |(file, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let length = PIECE_BYTES.min(range.end - range.start);
        let read = tokio::task::spawn_blocking(move || piece(file, range.start, length));
        let (file, piece) = read.await.map_err(|_| StoreError::Stopped)?.map_err(|error| {
            StoreError::Failed(object_store::Error::Generic { store: "file", source: error.into() })
        })?;
        if piece.len() as u64 != length {
            return Err(StoreError::Short);
        }
        Ok(Some((piece, (file, range.start + length..range.end))))
    })
    .boxed()
}

/// Up to `length` bytes of a file; fewer where it ends.
fn piece(mut file: File, at: u64, length: u64) -> io::Result<(File, Bytes)> {
    file.seek(SeekFrom::Start(at))?;
    // Read into memory that nobody has filled with zeros before.
    let mut piece = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    (&mut file).take(length).read_to_end(&mut piece)?;
    Ok((file, piece.into()))
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
