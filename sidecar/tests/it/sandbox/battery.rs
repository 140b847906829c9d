//! Bombs: each ends in a limit with a name, leaves nothing, and a neighbour works on while it goes off.

use std::cell::Cell;
use std::time::Duration;

use super::bombs::MIB;
use super::{
    ExecutionResult, PATIENCE, Place, SandboxBackend as _, SandboxLimits, default_limits, request, runs, start_with,
};

struct Bomb {
    name: &'static str,
    code: &'static str,
    limits: fn(SandboxLimits) -> SandboxLimits,
    timeout: Duration,
    /// Return codes it may end with.
    ends: &'static [i32],
    /// What standard error says of the limit.
    told: &'static str,
}

const USUAL: fn(SandboxLimits) -> SandboxLimits = |limits| limits;
const TIGHT: fn(SandboxLimits) -> SandboxLimits = |limits| SandboxLimits {
    memory_bytes: 128 * MIB,
    file_bytes: 8 * MIB,
    tmp_bytes: MIB,
    workspace_bytes: 32 * MIB,
    ..limits
};
const SHORT: Duration = Duration::from_secs(1);
/// A bomb that holds still until the watch has seen it.
const HOLD: &str = "import time\ntime.sleep(1000)";

const BOMBS: [Bomb; 15] = [
    Bomb {
        name: "forks",
        code: "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        limits: USUAL,
        timeout: SHORT,
        ends: &[124, 137],
        told: "time limit of 1 s",
    },
    Bomb {
        name: "threads",
        code: "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        limits: USUAL,
        timeout: PATIENCE,
        ends: &[1],
        told: "can't start new thread",
    },
    Bomb {
        name: "memory in one process",
        code: "held = []\nwhile True:\n    held.append(b'x' * (1 << 20))",
        limits: TIGHT,
        timeout: PATIENCE,
        ends: &[137],
        told: "memory limit of 128 MiB",
    },
    Bomb {
        name: "memory in one piece",
        code: "held = bytearray(8 << 30)",
        limits: USUAL,
        timeout: PATIENCE,
        ends: &[1],
        told: "MemoryError",
    },
    Bomb {
        name: "memory in many processes",
        code: "import os, signal\nfor _ in range(8):\n    if os.fork() == 0:\n        held = b'x' * (40 << 20)\n        signal.pause()\nsignal.pause()",
        limits: TIGHT,
        timeout: PATIENCE,
        ends: &[137],
        told: "memory limit of 128 MiB",
    },
    Bomb {
        name: "one file",
        code: "with open('big', 'wb') as file:\n    while True:\n        file.write(b'x' * (1 << 20))",
        limits: TIGHT,
        timeout: PATIENCE,
        ends: &[1],
        told: "File too large",
    },
    Bomb {
        name: "many files",
        code: "for number in range(100):\n    with open(str(number), 'wb') as file:\n        n = file.write(b'x' * (4 << 20))",
        limits: TIGHT,
        timeout: PATIENCE,
        ends: &[137],
        told: "limit of 32 MiB",
    },
    Bomb {
        name: "80,000 files",
        code: "for number in range(80_000):\n    open(str(number), 'w').close()",
        limits: USUAL,
        timeout: PATIENCE,
        ends: &[137],
        told: "limit of 10000 files",
    },
    Bomb {
        name: "temporary files",
        code: "with open('/tmp/big', 'wb') as file:\n    while True:\n        file.write(b'x' * (1 << 18))",
        limits: TIGHT,
        timeout: PATIENCE,
        ends: &[1],
        told: "No space left on device",
    },
    Bomb {
        name: "a sparse file",
        code: "import os\nopen('sparse', 'w').close()\nos.truncate('sparse', 1 << 40)",
        limits: USUAL,
        timeout: PATIENCE,
        ends: &[1],
        told: "File too large",
    },
    Bomb {
        name: "open files",
        code: "held = []\nwhile True:\n    held.append(open('/dev/null'))",
        limits: USUAL,
        timeout: PATIENCE,
        ends: &[1],
        told: "Too many open files",
    },
    Bomb {
        name: "output",
        code: "while True:\n    print('x' * 10_000)",
        limits: USUAL,
        timeout: SHORT,
        ends: &[124],
        told: "time limit of 1 s",
    },
    Bomb {
        name: "output of many processes",
        code: "import os\nfor _ in range(30):\n    if os.fork() == 0:\n        while True:\n            os.write(2, b'x' * 10_000)\nwhile True:\n    os.write(1, b'y' * 10_000)",
        limits: USUAL,
        timeout: SHORT,
        ends: &[124, 137],
        told: "time limit of 1 s",
    },
    Bomb {
        name: "daemons",
        code: "import os, signal, time\nfor _ in range(20):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            for number in (1, 2, 15):\n                signal.signal(number, signal.SIG_IGN)\n            while True:\n                pass\n        os._exit(0)\nwhile True:\n    pass",
        limits: USUAL,
        timeout: SHORT,
        ends: &[124],
        told: "time limit of 1 s",
    },
    Bomb {
        name: "a processor that does not listen",
        code: "while True:\n    try:\n        while True:\n            pass\n    except KeyboardInterrupt:\n        pass",
        limits: USUAL,
        timeout: SHORT,
        ends: &[137],
        told: "time limit of 1 s",
    },
];

/// Sets it off beside a neighbour who works until it is over. Gives how it ended, and how much the neighbour got done.
async fn set_off(place: &Place, bomb: &Bomb) -> (ExecutionResult, usize) {
    let (session, neighbour) = (place.session().await, place.session().await);
    place.output(&neighbour, "import hashlib, subprocess\nopen('kept', 'w').close()").await;
    let code = format!("{}\n{HOLD}", bomb.code);
    let over = Cell::new(false);
    let (result, done) = tokio::join!(
        async {
            let result = place.sandbox.execute(&session, &request(&code, bomb.timeout)).await.unwrap();
            over.set(true);
            result
        },
        async {
            let mut done = 0;
            while !over.get() {
                let work =
                    "subprocess.run(['cat', 'kept'], check=True)\nhashlib.sha256(b'x' * 100_000).hexdigest()[:8]";
                assert_eq!(place.output(&neighbour, work).await, "'d69e6898'\n", "{}", bomb.name);
                done += 1;
            }
            done
        },
    );
    place.destroy(&session).await;
    assert_eq!(place.output(&neighbour, "'alive'").await, "'alive'\n", "{}", bomb.name);
    place.destroy(&neighbour).await;
    (result, done)
}

#[tokio::test]
async fn every_bomb_ends_in_a_limit_with_a_name_beside_a_neighbour_who_works_on() {
    for bomb in &BOMBS {
        let place = start_with((bomb.limits)(default_limits())).await;
        let (result, done) = set_off(&place, bomb).await;
        assert!(bomb.ends.contains(&result.return_code), "{}: {} {}", bomb.name, result.return_code, result.stderr);
        assert!(result.stderr.contains(bomb.told), "{}: {}", bomb.name, result.stderr);
        let most = 2 * default_limits().output_bytes;
        assert!(result.stdout.len() + result.stderr.len() < most + 1000, "{}", bomb.name);
        assert!(done > 0, "{}: the neighbour got nothing done", bomb.name);
        place.assert_clean();
        assert!(!runs(&place.marker()), "{}: something still runs", bomb.name);
    }
}
