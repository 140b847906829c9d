//! Lists the files of a workspace.
//!
//! INVARIANT: no link is followed, and neither the depth nor the number of entries costs more than its limit.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Stat};
use rustix::io::Errno;

use super::stamp;
use crate::sandbox::files::is_hidden;
use crate::sandbox::process::tree::{is_dots, open_directory};
use crate::sandbox::{ListedFile, Listing, MAX_LISTED, MAX_PATH_BYTES, MAX_PATH_NAMES, WorkspacePath};

/// Entries of directories that are looked at, whatever they are.
const MAX_WALKED: u64 = 100_000;

/// A file that has several names. Only if all of them are in the workspace is it the workspace's own.
#[derive(Default)]
struct Links {
    seen: u64,
    all: u64,
}

#[derive(Default)]
struct Walk {
    listing: Listing,
    links: HashMap<u64, Links>,
    /// The path of the directory now open, with a `/` at its end, and then of the entry.
    path: Vec<u8>,
    walked: u64,
}

/// Lists every file that may be taken out.
pub(in super::super) fn list(workspace: OwnedFd) -> Listing {
    let mut walk = Walk::default();
    match Dir::new(workspace) {
        Ok(top) => walk.run(top),
        Err(_) => walk.listing.left_out += 1,
    }
    let Walk { mut listing, links, .. } = walk;
    let before = listing.files.len();
    listing.files.retain(|file| links.get(&file.stamp.0[0]).is_none_or(|links| links.seen >= links.all));
    listing.left_out += (before - listing.files.len()) as u64;
    listing
}

impl Walk {
    fn run(&mut self, top: Dir) {
        let mut open = vec![(top, 0)];
        loop {
            let depth = open.len();
            let Some((directory, prefix)) = open.last_mut() else { return };
            self.path.truncate(*prefix);
            let entry = match directory.next() {
                Some(Ok(entry)) => entry,
                end => {
                    self.listing.left_out += u64::from(end.is_some());
                    open.pop();
                    continue;
                }
            };
            let name = entry.file_name();
            if is_dots(name) {
                continue;
            }
            self.walked += 1;
            if self.walked > MAX_WALKED {
                self.listing.left_out += 1;
                return;
            }
            // Gone in the meantime: nothing to list.
            let Ok(parent) = directory.fd() else { continue };
            let Ok(stat) = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            self.path.extend_from_slice(name.to_bytes());
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => self.file(&stat),
                FileType::Directory if !is_hidden(name.to_bytes()) => {
                    self.path.push(b'/');
                    let fits = self.path.len() < MAX_PATH_BYTES && depth < MAX_PATH_NAMES;
                    match fits.then(|| open_directory(parent, name).and_then(Dir::new)) {
                        Some(Ok(inner)) => open.push((inner, self.path.len())),
                        Some(Err(Errno::NOENT)) => {}
                        _ => self.listing.left_out += 1,
                    }
                }
                _ => {}
            }
        }
    }

    fn file(&mut self, stat: &Stat) {
        if stat.st_nlink > 1 {
            let links = self.links.entry(stat.st_ino).or_default();
            links.seen += 1;
            links.all = stat.st_nlink;
        }
        let path = WorkspacePath::parse(&self.path).filter(|_| self.listing.files.len() < MAX_LISTED);
        let Some(path) = path else {
            self.listing.left_out += 1;
            return;
        };
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        self.listing.files.push(ListedFile { path, size_bytes, stamp: stamp(stat) });
    }
}
