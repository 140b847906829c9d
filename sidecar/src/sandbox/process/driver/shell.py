# Shell commands: each a fresh shell in the workspace, in a process group of its own.

# `sh` is on every system; bash, which the tool is named after, is taken where it is.
BOOT = """cd -- "$0" && unset OLDPWD || exit
if command -v bash >/dev/null; then exec bash -c -- "$1"; fi
exec sh -c -- "$1"
"""
CLEAN = dict(posix.environ)
CANNOT_START = 126


def say(words):
    posix.write(2, (words + "\n").encode())


def spawn(command):
    # By the system's own call and not by a fork of this process, whose threads, handlers and memory are the cells'.
    return posix.posix_spawn(
        "/bin/sh",
        ["sh", "-c", BOOT, WORKSPACE, command],
        CLEAN,
        file_actions=[(posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0), (posix.POSIX_SPAWN_CLOSE, CONTROL)],
        setpgroup=0,
        setsigmask=(),
        setsigdef=_signal.valid_signals(),
    )


def wait(child):
    while True:
        try:
            return posix.waitstatus_to_exitcode(posix.waitpid(child, 0)[1])
        except ChildProcessError:
            say("[sandbox] The command's exit status was taken by other code of the session.")
            return CANNOT_START
        except BaseException:
            # A handler that a cell set for some signal has no part in this.
            continue


def shell(command):
    """Runs a command to its end and returns its code as a shell gives it. What it left in the background stays."""
    child = None
    asked = 0

    def stop(*_):
        # Asked to end, as by a terminal; the next time, half a second later, ended.
        nonlocal asked
        asked += 1
        if child is not None:
            end(_signal.SIGINT if asked == 1 else _signal.SIGKILL)

    def end(signal):
        try:
            posix.killpg(child, signal)
        except OSError:
            pass

    # Whatever a cell made of these signals: the first must reach the command, the second must not hide its end.
    handlers = [(_signal.SIGINT, stop), (_signal.SIGCHLD, _signal.SIG_DFL)]
    before = [(signal, _signal.signal(signal, handler)) for signal, handler in handlers]
    try:
        child = spawn(command)
        if asked:
            end(_signal.SIGINT)
        code = wait(child)
        if asked:
            end(_signal.SIGKILL)
        return code if code >= 0 else 128 - code
    except ValueError:
        say("The command holds a NUL character, which no shell takes.")
        return CANNOT_START
    except (OSError, MemoryError) as error:
        say("No shell could be started: %s." % (getattr(error, "strerror", None) or "no memory"))
        return CANNOT_START
    finally:
        for signal, handler in before:
            if handler is not None:
                _signal.signal(signal, handler)
