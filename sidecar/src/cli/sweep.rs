//! `sweep`: one sweep over files, whether or not a sidecar runs.

use std::io::{self, Write};

use tokio_util::task::TaskTracker;

use super::CommandError;
use crate::app::{self, AppError, Parts};
use crate::config::Config;
use crate::files::{Files, Sweeper};
use crate::telemetry::{self, Metrics};

/// Sweeps, or says what a sweep would do.
pub(super) async fn run(config: &Config, parts: &Parts, dry_run: bool) -> Result<(), CommandError> {
    telemetry::start_log(&config.log);
    let repository = app::open_repository(config, parts).await?;
    let done = match app::open_files(config, parts, &repository, &TaskTracker::new())? {
        Some(files) => sweep(&files, dry_run).await,
        None => Err(CommandError::Refused("files.enabled is off: there is nothing to sweep".to_owned())),
    };
    repository.close().await;
    done
}

async fn sweep(files: &Files, dry_run: bool) -> Result<(), CommandError> {
    let sweeper = Sweeper::new(files, Metrics::new());
    let swept = if dry_run { sweeper.preview().await } else { sweeper.sweep(0).await };
    let report = swept.map_err(AppError::Sweep)?;
    let what = if dry_run { "would sweep" } else { "swept" };
    writeln!(io::stdout(), "{what}: {report}")?;
    Ok(())
}
