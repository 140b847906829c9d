//! Shell commands: beside the interpreter, within the same limits, and never in its way.

use std::time::{Duration, Instant};

use super::bombs::{MIB, ended, killed_for};
use super::{
    SandboxBackend, SandboxError, SandboxLimits, ToolInput, default_limits, request_of, runs, start, start_with,
    unique_sleep, until,
};

/// Long enough to begin anything, short enough to wait for.
const SHORT: Duration = Duration::from_millis(400);

#[tokio::test]
async fn commands_and_python_share_files_and_no_command_touches_a_variable() {
    let place = start().await;
    let session = place.session().await;
    place.output(&session, "x = 41\nimport os\nos.makedirs('deep')\nos.chdir('deep')").await;
    assert_eq!(place.shell(&session, "echo from bash > note; pwd; ls").await, "/workspace\ndeep\nnote\n");
    assert_eq!(
        place.output(&session, "x += 1\n(x, open('../note').read(), os.getcwd())").await,
        "(42, 'from bash\\n', '/workspace/deep')\n"
    );
    // Each command has a shell of its own.
    assert_eq!(place.shell(&session, "y=1; cd deep; export z=2").await, "");
    assert_eq!(place.shell(&session, "echo \"[$y$z]\"; pwd").await, "[]\n/workspace\n");
    // It is bash, with its own words, and what looks like an option is a command.
    assert_eq!(
        place.shell(&session, "a=(1 2 3); [[ ${#a[@]} == 3 ]] && echo \"$BASH_VERSINFO\" | grep -c .").await,
        "1\n"
    );
    assert!(place.bash(&session, "-x").await.stderr.contains("-x: command not found"));
    let both = place.bash(&session, "echo out; echo err >&2").await;
    assert_eq!((both.stdout.as_str(), both.stderr.as_str(), both.return_code), ("out\n", "err\n", 0));
    assert_eq!(both.editor, None);
}

#[tokio::test]
async fn a_return_code_is_the_shells() {
    let place = start().await;
    let session = place.session().await;
    for (command, return_code) in [
        ("true", 0),
        ("", 0),
        ("false", 1),
        ("exit 42", 42),
        ("exit 256", 0),
        ("no-such-program", 127),
        ("touch plain; ./plain", 126),
        ("if", 2),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("ulimit -c 0; kill -SEGV $$", 139),
        ("sh -c 'kill -9 $$'; exit $?", 137),
        ("yes | head -n 1 > first; exit ${PIPESTATUS[0]}", 141),
    ] {
        assert_eq!(place.bash(&session, command).await.return_code, return_code, "{command}");
    }
    let nul = place.bash(&session, "echo a\0b").await;
    assert_eq!((nul.return_code, nul.stdout.as_str()), (126, ""));
    assert!(nul.stderr.contains("NUL"), "{}", nul.stderr);
}

#[tokio::test]
async fn a_command_gets_a_clean_environment_an_empty_input_and_no_descriptor_of_ours() {
    let place = start().await;
    let session = place.session().await;
    // Whatever a cell does to its own.
    let spoil = "import os\nos.environ['SECRET'] = '1'\nos.environ['PATH'] = '/nowhere'\nos.dup2(3, 9, inheritable=False)\nos.set_inheritable(3, True)\nimport signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])";
    place.run(&session, spoil).await;
    let environment = place.shell(&session, "env").await;
    let mut names: Vec<&str> = environment.lines().map(|line| line.split_once('=').unwrap().0).collect();
    names.retain(|name| !["PWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    let expected = [
        "HOME",
        "LANG",
        "LC_ALL",
        "LOGNAME",
        "MPLBACKEND",
        "MPLCONFIGDIR",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "PATH",
        "TMPDIR",
        "USER",
        "XDG_CACHE_HOME",
    ];
    assert_eq!(names, expected);
    assert!(environment.contains("HOME=/workspace\n") && environment.contains("PATH=/usr/local/bin:/usr/bin:/bin\n"));
    // The list's own descriptor is the one beyond the three.
    let open = place.shell(&session, "cd /proc/self/fd && echo *").await;
    assert!(open == "0 1 2 3\n" || open == "0 1 2 255\n", "{open}");
    assert_eq!(place.bash(&session, "echo forged >&3").await.return_code, 1);
    assert_eq!(place.shell(&session, "cat; read x; echo $?; readlink /proc/self/fd/0").await, "1\n/dev/null\n");
    // Signals that the cell ignores or blocks do what they do in any shell.
    assert_eq!(place.bash(&session, "kill -INT $$").await.return_code, 130);
    assert_eq!(place.bash(&session, "kill -TERM $$").await.return_code, 143);
    let kept = "import signal\n(signal.getsignal(signal.SIGINT) == signal.SIG_IGN, os.getcwd())";
    assert_eq!(place.output(&session, kept).await, "(True, '/workspace')\n");
}

#[tokio::test]
async fn the_deadline_interrupts_a_command_and_python_keeps_its_variables() {
    let place = start().await;
    let session = place.session().await;
    place.output(&session, "x = 42").await;
    let told = unique_sleep();
    for command in [
        format!("echo before; sleep {told}; echo after"),
        format!("echo before; sleep {told} | cat; echo after"),
        "echo before; while :; do :; done".to_owned(),
        format!("echo before; python3 -c 'import time; time.sleep(1000)' {told}"),
        // Ends by the second sign, for which nothing can be trapped.
        format!("trap '' INT; echo before; sleep {told}; echo after"),
        format!("trap '' INT TERM; echo before; (sleep {told}); while :; do sleep 0.01; done"),
        format!("echo before; sleep {told} & wait"),
    ] {
        let begun = Instant::now();
        let result = place.bash_for(&session, &command, SHORT).await;
        assert_eq!((result.return_code, result.stdout.as_str()), (124, "before\n"), "{command}: {}", result.stderr);
        assert!(
            result.stderr.contains("time limit of 0.4 s") && result.stderr.contains("are kept"),
            "{}",
            result.stderr
        );
        assert!(begun.elapsed() < Duration::from_secs(4), "{command}: {:?}", begun.elapsed());
        until("the command is gone", || !runs(&told)).await;
        assert_eq!(place.output(&session, "x").await, "42\n", "{command}");
    }
    // A cell that is deaf to the interrupt does not make commands deaf.
    place.output(&session, "import signal\nn = signal.signal(signal.SIGINT, signal.SIG_IGN)").await;
    assert_eq!(place.bash_for(&session, &format!("sleep {told}"), SHORT).await.return_code, 124);
    place.output(&session, "n = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])").await;
    assert_eq!(place.bash_for(&session, &format!("sleep {told}"), SHORT).await.return_code, 124);
    assert_eq!(place.output(&session, "x").await, "42\n");
}

#[tokio::test]
async fn what_a_command_leaves_in_the_background_holds_no_answer_and_stands_still_between_calls() {
    let place = start().await;
    let session = place.session().await;
    let marker = unique_sleep();
    let begun = Instant::now();
    assert_eq!(place.shell(&session, &format!("sleep {marker} & echo now")).await, "now\n");
    assert_eq!(
        place.shell(&session, &format!("setsid sleep {marker} & setsid -f sleep {marker}; echo now")).await,
        "now\n"
    );
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(runs(&marker));
    place.shell(&session, "rm -f ticks; (while :; do echo x >> ticks; done) & while [ ! -s ticks ]; do :; done").await;
    let size = || std::fs::metadata(place.workspace().join("ticks")).unwrap().len();
    let before = size();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(size(), before);
    assert_eq!(
        place.shell(&session, "n=$(stat -c %s ticks); while [ $(stat -c %s ticks) = $n ]; do :; done; echo on").await,
        "on\n"
    );
    place.destroy(&session).await;
    until("the children are gone", || !runs(&marker)).await;
    place.assert_clean();
}

#[tokio::test]
async fn an_endless_output_is_cut_and_ends_at_the_deadline() {
    let place = start().await;
    let session = place.session().await;
    let stdout = place.shell(&session, "head -c 30000000 /dev/zero | tr '\\0' a; echo end").await;
    assert!(stdout.len() < (1 << 20) + 200 && stdout.ends_with("aend\n"));
    let dropped = 30_000_004 - (1 << 20);
    assert!(stdout.contains(&format!("[{dropped} bytes of output dropped here")));
    let endless = place.bash_for(&session, "yes", SHORT).await;
    assert_eq!(endless.return_code, 124, "{}", endless.stderr);
    assert!(endless.stdout.len() < (1 << 20) + 200 && endless.stdout.contains("dropped here"));
    assert_eq!(place.shell(&session, "echo alive").await, "alive\n");
}

#[tokio::test]
async fn a_command_meets_the_limits_of_the_session() {
    let tight = SandboxLimits {
        memory_bytes: 128 * MIB,
        workspace_bytes: 32 * MIB,
        file_bytes: 16 * MIB,
        code_bytes: 1 << 20,
        ..default_limits()
    };
    let place = start_with(tight).await;
    let session = place.session().await;
    place.output(&session, "x = 42").await;
    // Forks stop at the limit on tasks; the bomb ends with its time, and Python with its variables does not.
    let bomb = place.bash_for(&session, ":(){ :|:& };:; while :; do :; done", Duration::from_secs(1)).await;
    assert!([124, 137].contains(&bomb.return_code), "{bomb:?}");
    let tasks = place.session().await;
    let held = place.bash(&tasks, "for i in $(seq 200); do sleep 1000 & done").await;
    assert!(held.stderr.contains("Resource temporarily unavailable"), "{held:?}");
    let full = place.bash_for(&tasks, "echo one more", Duration::from_secs(20)).await;
    assert!(full.return_code == 0 || full.stderr.contains("unavailable"), "{full:?}");
    place.destroy(&tasks).await;

    let memory = place.session().await;
    let many = "for i in 1 2 3 4; do head -c 50000000 /dev/zero | tail & done; wait";
    killed_for(&place.bash(&memory, many).await, "memory limit of 128 MiB");
    assert_eq!(place.shell(&memory, "echo alive").await, "alive\n");

    assert_eq!(place.bash(&memory, "head -c 20000000 /dev/zero > big").await.return_code, 153);
    assert_eq!(place.shell(&memory, "stat -c %s big; rm big").await, "16777216\n");
    let disk = "for i in 1 2 3; do head -c 15000000 /dev/zero > f$i; done; sleep 1000";
    killed_for(&place.bash(&memory, disk).await, "limit of 32 MiB");
    place.destroy(&session).await;
    ended(&place, &memory).await;

    let session = place.session().await;
    let long = |length: usize| ToolInput::Bash { command: format!(": {}", "x".repeat(length - 2)) };
    let fits = place.sandbox.execute(&session, &request_of(long(131_071), SHORT * 10)).await.unwrap();
    assert_eq!(fits.return_code, 0, "{}", fits.stderr);
    match place.sandbox.execute(&session, &request_of(long(131_072), SHORT)).await {
        Err(SandboxError::Refused { reason }) => assert!(reason.contains("command has 131072 bytes"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn code_that_takes_the_interpreters_functions_or_children_away_takes_no_command_along() {
    let place = start().await;
    let session = place.session().await;
    let replaced = "import builtins, os, posix, subprocess, sys\nfor module, name in ((os, 'write'), (posix, 'posix_spawn'), (posix, 'waitpid'), (subprocess, 'Popen'), (builtins, 'len'), (builtins, 'dict'), (builtins, 'getattr')):\n    setattr(module, name, None)";
    assert_eq!(place.run(&session, replaced).await.return_code, 0);
    assert_eq!(place.shell(&session, "echo fine").await, "fine\n");
    assert_eq!(place.bash(&session, "exit 7").await.return_code, 7);

    let session = place.session().await;
    place.output(&session, "import signal\nn = signal.signal(signal.SIGCHLD, signal.SIG_IGN)").await;
    assert_eq!(place.bash(&session, "exit 7").await.return_code, 7);
    let thief = "import os, threading\nn = signal.signal(signal.SIGCHLD, signal.SIG_DFL)\ndef steal():\n    while True:\n        try: os.wait()\n        except ChildProcessError: pass\nthreading.Thread(target=steal, daemon=True).start()";
    place.output(&session, thief).await;
    let stolen = place.bash(&session, "sleep 0.1; exit 7").await;
    assert!(stolen.return_code == 7 || stolen.stderr.contains("taken by other code"), "{stolen:?}");
    // An alarm of a cell that goes off meanwhile is the cell's.
    let session = place.session().await;
    let alarm = "import signal\ndef rise(*_): raise OSError('alarm')\nn = signal.signal(signal.SIGALRM, rise)\nn = signal.setitimer(signal.ITIMER_REAL, 0.2, 0.05)";
    place.output(&session, alarm).await;
    assert_eq!(place.bash(&session, "sleep 0.6; exit 7").await.return_code, 7);
}
