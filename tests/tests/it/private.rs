//! What the parts leave on the disk is nobody else's: the data folder lets other users pass, for the sandbox's sake.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::shared;

#[tokio::test]
async fn files_and_sockets_of_a_running_stack_are_closed_to_others() {
    let stack = shared().await;
    let entries = std::fs::read_dir(stack.data_dir()).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries.chain([stack.folder().join("envoy.yaml")]).collect();
    paths.sort();
    for name in ["admin.sock", "model.sock", "sidecar.sock", "otari.db-wal", "hop-secret"] {
        assert!(paths.contains(&stack.data_dir().join(name)), "{name} is not in {paths:?}");
    }
    for path in paths {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o066, 0, "{} has mode {mode:o}", path.display());
    }
}
