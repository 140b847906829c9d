//! What the sidecar publishes about keys and workspaces, and how fresh an enforcement point's copy of it is.
//!
//! INVARIANT: an unknown field is ignored, so that a filter can read a newer sidecar's snapshot.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A wish about who runs code, from a pin, a header or the deployment's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preference {
    /// The provider where it can by itself, this gateway otherwise.
    #[default]
    Auto,
    /// This gateway.
    Otari,
    /// The provider.
    Provider,
}

impl Preference {
    /// The three words, for messages.
    pub const WORDS: &str = "`auto`, `otari` or `provider`";

    /// Reads one of the three words, in any case and with blanks around it; anything else is `None`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let word = text.trim_ascii();
        [Self::Auto, Self::Otari, Self::Provider]
            .into_iter()
            .find(|preference| word.eq_ignore_ascii_case(preference.word().as_bytes()))
    }

    /// The word itself.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Otari => "otari",
            Self::Provider => "provider",
        }
    }
}

/// Everything a decision needs to know about the deployment at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Grows with every change; also the `ETag`.
    pub version: u64,
    /// `code_execution_executor` of the configuration.
    #[serde(default)]
    pub default_executor: Preference,
    /// A sandbox is configured. Says nothing about its health: a dead sandbox is an error, not another executor.
    pub sandbox_available: bool,
    /// Session images the operator allows; only the sidecar's own snapshot has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_images: Vec<String>,
    /// SHA-256 of a key in lower-case hex → its owner.
    #[serde(default)]
    pub keys: BTreeMap<String, KeyOwner>,
    /// SHA-256 of what else must not travel to a provider though it names nobody there: the admin's credential.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub withheld: BTreeSet<String>,
    /// Workspaces that have a policy.
    #[serde(default)]
    pub workspaces: BTreeMap<String, WorkspacePolicy>,
}

impl Snapshot {
    /// A credential with this SHA-256 ends at this gateway.
    pub(crate) fn ends_here(&self, hash: &str) -> bool {
        self.keys.contains_key(hash) || self.withheld.contains(hash)
    }
}

/// Whom a key stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOwner {
    /// The user.
    pub user: String,
    /// The workspace whose policy applies.
    pub workspace: String,
}

/// One workspace's code-execution policy. The published snapshot holds `pin` and `enabled` alone, the sidecar's own all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspacePolicy {
    /// Fixes who runs code, over header and default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Preference>,
    /// `false` forbids runs at this gateway; runs at the provider are not its matter.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// Ceiling of model calls per request, 1..=25.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// Ceiling of seconds per execution, 1..=60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_timeout_s: Option<u32>,
    /// Told to the model when the declaration brings no hint of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose_hint: Option<String>,
    /// Image of the sandbox session; must be one of [`Snapshot::allowed_images`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Tools the sandbox may offer, in the words of [`crate::request::CodeTool`]; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

fn enabled() -> bool {
    true
}

impl Default for WorkspacePolicy {
    fn default() -> Self {
        Self {
            pin: None,
            enabled: enabled(),
            max_iterations: None,
            exec_timeout_s: None,
            purpose_hint: None,
            image: None,
            tools: None,
        }
    }
}

/// An enforcement point's view of the snapshot.
#[derive(Debug, Clone, Copy)]
pub enum PolicyView<'a> {
    /// Young enough to decide on. The sidecar's own always is.
    Fresh(&'a Snapshot),
    /// Older than `policy.max_age_ms`: nothing is decided on it, but its keys are keys of ours still.
    Stale(&'a Snapshot),
    /// None has arrived yet.
    Missing,
}

impl<'a> PolicyView<'a> {
    /// The snapshot, if one may decide on it.
    pub fn fresh(self) -> Option<&'a Snapshot> {
        match self {
            Self::Fresh(snapshot) => Some(snapshot),
            Self::Stale(_) | Self::Missing => None,
        }
    }

    /// The last snapshot, however old.
    pub fn latest(self) -> Option<&'a Snapshot> {
        match self {
            Self::Fresh(snapshot) | Self::Stale(snapshot) => Some(snapshot),
            Self::Missing => None,
        }
    }
}
