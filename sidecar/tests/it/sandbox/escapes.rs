//! Ways out of a session, all tried from within a real one, launched by whoever runs the tests and by an ordinary user.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::json;

use super::{Place, open_directory, start};

const PROBE: &str = include_str!("escapes.py");
/// Every try, by name.
#[rustfmt::skip]
const TRIES: &[&str] = &[
    // files of the host
    "host file by its path", "host folder by its path", "host file by way of ..", "host file by a link",
    "host file by a link in /mnt", "host file by a hard link", "host file by the root of another process",
    "passwords of the host", "keys of the host", "homes", "state of the host", "sysfs and cgroups", "sockets of daemons",
    "resolver of the host", "memory of the kernel", "log of the kernel", "disks of the host", "block device of its own",
    "character device of its own", "temporary files of the host",
    // writing where others read
    "write to /", "write to /etc", "write to /usr", "write to the interpreter", "write to the driver", "write to /dev",
    "write to /proc/sys", "handler of core dumps", "programs the kernel runs", "number of user namespaces", "magic keys",
    "map of users", "spared by the out-of-memory killer",
    // other sessions
    "files of another session", "temporary files of another session", "processes of another session",
    "signal to the sidecar", "signal to whoever has a number", "abstract socket of another session",
    // secrets
    "variables of the sidecar", "variables of other processes", "paths on command lines", "open files of the sidecar",
    // network
    "loopback of the host, TCP", "loopback of the host, TCP over IPv6", "loopback of the host, UDP", "internet, TCP",
    "internet, UDP", "internet, IPv6", "metadata of the cloud", "names", "raw sockets", "packet sockets", "netlink",
    "sockets of virtual machines", "sockets of the kernel's cryptography", "every other family",
    "abstract socket of the host", "socket in a folder of the host",
    // rights
    "user 0", "group 0", "files of others", "capabilities", "programs that change the user", "rights by running a program",
    "higher limit on AS", "higher limit on NPROC", "higher limit on FSIZE", "higher limit on NOFILE",
    "higher limit on CORE", "higher limit on MEMLOCK", "a place before others",
    // the kernel
    "call mount", "call umount", "call pivot_root", "call chroot", "call setns", "call ptrace", "call process_vm_readv",
    "call process_vm_writev", "call pidfd_getfd", "call io_uring", "call userfaultfd", "call keyctl", "call add_key",
    "call bpf", "call perf_event_open", "call kexec_load", "call init_module", "call finit_module",
    "call open_by_handle_at", "call fanotify_init", "call syslog", "call reboot", "call swapon", "call settimeofday",
    "call sethostname", "call quotactl", "call memfd_create", "call clone3", "call open_tree", "call fsopen",
    "namespace mount", "namespace cgroup", "namespace uts", "namespace ipc", "namespace user", "namespace pid",
    "namespace net", "other personality", "keys into a terminal", "process 1 by a signal",
];
/// All that code may have in its environment.
const ENVIRONMENT: &[&str] = &[
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "MPLBACKEND",
    "MPLCONFIGDIR",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PATH",
    "PWD",
    "TMPDIR",
    "USER",
    "XDG_CACHE_HOME",
];

/// Somebody else's session, and what may not be reached in it.
async fn victim(place: &Place, abstract_name: &str) -> String {
    let session = place.session().await;
    let code = format!(
        "import os, socket, subprocess\nfor folder in ('.', '/tmp', '/dev/shm'):\n    n = open(folder + '/private', 'w').write('secret')\ns = socket.socket(socket.AF_UNIX)\ns.bind('\\0{abstract_name}')\ns.listen()\np = subprocess.Popen(['sleep', '1000'])"
    );
    place.output(&session, &code).await;
    session.0
}

#[tokio::test]
async fn every_way_out_leads_nowhere() {
    let place = start().await;
    let abstract_name = format!("otari-escape-{}", std::process::id());
    let victim = victim(&place, &abstract_name).await;
    // Open to everybody: what keeps code from it is not its mode.
    let host = open_directory();
    let path = fs::canonicalize(host.path()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(path.join("secret"), "secret").unwrap();
    let sockets = (
        UnixListener::bind(path.join("socket")).unwrap(),
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("{abstract_name}-host")).unwrap()).unwrap(),
    );
    fs::set_permissions(path.join("socket"), fs::Permissions::from_mode(0o777)).unwrap();
    let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let facts = json!({
        "host": path, "temporary": std::env::temp_dir().join(path.file_name().unwrap()),
        "victim": place.sessions().join(&victim), "sidecar": std::process::id(), "abstract": abstract_name,
        "environment": ENVIRONMENT, "tcp": tcp.local_addr().unwrap().port(), "udp": udp.local_addr().unwrap().port(),
    });
    let session = place.session().await;
    let told = place.output(&session, &format!("FACTS = r'''{facts}'''\n{PROBE}")).await;
    let verdicts: BTreeMap<String, Option<String>> = serde_json::from_str(&told).unwrap();
    let escaped: Vec<_> = verdicts.iter().filter(|(_, seen)| seen.is_some()).collect();
    assert!(escaped.is_empty(), "{escaped:#?}");
    let mut tries = TRIES.to_vec();
    tries.sort_unstable();
    assert_eq!(verdicts.keys().map(String::as_str).collect::<Vec<_>>(), tries);
    // And as the host sees it.
    udp.set_nonblocking(true).unwrap();
    assert!(udp.recv(&mut [0; 16]).is_err(), "a datagram came out");
    tcp.set_nonblocking(true).unwrap();
    assert!(tcp.accept().is_err(), "a connection came out");
    for socket in [&sockets.0, &sockets.1] {
        socket.set_nonblocking(true).unwrap();
        assert!(socket.accept().is_err(), "a connection came out");
    }
    let alive = super::SessionId(victim);
    assert_eq!(place.output(&alive, "p.poll(), open('private').read()").await, "(None, 'secret')\n");
}

/// Some user without a name and a right.
const ORDINARY: u32 = 54_321;

#[tokio::test]
async fn for_an_ordinary_user_they_lead_nowhere_either() {
    if !rustix::process::geteuid().is_root() {
        println!("not root: every_way_out_leads_nowhere was launched by an ordinary user already");
        return;
    }
    // Nobody else may be able to enter the folder where the tests were built.
    let home = open_directory();
    let program = home.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let own = home.path().join("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(ORDINARY), Some(ORDINARY)).unwrap();
    let mut command = Command::new(&program);
    command.args([
        "sandbox::escapes::every_way_out",
        "sandbox::isolation::",
        "sandbox::start::this_host",
        "--nocapture",
    ]);
    command.env("TMPDIR", &own).current_dir(&own).uid(ORDINARY).gid(ORDINARY);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("every_way_out_leads_nowhere ... ok") || text.contains("6 passed"), "{text}");
}
