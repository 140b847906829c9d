//! Writes one file into a workspace.
//!
//! INVARIANT: a file is there whole or not at all, and in the place of another only where that was asked for.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use super::{PIECE_BYTES, failed, leads_nowhere, open_beneath};
use crate::sandbox::process::{RunAs, SandboxLimits, tree};
use crate::sandbox::{FileSource, SandboxError, WorkspacePath};

/// Names tried for a file that is not complete; more than one is taken only if the session's code took it on purpose.
const TEMPORARY_NAMES: u32 = 16;
const OCCUPIED: SandboxError = SandboxError::BadPath { reason: "something else is there" };

/// What becomes of another file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the new one is refused.
    Kept,
    /// The new one takes its place; of a link too, but not of a directory.
    Replaced,
}

/// What a workspace still takes.
#[derive(Debug)]
pub(in super::super) struct Room {
    bytes: u64,
    entries: u64,
}

/// A file that is being written. Dropping it removes it.
#[derive(Debug)]
pub(in super::super) struct Draft {
    directory: OwnedFd,
    file: File,
    /// Its name for now; nothing once it has its own.
    temporary_name: Option<CString>,
    name: CString,
}

impl Room {
    /// Looks at what a workspace takes up already.
    pub(in super::super) fn of(workspace: OwnedFd, limits: &SandboxLimits) -> Self {
        let usage = tree::measure(workspace, limits.workspace_entries);
        Self {
            bytes: limits.workspace_bytes.saturating_sub(usage.bytes).min(limits.file_bytes),
            entries: limits.workspace_entries.saturating_sub(usage.entries),
        }
    }

    /// Whether a file fits in, with all directories that may be missing above it.
    pub(in super::super) fn takes(&self, path: &WorkspacePath, size: u64) -> Result<(), SandboxError> {
        if size > self.bytes {
            return Err(SandboxError::FileTooLarge { limit: self.bytes });
        }
        if path.names().count() as u64 > self.entries {
            return Err(SandboxError::BadPath { reason: "the workspace has as many files as it may have" });
        }
        Ok(())
    }
}

impl Draft {
    /// Begins a file that belongs to `owner`, and makes the directories above it.
    pub(in super::super) fn begin(
        workspace: OwnedFd,
        path: &WorkspacePath,
        owner: Option<RunAs>,
    ) -> Result<Self, SandboxError> {
        let names: Option<Vec<CString>> = path.names().map(|name| CString::new(name).ok()).collect();
        let Some((name, directories)) = names.as_deref().and_then(<[CString]>::split_last) else {
            return Err(SandboxError::BadPath { reason: "it has no name" });
        };
        let mut directory = workspace;
        for name in directories {
            directory = enter(&directory, name, owner)?;
        }
        let (file, temporary_name) = create(&directory)?;
        let draft = Self { directory, file, temporary_name: Some(temporary_name), name: name.clone() };
        // The creating call is subject to the umask.
        rustix::fs::fchmod(&draft.file, Mode::from_raw_mode(0o644)).map_err(failed)?;
        give(&draft.file, owner)?;
        Ok(draft)
    }

    /// Appends.
    pub(in super::super) fn write(&mut self, pieces: &[Bytes]) -> Result<(), SandboxError> {
        for piece in pieces {
            self.file.write_all(piece).map_err(failed)?;
        }
        Ok(())
    }

    /// Gives it its own name.
    pub(in super::super) fn publish(mut self, existing: Existing) -> Result<(), SandboxError> {
        let Some(temporary_name) = self.temporary_name.as_deref() else { return Ok(()) };
        let flags = match existing {
            Existing::Kept => RenameFlags::NOREPLACE,
            Existing::Replaced => RenameFlags::empty(),
        };
        match rustix::fs::renameat_with(&self.directory, temporary_name, &self.directory, &self.name, flags) {
            Ok(()) => {
                self.temporary_name = None;
                Ok(())
            }
            Err(Errno::EXIST | Errno::ISDIR) => Err(OCCUPIED),
            Err(error) => Err(failed(error)),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = self.temporary_name.take()
            && let Err(error) = rustix::fs::unlinkat(&self.directory, &name, AtFlags::empty())
        {
            tracing::warn!(error = %io::Error::from(error), "half a file stays until its session ends");
        }
    }
}

/// Gathers what comes into pieces worth a trip to a thread that may block.
pub(in super::super) fn pieces(
    source: FileSource,
) -> impl Stream<Item = Result<Vec<Bytes>, Box<dyn std::error::Error + Send + Sync>>> + Send {
    stream::try_unfold(Some(source), |source| async move {
        let Some(mut source) = source else { return Ok(None) };
        let (mut piece, mut size) = (Vec::new(), 0);
        while size < PIECE_BYTES {
            let Some(bytes) = source.try_next().await? else { return Ok(Some((piece, None))) };
            size += bytes.len();
            piece.push(bytes);
        }
        Ok(Some((piece, Some(source))))
    })
    .boxed()
}

/// Opens a directory, and makes it if there is nothing.
fn enter(parent: &OwnedFd, name: &CStr, owner: Option<RunAs>) -> Result<OwnedFd, SandboxError> {
    let made = match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(failed(error)),
    };
    let directory = open_beneath(parent, name, OFlags::RDONLY | OFlags::DIRECTORY);
    let directory = directory.map_err(|error| if leads_nowhere(error) { OCCUPIED } else { failed(error) })?;
    if made {
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o755)).map_err(failed)?;
        give(&directory, owner)?;
    }
    Ok(directory)
}

/// Makes a new file under a name that nobody asked for.
fn create(directory: &OwnedFd) -> Result<(File, CString), SandboxError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for number in 0..TEMPORARY_NAMES {
        let name = CString::new(format!(".otari-incoming-{number}")).map_err(|error| failed(io::Error::from(error)))?;
        match rustix::fs::openat(directory, &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return Ok((file.into(), name)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(OCCUPIED)
}

/// Makes it the sandbox's user's, where that is another than the sidecar's.
fn give(file: impl std::os::fd::AsFd, owner: Option<RunAs>) -> Result<(), SandboxError> {
    let Some(owner) = owner else { return Ok(()) };
    rustix::fs::fchown(file, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid))).map_err(failed)
}
