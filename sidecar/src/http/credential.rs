//! Who calls the routes that the filter lets through unread: the admin by the master key, or the owner of a key.

use axum::http::HeaderMap;
use decision::config::IdentityConfig;
use decision::exchange::{self, RequestHead};
use decision::identity::{self, Identity, key_hash};
use decision::problem::{INVALID_KEY, Origin, Problem, ProblemKind};
use decision::reason::Reason;
use http::request::Parts;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Refusal, Services};
use crate::config::Secret;
use crate::telemetry::chain;

/// Lets only the admin on.
pub(super) fn require_master_key(services: &Services, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(master) = &services.master_key else {
        return Err(denied("the admin routes are off: start the gateway with OTARI_MASTER_KEY set"));
    };
    match shown(headers)? {
        Some(given) if is_secret(&given, master) => Ok(()),
        Some(_) => Err(unauthenticated("this is not the master key, which this route needs", Some(INVALID_KEY))),
        None => Err(unauthenticated("this route needs the master key, in `Otari-Key` or as a bearer token", None)),
    }
}

/// Whose request it is, by the rules of the model routes.
pub(super) async fn identify(services: &Services, head: &Parts) -> Result<Identity, Refusal> {
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut pairs: Vec<(&[u8], &[u8])> = vec![(b":path", path.as_bytes())];
    pairs.extend(head.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())));
    let identity = &services.filter_config.identity;
    let ask = || exchange::identify(&RequestHead { headers: &pairs }, identity, services.policy.current().view());
    let mut found = ask();
    // The snapshot may be older than the key, or the database may have come back.
    if matches!(found, Err((Reason::KeyUnknown | Reason::PolicyUnavailable, _))) {
        if let Err(error) = services.policy.refresh_soon().await {
            tracing::error!(error = %chain(&error), "the policy could not be read");
        }
        found = ask();
    }
    found.map_err(|(_, problem)| problem.into())
}

/// Lets whoever has a working key on, and the admin.
pub(super) async fn require_any_key(services: &Services, headers: &HeaderMap) -> Result<(), Refusal> {
    if matches!(services.filter_config.identity, IdentityConfig::None) {
        return Ok(());
    }
    if let IdentityConfig::Header { user, .. } = &services.filter_config.identity
        && headers.contains_key(user.as_str())
    {
        return Ok(());
    }
    let Some(given) = shown(headers)? else {
        let text = "this route needs a key, in `Otari-Key`, as a bearer token or in `x-api-key`";
        return Err(unauthenticated(text, None));
    };
    if services.master_key.as_ref().is_some_and(|master| is_secret(&given, master)) {
        return Ok(());
    }
    let hash = key_hash(&given);
    if services.policy.current().owner(&hash).is_none() {
        // It may be newer than the snapshot.
        services.policy.refresh_soon().await?;
    }
    let current = services.policy.current();
    if !current.is_fresh() {
        return Err(Problem::new(ProblemKind::Internal, Origin::Storage, "keys cannot be checked at the moment").into());
    }
    match current.owner(&hash) {
        Some(_) => Ok(()),
        None => Err(unauthenticated("this key is not known, has expired or was revoked", Some(INVALID_KEY))),
    }
}

/// Whether the text is the secret; takes as long for any text.
pub(super) fn is_secret(given: &[u8], secret: &Secret) -> bool {
    let hash = |text: &[u8]| Sha256::digest(text);
    hash(given).as_slice().ct_eq(hash(secret.expose().as_bytes()).as_slice()).into()
}

/// The credential the caller shows, read as the decision reads it.
fn shown(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Refusal> {
    let pairs: Vec<_> = headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())).collect();
    let shown = identity::credential(&RequestHead { headers: &pairs });
    shown.map(|shown| shown.map(<[u8]>::to_vec)).map_err(|(_, problem)| problem.into())
}

fn unauthenticated(message: &str, code: Option<&'static str>) -> Refusal {
    Problem { code, ..Problem::new(ProblemKind::Unauthenticated, Origin::Caller, message) }.into()
}

fn denied(message: &str) -> Refusal {
    Problem::new(ProblemKind::PermissionDenied, Origin::Caller, message).into()
}
