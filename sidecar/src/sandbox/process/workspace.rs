//! The directory tree of the sandbox on the host: one workspace a session, what sessions read, and the trash.
//!
//! INVARIANT: one sidecar at a time owns a root (by a lock), so what is found there at start is a dead one's and goes.

use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

use super::pidfd::kill_marked;
use super::{RunAs, StartupRefusal, tree};

/// Where roots go whose data directory the unprivileged user cannot reach.
const FALLBACK: &str = "/var/tmp";
const PREFIX: &str = "otari-sandbox-";
/// File of a root that names the data directory it serves.
const ORIGIN: &str = "origin";
/// A dying process may still hold a new file for an instant.
const REMOVE_ATTEMPTS: u32 = 3;

/// `<data_dir>/sandbox`, or its stand-in.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    trash: OwnedFd,
    owner: Option<RunAs>,
    stand_in: bool,
    _lock: File,
}

/// A session's files. Dropping it removes them.
#[derive(Debug)]
pub(super) struct Workspace {
    root: Arc<Root>,
    name: Option<String>,
    path: PathBuf,
}

impl Root {
    /// Opens the root, makes it this process's own and clears what a predecessor left.
    pub(super) fn open(data_dir: &Path, owner: Option<RunAs>) -> Result<Self, StartupRefusal> {
        let fault = |what: &Path, error: io::Error| {
            StartupRefusal::new(
                format!("`{}` cannot be used for sessions: {error}", what.display()),
                "set `data_dir` to a directory on a local disk that the sidecar's user may write",
            )
        };
        fs::create_dir_all(data_dir).map_err(|error| fault(data_dir, error))?;
        let data_dir = fs::canonicalize(data_dir).map_err(|error| fault(data_dir, error))?;
        let mut stand_in = false;
        let path = match owner {
            Some(owner) if !reachable(&data_dir, owner) => {
                clear_orphans();
                stand_in = true;
                let path = Path::new(FALLBACK).join(format!("{PREFIX}{}", digest(&data_dir)));
                tracing::info!(data_dir = %data_dir.display(), root = %path.display(), uid = owner.uid,
                    "the sandbox's user cannot reach the data directory; sessions live elsewhere");
                path
            }
            _ => data_dir.join("sandbox"),
        };
        let claimed = Self::claim(path.clone(), owner, stand_in).and_then(|root| {
            fs::write(root.path.join(ORIGIN), data_dir.as_os_str().as_bytes())?;
            Ok(root)
        });
        claimed.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => StartupRefusal::new(
                format!("another sidecar uses `{}`", path.display()),
                "stop the other sidecar, or give this one a `data_dir` of its own",
            ),
            _ => fault(&path, error),
        })
    }

    fn claim(path: PathBuf, owner: Option<RunAs>, stand_in: bool) -> io::Result<Self> {
        // Others pass through, to reach what is theirs by name; they list nothing.
        let mode = if owner.is_some() { 0o711 } else { 0o700 };
        directory(&path, mode)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        directory(&path.join("sessions"), mode)?;
        directory(&path.join("trash"), 0o700)?;
        directory(&path.join("incoming"), 0o700)?;
        let trash = tree::open_path(&path.join("trash"))?;
        let root = Self { path, trash, owner, stand_in, _lock: lock };
        root.clear()?;
        Ok(root)
    }

    /// First argument of every bubblewrap of this root, by which a successor knows it.
    pub(super) fn marker(&self) -> String {
        format!("{PREFIX}{}", digest(&self.path))
    }

    /// The root's own directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes an empty workspace that belongs to the sandbox's user.
    pub(super) fn workspace(self: &Arc<Self>, name: &str) -> io::Result<Workspace> {
        let path = self.path.join("sessions").join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let workspace = Workspace { root: Arc::clone(self), name: Some(name.to_owned()), path };
        if let Some(owner) = self.owner {
            std::os::unix::fs::chown(&workspace.path, Some(owner.uid), Some(owner.gid))?;
        }
        Ok(workspace)
    }

    /// Writes what every session reads: a small `/etc` and the driver.
    pub(super) fn furnish(&self, driver: &[u8]) -> io::Result<()> {
        let runtime = self.path.join("runtime");
        self.discard(&runtime, "runtime")?;
        directory(&runtime, 0o755)?;
        directory(&self.etc(), 0o755)?;
        directory(&self.driver(), 0o755)?;
        readable(&self.driver().join("driver.pyc"), driver)?;
        for (name, text) in ETC {
            readable(&self.etc().join(name), text.as_bytes())?;
        }
        for name in ETC_COPIED {
            copy(&Path::new("/etc").join(name), &self.etc().join(name), COPY_DEPTH)?;
        }
        Ok(())
    }

    /// Where files wait whose place is not known yet.
    pub(super) fn incoming(&self) -> PathBuf {
        self.path.join("incoming")
    }

    /// What sessions see as `/etc`.
    pub(super) fn etc(&self) -> PathBuf {
        self.path.join("runtime/etc")
    }

    /// What sessions see as `/otari`.
    pub(super) fn driver(&self) -> PathBuf {
        self.path.join("runtime/otari")
    }

    fn clear(&self) -> io::Result<()> {
        kill_marked(&self.marker());
        for entry in fs::read_dir(self.path.join("sessions"))? {
            let entry = entry?;
            self.discard(&entry.path(), &entry.file_name().to_string_lossy())?;
        }
        for entry in fs::read_dir(self.incoming())? {
            fs::remove_file(entry?.path())?;
        }
        for entry in fs::read_dir(self.path.join("trash"))? {
            let name = CString::new(entry?.file_name().as_bytes()).map_err(io::Error::other)?;
            tree::remove(&self.trash, &name)?;
        }
        Ok(())
    }

    /// Moves a tree into the trash and takes it down there. A second try goes on where the first one failed.
    fn discard(&self, path: &Path, name: &str) -> io::Result<()> {
        // Only a writable directory can be moved. It is no link: nobody else writes to the directory it stands in.
        if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
            fs::set_permissions(path, Permissions::from_mode(0o700))?;
        }
        match fs::rename(path, self.path.join("trash").join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        tree::remove(self.trash.as_fd(), &CString::new(name).map_err(io::Error::other)?)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // What lies in the data directory goes or stays with it; a stand-in has nobody else to take it away.
        if self.stand_in
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(%error, root = %self.path.display(), "a stand-in could not be removed");
        }
    }
}

impl Workspace {
    /// Where it lies on the host.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it with all its files. Its processes must be dead.
    pub(super) fn remove(mut self) -> io::Result<()> {
        self.discard()
    }

    fn discard(&mut self) -> io::Result<()> {
        let Some(name) = self.name.take() else { return Ok(()) };
        let mut result = self.root.discard(&self.path, &name);
        for _ in 1..REMOVE_ATTEMPTS {
            if result.is_ok() {
                break;
            }
            result = self.root.discard(&self.path, &name);
        }
        result
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Err(error) = self.discard() {
            tracing::warn!(%error, "a workspace could not be removed; the next start removes it");
        }
    }
}

/// Takes down stand-ins whose sidecar was killed and whose data directory is gone, as test runs leave them.
fn clear_orphans() {
    let Ok(entries) = fs::read_dir(FALLBACK) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let named = path.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes()));
        if !named || !owned(&path) {
            continue;
        }
        let origin = fs::read(path.join(ORIGIN)).map(OsString::from_vec);
        if origin.is_ok_and(|origin| !Path::new(&origin).exists()) {
            // Claimed as a successor would, and dropped: both clear. One that is in use refuses.
            drop(Root::claim(path, None, true));
        }
    }
}

/// Whether a user may pass through every directory on the way to `path`, by its mode bits.
pub(super) fn reachable(path: &Path, user: RunAs) -> bool {
    path.ancestors().all(|directory| {
        fs::metadata(directory).is_ok_and(|meta| {
            let shift = if meta.uid() == user.uid {
                6
            } else if meta.gid() == user.gid {
                3
            } else {
                0
            };
            !meta.is_dir() || meta.mode() >> shift & 1 == 1
        })
    })
}

const ETC: [(&str, &str); 4] = [
    ("passwd", "sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"),
    ("group", "sandbox:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
];
/// Taken over from the host where it has them: nothing secret, and libraries look for them.
const ETC_COPIED: [&str; 6] = ["alternatives", "fonts", "ld.so.cache", "localtime", "mime.types", "os-release"];
const COPY_DEPTH: u32 = 4;
const COPY_MAX_BYTES: u64 = 1 << 20;

fn copy(from: &Path, to: &Path, depth: u32) -> io::Result<()> {
    let Ok(meta) = fs::symlink_metadata(from) else { return Ok(()) };
    if meta.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, to)
    } else if meta.is_file() && meta.len() <= COPY_MAX_BYTES && meta.mode() & 0o4 != 0 {
        readable(to, &fs::read(from)?)
    } else if meta.is_dir() && depth > 0 {
        directory(to, 0o755)?;
        fs::read_dir(from)?.try_for_each(|entry| {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()), depth - 1)
        })
    } else {
        Ok(())
    }
}

/// Makes a directory of ours with exactly this mode; one that is another user's, or a link, is refused.
fn directory(path: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !owned(path) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not a directory of the sidecar's user"));
    }
    // The creating call is subject to the umask.
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Whether it is a directory, and this user's own.
fn owned(path: &Path) -> bool {
    let own = |meta: fs::Metadata| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(own)
}

fn readable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

fn digest(path: &Path) -> String {
    let hash = Sha256::digest(path.as_os_str().as_bytes());
    let number = hash.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    format!("{number:016x}")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::{Root, reachable};
    use crate::sandbox::process::RunAs;

    #[test]
    fn a_root_has_one_owner_and_clears_what_the_last_left() {
        let data = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(data.path(), None).unwrap());
        assert!(Root::open(data.path(), None).unwrap_err().to_string().contains("another sidecar"));
        let sessions = data.path().join("sandbox/sessions");
        let workspace = root.workspace("one").unwrap();
        fs::write(workspace.path().join("file"), "x").unwrap();
        workspace.remove().unwrap();
        assert_eq!(fs::read_dir(&sessions).unwrap().count(), 0);
        let left = root.workspace("two").unwrap();
        fs::write(left.path().join("file"), "x").unwrap();
        // As after a crash: nothing is dropped.
        std::mem::forget(left);
        drop(root);
        fs::create_dir(sessions.join("three")).unwrap();
        let lock = data.path().join("sandbox/lock");
        fs::remove_file(lock).unwrap();
        let _root = Root::open(data.path(), None).unwrap();
        assert_eq!(fs::read_dir(&sessions).unwrap().count(), 0);
        assert_eq!(fs::read_dir(data.path().join("sandbox/trash")).unwrap().count(), 0);
    }

    #[test]
    fn a_closed_directory_on_the_way_makes_a_path_unreachable() {
        let top = tempfile::tempdir().unwrap();
        let inner = top.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let stranger = RunAs::new(54_321, 54_321).unwrap();
        fs::set_permissions(top.path(), Permissions::from_mode(0o711)).unwrap();
        assert!(reachable(&inner, stranger));
        fs::set_permissions(top.path(), Permissions::from_mode(0o700)).unwrap();
        assert!(!reachable(&inner, stranger));
    }
}
