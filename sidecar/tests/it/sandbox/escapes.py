# Tries to get out of a session. FACTS is JSON with what the test put on the host for it. Prints a JSON object: the name of
# each try -> null if it led nowhere, else what happened.
import ctypes, errno, json, os, platform, resource, signal, socket, sys

facts = json.loads(FACTS)
verdicts = {}
libc = ctypes.CDLL(None, use_errno=True)


def led(name, seen):
    """Where a try led: nowhere is None."""
    verdicts[name] = None if seen is None else "%.120r" % (seen,)


def refused(name, *tries):
    """Every one of them must end in an error of the operating system."""
    for attempt in tries:
        try:
            seen = attempt()
        except (OSError, ValueError):
            continue
        return led(name, "worked: %.100r" % (seen,))
    led(name, None)


def none_of(name, found):
    led(name, sorted(found) or None)


def read(path):
    return lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(100)


def write(*paths):
    return [lambda path=path: os.open(path, os.O_WRONLY | (0 if os.path.exists(path) else os.O_CREAT)) for path in paths]


def tell(path, text):
    """Without a buffer, so that the answer is that of the kernel."""
    file = os.open(path, os.O_WRONLY)
    try:
        return os.write(file, text)
    finally:
        os.close(file)


def content(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


# --- files of the host
host = facts["host"]
refused("host file by its path", read(host + "/secret"))
refused("host folder by its path", read(host), lambda: os.chdir(host))
refused("host file by way of ..", read("../" * 40 + host + "/secret"))
refused("host file by a link", lambda: os.symlink(host + "/secret", "link") or open("link").read())
refused("host file by a link in /mnt", lambda: os.unlink("/mnt/data"), lambda: os.symlink("/", "/mnt/root"))
refused("host file by a hard link", lambda: os.link("/usr/bin/env", "hard"))
none_of("host file by the root of another process", {
    name for pid in processes() for name in ("root", "home", "var", "boot", "srv", "run", "sys")
    if os.path.exists("/proc/%d/root/%s" % (pid, name))
})
refused("passwords of the host", read("/etc/shadow"))
refused("keys of the host", read("/etc/ssl/private"), read("/root/.ssh"), read("/etc/ssh"))
refused("homes", read("/root"), read("/home"))
refused("state of the host", read("/var"), read("/srv"), read("/boot"), read("/opt/otari"))
refused("sysfs and cgroups", read("/sys"), read("/sys/fs/cgroup"))
refused("sockets of daemons", read("/run/docker.sock"), read("/run"), read("/var/run/docker.sock"))
refused("resolver of the host", read("/etc/resolv.conf"))
refused("memory of the kernel", read("/proc/kcore"), read("/dev/mem"), read("/dev/kmem"), read("/dev/port"))
refused("log of the kernel", read("/dev/kmsg"), read("/proc/kmsg"))
refused("disks of the host", read("/dev/sda"), read("/dev/vda"), read("/dev/nvme0n1"))
refused("block device of its own", lambda: os.mknod("block", 0o60666, os.makedev(254, 0)))
refused("character device of its own", lambda: os.mknod("char", 0o20666, os.makedev(1, 1)))
refused("temporary files of the host", read(facts["temporary"]))

# --- writing where others read
refused("write to /", *write("/new"))
refused("write to /etc", *write("/etc/passwd", "/etc/new", "/etc/hosts"))
refused("write to /usr", *write("/usr/new", "/usr/bin/python3", "/usr/local/lib/new"))
refused("write to the interpreter", *write(os.__file__, os.path.dirname(os.__file__) + "/new", sys.executable))
refused("write to the driver", *write("/otari/driver.pyc", "/otari/new"))
refused("write to /dev", *write("/dev/new"))
refused("write to /proc/sys", *write("/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory"))
refused("handler of core dumps", *write("/proc/sys/kernel/core_pattern"))
refused("programs the kernel runs", *write("/proc/sys/kernel/modprobe", "/proc/sys/fs/binfmt_misc/register"))
refused("number of user namespaces", *write("/proc/sys/user/max_user_namespaces"))
refused("magic keys", *write("/proc/sysrq-trigger"))
refused("map of users", *[lambda f=f: tell("/proc/self/" + f, b"0 0 1") for f in ("uid_map", "gid_map")])
refused("spared by the out-of-memory killer", lambda: tell("/proc/self/oom_score_adj", b"-1000"))

# --- other sessions
victim = facts["victim"]
refused("files of another session", read(victim), read(victim + "/private"))
refused("temporary files of another session", read("/tmp/private"), read("/dev/shm/private"))
none_of("processes of another session", {pid for pid in processes() if pid not in (1, os.getpid())})
refused("signal to the sidecar", lambda: os.kill(facts["sidecar"], 0), lambda: os.pidfd_open(facts["sidecar"]))


def kill_all():
    for number in range(2, 400):
        if number != os.getpid():
            try:
                os.kill(number, signal.SIGKILL)
                yield number
            except OSError:
                pass


none_of("signal to whoever has a number", kill_all())
refused("abstract socket of another session", lambda: socket.socket(socket.AF_UNIX).connect("\0" + facts["abstract"]))

# --- secrets
allowed = set(facts["environment"])
none_of("variables of the sidecar", set(os.environ) - allowed)
none_of("variables of other processes", {
    line.partition(b"=")[0].decode() for pid in processes() for line in content("/proc/%d/environ" % pid).split(b"\0") if line
} - allowed)
none_of("paths on command lines", {
    pid for pid in processes() if os.fsencode(host) in content("/proc/%d/cmdline" % pid)
})


def inherited():
    for number in range(4, 4096):
        try:
            os.fstat(number)
            yield number
        except OSError:
            pass


none_of("open files of the sidecar", inherited())

# --- network
def reach(family, kind, address):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        client.send(b"escaped")
        return client.recv(1)


TCP, UDP = socket.SOCK_STREAM, socket.SOCK_DGRAM
refused("loopback of the host, TCP", lambda: reach(socket.AF_INET, TCP, ("127.0.0.1", facts["tcp"])))
refused("loopback of the host, TCP over IPv6", lambda: reach(socket.AF_INET6, TCP, ("::1", facts["tcp"])))
refused("loopback of the host, UDP", lambda: reach(socket.AF_INET, UDP, ("127.0.0.1", facts["udp"])))
refused("internet, TCP", lambda: reach(socket.AF_INET, TCP, ("1.1.1.1", 80)))
refused("internet, UDP", lambda: reach(socket.AF_INET, UDP, ("1.1.1.1", 53)))
refused("internet, IPv6", lambda: reach(socket.AF_INET6, TCP, ("2606:4700::1111", 80)))
refused("metadata of the cloud", lambda: reach(socket.AF_INET, TCP, ("169.254.169.254", 80)))
refused("names", lambda: socket.getaddrinfo("example.com", 80))
refused("raw sockets", *[lambda p=p: socket.socket(socket.AF_INET, socket.SOCK_RAW, p) for p in (1, 17, 255)])
refused("packet sockets", lambda: socket.socket(17, socket.SOCK_RAW))
refused("netlink", *[lambda k=k: socket.socket(16, k) for k in (UDP, socket.SOCK_RAW)])
refused("sockets of virtual machines", *[lambda k=k: socket.socket(40, k) for k in (TCP, UDP)])
refused("sockets of the kernel's cryptography", lambda: socket.socket(38, socket.SOCK_SEQPACKET))
none_of("every other family", {
    family for family in range(46) if family not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
    for kind in (TCP, UDP, socket.SOCK_RAW) if libc.socket(family, kind, 0) >= 0
})
refused("abstract socket of the host", lambda: socket.socket(socket.AF_UNIX).connect("\0" + facts["abstract"] + "-host"))
refused("socket in a folder of the host", lambda: socket.socket(socket.AF_UNIX).connect(host + "/socket"))

# --- rights
refused("user 0", lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.seteuid(0))
refused("group 0", lambda: os.setgid(0), lambda: os.setgroups([0]))
refused("files of others", lambda: os.chown("link", 0, 0, follow_symlinks=False), lambda: os.chmod("/usr/bin/env", 0o777))
status = content("/proc/self/status").decode()
none_of("capabilities", {
    line for line in status.splitlines() if line.startswith("Cap") and int(line.split()[1], 16)
})


def setuid_programs():
    for name in ("su", "mount", "passwd", "newuidmap"):
        path = "/usr/bin/" + name
        if os.path.exists(path) and os.stat(path).st_uid in (0, os.getuid()):
            yield name


none_of("programs that change the user", setuid_programs())
none_of("rights by running a program", {line for line in status.splitlines() if line.split() == ["NoNewPrivs:", "0"]})
for which in ("AS", "NPROC", "FSIZE", "NOFILE", "CORE", "MEMLOCK"):
    number = getattr(resource, "RLIMIT_" + which)
    more = (resource.getrlimit(number)[1] + 1,) * 2
    refused("higher limit on " + which, lambda: resource.setrlimit(number, more))
refused("a place before others", lambda: os.nice(-10), lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))

# --- the kernel
CALLS = {  # name: number on x86-64, on aarch64
    "mount": (165, 40), "umount": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "io_uring": (425, 425), "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217), "bpf": (321, 280),
    "perf_event_open": (298, 241), "kexec_load": (246, 104), "init_module": (175, 105), "finit_module": (313, 273),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "syslog": (103, 116), "reboot": (169, 142),
    "swapon": (167, 224), "settimeofday": (164, 170), "sethostname": (170, 161), "quotactl": (179, 60),
    "memfd_create": (319, 279), "clone3": (435, 435), "open_tree": (428, 428), "fsopen": (430, 430),
}
column = 0 if platform.machine() == "x86_64" else 1


def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(argument) for argument in arguments]) < 0:
        # A call that is let through and then finds its arguments wrong is one too many.
        if ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
            return errno.errorcode[ctypes.get_errno()]
        raise OSError(ctypes.get_errno(), "refused")
    return number


for name, numbers in CALLS.items():
    refused("call " + name, lambda: call(numbers[column], 0, 0, 0, 0, 0))
NAMESPACES = {"mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
    "pid": 0x20000000, "net": 0x40000000}
for name, flag in NAMESPACES.items():
    refused("namespace " + name, lambda: call((272, 97)[column], flag), lambda: call((56, 220)[column], flag | 17, 0, 0, 0, 0))
refused("other personality", lambda: call((135, 92)[column], 0x0040000))


def push_into_terminal(command):
    import fcntl, pty
    return fcntl.ioctl(pty.openpty()[1], command, b"x")


refused("keys into a terminal", lambda: push_into_terminal(0x5412), lambda: push_into_terminal(0x541C))
# Process 1 is told and stays.
os.kill(1, signal.SIGKILL)
led("process 1 by a signal", None if not os.path.exists("/proc/self") or os.path.exists("/proc/1") else "it is gone")
print(json.dumps(verdicts))
