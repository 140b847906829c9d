//! Files in and out of a workspace.

mod hostile;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use sidecar::sandbox::{
    EditorCommand, FileSource, FileStamp, Listing, SandboxBackend as _, SandboxError, SessionId, WorkspacePath,
};

use super::bombs::MIB;
use super::{Place, SandboxLimits, default_limits, request, start, start_with};

/// In files outside.
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
async fn the_directory_of_openai_s_service_is_the_workspace() {
    let place = start().await;
    let session = place.session().await;
    place.put(&session, "in.txt", b"in").await.unwrap();
    let code = "import os\nn = open('/mnt/data/out.txt', 'w').write(open('/mnt/data/in.txt').read())\nos.path.realpath('/mnt/data')";
    assert_eq!(place.output(&session, code).await, "'/workspace'\n");
    assert_eq!(place.names(&session).await, ["in.txt", "out.txt"]);
    let create = EditorCommand::Create { path: "/mnt/data/edited.txt".to_owned(), text: "x".to_owned() };
    let edited = place.edit(&session, create).await;
    assert_eq!(edited.return_code, 0, "{edited:?}");
    assert_eq!(place.get(&session, "edited.txt").await.unwrap(), b"x");
    let moved = place.bash(&session, "rm /mnt/data; ln -sfn /etc /mnt/data; ls /mnt").await;
    assert_eq!(moved.stdout, "data\n");
    assert!(moved.stderr.contains("Read-only file system"), "{moved:?}");
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
