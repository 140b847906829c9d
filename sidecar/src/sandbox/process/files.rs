//! Files of a workspace, handled from outside while its code stands still.
//!
//! INVARIANT: untrusted code wrote everything here and might run on. A path is only ever resolved by the kernel beneath the
//! workspace's own handle, without following a link, and what was opened is looked at before it is believed.

mod list;
mod read;
mod write;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

pub(super) use list::list;
pub(super) use read::{content, open};
pub use write::Existing;
pub(super) use write::{Draft, Room, pieces};

use crate::sandbox::{FileStamp, SandboxError, WorkspacePath};

/// How much of a file is read or written in one go on a thread that may block.
const PIECE_BYTES: usize = 256 << 10;

/// Opens what lies at a path beneath `directory`. No component of it may be a link, or lie on another file system.
fn open_beneath(directory: impl AsFd, path: &CStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(directory, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Whether a directory stands at a path of a workspace.
pub(super) fn is_directory(workspace: &OwnedFd, path: &WorkspacePath) -> bool {
    CString::new(path.as_bytes())
        .is_ok_and(|path| open_beneath(workspace, &path, OFlags::PATH | OFlags::DIRECTORY).is_ok())
}

/// What an attacker cannot set back: `utimensat` changes every time but the last one here.
fn stamp(stat: &Stat) -> FileStamp {
    let number = |signed: i64| u64::from_ne_bytes(signed.to_ne_bytes());
    FileStamp([stat.st_ino, number(stat.st_size), number(stat.st_ctime), stat.st_ctime_nsec])
}

/// The workspace itself gives trouble.
pub(super) fn failed(error: impl Into<io::Error>) -> SandboxError {
    let source: io::Error = error.into();
    SandboxError::Unreachable { reason: "its files cannot be used".to_owned(), source: Some(source.into()) }
}

/// What the kernel says of a path that leads nowhere, or not where it may.
fn leads_nowhere(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS | Errno::AGAIN)
}
