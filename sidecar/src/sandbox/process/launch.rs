//! Starts one interpreter inside bubblewrap.
//!
//! INVARIANT: bubblewrap never runs as uid 0 and never sees the sidecar's environment or descriptors.

use std::ffi::OsString;
use std::fs;
use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use command_fds::{CommandFdExt, FdMapping};
use rustix::fs::{MemfdFlags, SeekFrom};

use super::python::Python;
use super::seccomp::Filters;
use super::spawner::Spawner;
use super::workspace::Root;
use super::{OTHER_NAME, RunAs, SandboxLimits, Tier, WORKSPACE};

const CONTROL_FD: i32 = 3;
const ARGUMENTS_FD: i32 = 4;
const ALLOW_FD: i32 = 5;
const FORBID_FD: i32 = 6;
/// Who the code is, inside.
const INNER_ID: &str = "1000";
/// Where matplotlib keeps its settings and its list of fonts.
const PLOTTING: &str = "/tmp/matplotlib";
/// All that the code's environment holds, beside `PATH`.
pub(super) const ENVIRONMENT: [(&str, &str); 11] = [
    ("HOME", "/workspace"),
    ("LANG", "C.UTF-8"),
    ("LC_ALL", "C.UTF-8"),
    ("LOGNAME", "sandbox"),
    ("MPLBACKEND", "agg"),
    ("MPLCONFIGDIR", PLOTTING),
    // More threads than the session's one processor only cost memory and tasks.
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    ("TMPDIR", "/tmp"),
    ("USER", "sandbox"),
    ("XDG_CACHE_HOME", "/tmp/cache"),
];

/// Parts of `/usr` that programs do not need and an administrator may have written into; empty inside.
const HOST_ONLY: [&str; 2] = ["/usr/local/etc", "/usr/src"];

/// Everything that is the same for every session.
#[derive(Debug)]
pub(super) struct Launcher {
    pub(super) bwrap: PathBuf,
    pub(super) python: Python,
    pub(super) filters: Filters,
    pub(super) root: Arc<Root>,
    /// Set when the sidecar is root.
    pub(super) owner: Option<RunAs>,
    pub(super) limits: SandboxLimits,
    pub(super) spawner: Spawner,
}

/// The far ends of a new interpreter's descriptors.
pub(super) struct Ends {
    pub(super) control: OwnedFd,
    pub(super) stdout: PipeWriter,
    pub(super) stderr: PipeWriter,
}

impl Launcher {
    /// The command that runs an interpreter over `workspace`.
    /// It imports `modules` before it greets, those it has.
    pub(super) fn command(&self, tier: Tier, workspace: &Path, ends: Ends, modules: &[&str]) -> io::Result<Command> {
        let mut arguments = Vec::new();
        for argument in self.arguments(tier, workspace) {
            arguments.extend_from_slice(&argument.into_vec());
            arguments.push(0);
        }
        let mut command = Command::new(&self.bwrap);
        // Through a descriptor, because process 1's command line can be read inside and would show our paths.
        command
            .arg0(self.root.marker())
            .arg("--args")
            .arg(ARGUMENTS_FD.to_string())
            .arg("--")
            .arg(&self.python.executable);
        command.args(["-I", "-S", "-B", "/otari/driver.pyc"]).args(self.driver_arguments(modules));
        command.env_clear().current_dir("/");
        // A group of its own: Ctrl-C at our terminal is ours to handle.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(ends.stdout).stderr(ends.stderr);
        if let Some(owner) = self.owner {
            // Supplementary groups are cleared by the standard library when root sets a uid.
            command.uid(owner.uid).gid(owner.gid);
        }
        let given = [
            (ends.control, CONTROL_FD),
            (data_fd(&arguments)?, ARGUMENTS_FD),
            (data_fd(&self.filters.allow)?, ALLOW_FD),
            (data_fd(&self.filters.forbid)?, FORBID_FD),
        ];
        let mappings = given.map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd });
        command.fd_mappings(mappings.into()).map_err(io::Error::other)?;
        Ok(command)
    }

    fn driver_arguments(&self, modules: &[&str]) -> Vec<String> {
        let limits = &self.limits;
        let mut arguments = vec![
            limits.address_space_bytes.to_string(),
            limits.tasks.to_string(),
            limits.file_bytes.to_string(),
            limits.open_files.to_string(),
            limits.output_bytes.to_string(),
            modules.join(","),
            self.python.prefix.clone(),
        ];
        arguments.extend(self.python.path.iter().cloned());
        arguments
    }

    fn arguments(&self, tier: Tier, workspace: &Path) -> Vec<OsString> {
        let mut list = List(Vec::with_capacity(128));
        list.add(["--unshare-user", "--unshare-all", "--new-session", "--die-with-parent"]);
        list.add(["--cap-drop", "ALL", "--uid", INNER_ID, "--gid", INNER_ID, "--hostname", "sandbox"]);
        list.add(["--add-seccomp-fd", &ALLOW_FD.to_string(), "--add-seccomp-fd", &FORBID_FD.to_string()]);
        for (name, value) in ENVIRONMENT {
            list.add(["--setenv", name, value]);
        }
        list.add(["--setenv", "PATH", &self.python.program_path()]);
        list.add(["--ro-bind", "/usr", "/usr"]);
        for path in HOST_ONLY.into_iter().filter(|path| Path::new(path).is_dir()) {
            list.add(["--tmpfs", path, "--remount-ro", path]);
        }
        for name in ["bin", "lib", "lib32", "lib64", "libx32", "sbin"] {
            list.system_directory(&Path::new("/").join(name));
        }
        list.mount("--ro-bind", &self.root.etc(), Path::new("/etc"));
        list.mount("--ro-bind", &self.root.driver(), Path::new("/otari"));
        match tier {
            // Sysctl files look at the global uid, not at capabilities: never writable, whoever launched us.
            Tier::Namespaces => {
                list.add(["--disable-userns", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]);
            }
            // Where /proc is masked its sysctls are read-only, so bubblewrap cannot count nested namespaces down to none;
            // that they cannot be made is the seccomp filter's work there, and the canary's to prove.
            Tier::NamespacesNoproc => list.add(["--dir", "/proc"]),
        }
        let tmp_bytes = self.limits.tmp_bytes.to_string();
        list.add(["--dev", "/dev", "--size", &tmp_bytes, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]);
        list.add(["--size", &tmp_bytes, "--tmpfs", "/tmp"]);
        // After `/tmp`, where an interpreter may live.
        for path in &self.python.binds {
            list.mount("--ro-bind", path, path);
        }
        for file in &self.python.plotting {
            if let Some(name) = file.file_name() {
                // Links, not mounts: matplotlib may put others beside them, and code may take them away.
                list.mount("--symlink", file, &Path::new(PLOTTING).join(name));
            }
        }
        list.mount("--bind", workspace, Path::new(WORKSPACE));
        // Where models believe their files are that know OpenAI's own service.
        list.add(["--symlink", WORKSPACE, OTHER_NAME]);
        list.add(["--chdir", WORKSPACE, "--remount-ro", "/"]);
        list.0
    }
}

struct List(Vec<OsString>);

impl List {
    fn add<const N: usize>(&mut self, arguments: [&str; N]) {
        self.0.extend(arguments.map(OsString::from));
    }

    fn mount(&mut self, how: &str, from: &Path, to: &Path) {
        self.0.extend([how.into(), from.into(), to.into()]);
    }

    /// `/bin` and its like: a link on merged systems, a directory on others.
    fn system_directory(&mut self, path: &Path) {
        if let Ok(target) = fs::read_link(path) {
            self.0.extend(["--symlink".into(), target.into(), path.into()]);
        } else if path.is_dir() {
            self.mount("--ro-bind", path, path);
        }
    }
}

/// A descriptor from which `bytes` can be read once.
fn data_fd(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = fs::File::from(rustix::fs::memfd_create("sandbox", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    rustix::fs::seek(&file, SeekFrom::Start(0))?;
    Ok(file.into())
}
