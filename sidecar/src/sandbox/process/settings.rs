//! What an operator may set about the embedded sandbox, and the name of every limit.
//!
//! INVARIANT: a [`RunAs`] is never uid 0 or gid 0.

use std::path::PathBuf;
use std::time::Duration;

/// How the embedded sandbox is set up.
#[derive(Debug, Clone)]
pub struct ProcessSettings {
    /// Sessions live in `<data_dir>/sandbox`.
    pub data_dir: PathBuf,
    /// The bubblewrap program, version 0.8 or newer.
    pub bwrap: PathBuf,
    /// The interpreter sessions run; its prefix is mounted read-only.
    pub python: PathBuf,
    /// Who sandboxes run as when the sidecar itself is root. Ignored otherwise.
    pub run_as: RunAs,
    /// Idle sessions that are kept ready, with the packages most code wants imported. As far as `limits.sessions` has room.
    pub warm_sessions: usize,
    /// Every limit.
    pub limits: SandboxLimits,
}

/// An unprivileged user and group, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAs {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl RunAs {
    /// The user `nobody`.
    pub const NOBODY: Self = Self { uid: 65534, gid: 65534 };

    /// Accepts any user and group but root's.
    pub fn new(uid: u32, gid: u32) -> Option<Self> {
        (uid != 0 && gid != 0).then_some(Self { uid, gid })
    }

    /// Reads `UID:GID`, or a user name from `/etc/passwd`. The error says what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let by_number = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
        let (uid, gid) = match by_number {
            Some(pair) => pair,
            None => find_user(&std::fs::read_to_string("/etc/passwd").unwrap_or_default(), text)
                .ok_or_else(|| format!("no user `{text}` in /etc/passwd; write a user name or `UID:GID`"))?,
        };
        Self::new(uid, gid).ok_or_else(|| format!("`{text}` is root; name a user without privileges, such as `nobody`"))
    }
}

fn find_user(passwd: &str, name: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

/// Every limit of a session, and of sessions in all.
#[derive(Debug, Clone)]
pub struct SandboxLimits {
    /// Longest wall-clock time of one execution; a longer request is cut to it.
    pub wall: Duration,
    /// Memory of all processes of a session together, resident or swapped, and all shared memory they have mapped;
    /// watched, so it may be passed for a moment.
    pub memory_bytes: u64,
    /// Address space of one process; beyond it Python sees `MemoryError`.
    pub address_space_bytes: u64,
    /// Processes and threads of a session.
    pub tasks: u32,
    /// Open files of one process, and sockets of a session. What a socket or a pipe buffers is in no process's memory,
    /// so this bounds it: at most some 400 KiB each.
    pub open_files: u32,
    /// Size of one file.
    pub file_bytes: u64,
    /// Disk used by a session's workspace, files without a name too; watched, so it may be passed for a moment.
    pub workspace_bytes: u64,
    /// Files and directories in a session's workspace, and in each of `/tmp` and `/dev/shm`; watched likewise.
    pub workspace_entries: u64,
    /// Size of each of `/tmp` and `/dev/shm`, kept in memory.
    pub tmp_bytes: u64,
    /// What is kept of each output stream of one execution: half from its head, half from its tail.
    pub output_bytes: usize,
    /// Length of the code or the command of one execution, and of each text of an edit.
    pub code_bytes: usize,
    /// Sessions alive at the same time.
    pub sessions: usize,
    /// How long a session may stand unused. Whoever opens one can only ask for less.
    pub idle: Duration,
    /// How long a session may live in all, likewise; a call that runs then is let end.
    pub lifetime: Duration,
}

#[cfg(test)]
mod tests {
    use super::{RunAs, find_user};

    #[test]
    fn run_as_reads_numbers_and_names_and_refuses_root() {
        assert_eq!(RunAs::parse("1000:1001"), Ok(RunAs { uid: 1000, gid: 1001 }));
        assert!(RunAs::parse("0:1000").is_err());
        assert!(RunAs::parse("1000:0").is_err());
        assert!(RunAs::parse("root").is_err());
        assert!(RunAs::parse("no such user").is_err());
        assert!(RunAs::parse("-1:5").is_err());
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody2:x:7:8::/:/bin/sh\nnobody:x:65534:65533::/:/bin/sh\nbroken";
        assert_eq!(find_user(passwd, "nobody"), Some((65534, 65533)));
        assert_eq!(find_user(passwd, "broken"), None);
    }
}
