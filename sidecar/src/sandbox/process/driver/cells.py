"""The session's interpreter: reads calls from descriptor 3, runs Python cells in one lasting `__main__`, shell commands
beside it and edits of files in itself, and says when each is done.

A request is 4 bytes of length, then 8 bytes of call id, then texts in UTF-8, each after 4 bytes of its length: the name of
what is to be done, then what it needs. An answer is 4 bytes of length, then JSON. What programs print never travels here:
it goes through the real descriptors 1 and 2, which the sidecar reads.
Nothing heavy is imported before it is needed: a session's first answer waits for this file.

The file is four in one namespace, put together by `python.rs`: cells, shell, editor, serve.
"""

import _ast
import _frozen_importlib_external
import _signal
import builtins
import posix
import resource
import sys

CONTROL = 3
HERE = (lambda: 0).__code__.co_filename
PID = posix.getpid()
WORKSPACE = posix.getcwd()
ONLY_AST = 0x400  # ast.PyCF_ONLY_AST
TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
IS_COROUTINE = 0x80  # inspect.CO_COROUTINE
MAX_FIGURES = 20
MAX_FD = 1 << 20
NICENESS = 5

# Copies of our own: a cell that replaces `open` or `posix.open` for itself does not replace them for us.
__builtins__ = dict(builtins.__dict__)
ours = type(sys)("posix")
ours.__dict__.update(posix.__dict__)
posix = ours

main = type(sys)("__main__")
sources = {}
drawn = []
running = False
loop = None


def read(size):
    data = bytearray()
    while len(data) < size:
        part = posix.read(CONTROL, min(size - len(data), 65536))
        if not part:
            posix._exit(0)
        data += part
    return bytes(data)


def send(text):
    data = text.encode()
    data = len(data).to_bytes(4, "big") + data
    while data:
        data = data[posix.write(CONTROL, data) :]


def load(name):
    """Imports a module of the standard library, whatever lies in the workspace under the same name."""
    path = sys.path
    sys.path = library
    try:
        __import__(name)
        return sys.modules[name]
    finally:
        sys.path = path


def interrupt(signal, frame):
    if running:
        raise KeyboardInterrupt


def know_sources():
    cache = load("linecache").cache
    for name, source in sources.items():
        if name not in cache:
            cache[name] = (len(source), None, [line + "\n" for line in source.split("\n")], name)


def brief(error):
    try:
        return "%s: %s" % (type(error).__name__, error)
    except BaseException:
        return type(error).__name__


def report(error):
    """Prints a traceback as a script would: from the cell on, without frames of this file."""
    try:
        know_sources()
        trace = error.__traceback__
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
            trace = trace.tb_next
        summary = load("traceback").TracebackException(type(error), error, trace)
        pending, seen = [summary], set()
        while pending:
            part = pending.pop()
            if part is None or id(part) in seen:
                continue
            seen.add(id(part))
            part.stack[:] = [entry for entry in part.stack if entry.filename != HERE]
            pending += [part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())]
        text = "".join(summary.format())
    except BaseException:
        # No memory or no descriptor is left for the libraries above: the limit is to be told all the same.
        text = brief(error) + "\n"
    try:
        sys.stderr.write(text)
    except BaseException:
        posix.write(2, text.encode("utf-8", "backslashreplace"))


def evaluate(code):
    global loop
    value = eval(code, main.__dict__)
    if not code.co_flags & IS_COROUTINE:
        return
    asyncio = load("asyncio")
    if loop is None or loop.is_closed():
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(value)
    try:
        loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            loop.run_until_complete(asyncio.wait([task], timeout=1))
        raise


def run(name, source):
    # `dont_inherit`: a `from __future__` line of this file or of another cell must not change the meaning of this one.
    tree = compile(source, name, "exec", ONLY_AST | TOP_LEVEL_AWAIT, True)
    parts = [(tree, "exec")]
    if tree.body and isinstance(tree.body[-1], _ast.Expr) and not source.rstrip().endswith(";"):
        # `single` prints the value, as the interactive prompt does.
        parts.append((_ast.Interactive([tree.body.pop()]), "single"))
    codes = [compile(part, name, mode, TOP_LEVEL_AWAIT, True) for part, mode in parts]
    for code in codes:
        evaluate(code)


class PlotFinder:
    """Finds `matplotlib.pyplot` as anybody would, once, and gives it a `show` that saves: there is no window to open."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "matplotlib.pyplot":
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not PlotFinder]
        spec = _frozen_importlib_external.PathFinder.find_spec(name, path, target)
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_and_mend(module):
                execute(module)
                module.show = show

            spec.loader.exec_module = execute_and_mend
        return spec


def show(*args, **kwargs):
    """Saves the open figures into the workspace."""
    if posix.getpid() == PID:
        save_figures()


def save_figures():
    """Saves and closes the open figures; what a cell draws beyond the limit stays unsaved."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums()[: MAX_FIGURES - len(drawn)]:
        count = 1
        while True:
            name = "figure_%d.png" % count
            try:
                posix.lstat(WORKSPACE + "/" + name)
            except FileNotFoundError:
                break
            count += 1
        pyplot.figure(number).savefig(WORKSPACE + "/" + name, bbox_inches="tight")
        drawn.append(name)
    pyplot.close("all")


def flush():
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except BaseException:
            pass


def stream(number):
    return open(number, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def mend():
    """Gives the next cell working streams if the last one closed or lost them."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(getattr(sys, name), "closed", True):
            setattr(sys, name, stream(number))
            setattr(sys, "__%s__" % name, getattr(sys, name))


def cell(number, source):
    """Runs one cell and returns its return code and the figures it drew."""
    global running
    name = "<cell %d>" % number
    sources[name] = source
    drawn.clear()
    mend()
    if "linecache" in sys.modules or "traceback" in source:
        know_sources()
    if "matplotlib" in source:
        load("warnings").filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
    try:
        try:
            running = True
            run(name, source)
            save_figures()
            code = 0
        finally:
            running = False
    except SystemExit as error:
        code = error.code
        if code is None:
            code = 0
        elif not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        running = False
        report(error)
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
    flush()
    if posix.getpid() != PID:
        # A fork came back from the cell. It has no part in this conversation.
        posix._exit(code & 0xFF)
    return code & 0xFF, drawn
