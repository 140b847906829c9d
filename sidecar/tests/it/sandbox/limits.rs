//! Limits that the kernel does not keep by itself: for memory and files out of sight, and for as long as a session lives.

use std::fs;
use std::time::Duration;

use super::bombs::{MIB, ended, killed_for};
use super::{Place, SandboxLimits, SessionId, default_limits, runs, start, start_with, unique_sleep, until};

const HOLD: &str = "\nimport time\ntime.sleep(1000)";

async fn tight() -> Place {
    let limits = SandboxLimits {
        memory_bytes: 128 * MIB,
        workspace_bytes: 32 * MIB,
        workspace_entries: 500,
        file_bytes: 8 * MIB,
        ..default_limits()
    };
    start_with(limits).await
}

#[tokio::test]
async fn memory_in_nobody_s_account_is_counted() {
    let place = tight().await;
    let session = place.session().await;
    for code in [
        // Pages that their only owner forgets stay where they are.
        "import mmap\nm = mmap.mmap(-1, 200 << 20)\nm.write(b'x' * (60 << 20)); m.madvise(mmap.MADV_DONTNEED)",
        // A process whose first thread has ended tells of no memory.
        "import _thread, ctypes, os, signal\nif os.fork() == 0:\n    _thread.start_new_thread(lambda: (b'x' * (200 << 20), signal.pause()), ())\n    ctypes.CDLL(None).pthread_exit(None)\nsignal.pause()",
        // What waits in a socket whose buffer grows.
        "import socket\nserver = socket.create_server(('127.0.0.1', 0), backlog=100)\npairs = []\nfor n in range(60):\n    client = socket.create_connection(server.getsockname())\n    far = server.accept()[0]\n    pairs.append((client, far))\n    for end in (client, far):\n        end.setblocking(False)\n        try:\n            while True: n = end.send(b'x' * 65536)\n        except BlockingIOError:\n            pass",
    ] {
        killed_for(&place.run(&session, &format!("{code}{HOLD}")).await, "memory limit of 128 MiB");
    }
    place.destroy(&session).await;
    place.assert_clean();
}

#[tokio::test]
async fn sockets_and_temporary_files_have_limits_of_their_own() {
    let place = tight().await;
    let session = place.session().await;
    let sockets = "import os, signal, socket\nfor n in range(4):\n    if os.fork() == 0:\n        pairs = [socket.socketpair() for n in range(100)]\n        signal.pause()";
    killed_for(&place.run(&session, &format!("{sockets}{HOLD}")).await, "more sockets than its limit of 256");
    let files = "for n in range(600): open(f'/tmp/{n}', 'w').close()";
    killed_for(
        &place.run(&session, &format!("{files}{HOLD}")).await,
        "`/tmp` or `/dev/shm` grew beyond its limit of 500",
    );
}

#[tokio::test]
async fn files_without_a_name_count_wherever_they_are_kept() {
    let place = tight().await;
    for keep in [
        "libc.mmap(None, 4096, 1, 2, fd, 0)",
        "a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])",
    ] {
        let session = place.session().await;
        let code = format!(
            "import array, ctypes, os, socket
a, b = socket.socketpair()
libc = ctypes.CDLL(None)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
for n in range(9):
    fd = os.open('t', os.O_RDWR | os.O_CREAT)
    n = os.write(fd, b'x' * (7 << 20))
    n = {keep}
    os.unlink('t')
    os.close(fd){HOLD}"
        );
        killed_for(&place.run(&session, &code).await, "limit of 32 MiB");
        ended(&place, &session).await;
    }
    // One on its way, where it could carry others, is not left there for long.
    let session = place.session().await;
    let code = format!(
        "import array, os, socket\na, b = socket.socketpair()\nn = a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))]){HOLD}"
    );
    killed_for(&place.run(&session, &code).await, "out of sight");
    let beyond = "import ctypes, errno\nfile = open('f', 'w')\nn = ctypes.CDLL(None, use_errno=True).fallocate(file.fileno(), 1, ctypes.c_long(0), ctypes.c_long(1 << 30))\nn, errno.errorcode[ctypes.get_errno()]";
    assert_eq!(place.output(&session, beyond).await, "(-1, 'EPERM')\n");
}

#[tokio::test]
async fn who_cannot_be_watched_is_killed() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let place = start().await;
    let session = place.session().await;
    let code = "import ctypes, os, signal\nif os.fork() == 0:\n    ctypes.CDLL(None).prctl(4, 0)\n    signal.pause()";
    killed_for(&place.run(&session, &format!("{code}{HOLD}")).await, "out of sight");
}

/// States of the processes that have `marker` in their command line.
fn states(marker: &str) -> Vec<char> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let found = processes.filter(|path| {
        let command = fs::read(path.join("cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes())
    });
    let state = |stat: String| stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
    found.filter_map(|path| fs::read_to_string(path.join("stat")).ok().and_then(state)).collect()
}

#[tokio::test]
async fn between_calls_everything_stands_still_and_then_goes_on() {
    let place = start().await;
    let session = place.session().await;
    let marker = unique_sleep();
    let code = format!(
        "import os, subprocess, sys, threading
count = 0
def work():
    global count
    while True: count += 1
threading.Thread(target=work, daemon=True).start()
busy = \"import os\\nif os.fork() == 0: os.setsid()\\nwhile True: open('ticks', 'a').write('x')\"
p = subprocess.Popen([sys.executable, '-I', '-S', '-c', busy, '{marker}'])
while not os.path.exists('ticks'): pass"
    );
    assert_eq!(place.output(&session, &code).await, "");
    let seen = states(&marker);
    assert!(!seen.is_empty() && seen.iter().all(|state| *state == 'T'), "{seen:?}");
    let code = "before = (count, os.path.getsize('ticks'))\nwhile count == before[0] or os.path.getsize('ticks') == before[1]: pass\n'went on'";
    assert_eq!(place.output(&session, code).await, "'went on'\n");
    let seen = states(&marker);
    assert!(!seen.is_empty() && seen.iter().all(|state| *state == 'T'), "{seen:?}");
    place.destroy(&session).await;
    assert!(states(&marker).is_empty());
    place.assert_clean();
}

#[tokio::test]
async fn a_server_of_one_call_serves_the_next() {
    let place = start().await;
    let session = place.session().await;
    let code = "import socket, subprocess, sys\nserve = 'import socket\\ns = socket.create_server((\"127.0.0.1\", 4321))\\nprint(1, flush=True)\\nwhile True: s.accept()[0].sendall(b\"hello\")'\np = subprocess.Popen([sys.executable, '-c', serve], stdout=subprocess.PIPE)\nn = p.stdout.readline()";
    assert_eq!(place.output(&session, code).await, "");
    assert_eq!(place.output(&session, "socket.create_connection(('127.0.0.1', 4321)).recv(5)").await, "b'hello'\n");
}

/// Runs `code`, which passes a limit as its last act, until the watch sees that only after the call.
async fn struck_after(place: &Place, code: &str) -> SessionId {
    for _ in 0..20 {
        let session = place.session().await;
        place.output(&session, "import mmap, os, subprocess").await;
        let marker = unique_sleep();
        let code = format!("p = subprocess.Popen(['sleep', '{marker}'])\n{code}");
        let result = place.run(&session, &code).await;
        until("the session is killed", || !runs(&marker)).await;
        if result.return_code == 0 {
            return session;
        }
        place.destroy(&session).await;
    }
    panic!("every call was seen at its very end");
}

#[tokio::test]
async fn a_limit_passed_when_the_call_is_over_is_told_to_the_next() {
    let place = tight().await;
    let session = struck_after(&place, "m = mmap.mmap(-1, 200 << 20)").await;
    let next = place.run(&session, "'m' in dir()").await;
    assert_eq!((next.return_code, next.stdout.as_str()), (0, "False\n"));
    assert!(next.stderr.contains("memory limit of 128 MiB") && next.stderr.contains("after the last call"), "{next:?}");
    assert_eq!(place.output(&session, "'in peace'").await, "'in peace'\n");
    place.destroy(&session).await;

    let code = "for n in range(5): os.posix_fallocate(os.open(f'f{n}', os.O_CREAT | os.O_RDWR), 0, 8 << 20)";
    let session = struck_after(&place, code).await;
    let next = place.run(&session, "'ran'").await;
    killed_for(&next, "limit of 32 MiB");
    assert!(next.stderr.contains("did not run") && next.stdout.is_empty(), "{next:?}");
    ended(&place, &session).await;
}

/// Says that its own call is over, and goes on.
const LIE: &str = r#"import os, sys, time
frame = sys._getframe()
while frame.f_back: frame = frame.f_back
def lie(id):
    text = '{"id":%d,"return_code":0,"figures":[]}' % id
    n = os.write(3, len(text).to_bytes(4, 'big') + text.encode())
"#;

#[tokio::test]
async fn a_call_that_says_it_is_over_is_stopped_like_one_that_is() {
    let place = start().await;
    let session = place.session().await;
    let code = format!("{LIE}lie(frame.f_globals['call'])\nwhile True: print('went on')");
    assert_eq!(place.run(&session, &code).await.return_code, 0);
    // The next call gets what is left of it, for its own time and not longer, and then its end.
    let next = place.run_for(&session, "print('next')", Duration::from_millis(300)).await;
    assert_eq!(next.return_code, 137, "{}", next.stderr);
    assert!(next.stderr.contains("answer to another call") && next.stdout.starts_with("went on"), "{}", next.stderr);
    assert_eq!(place.output(&session, "'in step'").await, "'in step'\n");
    // Answers to calls that have not been made are answers to no call, or to another than the next if they come after it.
    let ahead = format!("{LIE}id = frame.f_globals['call']\nfor id in (id, id + 1, 1, 2): lie(id)");
    assert_eq!(place.run(&session, &ahead).await.return_code, 0);
    let next = place.run(&session, "print('next')").await;
    killed_for(&next, "the control channel carried");
    assert!(["answer to no call", "answer to another call"].iter().any(|told| next.stderr.contains(told)));
    assert_eq!(place.output(&session, "'in step'").await, "'in step'\n");
}

#[tokio::test]
async fn a_session_has_no_budget_of_processor_time_to_use_up() {
    let place = super::start().await;
    let session = place.session().await;
    let code = "import resource\nresource.getrlimit(resource.RLIMIT_CPU) == (resource.RLIM_INFINITY,) * 2";
    assert_eq!(place.output(&session, code).await, "True\n");
}
