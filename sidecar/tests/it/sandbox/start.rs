//! A start that cannot work says what is missing and what to do.

use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use sidecar::clock::SystemClock;
use sidecar::ids::SystemIds;
use sidecar::sandbox::process::{ProcessSandbox, ProcessSettings, StartupRefusal};
use sidecar::sandbox::{SandboxBackend, SessionSpec};

use super::{PATIENCE, Place, open_directory, request, start};

async fn refusal(change: impl FnOnce(&mut ProcessSettings, &Path)) -> StartupRefusal {
    let data = open_directory();
    let mut settings = super::settings(&data.path().join("data"));
    change(&mut settings, data.path());
    ProcessSandbox::start(settings, Arc::new(SystemIds), Arc::new(SystemClock)).await.unwrap_err()
}

fn script(at: &Path, text: &str) -> PathBuf {
    let path = at.join("script");
    fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn this_host_isolates() {
    let place = start().await;
    let capability = place.sandbox.capability();
    assert_eq!(capability.backend, "embedded");
    assert!(["namespaces", "namespaces-noproc"].contains(&capability.isolation));
    println!("isolation in force: {}", capability.isolation);
}

/// As in a pod whose `/proc` is masked: parts of it covered, its sysctls read-only.
const MASK: &str = "mount --make-rprivate / && mount -t tmpfs none /proc/fs \
    && mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec \"$@\"";

#[tokio::test]
async fn a_masked_proc_gets_the_tier_that_does_without() {
    let masked = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", MASK, "sh"]).arg(program).args(arguments);
        command.output().unwrap()
    };
    if !masked(Path::new("true"), &[]).status.success() {
        eprintln!("skipped: only root with CAP_SYS_ADMIN can mask a /proc");
        return;
    }
    let tests = ["start::this_host", "isolation::", "escapes::every_way", "bombs::forks"]
        .map(|test| format!("sandbox::{test}"));
    let mut tests: Vec<&str> = tests.iter().map(String::as_str).collect();
    tests.push("--nocapture");
    let output = masked(&std::env::current_exe().unwrap(), &tests);
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("isolation in force: namespaces-noproc"), "{text}");
}

#[tokio::test]
async fn a_missing_or_wrong_program_is_named_with_the_command_that_installs_it() {
    let missing = refusal(|settings, _| settings.bwrap = "/nowhere/bwrap".into()).await;
    assert!(
        missing.problem.contains("/nowhere/bwrap") && missing.fix.contains("apt-get install bubblewrap"),
        "{missing}"
    );
    let other = refusal(|settings, _| settings.bwrap = "/bin/true".into()).await;
    assert!(other.problem.contains("is not bubblewrap"), "{other}");
    let old = refusal(|settings, at| settings.bwrap = script(at, "echo bubblewrap 0.6.1")).await;
    assert!(old.problem.contains("version 0.6"), "{old}");
    let missing = refusal(|settings, _| settings.python = "/nowhere/python3".into()).await;
    assert!(
        missing.problem.contains("/nowhere/python3") && missing.fix.contains("apt-get install python3"),
        "{missing}"
    );
    let other = refusal(|settings, _| settings.python = "/bin/true".into()).await;
    assert!(other.problem.contains("does not answer"), "{other}");
}

#[tokio::test]
async fn a_data_directory_has_one_sidecar() {
    let place = start().await;
    let settings = super::settings(place.data.path());
    let refusal = ProcessSandbox::start(settings, Arc::new(SystemIds), Arc::new(SystemClock)).await.unwrap_err();
    assert!(refusal.problem.contains("another sidecar") && refusal.fix.contains("data_dir"), "{refusal}");
    let refusal = refusal_of_unusable_data().await;
    assert!(refusal.problem.contains("cannot be used"), "{refusal}");
}

async fn refusal_of_unusable_data() -> StartupRefusal {
    refusal(|settings, _| settings.data_dir = "/proc/nowhere".into()).await
}

#[tokio::test]
async fn a_host_that_forbids_namespaces_is_told_from_one_that_isolates_badly() {
    // What bubblewrap prints under Ubuntu's AppArmor rules, from a process that does nothing else.
    let forbidding = "[ \"$1\" = --version ] && exec echo bubblewrap 0.8.0\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1";
    let refused = refusal(|settings, at| settings.bwrap = script(at, forbidding)).await;
    assert!(refused.fix.contains("AppArmor"), "{refused}");
    let tried: Vec<_> = refused.probes.iter().map(|probe| (probe.tier.name(), probe.name.as_str())).collect();
    assert_eq!(tried, [("namespaces", "launch"), ("namespaces-noproc", "launch")]);
    assert!(refused.to_string().contains("uid map: Permission denied"), "{refused}");

    // One that runs the driver without isolating it: each probe that must fail is named. The limits are out of the way,
    // for the host's own `/tmp` would be over them, and the session killed before the probes from inside could speak.
    let pretending = "[ \"$1\" = --version ] && exec echo bubblewrap 0.8.0\nshift 3\npython=$1\nshift 5\n(\"$python\" -I -S \"$(dirname \"$0\")/data/sandbox/runtime/otari/driver.pyc\" \"$@\"; exit $?)\nexit $?";
    let refused = refusal(|settings, at| {
        settings.bwrap = script(at, pretending);
        settings.limits.workspace_entries = u64::MAX;
        settings.limits.memory_bytes = u64::MAX;
    })
    .await;
    let faults: Vec<_> =
        refused.probes.iter().filter(|probe| probe.fault.is_some()).map(|probe| probe.name.as_str()).collect();
    for name in ["seccomp", "no_new_privs", "capabilities", "host_file", "network", "socket_family"] {
        assert!(faults.contains(&name), "{name} of {refused}");
    }
}

#[tokio::test]
async fn a_virtual_environment_brings_its_packages_read_only() {
    let home = open_directory();
    let venv = home.path().join("venv");
    let made = Command::new("/usr/bin/python3").args(["-m", "venv", "--without-pip"]).arg(&venv).status().unwrap();
    assert!(made.success());
    let library = fs::read_dir(venv.join("lib")).unwrap().next().unwrap().unwrap().path().join("site-packages");
    fs::write(library.join("fancy.py"), "answer = 42").unwrap();
    let data = open_directory();
    let settings = ProcessSettings { python: venv.join("bin/python"), ..super::settings(data.path()) };
    let sandbox = ProcessSandbox::start(settings, Arc::new(SystemIds), Arc::new(SystemClock))
        .await
        .unwrap_or_else(|refusal| panic!("{refusal}"));
    let place = Place { sandbox, data };
    let session = place.session().await;
    let expected = format!("(42, '{}')\n", venv.display());
    assert_eq!(place.output(&session, "import fancy, sys\nfancy.answer, sys.prefix").await, expected);
    let refused = place.run(&session, "open(fancy.__file__, 'w')").await;
    assert!(refused.stderr.contains("Read-only file system"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_data_directory_behind_a_closed_door_gets_a_stand_in() {
    let data = tempfile::tempdir().unwrap();
    fs::set_permissions(data.path(), Permissions::from_mode(0o700)).unwrap();
    let settings = super::settings(data.path());
    let sandbox = ProcessSandbox::start(settings, Arc::new(SystemIds), Arc::new(SystemClock)).await.unwrap();
    let session = sandbox.create_session(&SessionSpec::default()).await.unwrap().id;
    let result = sandbox.execute(&session, &request("open('x', 'w').write('y')", PATIENCE)).await.unwrap();
    assert_eq!(result.return_code, 0, "{}", result.stderr);
    sandbox.destroy_session(&session).await.unwrap();
    let as_root = rustix::process::geteuid().is_root();
    assert_eq!(data.path().join("sandbox").exists(), !as_root);
    let hash = Sha256::digest(data.path().canonicalize().unwrap().as_os_str().as_bytes());
    let stand_in = format!("/var/tmp/otari-sandbox-{:016x}", u64::from_be_bytes(*hash.first_chunk().unwrap()));
    assert_eq!(Path::new(&stand_in).exists(), as_root);
    drop(sandbox);
    assert!(!Path::new(&stand_in).exists());
}
