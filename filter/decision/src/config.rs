//! The plugin configuration: rendered by the sidecar from the one config file, parsed by the filter.
//!
//! INVARIANT: what [`FilterConfig::parse`] returns is consistent: every rule names a provider of the table.

mod models;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use models::{ModelInput, ModelRoute, ModelRule, ModelTable, ProviderInfo, ProviderKind};

use crate::policy::Preference;

/// All the filter knows before the first snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterConfig {
    /// Where user and workspace come from.
    pub identity: IdentityConfig,
    /// Which provider serves which model.
    pub models: ModelTable,
    /// API roots, each with its leading slash and without a trailing one.
    #[serde(default = "default_roots")]
    pub roots: Vec<String>,
    /// Longest body that is buffered; longer ones are answered with 413.
    pub max_body_bytes: u64,
    /// Bytes of bodies that may wait for one worker's decisions at once; more are told to come back.
    #[serde(default = "unlimited")]
    pub max_buffered_bytes: u64,
    /// Longest time a body that waits for its decision may take to arrive, milliseconds.
    #[serde(default = "unlimited")]
    pub body_deadline_ms: u64,
    /// Where the policy snapshot is polled.
    pub policy: PolicySource,
    /// Workspace → pin that stands over the workspace's own.
    #[serde(default)]
    pub static_pins: BTreeMap<String, Preference>,
    /// Standalone: Envoy routes by `x-otari-provider`. `false` in a mesh, whose routing stays its own.
    pub providers_routed: bool,
    /// The filter answers its "explain this request" path.
    #[serde(default)]
    pub explain: bool,
}

/// `["/v1", "/api/v1"]`.
pub fn default_roots() -> Vec<String> {
    vec!["/v1".to_owned(), "/api/v1".to_owned()]
}

fn unlimited() -> u64 {
    u64::MAX
}

/// Where identity comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum IdentityConfig {
    /// An otari key, looked up by its SHA-256.
    OtariKey,
    /// Two headers written by the mesh's own authentication filter; lower-case names.
    Header {
        /// Header that names the user.
        user: String,
        /// Header that names the workspace.
        workspace: String,
    },
    /// One tenant: user and workspace `default`.
    None,
}

/// How to poll the snapshot from the sidecar.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySource {
    /// Envoy cluster of the sidecar.
    pub cluster: String,
    /// `:authority` of the call.
    pub authority: String,
    /// `:path` of the call.
    pub path: String,
    /// Period between two polls.
    pub poll_ms: u64,
    /// Age at which a snapshot is stale.
    pub max_age_ms: u64,
    /// Value of `x-otari-hop`.
    pub hop_secret: String,
}

impl fmt::Debug for PolicySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicySource")
            .field("cluster", &self.cluster)
            .field("path", &self.path)
            .field("poll_ms", &self.poll_ms)
            .field("max_age_ms", &self.max_age_ms)
            .finish_non_exhaustive()
    }
}

impl FilterConfig {
    /// Reads and checks a plugin configuration. The error is one line for Envoy's log and holds no secret.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let config: Self = serde_json::from_slice(json)
            .map_err(|error| format!("the plugin configuration cannot be read ({error}): render it with `otari-sidecar envoy-config` of the same version"))?;
        match config.problem() {
            Some(problem) => Err(problem),
            None => Ok(config),
        }
    }

    fn problem(&self) -> Option<String> {
        if let Some(root) = self.roots.iter().find(|root| !root.starts_with('/') || root.ends_with('/')) {
            return Some(format!("roots: `{root}` must start with a slash and not end with one"));
        }
        if let IdentityConfig::Header { user, workspace } = &self.identity {
            let bad = |name: &String| name.is_empty() || name.bytes().any(|byte| byte.is_ascii_uppercase());
            if let Some(name) = [user, workspace].into_iter().find(|name| bad(name)) {
                return Some(format!("identity: `{name}` must be a header name in lower case"));
            }
        }
        self.models.problem()
    }
}

#[cfg(test)]
mod tests;
