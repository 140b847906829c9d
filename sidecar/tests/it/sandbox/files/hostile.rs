//! Files out of a workspace whose code means harm.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use sidecar::sandbox::{MAX_LISTED, SandboxBackend as _, SandboxError};

use super::super::bombs::MIB;
use super::super::{open_directory, start};
use super::{SECRET, path};

#[tokio::test]
async fn nothing_but_a_file_of_the_workspace_is_taken_out() {
    let outside = open_directory();
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
    let outside = open_directory();
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
    let changes: [fn(&Path); 3] = [
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
