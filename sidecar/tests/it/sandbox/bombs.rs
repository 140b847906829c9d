//! Code that takes all it can get ends in a limit with a name, and the next session never notices.

use std::time::Duration;

use super::{
    ExecutionResult, PATIENCE, Place, SandboxBackend, SandboxError, SandboxLimits, default_limits, request, start,
    start_with,
};

pub(super) const MIB: u64 = 1 << 20;

/// The session is usable for nothing any more, and nothing of it stays.
pub(super) async fn ended(place: &Place, session: &super::SessionId) {
    let after = place.sandbox.execute(session, &request("1", PATIENCE)).await;
    assert!(matches!(after, Err(SandboxError::UnknownSession)), "{after:?}");
    place.destroy(session).await;
    place.assert_clean();
}

pub(super) fn killed_for(result: &ExecutionResult, words: &str) {
    assert_eq!(result.return_code, 137, "{}", result.stderr);
    assert!(result.stderr.contains(words), "{}", result.stderr);
}

#[tokio::test]
async fn forks_and_threads_stop_at_the_limit_on_tasks() {
    let place = start().await;
    let session = place.session().await;
    let code = "import os, errno, signal\nchildren = []\ntry:\n    while True:\n        pid = os.fork()\n        if pid == 0:\n            signal.pause()\n        children.append(pid)\nexcept OSError as e:\n    print(errno.errorcode[e.errno], 50 < len(children) < 64)\nfor pid in children:\n    os.kill(pid, 9)\n    n = os.waitpid(pid, 0)";
    assert_eq!(place.output(&session, code).await, "EAGAIN True\n");
    let code = "import threading\nstop = threading.Event()\nthreads = []\ntry:\n    while True:\n        t = threading.Thread(target=stop.wait)\n        t.start()\n        threads.append(t)\nexcept RuntimeError as e:\n    print(50 < len(threads) < 64)\nstop.set()\nfor t in threads: t.join()";
    assert_eq!(place.output(&session, code).await, "True\n");
    // The limit is each session's own: a full one does not starve its neighbour.
    let neighbour = place.session().await;
    let bomb =
        request("while True:\n    try:\n        os.fork()\n    except OSError:\n        pass", Duration::from_secs(2));
    let (bombed, told) = tokio::join!(
        place.sandbox.execute(&session, &bomb),
        place.output(
            &neighbour,
            "import subprocess\nsubprocess.run(['echo', 'fine'], capture_output=True, text=True).stdout"
        )
    );
    assert_eq!(told, "'fine\\n'\n");
    assert!([124, 137].contains(&bombed.unwrap().return_code));
    place.destroy(&session).await;
    place.destroy(&neighbour).await;
    place.assert_clean();
}

#[tokio::test]
async fn one_huge_allocation_is_a_memory_error_and_keeps_the_state() {
    let place = start().await;
    let session = place.session().await;
    let result = place.run(&session, "x = 1\ny = bytearray(8 << 30)").await;
    assert_eq!(result.return_code, 1);
    assert!(result.stderr.ends_with("MemoryError\n"), "{}", result.stderr);
    assert_eq!(place.output(&session, "x").await, "1\n");
}

#[tokio::test]
async fn memory_is_counted_over_all_processes() {
    let tight = SandboxLimits { memory_bytes: 128 * MIB, ..default_limits() };
    let place = start_with(tight).await;
    let session = place.session().await;
    let alone = place.run(&session, "x = []\nwhile True:\n    x.append(b'x' * (1 << 20))").await;
    killed_for(&alone, "memory limit of 128 MiB");
    let many = "import os, signal\nfor i in range(8):\n    if os.fork() == 0:\n        x = b'x' * (40 << 20)\n        signal.pause()\nsignal.pause()";
    killed_for(&place.run(&session, many).await, "memory limit of 128 MiB");
    // Shared pages are counted once: this is 60 MiB, not 540.
    let shared = "import os\nx = b'x' * (60 << 20)\nchildren = []\nfor i in range(8):\n    pid = os.fork()\n    if pid == 0:\n        import time\n        time.sleep(0.5)\n        os._exit(0)\n    children.append(pid)\nfor pid in children: n = os.waitpid(pid, 0)\n'fine'";
    assert_eq!(place.output(&session, shared).await, "'fine'\n");
    place.destroy(&session).await;
    place.assert_clean();
}

#[tokio::test]
async fn one_file_and_the_temporary_directories_are_bounded() {
    let tight = SandboxLimits { file_bytes: 2 * MIB, tmp_bytes: MIB, ..default_limits() };
    let place = start_with(tight).await;
    let session = place.session().await;
    let fill = |path: &str| {
        format!(
            "import errno\ntry:\n    with open('{path}', 'wb') as f:\n        for i in range(100): n = f.write(b'x' * (1 << 18)); f.flush()\nexcept OSError as e:\n    print(errno.errorcode[e.errno])"
        )
    };
    assert_eq!(place.output(&session, &fill("big")).await, "EFBIG\n");
    assert_eq!(place.output(&session, "import os\nos.path.getsize('big')").await, format!("{}\n", 2 * MIB));
    assert_eq!(place.output(&session, &fill("/tmp/big")).await, "ENOSPC\n");
    assert_eq!(place.output(&session, &fill("/dev/shm/big")).await, "ENOSPC\n");
    let sparse = "try:\n    os.truncate('big', 1 << 40)\nexcept OSError as e:\n    print(errno.errorcode[e.errno])";
    assert_eq!(place.output(&session, sparse).await, "EFBIG\n");
}

#[tokio::test]
async fn a_full_workspace_ends_the_session() {
    let tight = SandboxLimits { workspace_bytes: 32 * MIB, workspace_entries: 500, ..default_limits() };
    let place = start_with(tight).await;
    let hold = "\nimport time\ntime.sleep(1000)";
    for (code, words) in [
        ("for i in range(20):\n    with open(f'f{i}', 'wb') as f: n = f.write(b'x' * (4 << 20))", "limit of 32 MiB"),
        (
            "import os\nheld = []\nfor i in range(20):\n    held.append(open('f', 'wb', buffering=0))\n    n = held[-1].write(b'x' * (4 << 20))\n    os.unlink('f')",
            "limit of 32 MiB",
        ),
        ("for i in range(2000): open(f'f{i}', 'w').close()", "limit of 500 files"),
        ("import os\nfor i in range(200):\n    os.mkdir('d')\n    os.chdir('d')", "nests too deep"),
    ] {
        let session = place.session().await;
        killed_for(&place.run(&session, &format!("{code}{hold}")).await, words);
        ended(&place, &session).await;
    }
}

#[tokio::test]
async fn endless_output_ends_at_the_time_limit_with_a_bounded_answer() {
    let place = start().await;
    let session = place.session().await;
    let result = place.run_for(&session, "while True: print('x' * 1000)", Duration::from_millis(500)).await;
    assert_eq!(result.return_code, 124, "{}", result.stderr);
    assert!(result.stdout.len() < (1 << 20) + 200 && result.stdout.contains("dropped here"));
    assert_eq!(place.output(&session, "'alive'").await, "'alive'\n");
}
