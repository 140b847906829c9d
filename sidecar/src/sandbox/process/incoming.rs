//! A file on its way in whose size or place is not known yet: it is kept beside the workspaces, where it holds no session up.
//!
//! INVARIANT: it has no name, so it is gone when this is dropped or the sidecar ends, and never longer than one file may be.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::Existing;
use super::session::blocking;
use super::table::Visit;
use crate::sandbox::{FileSource, SandboxError, WorkspacePath};

/// How much is read or written in one go on a thread that may block.
const PIECE_BYTES: usize = 256 << 10;

/// A file of which a part has come.
#[derive(Debug)]
pub struct Incoming {
    visit: Visit,
    /// Taken while a thread writes to it.
    file: Option<File>,
    /// What has come and is not written.
    pieces: Vec<Bytes>,
    pending: usize,
    size: u64,
    limit: u64,
}

impl Incoming {
    /// Begins a file of at most `limit` bytes in this directory, which only the sidecar reaches.
    pub(super) async fn begin(visit: Visit, directory: &Path, name: String, limit: u64) -> Result<Self, SandboxError> {
        let path = directory.join(name);
        let open = move || {
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        };
        let file = blocking(move || open().map_err(trouble)).await?;
        Ok(Self { visit, file: Some(file), pieces: Vec::new(), pending: 0, size: 0, limit })
    }

    /// Appends. Past the limit: [`SandboxError::FileTooLarge`].
    pub async fn write(&mut self, piece: Bytes) -> Result<(), SandboxError> {
        self.size += piece.len() as u64;
        if self.size > self.limit {
            return Err(SandboxError::FileTooLarge { limit: self.limit });
        }
        self.pending += piece.len();
        self.pieces.push(piece);
        if self.pending >= PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Puts the file, which has come whole, into its session, as [`crate::sandbox::SandboxBackend::put_file`] does. Gives
    /// its size in bytes.
    pub async fn keep(mut self, path: &WorkspacePath, existing: Existing) -> Result<u64, SandboxError> {
        let source = self.source().await?;
        self.visit.session.put_file(path, self.size, source, existing).await?;
        Ok(self.size)
    }

    /// The whole file, to be read once.
    async fn source(&mut self) -> Result<FileSource, SandboxError> {
        self.flush().await?;
        let mut file = self.file.take().ok_or_else(|| trouble(io::ErrorKind::BrokenPipe.into()))?;
        file.rewind().map_err(trouble)?;
        let read = move |mut file: File| {
            let mut piece = vec![0; PIECE_BYTES];
            let count = file.read(&mut piece)?;
            piece.truncate(count);
            Ok((count > 0).then(|| (Bytes::from(piece), file)))
        };
        let next = move |file| blocking(move || read(file).map_err(trouble));
        Ok(stream::try_unfold(file, next).map(|piece| piece.map_err(Into::into)).boxed())
    }

    async fn flush(&mut self) -> Result<(), SandboxError> {
        let mut file = self.file.take().ok_or_else(|| trouble(io::ErrorKind::BrokenPipe.into()))?;
        let pieces = std::mem::take(&mut self.pieces);
        self.pending = 0;
        let written = blocking(move || {
            pieces.iter().try_for_each(|piece| file.write_all(piece)).map_err(trouble)?;
            Ok(file)
        });
        self.file = Some(written.await?);
        Ok(())
    }
}

fn trouble(error: io::Error) -> SandboxError {
    let reason = "a file on its way in cannot be kept".to_owned();
    SandboxError::Unreachable { reason, source: Some(error.into()) }
}
