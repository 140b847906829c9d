//! Who calls the control routes: the admin by the master key, or the owner of a key.

use axum::http::HeaderMap;
use decision::config::IdentityConfig;
use decision::header;
use decision::identity::key_hash;
use decision::problem::{Origin, Problem, ProblemKind};
use http::HeaderValue;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Refusal, Services};
use crate::config::Secret;

/// Lets only the admin on.
pub(super) fn require_master_key(services: &Services, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(master) = &services.master_key else {
        return Err(denied("the admin routes are off: start the gateway with OTARI_MASTER_KEY set"));
    };
    match credential(headers)? {
        Some(given) if is_secret(given, master) => Ok(()),
        _ => Err(unauthenticated("this route needs the master key, in `Otari-Key` or as a bearer token")),
    }
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
    let Some(given) = credential(headers)? else {
        return Err(unauthenticated("this route needs a key, in `Otari-Key`, as a bearer token or in `x-api-key`"));
    };
    if services.master_key.as_ref().is_some_and(|master| is_secret(given, master)) {
        return Ok(());
    }
    let hash = key_hash(given.as_bytes());
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
        None => Err(unauthenticated("this key is not known, has expired or was revoked")),
    }
}

/// Whether the text is the secret; takes as long for any text.
pub(super) fn is_secret(given: &str, secret: &Secret) -> bool {
    let hash = |text: &str| Sha256::digest(text.as_bytes());
    hash(given).as_slice().ct_eq(hash(secret.expose()).as_slice()).into()
}

/// `Otari-Key` with or without `Bearer`, else the bearer token, else `x-api-key`.
fn credential(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    if let Some(value) = single(headers, header::KEY)? {
        return text(value).map(|text| Some(bearer(text).unwrap_or(text)));
    }
    if let Some(value) = single(headers, header::AUTHORIZATION)?
        && let Some(token) = bearer(text(value)?)
    {
        return Ok(Some(token));
    }
    single(headers, header::API_KEY)?.map(text).transpose()
}

fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Problem::invalid(format!("the header `{name}` came more than once: send it once")).into());
    }
    Ok(first)
}

fn text(value: &HeaderValue) -> Result<&str, Refusal> {
    value.to_str().map(str::trim).map_err(|_| unauthenticated("the key holds characters that no key has"))
}

fn bearer(text: &str) -> Option<&str> {
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn unauthenticated(message: &str) -> Refusal {
    Problem::new(ProblemKind::Unauthenticated, Origin::Caller, message).into()
}

fn denied(message: &str) -> Refusal {
    Problem::new(ProblemKind::PermissionDenied, Origin::Caller, message).into()
}
