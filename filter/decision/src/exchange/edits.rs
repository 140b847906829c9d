//! What a request's headers lose and gain on their way.
//!
//! INVARIANT: towards a provider no internal or control header and no otari key goes along.

use super::head::Facts;
use super::{EnforcementPoint, Env, ModelChoice, Verdict};
use crate::decide::Decision;
use crate::header;
use crate::identity::Carriers;

/// Changes to the request's headers: first remove, then set. Names in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeaderEdits {
    /// Headers to take out, all values of each; only ones that are there.
    pub remove: Vec<String>,
    /// Headers to set, replacing what is there.
    pub set: Vec<(String, String)>,
}

impl HeaderEdits {
    pub(super) fn removing<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self { remove: names.into_iter().map(str::to_owned).collect(), set: Vec::new() }
    }

    /// Files and control endpoints. Standalone, the route is named as well, so that no odd spelling of a path reaches
    /// a provider; the sidecar needs key and wish, and only internal headers go.
    pub(super) fn to_own_route(own_headers: &[&'static str], env: &Env<'_>) -> Self {
        if env.point == EnforcementPoint::Sidecar {
            return Self::default();
        }
        let named = env.config.providers_routed;
        let mut edits = Self::removing(
            own_headers.iter().copied().filter(|name| is_internal(name) && !(named && *name == header::ROUTE)),
        );
        if named {
            edits.set(header::ROUTE, header::ROUTE_SIDECAR);
        }
        edits
    }

    /// A mesh's own traffic.
    pub(super) fn to_mesh(own_headers: &[&'static str], carriers: &Carriers, env: &Env<'_>) -> Self {
        Self::removing(own_headers.iter().copied().chain(carriers.spent(env.policy.latest())))
    }

    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.set.push((name.to_owned(), value.into()));
    }
}

impl Facts {
    /// Towards the sidecar: key and wish go along, with what was decided here.
    pub(super) fn edits_to_sidecar(&self, decision: &Decision, env: &Env<'_>) -> HeaderEdits {
        let set = [header::ROUTE, header::DECISION];
        let gone = self.own_headers.iter().copied().filter(|name| is_internal(name) && !set.contains(name));
        let mut edits = HeaderEdits::removing(gone);
        edits.set(header::ROUTE, header::ROUTE_SIDECAR);
        edits.set(header::DECISION, Verdict::of(decision, env).header());
        edits
    }

    /// Towards a provider.
    pub(super) fn edits_to_provider(&self, model: Option<&ModelChoice>, env: &Env<'_>) -> HeaderEdits {
        let provider = model.filter(|_| env.config.providers_routed).map(|model| model.provider.as_str());
        let replaced = |name: &&str| provider.is_some() && *name == header::PROVIDER;
        let own = self.own_headers.iter().copied().filter(|name| !replaced(name));
        let mut edits = HeaderEdits::removing(own.chain(self.caller.carriers.spent(env.policy.latest())));
        if let Some(name) = provider {
            edits.set(header::PROVIDER, name);
        }
        edits
    }
}

fn is_internal(name: &str) -> bool {
    header::INTERNAL.contains(&name)
}
