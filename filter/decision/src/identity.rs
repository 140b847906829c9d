//! Whose request it is, and which credentials must not travel on.
//!
//! INVARIANT: the workspace comes from a known key or from the mesh, never from anything a client can set.

mod leak;

pub(crate) use leak::keep_keys_here;

use sha2::{Digest, Sha256};

use crate::config::IdentityConfig;
use crate::exchange::{RequestHead, came_twice};
use crate::header;
use crate::policy::{PolicyView, Snapshot};
use crate::problem::{INVALID_KEY, Origin, Problem, ProblemKind};
use crate::reason::Reason;

/// Whose request it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub user: String,
    /// The workspace whose policy applies.
    pub workspace: String,
}

/// Name of the one user and workspace in mode `none`, and of the bootstrap key's.
pub const DEFAULT: &str = "default";

/// SHA-256 in lower-case hex, as [`Snapshot::keys`] has it.
pub fn key_hash(key: &[u8]) -> String {
    let digest = Sha256::digest(key);
    let mut text = String::with_capacity(digest.len().saturating_mul(2));
    for byte in digest {
        text.extend([byte >> 4, byte & 0x0f].into_iter().filter_map(|nibble| char::from_digit(u32::from(nibble), 16)));
    }
    text
}

/// How the keys begin that this gateway mints; 32 hexadecimal digits follow.
pub const KEY_PREFIX: &str = "otk_";
/// How request ids of the gateway's own begin.
pub const REQUEST_ID_PREFIX: &str = "req_otr";
/// Longest request id that is taken over from Envoy, in bytes.
const MAX_REQUEST_ID: usize = 128;

/// The value of [`header::REQUEST_ID`] as it may stand in answers and logs; `None` if it may not.
pub fn request_id(value: &[u8]) -> Option<&str> {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let id = std::str::from_utf8(value).ok()?;
    ((1..=MAX_REQUEST_ID).contains(&id.len()) && value.iter().all(fits)).then_some(id)
}

/// The credential a caller shows: `otari-key` (`Bearer ` may stand before it), else the bearer token, else `x-api-key`;
/// a blank one is none. An error if one of the three came twice.
pub fn credential<'a>(head: &RequestHead<'a>) -> Result<Option<&'a [u8]>, (Reason, Problem)> {
    let own = head.single(header::KEY)?.map(strip_bearer);
    let token = head.single(header::AUTHORIZATION)?.and_then(bearer);
    // Envoy joins what came twice, and no bearer token has a comma.
    if token.is_some_and(|token| token.contains(&b',')) {
        return Err(came_twice(header::AUTHORIZATION));
    }
    let api_key = head.single(header::API_KEY)?.map(<[u8]>::trim_ascii);
    Ok([own, token, api_key].into_iter().flatten().find(|key| !key.is_empty()))
}

/// The same, if the snapshot has it.
pub(crate) fn known_credential<'a>(head: &RequestHead<'a>, snapshot: Option<&Snapshot>) -> Option<&'a [u8]> {
    let shown = credential(head).ok().flatten()?;
    snapshot?.ends_here(&key_hash(shown)).then_some(shown)
}

/// What a head says about its caller, kept until the body is complete. Holds hashes, no keys.
#[derive(Debug)]
pub(crate) struct Caller {
    claim: Claim,
    pub(crate) carriers: Carriers,
}

/// Headers that may carry an otari key towards a provider.
#[derive(Debug)]
pub(crate) struct Carriers(Vec<Carrier>);

#[derive(Debug)]
struct Carrier {
    header: &'static str,
    /// Hash of what it carries.
    hash: String,
    /// It looks like a key of ours, known or not.
    minted: bool,
}

#[derive(Debug)]
enum Claim {
    /// Settled by configuration or by the mesh.
    Named(Identity),
    /// Whoever owns the key of this hash.
    Key(String),
}

impl Carriers {
    /// Reads the head. `hashed` is a credential whose hash is known already: usually it is the one that is carried.
    pub(crate) fn read(head: &RequestHead<'_>, hashed: Option<(&[u8], &str)>) -> Self {
        let keys = [header::AUTHORIZATION, header::API_KEY].into_iter().flat_map(|header| {
            head.values(header).filter_map(move |value| carried(header.as_bytes(), value).map(|key| (header, key)))
        });
        let hash = |key| match hashed {
            Some((known, hash)) if known == key => hash.to_owned(),
            _ => key_hash(key),
        };
        let carrier = |(header, key)| Carrier { header, hash: hash(key), minted: leak::is_minted(key) };
        Self(keys.map(carrier).collect())
    }

    /// Whether what they carry can be told to be ours or not.
    pub(crate) fn can_be_told(&self, snapshot: Option<&Snapshot>) -> bool {
        snapshot.is_some() || self.0.iter().all(|one| one.minted)
    }

    /// Those that carry a key of ours: they end here.
    pub(crate) fn spent<'a>(&'a self, snapshot: Option<&'a Snapshot>) -> impl Iterator<Item = &'static str> + 'a {
        let known = move |hash: &String| snapshot.is_some_and(|snapshot| snapshot.ends_here(hash));
        self.0.iter().filter(move |one| one.minted || known(&one.hash)).map(|one| one.header)
    }
}

impl Caller {
    /// Reads the head.
    pub(crate) fn read(head: &RequestHead<'_>, config: &IdentityConfig) -> Result<Self, (Reason, Problem)> {
        let own = head.single(header::KEY)?.map(strip_bearer).filter(|key| !key.is_empty());
        let (shown, claim) = match config {
            IdentityConfig::None => {
                (own, Claim::Named(Identity { user: DEFAULT.to_owned(), workspace: DEFAULT.to_owned() }))
            }
            IdentityConfig::Header { user, workspace } => {
                (own, Claim::Named(Identity { user: named(head, user)?, workspace: named(head, workspace)? }))
            }
            IdentityConfig::OtariKey => {
                let shown = credential(head)?.ok_or_else(no_key)?;
                (Some(shown), Claim::Key(key_hash(shown)))
            }
        };
        keep_keys_here(head, shown)?;
        let hashed = match &claim {
            Claim::Key(hash) => shown.map(|key| (key, hash.as_str())),
            Claim::Named(_) => None,
        };
        let carriers = Carriers::read(head, hashed);
        Ok(Self { claim, carriers })
    }

    /// Whose request it is, or why that is not known.
    pub(crate) fn identity(&self, policy: PolicyView<'_>) -> Result<Identity, Reason> {
        let hash = match &self.claim {
            Claim::Named(identity) => return Ok(identity.clone()),
            Claim::Key(hash) => hash,
        };
        let snapshot = match policy {
            PolicyView::Fresh(snapshot) => snapshot,
            PolicyView::Stale(_) => return Err(Reason::PolicyStale),
            PolicyView::Missing => return Err(Reason::PolicyMissing),
        };
        let owner = snapshot.keys.get(hash).ok_or(Reason::KeyUnverified)?;
        Ok(Identity { user: owner.user.clone(), workspace: owner.workspace.clone() })
    }
}

/// The refusal of a key that a fresh snapshot does not have; the sidecar's alone.
pub(crate) fn unknown_key() -> (Reason, Problem) {
    let message = "the key is not known: send an otari key of this gateway in `otari-key`, `authorization: Bearer …` \
                   or `x-api-key`";
    let problem = Problem::new(ProblemKind::Unauthenticated, Origin::Caller, message).with_code(INVALID_KEY);
    (Reason::KeyUnknown, problem)
}

fn no_key() -> (Reason, Problem) {
    let message = "the request brings no key: send an otari key of this gateway in `otari-key`, \
                   `authorization: Bearer …` or `x-api-key`";
    (Reason::KeyMissing, Problem::new(ProblemKind::Unauthenticated, Origin::Caller, message))
}

/// A name written by the mesh.
fn named(head: &RequestHead<'_>, name: &str) -> Result<String, (Reason, Problem)> {
    let value = head.single(name)?.map(<[u8]>::trim_ascii).filter(|value| !value.is_empty());
    let Some(value) = value else {
        let message = format!("the header `{name}` is missing: the proxy's own authentication must write it");
        return Err((Reason::IdentityMissing, Problem::new(ProblemKind::Unauthenticated, Origin::Caller, message)));
    };
    match std::str::from_utf8(value) {
        Ok(value) => Ok(value.to_owned()),
        Err(_) => Err((Reason::HeaderUnreadable, Problem::invalid(format!("the header `{name}` is not UTF-8 text")))),
    }
}

/// The credential in a header that may carry one on to a provider.
fn carried<'a>(header: &[u8], value: &'a [u8]) -> Option<&'a [u8]> {
    let key = match header {
        _ if header == header::AUTHORIZATION.as_bytes() => bearer(value)?,
        _ if header == header::API_KEY.as_bytes() => value.trim_ascii(),
        _ => return None,
    };
    (!key.is_empty()).then_some(key)
}

/// The token of `Bearer <token>`; `None` for another scheme.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.trim_ascii().split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// The key itself, whether `Bearer ` stands before it or not.
fn strip_bearer(value: &[u8]) -> &[u8] {
    bearer(value).unwrap_or(value.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::{bearer, key_hash, request_id, strip_bearer};

    #[test]
    fn a_request_id_is_a_short_word() {
        assert_eq!(request_id(b"6f1c-A_9"), Some("6f1c-A_9"));
        for odd in [&b""[..], b"a b", b"a\"", b"\xff", &[b'a'; 129]] {
            assert_eq!(request_id(odd), None);
        }
    }

    #[test]
    fn hash_is_sha256_in_lower_case_hex() {
        assert_eq!(key_hash(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn bearer_needs_its_scheme_and_the_own_header_does_not() {
        assert_eq!(bearer(b"Bearer k"), Some(&b"k"[..]));
        assert_eq!(bearer(b" bEARER   k "), Some(&b"k"[..]));
        assert_eq!(bearer(b"Basic k"), None);
        assert_eq!(bearer(b"k"), None);
        assert_eq!(bearer(b"bearerk"), None);
        assert_eq!(strip_bearer(b"  k "), b"k");
        assert_eq!(strip_bearer(b"bearer k"), b"k");
        assert_eq!(strip_bearer(b"\xff"), b"\xff");
    }
}
