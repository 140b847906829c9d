//! Files into a fresh session.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::time::{Instant, timeout_at};

use crate::files::{Files, FilesError, Staged};
use crate::sandbox::{Lease, SandboxError, WorkspacePath};

/// Why a session has not the files it was to have. Its text names none of them, for it is logged.
#[derive(Debug, thiserror::Error)]
#[error("a file did not get into the session")]
pub(in crate::tool_loop) struct SeedError {
    /// The file's name in the workspace.
    pub(in crate::tool_loop) name: String,
    #[source]
    pub(in crate::tool_loop) cause: SeedFault,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::tool_loop) enum SeedFault {
    /// The file cannot be read.
    #[error("the file cannot be read")]
    Source(#[source] FilesError),
    /// The sandbox does not take it.
    #[error(transparent)]
    Sandbox(SandboxError),
    /// All files together took too long.
    #[error("it took longer than {} s", .0.as_secs())]
    TimedOut(Duration),
    /// No files are kept here.
    #[error("no files are kept")]
    Unkept,
}

impl SeedError {
    /// A file was promised although none are kept.
    pub(super) fn unkept(seed: &Staged) -> Self {
        Self { name: seed.name.clone(), cause: SeedFault::Unkept }
    }
}

/// Puts every file under its name, one after the other, as a stream.
pub(super) async fn seed(files: &Files, seeds: &[Staged], lease: &Lease, timeout: Duration) -> Result<(), SeedError> {
    let deadline = Instant::now() + timeout;
    for seed in seeds {
        let put = timeout_at(deadline, put(files, seed, lease)).await;
        let put = put.unwrap_or(Err(SeedFault::TimedOut(timeout)));
        put.map_err(|cause| SeedError { name: seed.name.clone(), cause })?;
    }
    Ok(())
}

async fn put(files: &Files, seed: &Staged, lease: &Lease) -> Result<(), SeedFault> {
    let path = WorkspacePath::parse(&seed.name).ok_or(SandboxError::BadPath { reason: "it is none" });
    let path = path.map_err(SeedFault::Sandbox)?;
    let size = seed.file.size_bytes;
    let content = files.read(&seed.file, 0..size).await.map_err(SeedFault::Source)?;
    let content = content.map_err(|error| Box::new(error).into()).boxed();
    lease.put_file(&path, size, content).await.map_err(SeedFault::Sandbox)
}
