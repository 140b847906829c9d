//! Folders of servers that live as long as the process: nobody removes them at its end, so the next one does.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Fallible;

/// A new folder under the system's own for temporary files, short enough for a socket in it. Those of processes that have
/// ended are removed.
pub fn folder(name: &str) -> Fallible<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let top = std::env::temp_dir().join("otari-services");
    std::fs::create_dir_all(&top)?;
    remove_left_behind(&top);
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = top.join(format!("{process}-{name}-{count}"));
    // One of a process that had our id.
    std::fs::remove_dir_all(&path).ok();
    std::fs::create_dir(&path)?;
    Ok(path)
}

fn remove_left_behind(top: &Path) {
    for entry in std::fs::read_dir(top).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_string_lossy().split('-').next().unwrap_or_default().to_owned();
        if !Path::new("/proc").join(process).exists() {
            // Another process may be doing the same.
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}
