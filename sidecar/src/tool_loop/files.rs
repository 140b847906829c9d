//! Files of one request: into its session before the first call, out of it after each.
//!
//! INVARIANT: code never runs without the files it was promised. A call is over when what it wrote is stored, or told as
//! not stored; nothing is stored twice, and nothing that went in unchanged. No failure to store fails a run. Dropping any
//! of these futures leaves nothing half-stored.

mod collect;
mod seed;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use decision::identity::Identity;

use self::collect::Ledger;
pub(super) use self::seed::{SeedError, SeedFault};
use crate::files::{Files, Staged};
use crate::sandbox::{ExecutionRequest, ExecutionResult, Lease, ProducedFile, SandboxError};
use crate::wire::event::CodeFiles;

/// What all sessions of one request have in common.
#[derive(Clone)]
pub(super) struct RequestFiles(Arc<Shared>);

struct Shared {
    /// `None` where no files are kept: then nothing goes out, and nothing in.
    files: Option<Files>,
    owner: Identity,
    seeds: Vec<Staged>,
    /// Longest time for all files on their way in, and for all of one call on their way out.
    timeout: Duration,
    /// Bytes of images that the answer may still show in itself.
    image_bytes: Mutex<usize>,
}

/// A session with its files in place.
pub(super) struct Furnished {
    lease: Lease,
    shared: RequestFiles,
    ledger: tokio::sync::Mutex<Ledger>,
}

impl RequestFiles {
    /// `image_bytes`: how much of images the answer shows in itself.
    pub(super) fn new(
        files: Option<Files>,
        owner: Identity,
        seeds: Vec<Staged>,
        timeout: Duration,
        image_bytes: usize,
    ) -> Self {
        Self(Arc::new(Shared { files, owner, seeds, timeout, image_bytes: Mutex::new(image_bytes) }))
    }

    /// Puts the files into a session that has run nothing yet. On an error the session is given back.
    pub(super) async fn furnish(self, lease: Lease) -> Result<Furnished, SeedError> {
        let Shared { files, seeds, timeout, .. } = &*self.0;
        let ledger = match (files, seeds.first()) {
            (Some(files), _) => {
                seed::seed(files, seeds, &lease, *timeout).await?;
                Ledger::begin(seeds, &lease, *timeout).await
            }
            (None, Some(seed)) => return Err(SeedError::unkept(seed)),
            (None, None) => Ledger::default(),
        };
        Ok(Furnished { lease, shared: self, ledger: tokio::sync::Mutex::new(ledger) })
    }
}

impl Shared {
    /// Takes so much of what the answer may show of images; false if that is no longer there.
    fn take_image_bytes(&self, size: usize) -> bool {
        let mut left = self.image_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = left.checked_sub(size);
        *left = rest.unwrap_or(*left);
        rest.is_some()
    }

    fn give_image_bytes(&self, size: usize) {
        let mut left = self.image_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_add(size);
    }
}

impl Furnished {
    /// Runs calls that do not need each other: a result for each, in their order.
    pub(super) async fn execute(&self, requests: &[ExecutionRequest]) -> Vec<Result<ExecutionResult, SandboxError>> {
        self.lease.execute(requests).await
    }

    /// Stores what has been written since the last time; `named` is what the sandbox says of it.
    pub(super) async fn collect(&self, named: &[ProducedFile]) -> CodeFiles {
        let Some(files) = &self.shared.0.files else { return CodeFiles::default() };
        collect::collect(files, &self.shared.0, &self.lease, &mut *self.ledger.lock().await, named).await
    }
}
