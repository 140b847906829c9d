//! Looks at and removes directory trees that hostile code built.
//!
//! INVARIANT: no symbolic link is followed, and neither depth nor number of entries costs stack or descriptors.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Deepest nesting that is looked into; deeper than any real project.
const MAX_DEPTH: usize = 64;
const BLOCK_BYTES: u64 = 512;

/// What a workspace takes up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) bytes: u64,
    pub(super) entries: u64,
    /// A part could not be looked into: nested too deep, or closed by its permissions.
    pub(super) hidden: bool,
}

/// Opens a directory without following a link in the last component.
pub(super) fn open_directory(parent: impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Opens a directory by its path.
pub(super) fn open_path(path: &std::path::Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Adds up a tree, stopping early once `max_entries` is passed. May run while its owner writes.
pub(super) fn measure(directory: OwnedFd, max_entries: u64) -> Usage {
    let mut usage = Usage::default();
    let Ok(top) = Dir::new(directory) else {
        return Usage { hidden: true, ..usage };
    };
    let mut open = vec![top];
    loop {
        let depth = open.len();
        let Some(directory) = open.last_mut() else { return usage };
        let Some(entry) = directory.next() else {
            open.pop();
            continue;
        };
        let Ok(entry) = entry else {
            usage.hidden = true;
            open.pop();
            continue;
        };
        let name = entry.file_name();
        if is_dots(name) {
            continue;
        }
        // Gone in the meantime: nothing to add.
        let Ok(parent) = directory.fd() else { continue };
        let Ok(stat) = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        usage.entries += 1;
        usage.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES;
        if usage.entries > max_entries {
            return usage;
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let inner = (depth < MAX_DEPTH).then(|| open_directory(parent, name).and_then(Dir::new));
            match inner {
                Some(Ok(inner)) => open.push(inner),
                Some(Err(Errno::NOENT)) => {}
                _ => usage.hidden = true,
            }
        }
    }
}

/// Removes `name` and all below it from `trash`, a directory nobody else writes to. The tree's owner must be dead.
///
/// Every directory found is first moved up into `trash`, so the tree gets flat as it is taken down.
pub(super) fn remove(trash: impl AsFd, name: &CStr) -> io::Result<()> {
    let trash = trash.as_fd();
    let stat = match rustix::fs::statat(trash, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(rustix::fs::unlinkat(trash, name, AtFlags::empty())?);
    }
    let mut moved: u64 = 0;
    let mut pending = vec![name.to_owned()];
    while let Some(current) = pending.pop() {
        // Not a link (checked, and nobody is left to swap it), so this follows nothing.
        rustix::fs::chmodat(trash, &current, Mode::RWXU, AtFlags::empty())?;
        let directory = open_directory(trash, &current)?;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let inner = entry.file_name();
            if is_dots(inner) {
                continue;
            }
            match rustix::fs::unlinkat(&directory, inner, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR | Errno::PERM) => {}
                Err(error) => return Err(error.into()),
            }
            // A directory's parent can change only if the directory itself is writable.
            rustix::fs::chmodat(&directory, inner, Mode::RWXU, AtFlags::empty())?;
            moved += 1;
            let target = numbered(name, moved)?;
            rustix::fs::renameat_with(&directory, inner, trash, &target, RenameFlags::NOREPLACE)?;
            pending.push(target);
        }
        rustix::fs::unlinkat(trash, &current, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

fn numbered(name: &CStr, number: u64) -> io::Result<CString> {
    let mut bytes = name.to_bytes().to_vec();
    bytes.extend_from_slice(format!(".{number}").as_bytes());
    CString::new(bytes).map_err(io::Error::other)
}

/// A directory's names for itself and its parent.
pub(super) fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::{measure, open_directory, open_path, remove};

    /// Deeper than a path may be long, so that only relative calls reach its end.
    fn dig(top: &std::path::Path, depth: usize) {
        let mut here = open_path(top).unwrap();
        for _ in 0..depth {
            rustix::fs::mkdirat(&here, c"deep", rustix::fs::Mode::RWXU).unwrap();
            here = open_directory(&here, c"deep").unwrap();
        }
    }

    #[test]
    fn a_hostile_tree_is_removed_and_what_it_points_to_stays() {
        let outside = tempfile::tempdir().unwrap();
        let kept = outside.path().join("kept");
        fs::write(&kept, "kept").unwrap();
        fs::create_dir(outside.path().join("directory")).unwrap();
        let trash = tempfile::tempdir().unwrap();
        let tree = trash.path().join("session");
        fs::create_dir(&tree).unwrap();
        symlink(&kept, tree.join("link")).unwrap();
        symlink(outside.path(), tree.join("links")).unwrap();
        fs::create_dir(tree.join("closed")).unwrap();
        fs::write(tree.join("closed/file"), "x").unwrap();
        fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        dig(&tree, 1500);

        remove(open_path(trash.path()).unwrap(), c"session").unwrap();

        assert_eq!(fs::read_dir(trash.path()).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(kept).unwrap(), "kept");
        assert!(outside.path().join("directory").is_dir());
        remove(open_path(trash.path()).unwrap(), c"session").unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_the_tree_is_removed_itself() {
        let outside = tempfile::tempdir().unwrap();
        let trash = tempfile::tempdir().unwrap();
        symlink(outside.path(), trash.path().join("session")).unwrap();
        remove(open_path(trash.path()).unwrap(), c"session").unwrap();
        assert!(outside.path().is_dir());
        assert_eq!(fs::read_dir(trash.path()).unwrap().count(), 0);
    }

    #[test]
    fn usage_counts_blocks_and_entries_and_tells_what_it_cannot_see() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("file"), vec![1u8; 100_000]).unwrap();
        fs::File::create(top.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
        symlink("/usr", top.path().join("link")).unwrap();
        let usage = measure(open_path(top.path()).unwrap(), 1000);
        assert_eq!(usage.entries, 3);
        assert!((100_000..200_000).contains(&usage.bytes), "{usage:?}");
        assert!(!usage.hidden);
        assert_eq!(measure(open_path(top.path()).unwrap(), 1).entries, 2);

        dig(top.path(), 100);
        assert!(measure(open_path(top.path()).unwrap(), 1000).hidden);
    }
}
