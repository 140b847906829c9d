//! Reads one file of a workspace.
//!
//! INVARIANT: only a regular file is ever opened for reading, at most as many bytes are read as it was said to have, and
//! one that changes meanwhile ends with an error.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use rustix::fs::{CWD, FileType, Mode, OFlags};

use super::{PIECE_BYTES, failed, leads_nowhere, list, open_beneath, stamp};
use crate::sandbox::{FileContent, FileStamp, SandboxError, WorkspacePath};

/// A file open for reading.
#[derive(Debug)]
pub(in super::super) struct Opened {
    file: File,
    size: u64,
    stamp: FileStamp,
}

impl Opened {
    /// How long it is.
    pub(in super::super) fn size(&self) -> u64 {
        self.size
    }
}

/// Opens a file of at most `max_bytes`.
pub(in super::super) fn open(workspace: OwnedFd, path: &WorkspacePath, max_bytes: u64) -> Result<Opened, SandboxError> {
    let c_path = CString::new(path.as_bytes()).map_err(|_| SandboxError::UnknownFile)?;
    let found = open_beneath(&workspace, &c_path, OFlags::PATH)
        .map_err(|error| if leads_nowhere(error) { SandboxError::UnknownFile } else { failed(error) })?;
    let stat = rustix::fs::fstat(&found).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(SandboxError::UnknownFile);
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size > max_bytes {
        return Err(SandboxError::FileTooLarge { limit: max_bytes });
    }
    // Another name of it may lie outside. Whether all are inside only the whole workspace tells.
    if stat.st_nlink > 1 && !list(workspace).files.iter().any(|file| file.path == *path) {
        return Err(SandboxError::UnknownFile);
    }
    // What was looked at is what is opened, whoever stands at its path by now. A pipe would block even the opening.
    let itself = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, itself, flags, Mode::empty());
    let file = file.map_err(|error| if leads_nowhere(error) { SandboxError::UnknownFile } else { failed(error) })?;
    Ok(Opened { file: file.into(), size, stamp: stamp(&stat) })
}

/// What it holds, piece by piece; a piece is read when it is asked for.
pub(in super::super) fn content(opened: Opened) -> FileContent {
    let left = opened.size;
    stream::try_unfold(Some((opened, left)), |state| async move {
        let Some((opened, left)) = state else { return Ok(None) };
        tokio::task::spawn_blocking(move || next(opened, left))
            .await
            .map_err(|error| failed(std::io::Error::from(error)))?
    })
    .boxed()
}

type Next = Option<(Bytes, Option<(Opened, u64)>)>;

fn next(mut opened: Opened, left: u64) -> Result<Next, SandboxError> {
    let changed = || SandboxError::Refused { reason: "the file changed while it was read".to_owned() };
    let wanted = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
    let mut piece = vec![0; wanted];
    opened.file.read_exact(&mut piece).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => changed(),
        _ => failed(error),
    })?;
    let left = left - wanted as u64;
    if left > 0 {
        return Ok(Some((piece.into(), Some((opened, left)))));
    }
    let stat = rustix::fs::fstat(&opened.file).map_err(failed)?;
    if stamp(&stat) != opened.stamp {
        return Err(changed());
    }
    Ok((!piece.is_empty()).then(|| (piece.into(), None)))
}
