//! What a session may not do, tried from within. The refusals the start-up canary tries are not repeated here.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::{Place, SessionId, start};

/// Defines `attempt(name, action)`, which prints every action that is not refused, and `call(number, …)`.
const HELPERS: &str = r"
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), 'refused')
    return result
def attempt(name, action, *errors):
    try:
        seen = action()
    except OSError as error:
        if errors and errno.errorcode[error.errno] not in errors:
            print(name, 'gave', errno.errorcode[error.errno])
    else:
        print(name, 'worked:', repr(seen)[:100])
";

/// Runs attempts; all must be refused.
async fn refused(place: &Place, session: &SessionId, attempts: &str) {
    assert_eq!(place.output(session, &format!("{HELPERS}\n{attempts}")).await, "", "{attempts}");
}

#[tokio::test]
async fn system_calls_that_widen_the_kernel_are_refused() {
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let place = start().await;
    let session = place.session().await;
    refused(
        &place,
        &session,
        "
NEW = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
for flag in NEW:
    attempt('unshare %x' % flag, lambda: call(272, flag), 'EPERM')
    attempt('clone %x' % flag, lambda: call(56, flag | 17, 0, 0, 0, 0), 'EPERM')
for name, number in dict(mount=165, umount2=166, pivot_root=155, chroot=161, setns=308, ptrace=101, process_vm_readv=310,
        process_vm_writev=311, kcmp=312, pidfd_getfd=438, add_key=248, request_key=249, keyctl=250, bpf=321,
        perf_event_open=298, userfaultfd=323, io_uring_setup=425, io_uring_enter=426, io_uring_register=427,
        fanotify_init=300, name_to_handle_at=303, open_by_handle_at=304, kexec_load=246, init_module=175, finit_module=313,
        reboot=169, swapon=167, sethostname=170, settimeofday=164, clock_settime=227, syslog=103, quotactl=179,
        open_tree=428, move_mount=429, fsopen=430, fsmount=432, mount_setattr=442, acct=163).items():
    attempt(name, lambda: call(number, 0, 0, 0, 0, 0), 'EPERM')
for name, number in dict(clone3=435, unknown=999, x32=0x40000000 | 39, memfd_secret=447, iopl=172, modify_ldt=154, memfd_create=319,
        shmget=29, shmat=30, shmctl=31, semget=64, msgget=68, mq_open=240, io_setup=206, splice=275, tee=276, vmsplice=278,
        sendfile=40).items():
    attempt(name, lambda: call(number, 0, 0, 0, 0, 0), 'ENOSYS')
attempt('fallocate beyond the end', lambda: call(285, 0, 1, 0, 1), 'EPERM')
attempt('personality', lambda: call(135, 0x0040000), 'EPERM')
import pty
master, slave = pty.openpty()
for name, number in (('TIOCSTI', 0x5412), ('TIOCLINUX', 0x541C)):
    attempt(name, lambda: call(16, slave, number, 0), 'EPERM')
    attempt(name + ' with high bits', lambda: call(16, slave, (1 << 32) | number, 0), 'EPERM')
",
    )
    .await;
}

#[tokio::test]
async fn no_network_and_no_strange_socket() {
    let place = start().await;
    let session = place.session().await;
    let name = format!("otari-test-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let attempts = format!(
        "
for family in range(0, 46):
    if family not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            attempt('family %d' % family, lambda: socket.socket(family, kind), 'EPERM')
attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
def to(family, kind, address):
    with socket.socket(family, kind) as s:
        s.settimeout(2)
        s.connect(address)
        return s.send(b'x')
attempt('abstract socket', lambda: to(socket.AF_UNIX, socket.SOCK_STREAM, '\\0{name}'), 'ECONNREFUSED')
attempt('internet', lambda: to(socket.AF_INET, socket.SOCK_STREAM, ('1.1.1.1', 80)), 'ENETUNREACH')
attempt('datagram', lambda: to(socket.AF_INET, socket.SOCK_DGRAM, ('1.1.1.1', 53)), 'ENETUNREACH')
attempt('metadata', lambda: to(socket.AF_INET, socket.SOCK_STREAM, ('169.254.169.254', 80)), 'ENETUNREACH')
attempt('version 6', lambda: to(socket.AF_INET6, socket.SOCK_STREAM, ('2606:4700::1111', 80)))
attempt('name', lambda: socket.getaddrinfo('example.com', 80))
"
    );
    refused(&place, &session, &attempts).await;
    // What data work needs of sockets is there: pairs, and a loopback of its own.
    let code = "a, b = socket.socketpair()\nn = a.send(b'x')\nserver = socket.create_server(('127.0.0.1', 0))\nclient = socket.create_connection(server.getsockname())\nb.recv(1)";
    assert_eq!(place.output(&session, code).await, "b'x'\n");
}

#[tokio::test]
async fn the_host_and_other_sessions_are_out_of_sight() {
    let place = start().await;
    let (victim, session) = (place.session().await, place.session().await);
    place
        .output(
            &victim,
            "import os\nn = open('private', 'w').write('secret')\nopen('/tmp/private', 'w').write('secret');",
        )
        .await;
    let data = place.data.path().display();
    let attempts = format!(
        "
for path in ('{data}', '/root/.ssh', '/home', '/var', '/sys/kernel', '/boot', '/srv', '/run/docker.sock', '/etc/shadow', '/tmp/private',
        '/etc/resolv.conf', '/etc/ssl/private', '/proc/kcore', '/proc/sysrq-trigger'):
    attempt(path, lambda: os.listdir(path) if os.path.isdir(path) else open(path).read())
for path in ('/proc/sys/kernel/core_pattern', '/proc/sys/kernel/hostname', '/proc/sys/user/max_user_namespaces', '/proc/sysrq-trigger',
        '/usr/bin/python3', '/etc/passwd', '/otari/driver.pyc', '/dev/new', '/new'):
    attempt('writing ' + path, lambda: open(path, 'w'))
os.symlink('/etc/shadow', 'link')
attempt('link', lambda: open('link').read())
attempt('hard link', lambda: os.link('/usr/bin/env', 'hard'))
attempt('device', lambda: os.mknod('device', 0o60666, os.makedev(254, 0)))
attempt('device', lambda: os.mknod('device', 0o20666, os.makedev(1, 1)))
attempt('setuid', lambda: os.setuid(0))
attempt('setgroups', lambda: os.setgroups([0]))
attempt('chown', lambda: os.chown('link', 0, 0, follow_symlinks=False))
attempt('nice', lambda: os.nice(-10))
import resource
def raise_limit(which):
    resource.setrlimit(which, (resource.getrlimit(which)[1] + 1,) * 2)
for which in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):
    try:
        raise_limit(which)
        print('limit raised', which)
    except ValueError:
        pass
"
    );
    refused(&place, &session, &attempts).await;
    let code = "seen = {'bin', 'dev', 'etc', 'lib', 'lib32', 'lib64', 'libx32', 'mnt', 'otari', 'proc', 'sbin', 'tmp', 'usr', 'workspace'}\nset(os.listdir('/')) - seen, set(os.listdir('/proc/1/root')) - seen if os.path.exists('/proc/1') else set()";
    assert_eq!(place.output(&session, code).await, "(set(), set())\n");
    let code = "[name for path in ('/usr/local/etc', '/usr/src') if os.path.isdir(path) for name in os.listdir(path)]";
    assert_eq!(place.output(&session, code).await, "[]\n");
    assert_eq!(
        place.output(&session, "os.getuid(), os.getgid(), os.getgroups(), os.getcwd()").await,
        "(1000, 1000, [], '/workspace')\n"
    );
}

#[tokio::test]
async fn processes_descriptors_and_secrets_are_the_session_s_own() {
    let place = start().await;
    let (victim, session) = (place.session().await, place.session().await);
    place.output(&victim, "x = 1").await;
    let code = "import os\nfds = sorted(int(fd) for fd in os.listdir('/dev/fd') if os.path.exists(f'/proc/self/fd/{fd}')) if os.path.isdir('/proc/self') else [0, 1, 2, 3]\nfds";
    assert_eq!(place.output(&session, code).await, "[0, 1, 2, 3]\n");
    let code = "[int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]";
    assert_eq!(place.output(&session, code).await, "[]\n");
    let code = "def text(path):\n    try:\n        return open(path).read()\n    except OSError:\n        return ''\ntext('/proc/1/environ'), 'sandbox/sessions' in text('/proc/1/cmdline') + text('/proc/self/cmdline')";
    assert_eq!(place.output(&session, code).await, "('', False)\n");
    assert_eq!(
        place.output(&session, "[name for name in os.environ if name.startswith(('CARGO', 'RUST', 'OTARI'))]").await,
        "[]\n"
    );
    // Killing everything one may kill reaches no neighbour.
    let code = "import signal\nfor n in range(1, 100):\n    if n != os.getpid():\n        try:\n            os.kill(n, signal.SIGKILL)\n        except OSError:\n            pass\n'alive'";
    assert_eq!(place.output(&session, code).await, "'alive'\n");
    assert_eq!(place.output(&victim, "x").await, "1\n");
}
