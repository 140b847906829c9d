//! What the child takes from itself before it reads the first byte.
//!
//! INVARIANT: afterwards the process can read what it has open, compute, and write; it opens, starts and reaches nothing.

use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::{Value, json};

/// Address space: the program, the document and all that its library makes of it.
const ADDRESS_SPACE_BYTES: u64 = 1 << 30;
const EPERM: u32 = 1;

/// All that is left. Memory, signals of its own (a panic that aborts), and the three descriptors it was given.
const CALLS: &[&str] = &[
    "read",
    "readv",
    "write",
    "writev",
    "close",
    "brk",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "madvise",
    "futex",
    "getrandom",
    "clock_gettime",
    "sched_yield",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "restart_syscall",
    "getpid",
    "gettid",
    "exit",
    "exit_group",
];

/// Why the jail cannot be closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum JailError {
    #[error("a resource limit cannot be set")]
    Limit(#[from] rustix::io::Errno),
    #[error("the seccomp filter cannot be compiled or loaded")]
    Filter(#[from] seccompiler::Error),
    #[error("there is no seccomp filter for this processor")]
    Processor(#[from] seccompiler::BackendError),
}

/// Closes it around this process, which must have one thread.
pub(super) fn enter(cpu_seconds: u64) -> Result<(), JailError> {
    for (resource, most) in [
        (Resource::As, ADDRESS_SPACE_BYTES),
        (Resource::Cpu, cpu_seconds),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Nofile, 0),
        (Resource::Nproc, 0),
    ] {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    close_calls()
}

/// For the calling thread.
fn close_calls() -> Result<(), JailError> {
    let processor = std::env::consts::ARCH.try_into()?;
    let programs = seccompiler::compile_from_json(policy().to_string().as_bytes(), processor)?;
    let program = programs.get("jail").map(Vec::as_slice).unwrap_or_default();
    Ok(seccompiler::apply_filter(program)?)
}

fn policy() -> Value {
    let mut calls: Vec<Value> = CALLS.iter().map(|name| json!({"syscall": name})).collect();
    // To abort is to signal oneself; the sidecar has the same user, and must not be signalled.
    let oneself = json!({"index": 0, "type": "dword", "op": "eq", "val": std::process::id()});
    calls.push(json!({"syscall": "tgkill", "args": [oneself]}));
    json!({"jail": {"mismatch_action": {"errno": EPERM}, "match_action": "allow", "filter": calls}})
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::*;

    #[test]
    fn in_the_jail_nobody_but_oneself_is_signalled() {
        let policy = policy();
        let calls = policy["jail"]["filter"].as_array().unwrap();
        let signals: Vec<_> = calls.iter().filter(|call| call["syscall"].as_str().unwrap().ends_with("kill")).collect();
        assert_eq!(signals.len(), 1);
        assert_eq!(signals[0]["args"][0]["val"], std::process::id());
    }

    #[test]
    fn in_the_jail_nothing_opens_starts_or_connects_and_what_is_open_works() {
        // As the child has them: one to read from, one to write to.
        let (mut input, mut feed) = std::io::pipe().unwrap();
        let (mut said, mut output) = std::io::pipe().unwrap();
        feed.write_all(b"in").unwrap();
        let jailed = std::thread::spawn(move || {
            close_calls().unwrap();
            let denied = [
                File::open("/etc/passwd").unwrap_err().kind(),
                TcpListener::bind("127.0.0.1:0").unwrap_err().kind(),
                UnixStream::pair().unwrap_err().kind(),
                Command::new("/bin/true").spawn().unwrap_err().kind(),
                std::fs::read_dir("/").unwrap_err().kind(),
            ];
            let mut heard = [0; 2];
            input.read_exact(&mut heard).unwrap();
            output.write_all(&heard).unwrap();
            denied
        });
        assert_eq!(jailed.join().unwrap(), [std::io::ErrorKind::PermissionDenied; 5]);
        let mut heard = String::new();
        said.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "in");
    }
}
