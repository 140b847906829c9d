//! Proves at start, by running the real launcher, that this host isolates, or says why it does not.
//!
//! INVARIANT: a tier is taken because a session in it passed every probe, never because a setting looked right.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::TcpListener;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::interpreter::{Ending, Interpreter, LaunchError, Ran};
use super::launch::{ENVIRONMENT, Launcher};
use super::printed::Printed;
use super::work::Work;
use super::{ProcessSettings, Tier};

const CANARY: &str = include_str!("canary.py");
const CANARY_TIMEOUT: Duration = Duration::from_secs(20);
const OLDEST_BWRAP: (u32, u32) = (0, 8);

/// Why the embedded sandbox does not start, and what to do.
#[derive(Debug)]
pub struct StartupRefusal {
    /// What is wrong.
    pub problem: String,
    /// The one thing to change.
    pub fix: String,
    /// What was tried, in order.
    pub probes: Vec<Probe>,
}

/// One check of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The tier it was made in.
    pub tier: Tier,
    /// What was tried.
    pub name: String,
    /// `None` if it went as it should, otherwise what was seen.
    pub fault: Option<String>,
}

impl StartupRefusal {
    pub(super) fn new(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { problem: problem.into(), fix: fix.into(), probes: Vec::new() }
    }
}

impl fmt::Display for StartupRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the embedded sandbox cannot start: {}\n  to fix it: {}", self.problem, self.fix)?;
        for probe in &self.probes {
            let seen = probe.fault.as_deref().unwrap_or("ok");
            write!(f, "\n  tried {}/{}: {seen}", probe.tier.name(), probe.name)?;
        }
        write!(
            f,
            "\n  or run the code elsewhere: `sandbox: {{backend: http, url: …}}`, or nowhere: `sandbox: {{backend: none}}`"
        )
    }
}

impl std::error::Error for StartupRefusal {}

/// Checks that bubblewrap is there and new enough.
pub(super) async fn check_bwrap(settings: &ProcessSettings) -> Result<(), StartupRefusal> {
    let shown = settings.bwrap.display();
    let install = "install bubblewrap 0.8 or newer (`apt-get install bubblewrap`), or set `sandbox.bwrap` to its path";
    let mut command = tokio::process::Command::new(&settings.bwrap);
    let output = command.arg("--version").env_clear().kill_on_drop(true).output().await;
    let output = output.map_err(|error| StartupRefusal::new(format!("`{shown}` cannot be run: {error}"), install))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.trim().strip_prefix("bubblewrap ").and_then(|version| {
        let mut numbers = version.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    match version {
        Some(version) if version >= OLDEST_BWRAP => Ok(()),
        Some((major, minor)) => Err(StartupRefusal::new(format!("`{shown}` is version {major}.{minor}"), install)),
        None => Err(StartupRefusal::new(format!("`{shown}` is not bubblewrap"), install)),
    }
}

/// Runs the canary in each tier, best first, and returns the first that holds.
pub(super) async fn choose_tier(launcher: &Launcher) -> Result<Tier, StartupRefusal> {
    let mut probes = Vec::new();
    let mut fix = None;
    for tier in [Tier::Namespaces, Tier::NamespacesNoproc] {
        let tried = match canary(launcher, tier).await {
            Ok(tried) => tried,
            Err(error) => {
                let (cause, advice) = diagnose(&error.complaint);
                fix.get_or_insert(advice);
                BTreeMap::from([("launch".to_owned(), Some(format!("{} ({cause})", error.complaint)))])
            }
        };
        let holds = tried.values().all(Option::is_none);
        probes.extend(tried.into_iter().map(|(name, fault)| Probe { tier, name, fault }));
        if holds {
            return Ok(tier);
        }
    }
    let fix = fix.unwrap_or("see the probes: a session could do what none may; do not run code on this host as it is");
    Err(StartupRefusal { problem: "this host does not isolate".to_owned(), fix: fix.to_owned(), probes })
}

/// Starts one session and tries what must fail. Each probe's value is what went wrong, if anything.
async fn canary(launcher: &Launcher, tier: Tier) -> Result<BTreeMap<String, Option<String>>, LaunchError> {
    let setup = |source: std::io::Error| LaunchError::io(source);
    let host_file = launcher.root.path().join("canary");
    fs::write(&host_file, "readable").map_err(setup)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(setup)?;
    let port = listener.local_addr().map_err(setup)?.port();
    let workspace = launcher.root.workspace("canary").map_err(setup)?;
    let interpreter = Interpreter::launch(launcher, tier, workspace.path(), &[]).await?;
    let mut probes = seen_from_outside(&interpreter.status().map_err(setup)?);

    let facts = serde_json::json!({
        "host_file": host_file, "port": port, "environment": ENVIRONMENT.map(|(name, _)| name),
    });
    let code = format!("FACTS = {}\n{CANARY}", python_literal(&facts.to_string()));
    let never = CancellationToken::new();
    let (Ran { ending, printed }, kept) = interpreter.run(&Work::Python(&code), CANARY_TIMEOUT, &never).await;
    let (stdout, stderr) = printed.into_iter().next().map(Printed::into_texts).unwrap_or_default();
    let finished = matches!(&ending, Ending::Finished(done) if done.return_code == 0);
    match serde_json::from_str::<BTreeMap<String, Option<String>>>(&stdout) {
        Ok(inside) if finished => probes.extend(inside),
        _ => drop(probes.insert("run".to_owned(), Some(format!("{:?}: {}", ending, stderr.trim())))),
    }
    if let Some(interpreter) = kept {
        let strike = interpreter.look();
        probes.insert("watch".to_owned(), strike.map(|strike| format!("the session cannot be watched: {strike:?}")));
        let gone = interpreter.stop().await;
        probes.insert("kill".to_owned(), (!gone).then(|| "the session survived SIGKILL".to_owned()));
    }
    fs::remove_file(&host_file).map_err(setup)?;
    workspace.remove().map_err(setup)?;
    Ok(probes)
}

/// What the kernel says of the interpreter, in words nothing inside can forge.
fn seen_from_outside(status: &str) -> BTreeMap<String, Option<String>> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    let uid = field("Uid:").split_ascii_whitespace().next().unwrap_or("");
    let is = |name: &str, wanted: &str| {
        let found = field(name);
        (found != wanted).then(|| format!("{name} {found}, expected {wanted}"))
    };
    let nothing = "0000000000000000";
    BTreeMap::from([
        ("uid".to_owned(), (uid == "0" || uid.is_empty()).then(|| format!("runs as uid `{uid}` of the host"))),
        ("no_new_privs".to_owned(), is("NoNewPrivs:", "1")),
        ("seccomp".to_owned(), is("Seccomp:", "2")),
        ("capabilities".to_owned(), is("CapEff:", nothing).or_else(|| is("CapBnd:", nothing))),
    ])
}

/// JSON text as a Python string literal.
fn python_literal(json: &str) -> String {
    format!("r'''{json}'''")
}

/// The likely cause of a failed launch and the one thing to change.
fn diagnose(complaint: &str) -> (&'static str, &'static str) {
    let has = |part: &str| complaint.contains(part);
    if has("uid map: Permission denied") || has("RTM_NEWADDR") {
        return (
            "AppArmor restricts user namespaces, as Ubuntu 23.10 and newer do",
            "load an AppArmor profile for /usr/bin/bwrap that allows `userns`, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
        );
    }
    if has("namespace") && (has("Operation not permitted") || has("No permissions")) {
        return (
            "user namespaces are blocked, most often by a container's seccomp profile",
            "run the container with `seccomp=unconfined` (Kubernetes: `seccompProfile: {type: Unconfined}`), or `sysctl kernel.unprivileged_userns_clone=1` on the host",
        );
    }
    if has("No space left on device") || has("max_user_namespaces") {
        return ("the number of user namespaces is limited to none", "`sysctl user.max_user_namespaces=10000`");
    }
    if has("proc on") || has("/newroot/proc") {
        return ("/proc is masked, as in a container", "Kubernetes: `procMount: Unmasked` with `hostUsers: false`");
    }
    if has("Can't find source path") {
        return (
            "the sandbox's user cannot reach a directory it needs",
            "let every user enter the directories above `sandbox.python`, or set `sandbox.run_as` to a user who can",
        );
    }
    if has("execvp") {
        return (
            "the interpreter is not visible inside",
            "set `sandbox.python` to an interpreter whose files all lie in its own prefix or in /usr",
        );
    }
    if has("Resource temporarily unavailable") {
        return (
            "the user of the sandbox has too many processes",
            "raise its `nproc` limit, or set `sandbox.run_as` to another user",
        );
    }
    (
        "unknown",
        "run bubblewrap by hand as the sandbox's user (`bwrap --unshare-all --ro-bind / / true`) and see what it says",
    )
}

#[cfg(test)]
mod tests {
    use super::{diagnose, seen_from_outside};

    #[test]
    fn a_confined_process_is_told_from_others() {
        let good =
            "Uid:\t65534\t65534\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        assert!(seen_from_outside(good).values().all(Option::is_none));
        for (from, to) in [
            ("65534\t65534", "0\t0"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("CapBnd:\t0", "CapBnd:\t1"),
        ] {
            let bad = seen_from_outside(&good.replace(from, to));
            assert_eq!(bad.values().filter(|fault| fault.is_some()).count(), 1, "{from}");
        }
        assert_eq!(seen_from_outside("").values().filter(|fault| fault.is_some()).count(), 4);
    }

    #[test]
    fn known_complaints_have_a_cause() {
        for complaint in [
            "bwrap: setting up uid map: Permission denied",
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
            "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces.",
            "bwrap: Creating new namespace failed: Operation not permitted",
            "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC): No space left on device, max_user_namespaces",
            "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
            "bwrap: Can't find source path /srv/x: Permission denied",
        ] {
            assert_ne!(diagnose(complaint).0, "unknown", "{complaint}");
        }
        assert_eq!(diagnose("bwrap: something new").0, "unknown");
    }
}
