//! Files in and out of a workspace whose code means harm.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use sidecar::sandbox::{
    FileSource, FileStamp, Listing, MAX_LISTED, SandboxBackend as _, SandboxError, SessionId, WorkspacePath,
};

use super::bombs::MIB;
use super::{Place, SandboxLimits, default_limits, request, start, start_with};

const SECRET: &str = "what no session may see";

fn path(text: impl AsRef<[u8]>) -> WorkspacePath {
    WorkspacePath::parse(text).unwrap()
}

fn source(pieces: &[&[u8]]) -> FileSource {
    let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces).boxed()
}

impl Place {
    async fn put(&self, session: &SessionId, name: &str, bytes: &[u8]) -> Result<(), SandboxError> {
        self.sandbox.put_file(session, &path(name), bytes.len() as u64, source(&[bytes])).await
    }

    async fn list(&self, session: &SessionId) -> Listing {
        self.sandbox.list_files(session).await.unwrap()
    }

    async fn stamps(&self, session: &SessionId) -> BTreeMap<String, FileStamp> {
        let listing = self.list(session).await;
        listing.files.into_iter().map(|file| (file.path.to_string(), file.stamp)).collect()
    }

    async fn names(&self, session: &SessionId) -> Vec<String> {
        self.stamps(session).await.into_keys().collect()
    }

    async fn get(&self, session: &SessionId, name: impl AsRef<[u8]>) -> Result<Vec<u8>, SandboxError> {
        let content = self.sandbox.get_file(session, &path(name), MIB).await?;
        let pieces: Vec<Bytes> = content.try_collect().await?;
        Ok(pieces.concat())
    }
}

#[tokio::test]
async fn what_is_put_in_belongs_to_the_code_and_comes_out_as_it_was() {
    let place = start().await;
    let session = place.session().await;
    let long: Vec<u8> = (0..900_001u32).map(|number| number.to_le_bytes()[0]).collect();
    place.put(&session, "a b é.csv", b"x,y\n1,2\n").await.unwrap();
    place.put(&session, "deep/er/long", &long).await.unwrap();
    place.put(&session, "empty", b"").await.unwrap();
    let code = "import os\nprint(open('a b é.csv').read(), len(open('deep/er/long', 'rb').read()), os.path.getsize('empty'))
open('a b é.csv', 'a').write('3,4\\n'); os.rename('deep/er/long', 'deep/long'); os.rmdir('deep/er'); os.remove('empty')";
    assert_eq!(place.output(&session, code).await, "x,y\n1,2\n 900001 0\n");
    assert_eq!(place.names(&session).await, ["a b é.csv", "deep/long"]);
    assert_eq!(place.get(&session, "a b é.csv").await.unwrap(), b"x,y\n1,2\n3,4\n");
    assert_eq!(place.get(&session, "deep/long").await.unwrap(), long);
    // From one session alone, and only while it lives.
    let other = place.session().await;
    assert_eq!(place.names(&other).await, [] as [&str; 0]);
    place.destroy(&session).await;
    assert!(matches!(place.get(&session, "deep/long").await, Err(SandboxError::UnknownSession)));
    assert!(matches!(place.put(&session, "a", b"").await, Err(SandboxError::UnknownSession)));
    place.destroy(&other).await;
    place.assert_clean();
}

#[tokio::test]
async fn nothing_is_written_over_and_nothing_outside_is_written() {
    let outside = super::open_directory();
    let kept = outside.path().join("kept");
    fs::write(&kept, SECRET).unwrap();
    let place = start().await;
    let session = place.session().await;
    place.shell(&session, "echo mine > file; mkdir directory; mkfifo pipe").await;
    for (target, link) in
        [(kept.as_path(), "to_file"), (outside.path(), "to_directory"), (Path::new("gone"), "to_nothing")]
    {
        symlink(target, place.workspace().join(link)).unwrap();
    }
    for name in [
        "file",
        "directory",
        "pipe",
        "to_file",
        "to_directory",
        "to_nothing",
        "file/a",
        "pipe/a",
        "to_directory/kept",
        "to_directory/new",
        "to_nothing/a",
    ] {
        let put = place.put(&session, name, b"over").await;
        assert!(matches!(put, Err(SandboxError::BadPath { .. })), "{name}: {put:?}");
    }
    assert_eq!(fs::read_to_string(&kept).unwrap(), SECRET);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(
        place.shell(&session, "cat file; ls -A").await,
        "mine\ndirectory\nfile\npipe\nto_directory\nto_file\nto_nothing\n"
    );
}

#[tokio::test]
async fn a_file_that_does_not_come_whole_leaves_nothing() {
    let place = start().await;
    let session = place.session().await;
    let put = |size: u64, source: FileSource| {
        let (sandbox, session) = (place.sandbox.clone(), session.clone());
        async move { sandbox.put_file(&session, &path("d/f"), size, source).await }
    };
    assert!(matches!(put(5, source(&[b"four"])).await, Err(SandboxError::Unreadable(_))));
    assert!(matches!(put(3, source(&[b"fo", b"ur"])).await, Err(SandboxError::Unreadable(_))));
    let broken = stream::iter([Ok(Bytes::from_static(b"four")), Err("the store is on fire".into())]).boxed();
    match put(8, broken).await {
        Err(SandboxError::Unreadable(cause)) => assert_eq!(cause.to_string(), "the store is on fire"),
        other => panic!("{other:?}"),
    }
    // One that is given up half-way, with a piece already on the disk.
    let endless = stream::repeat_with(|| Ok(Bytes::from(vec![1; 300_000]))).take(2).chain(stream::pending()).boxed();
    let given_up = tokio::time::timeout(Duration::from_millis(200), put(900_000, endless)).await;
    assert!(given_up.is_err());
    super::until("the half file is gone", || fs::read_dir(place.workspace().join("d")).unwrap().count() == 0).await;
    put(4, source(&[b"four"])).await.unwrap();
    assert_eq!(place.shell(&session, "ls -A d; cat d/f").await, "f\nfour");
}

#[tokio::test]
async fn what_is_put_in_counts_as_the_workspace_s_own() {
    let limits =
        SandboxLimits { file_bytes: 3 * MIB, workspace_bytes: 4 * MIB, workspace_entries: 20, ..default_limits() };
    let place = start_with(limits).await;
    let session = place.session().await;
    let sized = |mib: u64| vec![7; usize::try_from(mib * MIB).unwrap()];
    let limit_of = |put: Result<(), SandboxError>| match put {
        Err(SandboxError::FileTooLarge { limit }) => limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(limit_of(place.put(&session, "large", &sized(4)).await), 3 * MIB);
    place.put(&session, "fits", &sized(3)).await.unwrap();
    let left = limit_of(place.put(&session, "one more", &sized(2)).await);
    assert!(left <= MIB, "{left}");
    for number in 0..17 {
        place.put(&session, &format!("d/{number}"), b"").await.unwrap();
    }
    let full = place.put(&session, "e/f", b"").await;
    assert!(matches!(full, Err(SandboxError::BadPath { .. })), "{full:?}");
    assert_eq!(place.output(&session, "'within its limits'").await, "'within its limits'\n");
}

#[tokio::test]
async fn only_files_of_its_own_are_listed_and_each_change_is_seen() {
    let place = start().await;
    let session = place.session().await;
    let code = "import os, socket
for name in ['kept', 'changed', 'forged', 'd/e/deep', '.hidden', 'm', b'n\\xff', 'l\\nine', 'bidi\\u202e']:
    os.makedirs(os.path.dirname(name) or '.', exist_ok=True)
    n = open(name, 'w').write('one')
for name in ['.cache', '__pycache__', '.ipynb_checkpoints', 'd/.git']:
    os.mkdir(name); open(name + '/in', 'w').close()
os.symlink('kept', 'link'); os.symlink('d', 'links'); os.symlink('/etc', 'etc'); os.mkfifo('pipe')
socket.socket(socket.AF_UNIX).bind('socket'); os.link('m', 'twin')";
    assert_eq!(place.output(&session, code).await, "");
    let listing = place.list(&session).await;
    assert_eq!(listing.left_out, 0);
    let before = place.stamps(&session).await;
    let names: Vec<&String> = before.keys().collect();
    let expected =
        [".hidden", "bidi\\u{202e}", "changed", "d/e/deep", "forged", "kept", "l\\nine", "m", "n\\xff", "twin"];
    assert_eq!(names, expected);
    let code = "import mmap, os
was = os.stat('forged'); file = open('forged', 'r+b'); n = file.write(b'two'); file.close()
os.utime('forged', ns=(was.st_atime_ns, was.st_mtime_ns))
n = open('changed', 'w').write('three')
file = open('d/e/deep', 'r+b'); map = mmap.mmap(file.fileno(), 3); map[:] = b'two'; map.flush()
n = open('new', 'w').write(''); os.rename('l\\nine', 'moved')";
    assert_eq!(place.output(&session, code).await, "");
    let after = place.stamps(&session).await;
    let changed: Vec<&String> = after.keys().filter(|name| before.get(*name) != after.get(*name)).collect();
    assert_eq!(changed, ["changed", "d/e/deep", "forged", "moved", "new"]);
    assert_eq!(place.get(&session, "forged").await.unwrap(), b"two");
    assert_eq!(place.get(&session, b"n\xff").await.unwrap(), b"one");
    assert_eq!(place.get(&session, "twin").await.unwrap(), b"one");
}

#[tokio::test]
async fn what_a_call_left_running_changes_nothing_while_files_are_looked_at() {
    let place = start().await;
    let session = place.session().await;
    let code = "import subprocess, sys, os
p = subprocess.Popen([sys.executable, '-c', 'while True: open(\"ticks\", \"a\").write(\"x\")'])
while not os.path.exists('ticks'): pass";
    assert_eq!(place.output(&session, code).await, "");
    let before = place.stamps(&session).await;
    let size = place.get(&session, "ticks").await.unwrap().len();
    assert_eq!(place.get(&session, "ticks").await.unwrap().len(), size);
    assert_eq!(place.stamps(&session).await, before);
    // Asked for while a call runs they are looked at when it is over.
    let call = request("import time\ntime.sleep(0.3)\nn = open('late', 'w').write('x')", super::PATIENCE);
    let (ran, names) = tokio::join!(place.sandbox.execute(&session, &call), place.names(&session));
    assert_eq!(ran.unwrap().return_code, 0);
    assert_eq!(names, ["late", "ticks"]);
}

#[tokio::test]
async fn nothing_but_a_file_of_the_workspace_is_taken_out() {
    let outside = super::open_directory();
    let secret = outside.path().join("secret");
    fs::write(&secret, SECRET).unwrap();
    let place = start().await;
    let session = place.session().await;
    place
        .shell(&session, "mkdir d; mkfifo pipe d/pipe; echo x > fine; ln -s fine near; ln -s d dlink; echo y > d/f")
        .await;
    let workspace = place.workspace();
    symlink(&secret, workspace.join("link")).unwrap();
    symlink(outside.path(), workspace.join("directory")).unwrap();
    symlink("/proc/self/environ", workspace.join("environ")).unwrap();
    // No session can make one of these; should one ever, it is of no use.
    let linked = fs::hard_link(&secret, workspace.join("hard")).is_ok();
    let device = rustix::fs::mknodat(
        rustix::fs::CWD,
        workspace.join("device"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::RUSR,
        rustix::fs::makedev(1, 5),
    );
    let mut names =
        vec!["d", "pipe", "d/pipe", "near", "dlink/f", "link", "directory/secret", "environ", "gone", "fine/x"];
    names.extend(linked.then_some("hard"));
    names.extend(device.is_ok().then_some("device"));
    for name in names {
        let got = place.get(&session, name).await;
        assert!(matches!(got, Err(SandboxError::UnknownFile)), "{name}: {got:?}");
    }
    let listing = place.list(&session).await;
    assert_eq!(listing.left_out, u64::from(linked));
    assert_eq!(place.names(&session).await, ["d/f", "fine"]);
    assert_eq!(place.get(&session, "fine").await.unwrap(), b"x\n");
    assert_eq!(fs::read_to_string(&secret).unwrap(), SECRET);
}

#[tokio::test]
async fn a_link_that_takes_a_file_s_place_at_the_last_moment_leads_nowhere() {
    let outside = super::open_directory();
    fs::write(outside.path().join("f"), SECRET).unwrap();
    let place = start().await;
    let session = place.session().await;
    let workspace = place.workspace();
    fs::create_dir(workspace.join("real")).unwrap();
    fs::write(workspace.join("real/f"), "own").unwrap();
    symlink(outside.path(), workspace.join("fake")).unwrap();
    symlink("fake/f", workspace.join("fake_file")).unwrap();
    fs::write(workspace.join("real_file"), "own").unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let racer = std::thread::spawn({
        let (workspace, over) = (workspace.clone(), Arc::clone(&over));
        let exchange = move |one: &str, other: &str| {
            let cwd = rustix::fs::CWD;
            let (one, other) = (workspace.join(one), workspace.join(other));
            rustix::fs::renameat_with(cwd, one, cwd, other, rustix::fs::RenameFlags::EXCHANGE)
        };
        // Ends with the workspace too, if the test fails.
        move || {
            while !over.load(Ordering::Relaxed)
                && exchange("real", "fake").is_ok()
                && exchange("real_file", "fake_file").is_ok()
            {}
        }
    });
    let mut seen = [0; 2];
    for _ in 0..2000 {
        for name in ["real/f", "fake/f", "real_file", "fake_file"] {
            match place.get(&session, name).await {
                Ok(bytes) => {
                    assert_eq!(bytes, b"own");
                    seen[0] += 1;
                }
                Err(SandboxError::UnknownFile | SandboxError::Refused { .. }) => seen[1] += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        let listed = place.list(&session).await;
        assert!(listed.files.iter().all(|file| file.size_bytes == 3), "{listed:?}");
    }
    over.store(true, Ordering::Relaxed);
    racer.join().unwrap();
    assert!(seen.iter().all(|times| *times > 0), "both sides of the race were seen: {seen:?}");
}

#[tokio::test]
async fn a_file_that_lies_about_its_size_costs_nothing() {
    let place = start().await;
    let session = place.session().await;
    let workspace = place.workspace();
    fs::File::create(workspace.join("sparse")).unwrap().set_len(1 << 40).unwrap();
    fs::write(workspace.join("exact"), vec![1; 1 << 20]).unwrap();
    fs::write(workspace.join("more"), vec![1; (1 << 20) + 1]).unwrap();
    let listed = place.list(&session).await;
    assert!(listed.files.iter().any(|file| file.size_bytes == 1 << 40));
    for name in ["sparse", "more"] {
        match place.get(&session, name).await {
            Err(SandboxError::FileTooLarge { limit: MIB }) => {}
            other => panic!("{name}: {:?}", other.map(|bytes| bytes.len())),
        }
    }
    assert_eq!(place.get(&session, "exact").await.unwrap().len(), 1 << 20);
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_ends_with_an_error() {
    let place = start().await;
    let session = place.session().await;
    let file = place.workspace().join("file");
    type Change = fn(&Path);
    let changes: [Change; 3] = [
        |file| fs::write(file, vec![2; 1 << 20]).unwrap(),
        |file| fs::OpenOptions::new().write(true).open(file).unwrap().set_len(300_000).unwrap(),
        |file| fs::OpenOptions::new().write(true).open(file).unwrap().set_len(1 << 30).unwrap(),
    ];
    for change in changes {
        fs::write(&file, vec![1; 1 << 20]).unwrap();
        let mut content = place.sandbox.get_file(&session, &path("file"), MIB).await.unwrap();
        let first = content.next().await.unwrap().unwrap();
        assert!(first.iter().all(|byte| *byte == 1));
        change(&file);
        let mut read = first.len();
        let end = loop {
            match content.next().await {
                Some(Ok(piece)) => read += piece.len(),
                end => break end,
            }
        };
        assert!(matches!(end, Some(Err(SandboxError::Refused { .. }))) && read <= 1 << 20, "{read}: {end:?}");
    }
    // One that is taken away is still there for who has it open.
    fs::write(&file, vec![1; 1 << 20]).unwrap();
    let content = place.sandbox.get_file(&session, &path("file"), MIB).await.unwrap();
    place.destroy(&session).await;
    let rest: Result<Vec<Bytes>, SandboxError> = content.try_collect().await;
    assert!(rest.is_err() || rest.unwrap().concat().len() == 1 << 20);
    place.assert_clean();
}

#[tokio::test]
async fn a_workspace_of_endless_files_and_depths_is_listed_in_part() {
    let place = start().await;
    let session = place.session().await;
    let workspace = place.workspace();
    let mut deep = workspace.join("deep");
    fs::create_dir(&deep).unwrap();
    fs::write(deep.join("f"), "x").unwrap();
    for _ in 0..60 {
        deep.push("deep");
        fs::create_dir(&deep).unwrap();
    }
    fs::write(deep.join("unseen"), "x").unwrap();
    let wide = workspace.join("w".repeat(200));
    fs::create_dir(&wide).unwrap();
    fs::write(wide.join("v".repeat(200)), "x").unwrap();
    let listing = place.list(&session).await;
    assert_eq!((listing.files.len(), listing.left_out), (1, 2), "{listing:?}");
    let many = workspace.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..80_000 {
        fs::File::create(many.join(number.to_string())).unwrap();
    }
    let listing = place.list(&session).await;
    assert_eq!(listing.files.len(), MAX_LISTED);
    assert!(listing.left_out >= 70_000, "{}", listing.left_out);
}
