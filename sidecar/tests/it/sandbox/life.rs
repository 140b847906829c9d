//! Sessions begin, end, and leave nothing behind.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::{
    PATIENCE, ProcessSandbox, SandboxBackend, SandboxError, SandboxLimits, SessionId, SessionSpec, SystemClock,
    SystemIds, default_limits, request, runs, start, start_with, unique_sleep, until,
};

/// A process that does what it can to outlive its session. The call goes on once it runs its program.
pub(crate) fn daemon(seconds: &str) -> String {
    format!(
        "import os, signal\ngone, going = os.pipe()\nif os.fork() == 0:\n    os.setsid()\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    signal.signal(signal.SIGHUP, signal.SIG_IGN)\n    if os.fork() == 0:\n        os.execvp('sleep', ['sleep', '{seconds}'])\n    os._exit(0)\nos.close(going)\nn = os.read(gone, 1)\nn = os.wait()"
    )
}

#[tokio::test]
async fn nothing_is_left_of_a_destroyed_session() {
    let place = start().await;
    let session = place.session().await;
    let seconds = unique_sleep();
    place.output(&session, &daemon(&seconds)).await;
    until("the daemon runs", || runs(&seconds)).await;
    let code = "for name in ('a', 'a/b', 'c'):\n    os.mkdir(name)\n    n = open(name + '/file', 'w').write('x')\nos.symlink('/etc', 'link')\nos.mkfifo('fifo')\nos.chmod('a/b', 0)\nos.chmod('a', 0)\nn = os.chmod('.', 0)";
    place.output(&session, code).await;
    place.destroy(&session).await;
    until("the daemon is gone", || !runs(&seconds)).await;
    place.assert_clean();
    // A second time is a success, and so is an id that never was.
    place.destroy(&session).await;
    place.destroy(&SessionId("otari_sbx_never".to_owned())).await;
    let gone = place.sandbox.execute(&session, &request("1", PATIENCE)).await;
    assert!(matches!(gone, Err(SandboxError::UnknownSession)));
}

#[tokio::test]
async fn a_dropped_call_stops_the_code() {
    let place = start().await;
    let session = place.session().await;
    let seconds = unique_sleep();
    let code = format!("{}\nwhile True: pass", daemon(&seconds));
    {
        let call = request(&code, PATIENCE);
        let running = place.sandbox.execute(&session, &call);
        tokio::select! {
            result = running => panic!("an endless loop ended: {result:?}"),
            () = until("the daemon runs", || runs(&seconds)) => {}
        }
    }
    until("the daemon is gone", || !runs(&seconds)).await;
    let after = place.sandbox.execute(&session, &request("1", PATIENCE)).await;
    assert!(matches!(after, Err(SandboxError::UnknownSession)));
    place.destroy(&session).await;
    place.assert_clean();
}

#[tokio::test]
async fn destroying_a_busy_session_ends_its_call() {
    let place = start().await;
    let session = place.session().await;
    let seconds = unique_sleep();
    let call = request(&format!("{}\nwhile True: pass", daemon(&seconds)), PATIENCE);
    let (called, ()) = tokio::join!(place.sandbox.execute(&session, &call), async {
        until("the daemon runs", || runs(&seconds)).await;
        place.destroy(&session).await;
    });
    assert!(matches!(called, Err(SandboxError::UnknownSession)), "{called:?}");
    assert!(!runs(&seconds));
    place.assert_clean();
}

#[tokio::test]
async fn calls_of_one_session_wait_for_each_other() {
    let place = start().await;
    let session = place.session().await;
    place.output(&session, "import time\nlog = []").await;
    let call = request("log.append('in'); time.sleep(0.05); log.append('out');", PATIENCE);
    let calls = (0..4).map(|_| place.sandbox.execute(&session, &call));
    for result in futures_util::future::join_all(calls).await {
        assert_eq!(result.unwrap().return_code, 0);
    }
    assert_eq!(place.output(&session, "log == ['in', 'out'] * 4").await, "True\n");
}

#[tokio::test]
async fn sessions_are_counted_and_a_full_house_says_when_to_come_back() {
    let place = start_with(SandboxLimits { sessions: 2, ..default_limits() }).await;
    let (first, _second) = (place.session().await, place.session().await);
    let spec = SessionSpec::default();
    match place.sandbox.create_session(&spec).await {
        Err(SandboxError::AtCapacity { retry_after: Some(wait) }) => assert!(wait > Duration::ZERO),
        other => panic!("{other:?}"),
    }
    // A crash inside does not give the place away, its end does.
    place.run(&first, "import os\nos._exit(1)").await;
    assert!(place.sandbox.create_session(&spec).await.is_err());
    place.destroy(&first).await;
    place.session().await;
}

#[tokio::test]
async fn too_much_code_is_refused_before_it_runs() {
    let place = start_with(SandboxLimits { code_bytes: 10, ..default_limits() }).await;
    let session = place.session().await;
    assert_eq!(place.output(&session, "1234567890").await, "1234567890\n");
    match place.sandbox.execute(&session, &request("secret67890", PATIENCE)).await {
        Err(SandboxError::Refused { reason }) => {
            assert!(reason.contains("11") && !reason.contains("secret"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_dropped_sandbox_takes_its_sessions_along() {
    let place = start().await;
    let session = place.session().await;
    let seconds = unique_sleep();
    place.output(&session, &daemon(&seconds)).await;
    until("the daemon runs", || runs(&seconds)).await;
    let super::Place { sandbox, data } = place;
    drop(sandbox);
    until("the daemon is gone", || !runs(&seconds)).await;
    drop(data);
}

const VICTIM: &str = "OTARI_TEST_VICTIM";

/// Not a test by itself: the process that the next one kills.
#[tokio::test]
async fn a_sidecar_that_waits_to_be_killed() {
    let Some(victim) = std::env::var_os(VICTIM) else { return };
    let (data, seconds) = victim.to_str().unwrap().split_once('|').unwrap();
    let sandbox = ProcessSandbox::start(super::settings(data.as_ref()), Arc::new(SystemIds), Arc::new(SystemClock))
        .await
        .unwrap();
    let session = sandbox.create_session(&SessionSpec::default()).await.unwrap().id;
    let code = format!("{}\nwhile True: pass", daemon(seconds));
    drop(sandbox.execute(&session, &request(&code, PATIENCE)).await);
}

#[tokio::test]
async fn nothing_survives_the_kill_of_the_sidecar() {
    let data = super::open_directory();
    let seconds = unique_sleep();
    let mut sidecar = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sandbox::life::a_sidecar_that_waits_to_be_killed"])
        .env(VICTIM, format!("{}|{seconds}", data.path().display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the daemon runs", || runs(&seconds)).await;
    sidecar.kill().unwrap();
    sidecar.wait().unwrap();
    until("the daemon is gone", || !runs(&seconds)).await;
    let settings = super::settings(data.path());
    let sandbox = ProcessSandbox::start(settings, Arc::new(SystemIds), Arc::new(SystemClock)).await.unwrap();
    super::Place { sandbox, data }.assert_clean();
}

#[tokio::test]
async fn many_sessions_at_once_come_and_go() {
    let place = start().await;
    for _ in 0..2 {
        let lives = (0..8).map(|number| {
            let place = &place;
            async move {
                let session = place.session().await;
                let code = format!("{number} + 1");
                assert_eq!(place.output(&session, &code).await, format!("{}\n", number + 1));
                place.destroy(&session).await;
            }
        });
        futures_util::future::join_all(lives).await;
    }
    place.assert_clean();
}
