//! Sessions that stand ready: as isolated and as fresh as any other, given out once, and in nobody's way.

use std::time::Duration;

use sidecar::sandbox::process::{ProcessSettings, SandboxLimits};
use tokio::time::sleep;

use super::packages::interpreter;
use super::{Place, SandboxBackend as _, SandboxError, SessionSpec, default_limits, runs, start_as, until};

/// Longer than the pool waits before it makes another session ready.
const A_LOOK: Duration = Duration::from_millis(600);

async fn start(warm_sessions: usize, limits: SandboxLimits) -> Place {
    start_as(|settings| ProcessSettings { warm_sessions, limits, ..settings }).await
}

async fn filled(place: &Place, ready: usize) {
    until("enough sessions stand ready", || place.sandbox.ready() == ready).await;
}

#[tokio::test]
async fn a_session_that_stood_ready_has_the_packages_imported_and_no_other_trace() {
    let place = start_as(|settings| ProcessSettings { python: interpreter(), warm_sessions: 2, ..settings }).await;
    filled(&place, 2).await;
    let session = place.session().await;
    // Nobody's code has run in it: it has no variable, no file, no output, and this is its first cell.
    let seen = "import os, sys\nsorted(set(globals()) - set(dir(type(sys)('m')))), os.listdir(), [name in sys.modules for name in ('numpy', 'pandas', 'matplotlib.pyplot')]";
    assert_eq!(place.output(&session, seen).await, "(['__builtins__', 'os', 'sys'], [], [True, True, True])\n");
    let failed = place.run(&session, "1 / 0").await;
    assert!(failed.stderr.contains("\"<cell 2>\", line 1"), "{}", failed.stderr);
    let drawn = place.run(&session, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()").await;
    assert_eq!((drawn.stderr.as_str(), drawn.files.len()), ("", 1));
    // Its neighbour of the pool is another place with other chances.
    let chances =
        "import numpy, random\nprint(numpy.random.random(), random.random(), hash('a'), id(numpy), os.getpid())";
    let place_of = "open('private', 'w').close()\nopen('/tmp/private', 'w').close()";
    place.output(&session, place_of).await;
    let first = place.output(&session, chances).await;
    let other = place.session().await;
    let second = place.output(&other, &format!("import os\n{chances}")).await;
    let pairs: Vec<_> = first.split_whitespace().zip(second.split_whitespace()).take(3).collect();
    assert!(pairs.iter().all(|(one, two)| one != two), "{first}{second}");
    assert_eq!(place.output(&other, "os.listdir(), os.path.exists('/tmp/private')").await, "([], False)\n");
    // A cold one, when none stands ready, imports nothing.
    let cold = place.session().await;
    assert_eq!(place.output(&cold, "import sys\n'numpy' in sys.modules").await, "False\n");
}

#[tokio::test]
async fn the_pool_is_filled_again_and_who_had_a_session_has_it_alone() {
    let place = start(1, default_limits()).await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        filled(&place, 1).await;
        let session = place.session().await;
        assert_eq!(place.output(&session, "import os\nos.listdir()").await, "[]\n");
        place.output(&session, "open('mine', 'w').close()").await;
        assert!(seen.insert(session.clone()), "given out twice");
        place.destroy(&session).await;
    }
    filled(&place, 1).await;
    assert_eq!(place.sandbox.occupancy().0, 0);
    assert_eq!(place.workspaces(), 1);
}

#[tokio::test]
async fn sessions_that_stand_ready_give_way_when_the_house_is_full() {
    let place = start(2, SandboxLimits { sessions: 2, ..default_limits() }).await;
    filled(&place, 2).await;
    let (first, second) = (place.session().await, place.session().await);
    let third = place.sandbox.create_session(&SessionSpec::default()).await;
    assert!(matches!(third, Err(SandboxError::AtCapacity { .. })), "{third:?}");
    sleep(A_LOOK).await;
    assert_eq!(place.sandbox.ready(), 0, "there is no room");
    place.destroy(&first).await;
    filled(&place, 1).await;
    let third = place.session().await;
    for session in [second, third] {
        assert_eq!(place.output(&session, "1").await, "1\n");
    }
}

#[tokio::test]
async fn a_session_that_is_being_made_ready_takes_the_last_place_from_nobody() {
    let place = start_as(|settings| {
        let limits = SandboxLimits { sessions: 1, ..default_limits() };
        ProcessSettings { python: interpreter(), warm_sessions: 1, limits, ..settings }
    })
    .await;
    // At every point of the making: it takes some hundred milliseconds.
    for pause in [0, 280, 320, 360, 420, 500] {
        sleep(Duration::from_millis(pause)).await;
        let session = place.session().await;
        assert_eq!(place.output(&session, "1").await, "1\n");
        place.destroy(&session).await;
    }
}

#[tokio::test]
async fn the_life_of_a_session_begins_when_it_is_taken() {
    let limits =
        SandboxLimits { idle: Duration::from_millis(1500), lifetime: Duration::from_secs(2), ..default_limits() };
    let place = start(1, limits).await;
    filled(&place, 1).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(place.sandbox.ready(), 1);
    let session = place.session().await;
    let told = place.sandbox.session(&session).unwrap();
    assert_eq!((told.idle_timeout, told.max_lifetime), (Duration::from_millis(1500), Duration::from_secs(2)));
    assert_eq!(place.output(&session, "1").await, "1\n");
    until("its time is over", || place.sandbox.session(&session).is_none()).await;
}

#[tokio::test]
async fn one_that_the_kernel_killed_is_given_to_nobody() {
    let place = start(1, default_limits()).await;
    filled(&place, 1).await;
    let marked = marked(&place.marker());
    let below = below(&marked);
    assert!(below.len() > marked.len(), "an interpreter runs in it");
    for pid in marked {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    until("it is dead", || !runs(&place.marker()) && !below.iter().copied().any(lives)).await;
    let session = place.session().await;
    assert_eq!(place.output(&session, "1").await, "1\n");
    place.destroy(&session).await;
}

#[tokio::test]
async fn those_that_nobody_took_end_with_the_sandbox() {
    let shut = start(2, default_limits()).await;
    filled(&shut, 2).await;
    assert!(runs(&shut.marker()));
    shut.sandbox.shut().await;
    assert_eq!(shut.sandbox.ready(), 0);
    shut.assert_clean();
    assert!(!runs(&shut.marker()));
    sleep(A_LOOK).await;
    assert_eq!(shut.workspaces(), 0, "nothing is made ready any more");
    // While one is being made ready, too.
    let early = start(1, default_limits()).await;
    early.sandbox.shut().await;
    until("nothing of it is left", || early.workspaces() == 0 && !runs(&early.marker())).await;
    let dropped = start(1, default_limits()).await;
    filled(&dropped, 1).await;
    let marker = dropped.marker();
    let Place { sandbox, data } = dropped;
    drop(sandbox);
    until("its processes are gone", || !runs(&marker)).await;
    let left = || std::fs::read_dir(data.path().join("sandbox/sessions")).unwrap().count();
    until("its files are gone", || left() == 0).await;
}

/// These processes, and those that they started.
fn below(pids: &[rustix::process::Pid]) -> Vec<rustix::process::Pid> {
    let mut found = pids.to_vec();
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        let pid = pid.as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let children =
            children.split_whitespace().filter_map(|child| rustix::process::Pid::from_raw(child.parse().ok()?));
        for child in children {
            if !found.contains(&child) {
                found.push(child);
            }
        }
        next += 1;
    }
    found
}

/// Whether any thread of it has not ended. One that has may wait for ever for a parent to ask after it.
fn lives(pid: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // Behind the name, which may hold anything: the state, and 17 places on the number of threads (proc_pid_stat(5)).
    let Some((_, told)) = stat.rsplit_once(") ") else { return false };
    let told: Vec<_> = told.split(' ').collect();
    !(matches!(told[0], "Z" | "X") && told[17].parse::<u32>().unwrap() <= 1)
}

/// Processes whose first argument is this.
fn marked(marker: &str) -> Vec<rustix::process::Pid> {
    let of = |entry: std::fs::DirEntry| {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let named = command.split(|byte| *byte == 0).next() == Some(marker.as_bytes());
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        number.filter(|_| named).and_then(rustix::process::Pid::from_raw)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
}
