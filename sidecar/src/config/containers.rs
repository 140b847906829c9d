//! `containers`: which sandbox sessions are kept between requests.

use std::time::Duration;

use super::reader::Reader;
use super::{SandboxConfig, keys};
use crate::containers::ContainerLimits;

/// How long a container stays in use after its process was killed; whoever lives renews it in time.
const CLAIM: Duration = Duration::from_mins(2);

/// Reads it.
pub(super) fn read(reader: &mut Reader<'_>, sandbox: &SandboxConfig) -> ContainerLimits {
    let seconds = |reader: &mut Reader<'_>, key| Duration::from_secs(reader.integer(key));
    let idle = seconds(reader, &keys::CONTAINERS_IDLE_SECONDS);
    let lifetime = seconds(reader, &keys::CONTAINERS_LIFETIME_SECONDS);
    if idle > lifetime {
        let fix = "write no more than containers.lifetime_seconds, or more there";
        reader.problem(keys::CONTAINERS_IDLE_SECONDS.path, idle.as_secs().to_string(), fix);
    }
    let max_kept = if reader.is_set(&keys::CONTAINERS_MAX_KEPT) {
        reader.size(&keys::CONTAINERS_MAX_KEPT)
    } else {
        sandbox.max_sessions
    };
    let max_kept_per_workspace = if reader.is_set(&keys::CONTAINERS_MAX_KEPT_PER_WORKSPACE) {
        reader.size(&keys::CONTAINERS_MAX_KEPT_PER_WORKSPACE)
    } else {
        sandbox.max_sessions_per_workspace.min(max_kept)
    };
    if max_kept_per_workspace > max_kept {
        let fix = "write no more than containers.max_kept, or more there";
        reader.problem(keys::CONTAINERS_MAX_KEPT_PER_WORKSPACE.path, max_kept_per_workspace.to_string(), fix);
    }
    ContainerLimits {
        idle,
        lifetime,
        busy_wait: seconds(reader, &keys::CONTAINERS_BUSY_WAIT_SECONDS),
        max_kept,
        max_kept_per_workspace,
        claim: CLAIM,
    }
}
