//! What stands in the data folder is nobody else's, whatever the folder lets pass.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::{open_to_others, start, start_in};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn database_secrets_and_socket_are_private_by_themselves() {
    let sidecar = start().await;
    let names: Vec<_> =
        std::fs::read_dir(sidecar.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for name in ["otari.db", "otari.db-wal", "otari.db-shm", "hop-secret", "sidecar.sock"] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
    assert!(open_to_others(sidecar.folder.path()).is_empty(), "{:?}", open_to_others(sidecar.folder.path()));
    // An older version left them open.
    let folder = sidecar.stopped().await;
    std::fs::set_permissions(folder.path().join("otari.db"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let sidecar = start_in(folder, "").await;
    assert!(open_to_others(sidecar.folder.path()).is_empty(), "{:?}", open_to_others(sidecar.folder.path()));
}

#[tokio::test]
async fn the_folder_is_opened_for_sandboxes_of_another_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let folder = start_in(folder, "").await.stopped().await;
    assert_eq!(mode(folder.path()), 0o700, "no sandbox");
    let folder = start_in(folder, "sandbox: {backend: embedded}").await.stopped().await;
    let expected = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    assert_eq!(mode(folder.path()), expected);
}
