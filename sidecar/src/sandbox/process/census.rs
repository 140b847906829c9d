//! Who lives in a session, and what each holds, as the kernel tells in `/proc`.
//!
//! INVARIANT: what is told is told by threads, not by processes: a process whose first thread has ended shows neither
//! memory nor files of its own while its other threads go on using both.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// More processes than any limit on tasks admits; the walk ends there.
const MAX_TASKS: usize = 16_384;
const KIB: u64 = 1024;

/// A process and all below it. In a pid namespace orphans fall to process 1, so none can leave this tree.
pub(super) fn descendants(init: Pid) -> Vec<i32> {
    let mut found = vec![init.as_raw_pid()];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        for thread in thread_directories(pid) {
            let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
            found.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<i32>().ok()));
            if found.len() > MAX_TASKS {
                return found;
            }
        }
    }
    found
}

/// `/proc/PID/task/TID` of every thread; empty for a process that is gone.
pub(super) fn thread_directories(pid: i32) -> Vec<PathBuf> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads.flatten().map(|thread| thread.path()).collect()
}

/// Memory of a process.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// What it has of its own: anonymous pages, present or swapped, huge ones, page tables.
    pub(super) own: u64,
    /// All that its address space can reach, which nothing it has mapped can exceed.
    pub(super) reach: u64,
    /// The thread that told.
    teller: PathBuf,
}

impl Memory {
    /// Cheap to read; pages shared by a fork count in each process. `None` for a process that has none any more.
    pub(super) fn of(pid: i32) -> Option<Self> {
        const OWN: [&str; 4] = ["RssAnon:", "VmSwap:", "VmPTE:", "HugetlbPages:"];
        thread_directories(pid).into_iter().find_map(|teller| {
            let status = fs::read_to_string(teller.join("status")).ok()?;
            let own = kilobytes(&status, &OWN)?;
            Some(Self { own, reach: kilobytes(&status, &["VmSize:", "VmPTE:"])?, teller })
        })
    }

    /// What it has of its own, with shared pages split between those who share them; [`Self::own`] where the kernel
    /// does not tell.
    pub(super) fn proportional(&self) -> u64 {
        let rollup = fs::read_to_string(self.teller.join("smaps_rollup")).unwrap_or_default();
        kilobytes(&rollup, &["Pss_Anon:", "SwapPss:"]).unwrap_or(self.own)
    }

    /// What it has mapped that no directory names, as far as that lies on other devices than `elsewhere`.
    pub(super) fn nameless(&self, elsewhere: &[u64]) -> io::Result<Vec<Piece>> {
        let maps = fs::read_to_string(self.teller.join("maps"))?;
        Ok(maps.lines().filter_map(piece).filter(|piece| !elsewhere.contains(&piece.device)).collect())
    }
}

/// A part of a file or of shared memory that is mapped although no directory names it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) device: u64,
    pub(super) number: u64,
    /// Where it ends within the whole.
    pub(super) end: u64,
}

/// Reads one line of `maps`. Shared memory that its owner has named stands there in brackets.
fn piece(line: &str) -> Option<Piece> {
    let mut fields = line.split_ascii_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    let shared = fields.next()?.ends_with('s');
    let offset = fields.next()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let number = fields.next()?.parse().ok().filter(|number| *number > 0)?;
    (shared && fields.next().is_some_and(|name| name.starts_with('[')) || line.ends_with(" (deleted)")).then_some(())?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(u32::try_from(hex(major)?).ok()?, u32::try_from(hex(minor)?).ok()?);
    Some(Piece { device, number, end: hex(offset)? + hex(to)?.saturating_sub(hex(from)?) })
}

/// The device of the kernel's own file system for shared memory without a name.
pub(super) fn shared_memory_device() -> io::Result<u64> {
    let probe = rustix::fs::memfd_create("sandbox", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(rustix::fs::fstat(&probe)?.st_dev)
}

/// What a process holds through its open files.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Number and bytes of files that no directory names any more.
    pub(super) unlinked: Vec<(u64, u64)>,
    /// Number of each socket, and how many open files are on their way in it.
    pub(super) in_flight: Vec<(u64, u64)>,
}

impl Held {
    /// Looks at every open file of a process, leaving out files on the devices `elsewhere`. An error is a process that
    /// does not let itself be looked at.
    pub(super) fn of(pid: i32, elsewhere: &[u64]) -> io::Result<Self> {
        const BLOCK_BYTES: u64 = 512;
        let mut held = Self::default();
        for thread in thread_directories(pid) {
            let files = match fs::read_dir(thread.join("fd")) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && has_memory(&thread) => {
                    return Err(error);
                }
                files => files,
            };
            for file in files.into_iter().flatten().flatten() {
                let Ok(meta) = fs::metadata(file.path()) else { continue };
                if meta.is_file() && meta.nlink() == 0 && !elsewhere.contains(&meta.dev()) {
                    held.unlinked.push((meta.ino(), meta.blocks() * BLOCK_BYTES));
                } else if meta.file_type().is_socket() {
                    let info = fs::read_to_string(thread.join("fdinfo").join(file.file_name())).unwrap_or_default();
                    held.in_flight.push((meta.ino(), value(&info, "scm_fds:").unwrap_or(0)));
                }
            }
        }
        Ok(held)
    }
}

/// A dying thread has given up its memory, and nobody can look at it any more.
fn has_memory(thread: &Path) -> bool {
    fs::read_to_string(thread.join("status")).is_ok_and(|status| status.contains("VmSize:"))
}

/// Sockets of a session, those on their way between processes too.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sockets {
    pub(super) count: u64,
    /// Bytes that wait in those whose buffers grow on their own.
    pub(super) queued: u64,
}

impl Sockets {
    /// Asks the network namespace of process 1.
    pub(super) fn of(init: Pid) -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/{}/net/{name}", init.as_raw_pid()));
        let count = read("sockstat").ok().and_then(|text| value(&text, "sockets: used"));
        let count = count.unwrap_or(0);
        let tables = if count > 0 { vec![read("tcp"), read("tcp6")] } else { Vec::new() };
        let queued = tables.iter().flatten().flat_map(|table| table.lines().skip(1)).filter_map(queued).sum();
        Self { count, queued }
    }
}

/// Bytes that wait in one socket of a table of the kernel's.
fn queued(line: &str) -> Option<u64> {
    let (sent, received) = line.split_ascii_whitespace().nth(4)?.split_once(':')?;
    Some(u64::from_str_radix(sent, 16).ok()? + u64::from_str_radix(received, 16).ok()?)
}

/// The number after a name at the start of a line.
fn value(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// The sum of lines such as `VmPTE: 12 kB`, in bytes. `None` if there is none of them.
fn kilobytes(text: &str, names: &[&str]) -> Option<u64> {
    let mut values = names.iter().filter_map(|name| value(text, name)).peekable();
    values.peek().is_some().then_some(())?;
    Some(values.sum::<u64>() * KIB)
}

#[cfg(test)]
mod tests {
    use super::{Memory, Piece, descendants, kilobytes, piece, queued, value};

    #[test]
    fn own_memory_is_seen_by_both_figures() {
        const BIG: usize = 64 << 20;
        let filled = vec![1u8; BIG];
        let pid = rustix::process::getpid();
        let memory = Memory::of(pid.as_raw_pid()).unwrap();
        assert!(memory.own >= BIG as u64 && memory.reach >= memory.own);
        assert!(memory.proportional() >= BIG as u64);
        assert!(descendants(pid).contains(&pid.as_raw_pid()));
        drop(filled);
    }

    #[test]
    fn lines_are_added_up_in_bytes() {
        let text = "VmRSS:\t9 kB\nRssAnon:\t   12 kB\nRssFile:\t 1 kB\nVmPTE:\t 3 kB\n";
        assert_eq!(kilobytes(text, &["RssAnon:", "VmPTE:", "VmSwap:"]), Some(15 * 1024));
        assert_eq!(kilobytes(text, &["VmSwap:"]), None);
        assert_eq!(value("sockets: used 7\nTCP: inuse 1\n", "sockets: used"), Some(7));
    }

    #[test]
    fn what_is_mapped_without_a_name_is_known_and_measured_to_its_end() {
        let found = Piece { device: rustix::fs::makedev(0, 1), number: 1043, end: 0x3000 };
        for line in [
            "7f01000000-7f01002000 rw-s 00001000 00:01 1043                       /dev/zero (deleted)",
            "7f01000000-7f01002000 rw-s 00001000 00:01 1043                       [anon_shmem:any name]",
            "7f01000000-7f01002000 r--p 00001000 00:01 1043                       /workspace/a b (deleted)",
        ] {
            assert_eq!(piece(line).as_ref(), Some(&found), "{line}");
        }
        for line in [
            "7f01000000-7f01002000 rw-p 00000000 00:00 0                          [heap]",
            "7f01000000-7f01002000 rw-p 00000000 00:00 0",
            "7f01000000-7f01002000 r-xp 00001000 fe:00 1043                       /usr/bin/python3.11",
        ] {
            assert_eq!(piece(line), None, "{line}");
        }
    }

    #[test]
    fn waiting_bytes_are_added_up() {
        let line = "   0: 0100007F:B1C4 0100007F:1F90 01 00000010:00000100 00:00000000 00000000  1000 0 1 1";
        assert_eq!(queued(line), Some(0x110));
        assert_eq!(queued("nothing"), None);
    }
}
