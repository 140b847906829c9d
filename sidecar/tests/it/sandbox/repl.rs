//! What a session's interpreter is like to use.

use std::time::Duration;

use sidecar::sandbox::SandboxBackend as _;

use super::{PATIENCE, request, start, until};

#[tokio::test]
async fn state_is_kept_and_the_last_expression_is_shown() {
    let place = start().await;
    let session = place.session().await;
    assert_eq!(place.output(&session, "x = 41\ndef f(y):\n    return x + y").await, "");
    assert_eq!(place.output(&session, "f(1)").await, "42\n");
    assert_eq!(place.output(&session, "print('a'); 'b'").await, "a\n'b'\n");
    assert_eq!(place.output(&session, "None").await, "");
    assert_eq!(place.output(&session, "f(1);").await, "");
    assert_eq!(place.output(&session, "_").await, "'b'\n");
    assert_eq!(place.output(&session, "open('note', 'w').write('kept')").await, "4\n");
    assert_eq!(place.output(&session, "open('note').read()").await, "'kept'\n");
    assert_eq!(place.output(&session, "").await, "");
}

#[tokio::test]
async fn await_works_at_the_top_level() {
    let place = start().await;
    let session = place.session().await;
    let code =
        "import asyncio\nawait asyncio.sleep(0.01)\nawait asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))";
    assert_eq!(place.output(&session, code).await, "[1, 2]\n");
    assert_eq!(place.output(&session, "async def g():\n    return 5\nx = await g()\nx").await, "5\n");
    assert_eq!(place.output(&session, "asyncio.run(g())").await, "5\n");
    let failed = place.run(&session, "async def h():\n    1 / 0\nawait h()").await;
    assert_eq!(failed.return_code, 1);
    assert!(!failed.stderr.contains("asyncio"), "{}", failed.stderr);
    let slow = place.run_for(&session, "await asyncio.sleep(1000)", Duration::from_millis(200)).await;
    assert_eq!(slow.return_code, 124, "{}", slow.stderr);
    assert_eq!(place.output(&session, "await g()").await, "5\n");
}

#[tokio::test]
async fn a_call_that_is_told_to_stop_ends_at_once_and_its_session_goes_on() {
    let place = start().await;
    let session = place.session().await;
    place.run(&session, "x = 41").await;
    for code in ["import time\ntime.sleep(1000)", "while True: pass"] {
        let request = request(&format!("y = 1\nopen('runs', 'w').close()\n{code}"), PATIENCE);
        let stop = async {
            until("it runs", || place.workspace().join("runs").exists()).await;
            request.stop.cancel();
        };
        let result = tokio::join!(place.sandbox.execute(&session, &request), stop).0.unwrap();
        assert_eq!(result.return_code, 124, "{}", result.stderr);
        assert!(result.stderr.contains("told to stop"), "{}", result.stderr);
        std::fs::remove_file(place.workspace().join("runs")).unwrap();
        assert_eq!(place.output(&session, "print(x, y)\ndel y").await, "41 1\n");
    }
    place.destroy(&session).await;
    place.assert_clean();
}

#[tokio::test]
async fn tracebacks_show_the_source_and_nothing_of_ours() {
    let place = start().await;
    let session = place.session().await;
    let failed = place.run(&session, "def f():\n    return {}['k']\n\nf()").await;
    assert_eq!(failed.return_code, 1);
    let expected = "Traceback (most recent call last):\n  File \"<cell 1>\", line 4, in <module>\n    f()\n  File \"<cell 1>\", line 2, in f\n    return {}['k']\n";
    assert!(failed.stderr.starts_with(expected), "{}", failed.stderr);
    assert!(failed.stderr.ends_with("KeyError: 'k'\n"), "{}", failed.stderr);

    let broken = place.run(&session, "x = = 1").await;
    assert_eq!(broken.return_code, 1);
    assert!(broken.stderr.starts_with("  File \"<cell 2>\", line 1\n    x = = 1\n"), "{}", broken.stderr);

    let chained =
        place.run(&session, "try:\n    f()\nexcept KeyError as e:\n    raise ValueError('\\ud800') from e").await;
    assert!(
        chained.stderr.contains("direct cause") && chained.stderr.contains("ValueError: \\ud800"),
        "{}",
        chained.stderr
    );
    for result in [failed, broken, chained] {
        assert!(!result.stderr.contains("otari"), "{}", result.stderr);
    }
    let own = place.run(&session, "import traceback\ntry:\n    f()\nexcept KeyError:\n    traceback.print_exc()").await;
    assert!(own.stderr.contains("return {}['k']"), "{}", own.stderr);
}

#[tokio::test]
async fn the_namespace_is_a_real_main_module() {
    let place = start().await;
    let session = place.session().await;
    let code = "import pickle\nclass A:\n    pass\ntype(pickle.loads(pickle.dumps(A()))) is A, __name__";
    assert_eq!(place.output(&session, code).await, "(True, '__main__')\n");
    let code = "from multiprocessing import Pool\ndef square(x):\n    return x * x\nwith Pool(2) as pool:\n    print(pool.map(square, range(4)))";
    assert_eq!(place.output(&session, code).await, "[0, 1, 4, 9]\n");
    // What Python does by system calls that are not there, it does by others.
    let code = "import shutil, socket\nn = open('from', 'w').write('text')\nn = shutil.copyfile('from', 'to')\na, b = socket.socketpair()\nn = a.sendfile(open('to', 'rb'))\nimport ctypes\nb.recv(4), ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)(4)";
    assert_eq!(place.output(&session, code).await, "(b'text', 5)\n");
    // Neither a line of the driver's nor one of another cell changes what annotations mean.
    let code = "from __future__ import annotations\ndef f(x: int): pass\nf.__annotations__";
    assert_eq!(place.output(&session, code).await, "{'x': 'int'}\n");
    assert_eq!(place.output(&session, "def g(x: int): pass\ng.__annotations__").await, "{'x': <class 'int'>}\n");
    // A file of the workspace is importable, and one with a library's name does not harm the driver.
    let code = "open('mine.py', 'w').write('x = 1')\nfor name in ('traceback', 'linecache', 'asyncio', 'signal'):\n    n = open(name + '.py', 'w').write('1/0')\nimport mine\nmine.x";
    assert_eq!(place.output(&session, code).await, "1\n");
    assert!(place.run(&session, "undefined").await.stderr.ends_with("NameError: name 'undefined' is not defined\n"));
}

#[tokio::test]
async fn every_way_of_output_is_seen_and_nothing_is_lost_between_calls() {
    let place = start().await;
    let session = place.session().await;
    let code = "import os, subprocess, sys\nos.system('echo shell')\nn = subprocess.run(['echo', 'child'])\nn = os.write(1, b'raw\\n')\nprint('print')\nprint('error', file=sys.stderr)";
    let result = place.run(&session, code).await;
    assert_eq!(result.stdout, "shell\nchild\nraw\nprint\n");
    assert_eq!(result.stderr, "error\n");
    assert_eq!(place.output(&session, "print('\\ud800', end='')").await, "\\ud800");
    assert_eq!(place.output(&session, "n = os.write(1, b'\\xff')").await, "\u{FFFD}");
    // A logger made in one cell works in the next, and closed streams come back.
    let code = "import logging\nlogging.basicConfig(stream=sys.stdout, format='%(message)s')\nlogging.warning('one')";
    assert_eq!(place.output(&session, code).await, "one\n");
    assert_eq!(place.output(&session, "logging.warning('two')").await, "two\n");
    place.run(&session, "sys.stdout.close()").await;
    assert_eq!(place.output(&session, "print('again')").await, "again\n");
    place.run(&session, "sys.stdout = None").await;
    assert_eq!(place.output(&session, "print('and again')").await, "and again\n");
    // What a thread prints after its call is prefixed to the next call's output.
    let code = "import threading\ngo = threading.Event()\nt = threading.Thread(target=lambda: (go.wait(), print('late')))\nt.start()";
    assert_eq!(place.output(&session, code).await, "");
    assert_eq!(place.output(&session, "go.set()\nt.join()\n'done'").await, "late\n'done'\n");
}

#[tokio::test]
async fn an_endless_line_is_cut_in_the_middle_and_counted() {
    let place = start().await;
    let session = place.session().await;
    let stdout = place.output(&session, "print('a' * 25_000_000 + 'b' * 25_000_000)").await;
    assert!(stdout.starts_with("aaa") && stdout.ends_with("bbb\n"));
    assert!(stdout.len() < (1 << 20) + 200);
    let dropped = 50_000_001 - (1 << 20);
    assert!(stdout.contains(&format!("[{dropped} bytes of output dropped here")), "{}", stdout.replace(['a', 'b'], ""));
    let both = place.run(&session, "import sys\nprint('x' * 2_000_000, file=sys.stderr)\nprint('small')").await;
    assert_eq!(both.stdout, "small\n");
    assert!(both.stderr.contains("dropped here"));
    // A background child that holds the pipe does not hold the answer up.
    let code = "import subprocess\np = subprocess.Popen(['sleep', '1000'])\n'now'";
    assert_eq!(place.output(&session, code).await, "'now'\n");
}

#[tokio::test]
async fn input_ends_at_once() {
    let place = start().await;
    let session = place.session().await;
    let result = place.run(&session, "input('name? ')").await;
    assert_eq!(result.return_code, 1);
    assert_eq!(result.stdout, "name? ");
    assert!(result.stderr.contains("EOFError"), "{}", result.stderr);
    assert_eq!(place.output(&session, "import sys\nsys.stdin.read()").await, "''\n");
}

#[tokio::test]
async fn exits_are_return_codes_and_keep_the_state() {
    let place = start().await;
    let session = place.session().await;
    place.output(&session, "import sys\nx = 5").await;
    for (code, return_code, stderr) in [
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('words')", 1, "words\n"),
        ("exit(4)", 4, ""),
        ("quit()", 0, ""),
        ("raise SystemExit(-1)", 255, ""),
    ] {
        let result = place.run(&session, code).await;
        assert_eq!((result.return_code, result.stderr.as_str()), (return_code, stderr), "{code}");
    }
    assert_eq!(place.output(&session, "x").await, "5\n");
}

#[tokio::test]
async fn a_fork_cannot_answer_in_place_of_its_parent() {
    let place = start().await;
    let session = place.session().await;
    let code = "import os\npid = os.fork()\nif pid == 0:\n    print('child')\nelse:\n    n = os.waitpid(pid, 0)\n    print('parent')";
    assert_eq!(place.output(&session, code).await, "child\nparent\n");
    let code = "pid = os.fork()\nif pid == 0:\n    raise ValueError('child')\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])";
    let result = place.run(&session, code).await;
    assert_eq!((result.return_code, result.stdout.as_str()), (0, "1\n"));
    assert_eq!(place.output(&session, "'in step'").await, "'in step'\n");
}

#[tokio::test]
async fn a_timeout_interrupts_and_keeps_the_state() {
    let place = start().await;
    let session = place.session().await;
    place.output(&session, "x = 42").await;
    let short = Duration::from_millis(300);
    for code in [
        "print('before', flush=True)\nwhile True: pass",
        "print('before')\nimport time\ntime.sleep(1000)",
        "print('before')\nimport subprocess\nsubprocess.run(['sleep', '1000'])",
        "print('before')\nimport os\nn = os.system('sleep 1000')",
        "print('before')\nimport threading\nthreading.Event().wait()",
    ] {
        let result = place.run_for(&session, code, short).await;
        assert_eq!(result.return_code, 124, "{code}: {}", result.stderr);
        assert_eq!(result.stdout, "before\n", "{code}");
        assert!(
            result.stderr.contains("time limit of 0.3 s") && result.stderr.contains("are kept"),
            "{}",
            result.stderr
        );
        assert_eq!(place.output(&session, "x").await, "42\n", "{code}");
    }
}

#[tokio::test]
async fn code_that_ignores_the_interrupt_is_killed_and_says_so() {
    let place = start().await;
    let session = place.session().await;
    place.output(&session, "x = 42\nopen('file', 'w').write('kept')").await;
    let stubborn = "import signal\nsignal.signal(signal.SIGINT, lambda *_: None)\nprint('before')\nwhile True: pass";
    let deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('before')\nwhile True: pass";
    for code in [stubborn, deaf] {
        let result = place.run_for(&session, code, Duration::from_millis(300)).await;
        assert_eq!((result.return_code, result.stdout.as_str()), (137, "before\n"));
        assert!(
            result.stderr.contains("time limit") && result.stderr.contains("Variables are lost"),
            "{}",
            result.stderr
        );
        assert_eq!(place.output(&session, "('x' in dir(), open('file').read())").await, "(False, 'kept')\n");
    }
}

#[tokio::test]
async fn a_crash_ends_the_interpreter_and_the_next_call_gets_a_new_one() {
    let place = start().await;
    let session = place.session().await;
    for (code, return_code, words) in [
        ("import os\nprint('before', flush=True)\nos._exit(3)", 3, "ended with status 3"),
        ("import ctypes\nprint('before')\nctypes.string_at(0)", 139, "killed by signal 11"),
        ("import os, signal\nprint('before')\nos.kill(os.getpid(), signal.SIGKILL)", 137, "killed by signal 9"),
        ("import os\nprint('before')\nos.abort()", 134, "killed by signal 6"),
    ] {
        let result = place.run(&session, code).await;
        assert_eq!((result.return_code, result.stdout.as_str()), (return_code, "before\n"), "{}", result.stderr);
        assert!(result.stderr.contains(words) && result.stderr.contains("Variables are lost"), "{}", result.stderr);
        assert_eq!(place.output(&session, "'alive'").await, "'alive'\n");
    }
}

#[tokio::test]
async fn a_forged_frame_never_desynchronises() {
    let place = start().await;
    let session = place.session().await;
    let frame = r"def frame(text):
    return len(text).to_bytes(4, 'big') + text.encode()
import os
";
    let forged = |id: u32| {
        format!(
            r#"{frame}n = os.write(3, frame('{{"id":{id},"return_code":0,"figures":[]}}'))
print('said')"#
        )
    };
    let by_child = format!(
        "{frame}\nif os.fork() == 0:\n    n = os.write(3, frame('{{}}'))\n    os._exit(0)\nimport time\ntime.sleep(1000)"
    );
    for code in [
        forged(77),
        format!("{frame}n = os.write(3, frame('not json'))\nimport time\ntime.sleep(1000)"),
        "import os\nn = os.write(3, b'\\xff' * 64)\nimport time\ntime.sleep(1000)".to_owned(),
        by_child,
        "import os\nos.close(3)".to_owned(),
    ] {
        let result = place.run_for(&session, &code, PATIENCE).await;
        assert!([1, 137].contains(&result.return_code), "{code}: {}", result.return_code);
        assert!(result.stderr.contains("Variables are lost"), "{code}: {}", result.stderr);
        assert_eq!(place.output(&session, "'in step'").await, "'in step'\n", "{code}");
    }
    for number in 0..5 {
        assert_eq!(place.output(&session, &format!("{number}")).await, format!("{number}\n"));
    }
}

#[tokio::test]
async fn open_figures_become_files() {
    let place = start().await;
    let session = place.session().await;
    // A stand-in with the four functions that are called: the plotting library is not part of the base system.
    let library = r"import os
os.mkdir('matplotlib')
open('matplotlib/__init__.py', 'w').close()
n = open('matplotlib/pyplot.py', 'w').write('''
open_figures = []
class Figure:
    def savefig(self, path, **options):
        open(path, 'w').write('drawn')
def plot():
    open_figures.append(len(open_figures) + 1)
def get_fignums():
    return open_figures
def figure(number):
    return Figure()
def close(which):
    open_figures.clear()
''')";
    place.output(&session, library).await;
    let names = |result: &super::ExecutionResult| result.files.iter().map(|file| file.name.clone()).collect::<Vec<_>>();
    let drawn = place.run(&session, "import matplotlib.pyplot as plt\nplt.plot()\nplt.plot()").await;
    assert_eq!(names(&drawn), ["figure_1.png", "figure_2.png"]);
    let drawn = place.run(&session, "os.chdir('/tmp')\nplt.plot()").await;
    assert_eq!(names(&drawn), ["figure_3.png"]);
    assert_eq!(place.output(&session, "open('/workspace/figure_3.png').read()").await, "'drawn'\n");
}
