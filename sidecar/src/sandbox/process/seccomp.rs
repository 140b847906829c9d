//! The system calls a session may make: one list of what exists, one of what is forbidden, compiled once.
//!
//! INVARIANT: a call in neither list answers `ENOSYS`, so that libc falls back; a forbidden one answers `EPERM`.

use std::collections::HashMap;

use seccompiler::BpfProgram;
use serde_json::{Value, json};

use super::StartupRefusal;

/// Both programs in the form bubblewrap reads from a descriptor.
#[derive(Debug, Clone)]
pub(super) struct Filters {
    pub(super) allow: Vec<u8>,
    pub(super) forbid: Vec<u8>,
}

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

impl Filters {
    /// Compiles for the machine this runs on.
    pub(super) fn compile() -> Result<Self, StartupRefusal> {
        let fault = |reason: String| {
            StartupRefusal::new(
                format!("the seccomp filter cannot be compiled for `{}`: {reason}", std::env::consts::ARCH),
                "use a sidecar built for x86_64 or aarch64, or `sandbox.backend: http`",
            )
        };
        let arch = std::env::consts::ARCH.try_into().map_err(|error| fault(format!("{error}")))?;
        let policy = policy().to_string();
        let mut programs: HashMap<String, BpfProgram> =
            seccompiler::compile_from_json(policy.as_bytes(), arch).map_err(|error| fault(error.to_string()))?;
        let mut take = |name: &str| programs.remove(name).map(|program| encode(&program)).unwrap_or_default();
        Ok(Self { allow: take("allow"), forbid: take("forbid") })
    }
}

/// The kernel's `struct sock_filter`, field by field.
fn encode(program: &BpfProgram) -> Vec<u8> {
    program
        .iter()
        .flat_map(|step| {
            let [code0, code1] = step.code.to_ne_bytes();
            let [k0, k1, k2, k3] = step.k.to_ne_bytes();
            [code0, code1, step.jt, step.jf, k0, k1, k2, k3]
        })
        .collect()
}

fn policy() -> Value {
    let whole = |name: &&str| json!({"syscall": name});
    let forbidden: Vec<Value> = lists::FORBIDDEN.iter().map(whole).chain(conditional()).collect();
    // Forbidden calls stand in both lists: which filter answers must not hang on their order.
    let known = lists::ALLOWED.iter().chain(lists::ARCH_ALLOWED).chain(lists::FORBIDDEN).map(whole);
    json!({
        "allow": {"mismatch_action": {"errno": ENOSYS}, "match_action": "allow", "filter": known.collect::<Vec<_>>()},
        "forbid": {"mismatch_action": "allow", "match_action": {"errno": EPERM}, "filter": forbidden},
    })
}

/// Calls that are forbidden for some arguments only.
fn conditional() -> Vec<Value> {
    const AF_UNIX: u64 = 1;
    const AF_INET: u64 = 2;
    const AF_INET6: u64 = 10;
    // `clone` flags that open a namespace: mount, cgroup, uts, ipc, user, pid, net.
    const NAMESPACES: [u64; 7] =
        [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
    // Both push characters into a terminal's input.
    const TIOCSTI: u64 = 0x5412;
    const TIOCLINUX: u64 = 0x541C;
    const ADDR_QUERY: u64 = 0xFFFF_FFFF;

    let differs = |index: u8, value: u64| json!({"index": index, "type": "dword", "op": "ne", "val": value});
    let mut rules = vec![
        json!({"syscall": "socket", "args": [differs(0, AF_UNIX), differs(0, AF_INET), differs(0, AF_INET6)]}),
        json!({"syscall": "socketpair", "args": [differs(0, AF_UNIX)]}),
        // Every mode but the plain one can take disk beyond a file's length, where no limit on its size reaches.
        json!({"syscall": "fallocate", "args": [differs(1, 0)]}),
        json!({"syscall": "personality", "args": [differs(0, 0), differs(0, ADDR_QUERY)]}),
    ];
    for flag in NAMESPACES {
        let carries = json!({"index": 0, "type": "qword", "op": {"masked_eq": flag}, "val": flag});
        rules.push(json!({"syscall": "clone", "args": [carries]}));
    }
    for command in [TIOCSTI, TIOCLINUX] {
        let is = json!({"index": 1, "type": "dword", "op": "eq", "val": command});
        rules.push(json!({"syscall": "ioctl", "args": [is]}));
    }
    rules
}

/// Names by group. In no list on purpose: `clone3`, whose flags lie in memory, out of a filter's sight; and what keeps
/// memory that is in no process's account: `memfd_create`, System V and POSIX queues, shared memory and semaphores,
/// kernel AIO, and `splice` and its like (`sendfile` too), which pin whole huge pages by a few bytes in a pipe.
mod lists {
    #[rustfmt::skip]
    pub(super) const ALLOWED: &[&str] = &[
        // files
        "close", "close_range", "copy_file_range", "chdir", "dup", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir",
        "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock",
        "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "getcwd", "getdents64", "getxattr",
        "inotify_add_watch", "inotify_init1", "inotify_rm_watch", "ioctl", "lgetxattr", "linkat", "listxattr", "llistxattr",
        "lremovexattr", "lseek", "lsetxattr", "mkdirat", "mknodat", "newfstatat", "openat", "openat2", "pread64", "preadv",
        "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlinkat", "readv", "removexattr",
        "renameat2", "setxattr", "statfs", "statx", "symlinkat", "sync", "sync_file_range", "syncfs",
        "truncate", "umask", "unlinkat", "utimensat", "write", "writev",
        // memory
        "brk", "madvise", "membarrier", "mincore", "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mremap",
        "mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages",
        "get_mempolicy",
        // processes, threads, signals
        "clone", "execve", "execveat", "exit", "exit_group", "futex", "futex_waitv", "get_robust_list", "getegid", "geteuid", "getgid",
        "getgroups", "getpgid", "getpid", "getppid", "getpriority", "getresgid", "getresuid", "getrusage", "getsid", "gettid",
        "getuid", "ioprio_get", "kill", "capget", "capset", "personality", "pidfd_open", "pidfd_send_signal", "prctl", "prlimit64",
        "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn",
        "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min",
        "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
        "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield", "set_robust_list", "set_tid_address", "setfsgid",
        "setfsuid", "setgid", "setgroups", "setpgid", "setpriority", "setregid", "setresgid", "setresuid", "setreuid", "setsid",
        "setuid", "sigaltstack", "tgkill", "tkill", "uname", "wait4", "waitid", "getcpu", "sysinfo", "times", "getrandom",
        "getrlimit", "setrlimit", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
        // time
        "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer", "gettimeofday", "nanosleep", "setitimer", "timer_create",
        "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime",
        // waiting, pipes, sockets of the families below
        "accept", "accept4", "bind", "connect", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "eventfd2", "getpeername",
        "getsockname", "getsockopt", "listen", "pipe2", "ppoll", "pselect6", "recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg",
        "sendto", "setsockopt", "shutdown", "signalfd4", "socket", "socketpair",
    ];

    /// Older names of the same calls, which newer architectures never had.
    #[cfg(target_arch = "x86_64")]
    #[rustfmt::skip]
    pub(super) const ARCH_ALLOWED: &[&str] = &[
        "access", "alarm", "arch_prctl", "chmod", "chown", "creat", "dup2", "epoll_create", "epoll_wait", "eventfd", "fork", "futimesat",
        "getdents", "getpgrp", "inotify_init", "lchown", "link", "lstat", "mkdir", "mknod", "open", "pause", "pipe", "poll", "readlink",
        "rename", "renameat", "rmdir", "select", "signalfd", "stat", "symlink", "time", "unlink", "utime", "utimes", "vfork",
    ];
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) const ARCH_ALLOWED: &[&str] = &["renameat"];

    #[rustfmt::skip]
    pub(super) const FORBIDDEN: &[&str] = &[
        // namespaces, mounts, roots
        "chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount", "open_tree", "pivot_root", "setns",
        "umount2", "unshare",
        // other processes' insides
        "kcmp", "pidfd_getfd", "process_madvise", "process_mrelease", "process_vm_readv", "process_vm_writev", "ptrace",
        // large kernel surfaces that no data work needs
        "add_key", "bpf", "fanotify_init", "fanotify_mark", "io_uring_enter", "io_uring_register", "io_uring_setup", "keyctl",
        "lookup_dcookie", "name_to_handle_at", "open_by_handle_at", "perf_event_open", "request_key", "userfaultfd",
        // the machine
        "acct", "adjtimex", "clock_adjtime", "clock_settime", "delete_module", "finit_module", "init_module", "kexec_load",
        "kexec_file_load", "mbind", "migrate_pages", "move_pages", "quotactl", "reboot", "set_mempolicy", "setdomainname", "sethostname",
        "settimeofday", "swapoff", "swapon", "syslog", "vhangup",
    ];
}

#[cfg(test)]
mod tests {
    use super::{Filters, lists};

    #[test]
    fn both_filters_compile_and_fit_the_kernel() {
        const MAX_STEPS: usize = 4096;
        let filters = Filters::compile().unwrap();
        for program in [&filters.allow, &filters.forbid] {
            assert!(!program.is_empty() && program.len() % 8 == 0);
            assert!(program.len() / 8 <= MAX_STEPS);
        }
    }

    #[test]
    fn no_call_is_both_allowed_and_forbidden() {
        for name in lists::ALLOWED.iter().chain(lists::ARCH_ALLOWED) {
            assert!(!lists::FORBIDDEN.contains(name), "{name}");
        }
        assert!(!lists::ALLOWED.contains(&"clone3"));
    }
}
