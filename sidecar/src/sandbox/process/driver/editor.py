# The text editor. It works here, with the session's own rights, so that the sandbox bounds what it reaches. A fresh
# process would be started by this one and deserve no more belief, but cost a task of the session and ten milliseconds.

MAX_FILE_BYTES = 8 << 20
MAX_SHOWN_BYTES = 256 << 10
MAX_HUNK_BYTES = 32 << 10
MAX_LISTED = 1000
MAX_SCANNED = 20000
MAX_LINKS = 40
MAX_UNDOS = 64
MAX_UNDO_CHARACTERS = 8 << 20
TYPE = 0o170000
REGULAR = 0o100000
DIRECTORY = 0o040000
CAREFULLY = posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_NOCTTY | posix.O_CLOEXEC
INTERRUPTED = 130
ALIAS = "/mnt/data"  # a link to the workspace that no code can move
UNPRINTABLE = {number: "\\u%04x" % number for number in range(32)}
ESCAPES = {**UNPRINTABLE, 0x22: '\\"', 0x5C: "\\\\"}
undos = []  # what each edit changed, the last one last
KINDS = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive, as office documents are"),
)


class Failed(Exception):
    def __init__(self, words, kind="invalid_input"):
        self.words = words
        self.kind = kind


def quote(text):
    return '"' + text.translate(ESCAPES) + '"'


def resolve(path):
    """The path without links and dots. It may name nothing yet, but never leaves the workspace."""
    outside = Failed("`%s` is outside the workspace; give a path inside `%s`." % (path, WORKSPACE))
    if not path or "\0" in path:
        raise Failed("`path` must be a name without NUL characters, inside `%s`." % WORKSPACE)
    here, pending, links = [], [path], 0
    while pending:
        part = pending.pop()
        if part.startswith("/"):
            root = [root for root in (WORKSPACE, ALIAS) if part == root or part.startswith(root + "/")]
            if not root:
                raise outside
            here, part = [], part[len(root[0]) :].lstrip("/")
        if "/" in part:
            pending += reversed(part.split("/"))
        elif part == "..":
            if not here:
                raise outside
            here.pop()
        elif part not in ("", "."):
            here.append(part)
            try:
                target = posix.readlink("/".join([WORKSPACE, *here]))
            except OSError:
                continue
            here.pop()
            links += 1
            if links > MAX_LINKS:
                raise Failed("`%s` has too many symbolic links." % path)
            pending.append(target)
    return "/".join([WORKSPACE, *here])


def must_be_regular(path, state):
    if state.st_mode & TYPE == DIRECTORY:
        raise Failed("`%s` is a directory; name a file." % path)
    if state.st_mode & TYPE != REGULAR:
        raise Failed("`%s` is not a regular file." % path)


def content(path, real):
    """The text of a file, and its permissions."""
    too_long = Failed("`%s` is longer than the %d bytes the editor takes; use bash or Python." % (path, MAX_FILE_BYTES))
    must_be_regular(path, posix.stat(real))
    descriptor = posix.open(real, posix.O_RDONLY | CAREFULLY)
    try:
        # Asked again: the name may have got another meaning in between.
        state = posix.fstat(descriptor)
        must_be_regular(path, state)
        if state.st_size > MAX_FILE_BYTES:
            raise too_long
        data = bytearray()
        while True:
            part = posix.read(descriptor, 1 << 16)
            data += part
            if len(data) > MAX_FILE_BYTES:
                raise too_long
            if not part:
                break
    finally:
        posix.close(descriptor)
    try:
        if b"\0" not in data:
            return data.decode("utf-8"), state.st_mode
    except UnicodeDecodeError:
        pass
    kind = next((kind for mark, kind in KINDS if data.startswith(mark)), "binary")
    raise Failed("`%s` is not a text file in UTF-8 but %s; read it with Python." % (path, kind))


def replace(real, text, mode=None):
    """Puts a whole file in the place of what is there, or leaves that as it is."""
    new = "%s/.edit-%d" % (real.rpartition("/")[0], call)
    data = memoryview(text.encode())
    descriptor = posix.open(new, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | CAREFULLY, 0o666)
    try:
        try:
            if mode is not None:
                posix.fchmod(descriptor, mode & 0o777)
            while data:
                data = data[posix.write(descriptor, data) :]
        finally:
            posix.close(descriptor)
        posix.rename(new, real)
    except BaseException:
        try:
            posix.unlink(new)
        except OSError:
            pass
        raise


def lines_of(text):
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def names(directory):
    """Sorted names with whether each is a directory, hidden ones left out, and whether that is all."""
    found = []
    with posix.scandir(directory) as entries:
        for scanned, entry in enumerate(entries):
            if scanned == MAX_SCANNED:
                return sorted(found), False
            if not entry.name.startswith("."):
                found.append((entry.name, entry.is_dir(follow_symlinks=False)))
    return sorted(found), True


def listing(path, real):
    shown, size = [], 0
    first, whole = names(real)
    pending = [(name, "", is_directory) for name, is_directory in reversed(first)]
    while pending:
        name, above, is_directory = pending.pop()
        line = above + name + "/" * is_directory
        # A name may hold anything; a line of the list is one line.
        line = line.encode("utf-8", "backslashreplace").decode().translate(UNPRINTABLE)
        size += len(line.encode()) + 1
        if len(shown) == MAX_LISTED or size > shown_bytes:
            whole = False
            break
        shown.append(line + "\n")
        if is_directory and not above:
            try:
                inner, all_of_it = names(real + "/" + name)
            except OSError:
                whole = False
                continue
            whole = whole and all_of_it
            pending += [(below, name + "/", flag) for below, flag in reversed(inner)]
    note = "" if whole else "Not everything in `%s` is listed; view its directories one by one, or use bash.\n" % path
    return '{"listed":{"entries":%d}}' % len(shown), "".join(shown), note


def view(path, first, last):
    real = resolve(path)
    if posix.stat(real).st_mode & TYPE == DIRECTORY:
        if first:
            raise Failed("`%s` is a directory and has no lines; leave `view_range` out." % path)
        return listing(path, real)
    text, _ = content(path, real)
    lines = lines_of(text)
    total = len(lines)
    if first and not 1 <= int(first) <= total:
        raise Failed("`view_range` starts at line %s, but `%s` has %d lines, counted from 1." % (first, path, total))
    start = int(first or 1)
    end = min(int(last), total) if last else total
    if first and end < start:
        raise Failed("`view_range` ends at line %s, before it starts at line %d." % (last, start))
    shown, size = [], 0
    for line in lines[start - 1 : end]:
        size += len(line.encode()) + 1
        if size > shown_bytes:
            break
        shown.append(line)
    note, line_end = "", "\n"
    if len(shown) < end - start + 1:
        rest = "`view_range` shows the rest"
        if not shown:
            shown, line_end = [lines[start - 1].encode()[:shown_bytes].decode("utf-8", "ignore")], ""
            rest = "line %d is longer than that; bash or Python show its rest" % start
        said = (start, start + len(shown) - 1, total, shown_bytes, rest)
        note = "Only lines %d to %d of %d are shown: a view gives at most %d bytes; %s.\n" % said
    if start - 1 + len(shown) == total and not text.endswith("\n"):
        line_end = ""
    report = '{"viewed":{"start_line":%d,"num_lines":%d,"total_lines":%d}}' % (start, len(shown), total)
    return report, "\n".join(shown) + (line_end if shown else ""), note


def create(path, text):
    real = resolve(path)
    try:
        state = posix.stat(real)
    except FileNotFoundError:
        state = None
    except NotADirectoryError:
        raise Failed("`%s` leads through a file; only directories hold files." % path) from None
    if path.endswith("/") or real == WORKSPACE:
        raise Failed("`%s` names a directory; name a file." % path)
    old = None
    if state is not None:
        must_be_regular(path, state)
        try:
            old = content(path, real)[0]
        except (Failed, OSError, MemoryError):
            # It can be written over all the same, but not brought back.
            pass
    above = WORKSPACE
    for part in real[len(WORKSPACE) + 1 :].split("/")[:-1]:
        above += "/" + part
        try:
            posix.mkdir(above)
        except FileExistsError:
            pass
    replace(real, text, state and state.st_mode)
    remember(real, old, text, 0, len(old or ""), len(text), state is None)
    report = '{"created":{"is_file_update":%s}}' % ("false" if state is None else "true")
    return report, "`%s` was %s.\n" % (path, "created" if state is None else "overwritten"), ""


def hunk(before, at, end, new):
    """The report of an edit that put `new` in the place of `before[at:end]`, by whole lines."""
    start = before.rfind("\n", 0, at) + 1
    stop = before.find("\n", end) + 1 or len(before)
    old, fresh = lines_of(before[start:stop]), lines_of(before[start:at] + new + before[end:stop])
    shorter = min(len(old), len(fresh))
    head = next((n for n in range(shorter) if old[n] != fresh[n]), shorter)
    tail = next((n for n in range(shorter - head) if old[-1 - n] != fresh[-1 - n]), shorter - head)
    old, fresh = old[head : len(old) - tail], fresh[head : len(fresh) - tail]
    first = before.count("\n", 0, start) + 1 + head
    lines = ["-" + line for line in old] + ["+" + line for line in fresh]
    lines = [line[:-1] if line.endswith("\r") else line for line in lines]
    quoted = "[%s]" % ",".join(map(quote, lines))
    if sum(len(line.encode()) + 3 for line in lines) > MAX_HUNK_BYTES:
        quoted = "null"
    report = '{"edited":{"old_start":%d,"old_lines":%d,"new_start":%d,"new_lines":%d,"lines":%s}}'
    return report % (first, len(old), first, len(fresh), quoted), first


def change(path, place):
    """Changes a text file: `place` says where and what of its text and its line end."""
    real = resolve(path)
    text, mode = content(path, real)
    # A file all of whose lines end as on Windows goes on so, though models write plain line ends.
    windows = 0 < text.count("\n") == text.count("\r\n")
    at, end, new = place(text, lambda part: part.replace("\r\n", "\n").replace("\n", "\r\n") if windows else part)
    report, line = hunk(text, at, end, new)
    changed = text[:at] + new + text[end:]
    replace(real, changed, mode)
    remember(real, text, changed, at, end, at + len(new))
    return report, "`%s` was edited at line %d.\n" % (path, line), ""


def str_replace(path, old, new):
    def place(text, ends):
        found = ends(old)
        if not found:
            raise Failed("`old_str` must not be empty; `insert` puts lines in, `create` writes a whole file.")
        at = text.find(found)
        if at < 0:
            raise Failed("`old_str` does not stand in `%s`; it must match exactly, white space too." % path)
        again = text.find(found, at + 1)
        if again >= 0:
            where = text.count("\n", 0, at) + 1, text.count("\n", 0, again) + 1
            said = (path, *where)
            raise Failed("`old_str` stands in `%s` more than once, in lines %d and %d; give more text around it." % said)
        return at, at + len(found), ends(new)

    return change(path, place)


def insert(path, line, added):
    def place(text, ends):
        total = len(lines_of(text))
        if int(line) > total:
            raise Failed("`insert_line` is %s, but `%s` has %d lines; it may be 0 to %d." % (line, path, total, total))
        at = 0
        for _ in range(int(line)):
            at = text.find("\n", at) + 1 or len(text)
        new, line_end = ends(added), ends("\n")
        if at == len(text) and text and not text.endswith("\n"):
            new = line_end + new
        elif text and not new.endswith("\n"):
            new += line_end
        return at, at, new

    return change(path, place)


def remember(real, before, after, at, old_end, new_end, is_new=False):
    """Keeps what an edit changed: `before[at:old_end]` became `after[at:new_end]`. The oldest ones make room. Once the last
    edit of a file is not remembered, the ones before it fit no more."""
    try:
        if before is None and not is_new:
            undos[:] = [undo for undo in undos if undo[0] != real]
            return
        old = None if is_new else before[at:old_end]
        undos.append((real, len(after), hash(after), at, new_end, old))
        size = sum(len(undo[5] or "") for undo in undos)
        while len(undos) > MAX_UNDOS or size > MAX_UNDO_CHARACTERS:
            size -= len(undos.pop(0)[5] or "")
    except MemoryError:
        # The edit itself is done.
        undos.clear()


def undo_edit(path):
    real = resolve(path)
    number = next((n for n in reversed(range(len(undos))) if undos[n][0] == real), None)
    if number is None:
        raise Failed("No edit of `%s` is remembered that could be undone; edit it anew." % path)
    _, length, known, at, end, old = undos[number]
    text, mode = content(path, real)
    if len(text) != length or hash(text) != known:
        raise Failed("`%s` was changed by other means since its last edit, which cannot be undone now; edit it anew." % path)
    if old is None:
        raise Failed("The last edit of `%s` made it; remove it with bash." % path)
    report, line = hunk(text, at, end, old)
    replace(real, text[:at] + old + text[end:], mode)
    del undos[number]
    return report, "The last edit of `%s`, at line %d, was undone.\n" % (path, line), ""


EDITS = {"view": view, "create": create, "str_replace": str_replace, "insert": insert, "undo_edit": undo_edit}


def attempt(work, texts):
    """Does one act; gives its return code, report and two texts."""
    path = texts[0]
    try:
        return 0, *EDITS[work](*texts)
    except Failed as failure:
        words, kind = failure.words, failure.kind
    except (FileNotFoundError, NotADirectoryError):
        words, kind = "There is no file or directory `%s`." % path, "file_not_found"
    except OSError as error:
        words, kind = "`%s` cannot be used: %s." % (path, error.strerror), "unavailable"
    except MemoryError:
        words, kind = "There is not enough memory for `%s`." % path, "unavailable"
    except Exception as error:
        # A handler that a cell set for some signal.
        words, kind = "The edit of `%s` was broken off by %s." % (path, type(error).__name__), "unavailable"
    return 1, '{"failed":"%s"}' % kind, "", words + "\n"


def edit(work, *texts):
    """Does one act of the editor; gives its return code and what the answer says of it."""
    global running
    try:
        try:
            running = True
            code, report, out, note = attempt(work, texts)
        finally:
            running = False
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    return code, ',"edit":{"report":%s,"stdout":%s,"stderr":%s}' % (report, quote(out), quote(note))
