//! Sessions that end when their time is over, and nothing of them left, however they end.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use sidecar::sandbox::WorkspacePath;
use tokio::time::{sleep, timeout};

use super::life::daemon;
use super::{
    PATIENCE, Place, SandboxBackend as _, SandboxError, SandboxLimits, SessionId, SessionSpec, default_limits, request,
    runs, start, start_with, unique_sleep, until,
};

/// Long enough for the task that ends sessions to have looked.
const A_LOOK: Duration = Duration::from_millis(2500);

fn aging(idle: Duration, lifetime: Duration) -> SandboxLimits {
    SandboxLimits { idle, lifetime, ..default_limits() }
}

impl Place {
    fn alive(&self) -> usize {
        self.sandbox.occupancy().0
    }

    async fn is_gone(&self, session: &SessionId) -> bool {
        let ran = self.sandbox.execute(session, &request("1", PATIENCE)).await;
        matches!(ran, Err(SandboxError::UnknownSession))
    }

    /// What the processes of its sandboxes are called.
    pub(super) fn marker(&self) -> String {
        let root = self.data.path().canonicalize().unwrap().join("sandbox");
        let hash = Sha256::digest(root.as_os_str().as_bytes());
        format!("otari-sandbox-{:016x}", u64::from_be_bytes(hash[..8].try_into().unwrap()))
    }
}

#[tokio::test]
async fn a_session_that_is_not_used_is_ended_with_all_that_runs_in_it() {
    let place = start_with(aging(Duration::from_millis(700), Duration::from_hours(1))).await;
    let session = place.session().await;
    let seconds = unique_sleep();
    place.output(&session, &daemon(&seconds)).await;
    assert!(runs(&place.marker()) && runs(&seconds));
    until("the session is ended", || place.alive() == 0).await;
    assert!(place.is_gone(&session).await);
    until("its files are gone", || place.workspaces() == 0).await;
    place.assert_clean();
    assert!(!runs(&place.marker()) && !runs(&seconds));
    // Whoever had it may still give it back.
    place.destroy(&session).await;
}

#[tokio::test]
async fn a_session_is_gone_for_its_callers_as_soon_as_its_time_is_over() {
    let place = start_with(aging(Duration::ZERO, Duration::from_hours(1))).await;
    // Nobody has looked yet.
    assert!(place.is_gone(&place.session().await).await);
    assert_eq!(place.sandbox.session(&place.session().await), None);
}

#[tokio::test]
async fn whoever_opens_a_session_can_ask_for_less_time_and_not_for_more() {
    let (minute, hour) = (Duration::from_mins(1), Duration::from_hours(1));
    let place = start_with(aging(minute, hour)).await;
    for (hints, granted) in [
        ((None, None), (minute, hour)),
        ((Some(minute / 2), Some(minute)), (minute / 2, minute)),
        ((Some(hour), Some(hour * 2)), (minute, hour)),
    ] {
        let spec = SessionSpec { idle_timeout: hints.0, max_lifetime: hints.1, ..SessionSpec::default() };
        let session = place.sandbox.create_session(&spec).await.unwrap();
        assert_eq!((session.idle_timeout, session.max_lifetime), (Some(granted.0), Some(granted.1)));
        let opened = place.sandbox.session(&session.id).unwrap();
        assert_eq!((opened.idle_timeout, opened.max_lifetime), granted);
        place.output(&session.id, "import time; time.sleep(0.01)").await;
        let used = place.sandbox.session(&session.id).unwrap();
        assert_eq!(used.created_at_ms, opened.created_at_ms);
        assert!(used.last_activity_at_ms >= opened.last_activity_at_ms + 10, "{used:?} {opened:?}");
    }
}

#[tokio::test]
async fn a_busy_session_is_let_end_its_calls_and_takes_no_others() {
    let place = start_with(aging(Duration::from_secs(2), Duration::from_secs(3))).await;
    let session = place.session().await;
    let call = request("import time; time.sleep(2.5); print('done')", PATIENCE);
    // The second one begins to run when the session is about to be too old, and ends when it is.
    let calls = [place.sandbox.execute(&session, &call), place.sandbox.execute(&session, &call)];
    for result in futures_util::future::join_all(calls).await {
        assert_eq!(result.unwrap().stdout, "done\n");
    }
    assert!(place.is_gone(&session).await);
    until("the session is ended", || place.alive() == 0).await;
}

#[tokio::test]
async fn a_file_that_is_being_read_keeps_its_session() {
    let place = start_with(aging(Duration::from_secs(1), Duration::from_hours(1))).await;
    let session = place.session().await;
    place.output(&session, "n = open('long', 'wb').write(bytes(1 << 20))").await;
    let path = WorkspacePath::parse("long").unwrap();
    let mut content = place.sandbox.get_file(&session, &path, u64::MAX).await.unwrap();
    sleep(A_LOOK).await;
    assert_eq!(place.alive(), 1);
    let mut bytes = 0;
    while let Some(piece) = content.next().await {
        bytes += piece.unwrap().len();
    }
    assert_eq!(bytes, 1 << 20);
    drop(content);
    until("the session is ended", || place.alive() == 0).await;
}

#[tokio::test]
async fn a_session_that_can_take_no_call_any_more_is_ended_at_once() {
    let place = start().await;
    let session = place.session().await;
    let call = request("while True: pass", PATIENCE);
    assert!(timeout(Duration::from_millis(200), place.sandbox.execute(&session, &call)).await.is_err());
    until("the session is ended", || place.alive() == 0).await;
    until("its files are gone", || place.workspaces() == 0).await;
    place.assert_clean();
}

#[tokio::test]
async fn calls_wait_in_order_and_no_more_than_so_many() {
    let place = start().await;
    let session = place.session().await;
    place.output(&session, "import time\nlog = []").await;
    let calls = (0..40).map(|number| {
        let call = request(&format!("time.sleep(0.02); log.append({number})"), PATIENCE);
        let (place, session) = (&place, &session);
        async move { place.sandbox.execute(session, &call).await }
    });
    let results = futures_util::future::join_all(calls).await;
    let ran: Vec<_> = (0..40).filter(|number| results[*number].is_ok()).collect();
    assert_eq!(ran, (0..32).collect::<Vec<_>>());
    for refused in &results[32..] {
        assert!(matches!(refused, Err(SandboxError::Busy { limit: 32 })), "{refused:?}");
    }
    assert_eq!(place.output(&session, "log == list(range(32))").await, "True\n");
}

#[tokio::test]
async fn a_sandbox_that_is_shut_ends_every_session_and_opens_none() {
    let place = start().await;
    let seconds = unique_sleep();
    let busy = place.session().await;
    for session in [place.session().await, place.session().await] {
        place.output(&session, &daemon(&seconds)).await;
    }
    let call = request("import os\nos.write(1, b'on')\nwhile True: pass", PATIENCE);
    let (called, ()) = tokio::join!(place.sandbox.execute(&busy, &call), async {
        sleep(Duration::from_millis(200)).await;
        place.sandbox.shut().await;
    });
    assert!(matches!(called, Err(SandboxError::UnknownSession)), "{called:?}");
    assert_eq!(place.alive(), 0);
    place.assert_clean();
    assert!(!runs(&place.marker()) && !runs(&seconds));
    let spec = SessionSpec::default();
    let opened = place.sandbox.create_session(&spec).await;
    assert!(matches!(opened, Err(SandboxError::AtCapacity { .. })), "{opened:?}");
}

/// Sessions of the next test. Most of a session's time is Python's start; 1,000 take half a minute on two cores.
const SESSIONS: u64 = 1000;
/// How many of them are at work at once.
const LANES: usize = 16;
/// How many there may be: some wait for the task that ends them.
const PLACES: usize = 96;

/// Numbers without a pattern, the same ones each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn millis(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.below(limit))
    }
}

/// One session from its begin to one of its ends.
async fn live(place: &Place, number: u64, seconds: &str) {
    let mut chance = Chance((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let brief = Some(Duration::from_millis(1 + chance.below(300)));
    let spec = match chance.below(3) {
        0 => SessionSpec { idle_timeout: brief, ..SessionSpec::default() },
        1 => SessionSpec { max_lifetime: brief, ..SessionSpec::default() },
        _ => SessionSpec::default(),
    };
    let opened = loop {
        match timeout(chance.millis(600), place.sandbox.create_session(&spec)).await {
            Ok(Ok(opened)) => break opened.id,
            Ok(Err(SandboxError::AtCapacity { .. })) => sleep(chance.millis(200)).await,
            Ok(Err(error)) => panic!("{error:?}"),
            // Given up while it began.
            Err(_) => return,
        }
    };
    let run = async |code: &str| {
        let ran = place.sandbox.execute(&opened, &request(code, PATIENCE)).await;
        assert!(matches!(&ran, Ok(_) | Err(SandboxError::UnknownSession)), "{ran:?}");
    };
    let endless = format!("{}\nwhile True: pass", daemon(seconds));
    match chance.below(9) {
        0 => run("1 + 1").await,
        1 => run(&daemon(seconds)).await,
        2 => run("import os\nos._exit(3)").await,
        3 => run("import os\nos.kill(-1, 9)").await,
        4 => drop(timeout(chance.millis(100), run(&endless)).await),
        5 => {
            let calls = [run(&endless), run("1")];
            drop(timeout(chance.millis(100), futures_util::future::join_all(calls)).await);
        }
        6 => {
            let ending = async {
                sleep(chance.millis(100)).await;
                place.destroy(&opened).await;
            };
            tokio::join!(run(&endless), ending);
        }
        7 => {
            let path = WorkspacePath::parse("deep/er/file").unwrap();
            let pieces = stream::repeat_with(|| Ok(bytes::Bytes::from_static(&[7; 4096]))).take(64).boxed();
            let put = place.sandbox.put_file(&opened, &path, 64 * 4096, pieces);
            drop(timeout(chance.millis(40), put).await);
            if let Ok(mut content) = place.sandbox.get_file(&opened, &path, u64::MAX).await {
                drop(content.next().await);
            }
        }
        _ => {}
    }
    // What is not given back, or only half, ends by its age or at the end of the test.
    if chance.below(2) == 0 {
        drop(timeout(chance.millis(60), place.sandbox.destroy_session(&opened)).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_sessions_end_in_every_way_and_nothing_is_left() {
    let idle = Duration::from_secs(2);
    let limits = SandboxLimits { sessions: PLACES, ..aging(idle, Duration::from_hours(1)) };
    let place = start_with(limits).await;
    let seconds = unique_sleep();
    let lives = stream::iter(0..SESSIONS).for_each_concurrent(LANES, |number| live(&place, number, &seconds));
    lives.await;
    until("the last session is ended", || place.alive() == 0).await;
    // Those whose end was given up are cleared away in the background.
    until("no process is left", || !runs(&place.marker()) && !runs(&seconds)).await;
    until("no directory is left", || place.workspaces() == 0).await;
    place.assert_clean();
    // Every place is free again.
    let mut all = Vec::new();
    for _ in 0..PLACES {
        all.push(place.sandbox.create_session(&SessionSpec::default()).await.unwrap());
    }
    place.sandbox.shut().await;
    place.assert_clean();
}
