//! The containers of this sidecar: what they call its sandbox, and how they reach those of others.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use super::Parts;
use crate::config::{Config, SandboxBackendConfig, Secret};
use crate::containers::{self, Containers, Place};
use crate::ids::IdSource;
use crate::repository::Repository;
use crate::sandbox::Reaper;
use crate::sandbox::remote::HttpSettings;
use crate::telemetry::Metrics;

/// How the name of a sandbox begins that nobody else can reach: the next process of this host has another.
const PROCESS: &str = "process-";

/// Builds them. What must not be broken off is a task of `requests`.
pub(super) fn build(
    config: &Config,
    parts: &Parts,
    repository: &Repository,
    reaper: Reaper,
    metrics: &Metrics,
    requests: &TaskTracker,
) -> Containers {
    Containers::new(containers::Parts {
        repository: repository.clone(),
        reaper,
        place: place(config, &*parts.ids),
        limits: config.containers,
        clock: Arc::clone(&parts.clock),
        tasks: requests.clone(),
        metrics: metrics.clone(),
    })
}

fn place(config: &Config, ids: &dyn IdSource) -> Place {
    let reached_with = |token: &Secret| HttpSettings {
        url: String::new(),
        token: Some(token.expose().to_owned()),
        limits: config.sandbox.http.clone(),
    };
    match (&config.sandbox.backend, &config.sandbox.serve) {
        (SandboxBackendConfig::Http(settings), _) => {
            Place { backend: settings.url.clone(), outlives: true, others: None }
        }
        (_, Some(serve)) => Place {
            backend: serve.advertise_url.as_deref().map_or_else(|| ids.mint(PROCESS), Place::peer),
            outlives: false,
            others: serve.token.as_ref().map(reached_with),
        },
        (_, None) => Place { backend: ids.mint(PROCESS), outlives: false, others: None },
    }
}
