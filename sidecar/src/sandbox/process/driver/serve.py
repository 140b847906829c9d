# The conversation with the sidecar.


def leave(code=None):
    raise SystemExit(code)


def show_help(*topics):
    load("pydoc").help(*topics)


def import_ahead(modules):
    """Imports what code is likely to want, before there is any. What is missing or broken is told to who imports it."""
    warnings = load("warnings")
    with warnings.catch_warnings():
        # Nothing may be printed: it would stand in the first call's output.
        warnings.simplefilter("ignore")
        for name in modules.split(","):
            try:
                load(name)
            except Exception:
                pass


def start(address_space, tasks, file_size, open_files, output, modules, prefix, *path):
    global library, shown_bytes
    shown_bytes = min(int(output), MAX_SHOWN_BYTES)
    library = list(path)
    sys.path[:] = ["", *path]
    sys.prefix = sys.exec_prefix = prefix
    sys.argv[:] = [""]
    posix.set_inheritable(CONTROL, False)
    # Whatever the sidecar itself was started with and did not know of.
    posix.closerange(CONTROL + 1, MAX_FD)
    posix.nice(NICENESS)
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, int(address_space)),
        (resource.RLIMIT_NPROC, int(tasks)),
        (resource.RLIMIT_FSIZE, int(file_size)),
        (resource.RLIMIT_NOFILE, int(open_files)),
        # Memory pinned for a socket is in no account of the session's.
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(limit, (value, value))
    _signal.signal(_signal.SIGINT, interrupt)
    # What the `site` module would add; it is skipped because it costs a third of the start.
    builtins.exit = builtins.quit = leave
    builtins.help = show_help
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    sys.stdout = sys.__stdout__ = stream(1)
    sys.stderr = sys.__stderr__ = stream(2)
    sys.meta_path.insert(0, PlotFinder)
    if modules:
        import_ahead(modules)
    send('{"ready":true}')


def fields(data):
    texts = []
    while data:
        size = int.from_bytes(data[:4], "big")
        texts.append(data[4 : 4 + size].decode("utf-8"))
        data = data[4 + size :]
    return texts


def serve():
    global call
    count = 0
    while True:
        size = int.from_bytes(read(4), "big")
        call = int.from_bytes(read(8), "big")
        work, *texts = fields(read(size - 8))
        result, figures, told = 0, [], ""
        if work == "python":
            count += 1
            result, figures = cell(count, *texts)
        elif work == "bash":
            told = shell(texts)
        else:
            result, told = edit(work, *texts)
        figures = ",".join('"%s"' % name for name in figures)
        send('{"id":%d,"return_code":%d,"figures":[%s]%s}' % (call, result, figures, told))


start(*sys.argv[1:])
serve()
