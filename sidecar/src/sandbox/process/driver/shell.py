# Shell commands: each a fresh shell in the workspace, in a process group of its own.

# `sh` is on every system; bash, which the tool is named after, is taken where it is.
BOOT = """cd -- "$0" && unset OLDPWD || exit
if command -v bash >/dev/null; then exec bash -c -- "$1"; fi
exec sh -c -- "$1"
"""
CLEAN = dict(posix.environ)
CANNOT_START = 126
# Pairs of descriptors, for the output of commands that run beside the first. Kept: what a command left in the background
# goes on writing there.
lanes = []


def say(words, number):
    posix.write(number, (words + "\n").encode())


def widen(missing):
    """Takes the descriptors of so many more lanes, which the sidecar sends behind the request that needs them."""
    network = load("_socket")
    control = network.socket(fileno=CONTROL)
    try:
        parts = control.recvmsg(1, network.CMSG_SPACE(8 * missing), network.MSG_CMSG_CLOEXEC)[1]
    finally:
        control.detach()
    numbers = [int.from_bytes(data[at : at + 4], sys.byteorder) for _, _, data in parts for at in range(0, len(data), 4)]
    lanes.extend(zip(numbers[::2], numbers[1::2]))


def spawn(command, out, err):
    # By the system's own call and not by a fork of this process, whose threads, handlers and memory are the cells'.
    return posix.posix_spawn(
        "/bin/sh",
        ["sh", "-c", BOOT, WORKSPACE, command],
        CLEAN,
        file_actions=[
            (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0),
            (posix.POSIX_SPAWN_DUP2, out, 1),
            (posix.POSIX_SPAWN_DUP2, err, 2),
            (posix.POSIX_SPAWN_CLOSE, CONTROL),
        ],
        setpgroup=0,
        setsigmask=(),
        setsigdef=_signal.valid_signals(),
    )


class Shell:
    """One command on its way. What it left in the background stays."""

    def __init__(self, command, out, err):
        self.err = err
        # Whether it was asked to end before it did.
        self.cut = False
        self.child = self.code = None
        try:
            self.child = spawn(command, out, err)
        except ValueError:
            self.fail("The command holds a NUL character, which no shell takes.")
        except (OSError, MemoryError) as error:
            self.fail("No shell could be started: %s." % (getattr(error, "strerror", None) or "no memory"))

    def fail(self, words):
        self.code = CANNOT_START
        say(words, self.err)

    def wait(self, options=0):
        child, status = posix.waitpid(self.child, options)
        if child:
            code = posix.waitstatus_to_exitcode(status)
            self.code = code if code >= 0 else 128 - code

    def stop(self, signal):
        if self.code is None and not self.cut:
            try:
                self.wait(posix.WNOHANG)
            except ChildProcessError:
                pass
        if self.code is None:
            self.cut = True
            self.end(signal)

    def end(self, signal):
        try:
            posix.killpg(self.child, signal)
        except OSError:
            pass

    def join(self):
        while self.code is None:
            try:
                self.wait()
            except ChildProcessError:
                # Unless it was a sign that saw it end, in between.
                if self.code is None:
                    self.fail("[sandbox] The command's exit status was taken by other code of the session.")
            except BaseException:
                # A handler that a cell set for some signal has no part in this.
                continue
        if self.cut:
            self.end(_signal.SIGKILL)


def shell(commands):
    """Runs commands side by side to their ends. Tells for each its code as a shell gives it, and whether it was cut short."""
    started = []
    asked = 0

    def stop(*_):
        # Asked to end, as by a terminal; the next time, half a second later, ended.
        nonlocal asked
        asked += 1
        for one in started:
            one.stop(_signal.SIGINT if asked == 1 else _signal.SIGKILL)

    missing = len(commands) - 1 - len(lanes)
    if missing > 0:
        widen(missing)
    # Whatever a cell made of these signals: the first must reach the commands, the second must not hide their end.
    handlers = [(_signal.SIGINT, stop), (_signal.SIGCHLD, _signal.SIG_DFL)]
    before = [(signal, _signal.signal(signal, handler)) for signal, handler in handlers]
    try:
        for command, (out, err) in zip(commands, [(1, 2), *lanes]):
            started.append(Shell(command, out, err))
            if asked:
                started[-1].stop(_signal.SIGINT)
        for one in started:
            one.join()
        return ',"shells":[%s]' % ",".join("[%d,%s]" % (one.code, "true" if one.cut else "false") for one in started)
    finally:
        for signal, handler in before:
            if handler is not None:
                _signal.signal(signal, handler)
