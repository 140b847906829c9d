//! What the corpus cannot see: when a body is held, and what changes while it arrives.

use serde_json::json;

use super::{EnforcementPoint, Env, Exchange, RequestHead, Step, Target, identify};
use crate::config::{FilterConfig, IdentityConfig};
use crate::identity::key_hash;
use crate::policy::{KeyOwner, PolicyView, Preference, Snapshot, WorkspacePolicy};
use crate::reason::Reason;

fn config(identity: &str) -> FilterConfig {
    let config = json!({
        "identity": {"mode": identity},
        "models": {
            "providers": {"anthropic": {"kind": "anthropic"}},
            "rules": [{"pattern": "claude-*", "provider": "anthropic"}],
        },
        "max_body_bytes": 200,
        "policy": {"cluster": "s", "authority": "s", "path": "/", "poll_ms": 1, "max_age_ms": 2, "hop_secret": "h"},
        "providers_routed": true,
    });
    FilterConfig::parse(config.to_string().as_bytes()).unwrap()
}

fn snapshot() -> Snapshot {
    let owner = KeyOwner { user: "ada".to_owned(), workspace: "lab".to_owned() };
    let keys = [(key_hash(b"known"), owner)].into();
    Snapshot { version: 1, sandbox_available: true, keys, ..Snapshot::default() }
}

fn env<'a>(config: &'a FilterConfig, policy: PolicyView<'a>) -> Env<'a> {
    Env { config, policy, point: EnforcementPoint::Filter, request_id: "req_1" }
}

fn begin(path: &str, headers: &[(&str, &str)], env: &Env<'_>) -> (Exchange, Step) {
    let mut pairs: Vec<(&[u8], &[u8])> = vec![(b":method", b"POST"), (b":path", path.as_bytes())];
    pairs.extend(headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    Exchange::begin(&RequestHead { headers: &pairs }, false, env)
}

fn reason(step: &Step) -> Option<Reason> {
    match step {
        Step::Buffer => None,
        Step::PassThrough(_, reason) => Some(*reason),
        Step::Forward(forward) => Some(forward.decision.reason),
        Step::Refuse(refusal) => Some(refusal.reason),
    }
}

const CODE: &[u8] = br#"{"model": "claude-x", "tools": [{"type": "code_execution_20250825"}]}"#;

#[test]
fn a_body_is_held_only_where_it_decides() {
    let (open, keyed, snapshot) = (config("none"), config("otari_key"), snapshot());
    let fresh = PolicyView::Fresh(&snapshot);
    let json = ("content-type", "application/json");
    for (path, headers, config, policy, expected) in [
        ("/v1/messages", vec![], &open, fresh, None),
        ("/v1/messages", vec![("x-api-key", "known")], &keyed, fresh, None),
        ("/v1/embeddings", vec![json], &open, fresh, None),
        ("/v1/audio", vec![("content-type", "multipart/form-data")], &open, fresh, Some(Reason::NotInference)),
        ("/v1/files", vec![json], &open, fresh, Some(Reason::NotInference)),
        ("/v1/messages", vec![("x-api-key", "other")], &keyed, fresh, Some(Reason::KeyUnverified)),
        ("/v1/messages", vec![("x-api-key", "known")], &keyed, PolicyView::Stale(&snapshot), Some(Reason::PolicyStale)),
        ("/v1/messages", vec![], &keyed, fresh, Some(Reason::KeyMissing)),
        ("/v1/messages", vec![("content-length", "201")], &open, fresh, Some(Reason::BodyTooLarge)),
        ("/v1/messages", vec![("content-encoding", "br")], &open, fresh, Some(Reason::BodyEncoded)),
        ("/v1/messages", vec![("otari-code-execution", "?")], &open, fresh, Some(Reason::HeaderInvalid)),
    ] {
        let (_, step) = begin(path, &headers, &env(config, policy));
        assert_eq!(reason(&step), expected, "{path} {headers:?}");
    }
}

#[test]
fn the_policy_counts_as_it_stands_when_the_body_is_complete() {
    let (config, mut snapshot) = (config("otari_key"), snapshot());
    let before = snapshot.clone();
    let pin = WorkspacePolicy { pin: Some(Preference::Otari), ..WorkspacePolicy::default() };
    snapshot.workspaces.insert("lab".to_owned(), pin);
    for (policy, expected) in [
        (PolicyView::Fresh(&before), Reason::ProviderNative),
        (PolicyView::Fresh(&snapshot), Reason::OtariByPin),
        (PolicyView::Stale(&before), Reason::PolicyStale),
    ] {
        let key = [("x-api-key", "known")];
        let (mut exchange, step) = begin("/v1/messages", &key, &env(&config, PolicyView::Fresh(&before)));
        assert_eq!(step, Step::Buffer);
        exchange.feed(CODE);
        assert_eq!(exchange.scanned(), u64::try_from(CODE.len()).unwrap());
        assert_eq!(reason(&exchange.finish(&env(&config, policy))), Some(expected));
    }
}

#[test]
fn a_hopeless_body_is_settled_before_its_end() {
    let (config, snapshot) = (config("none"), snapshot());
    let env = env(&config, PolicyView::Fresh(&snapshot));
    let (mut exchange, _) = begin("/v1/messages", &[], &env);
    exchange.feed(b"{\"model\": \"claude-x\", ");
    assert!(!exchange.settled());
    exchange.feed(b"oops");
    assert!(exchange.settled());
    assert_eq!(reason(&exchange.finish(&env)), Some(Reason::BodyInvalid));

    let (mut exchange, _) = begin("/v1/messages", &[], &env);
    exchange.feed(&[b' '; 200]);
    assert!(!exchange.settled());
    exchange.feed(b" ");
    assert!(exchange.settled());
    assert_eq!(reason(&exchange.finish(&env)), Some(Reason::BodyTooLarge));

    let (mut exchange, _) = begin("/v1/other", &[("content-type", "application/json")], &env);
    exchange.feed(b"[");
    assert!(!exchange.settled(), "off the inference endpoints an array is fine");
    assert_eq!(reason(&exchange.finish(&env)), Some(Reason::NotInference));
}

#[test]
fn a_second_finish_forwards_nothing() {
    let (config, snapshot) = (config("none"), snapshot());
    let env = env(&config, PolicyView::Fresh(&snapshot));
    let (mut exchange, _) = begin("/v1/messages", &[], &env);
    exchange.feed(CODE);
    let Step::Forward(forward) = exchange.finish(&env) else { panic!("not forwarded") };
    assert_eq!(forward.target, Target::Provider(Some("anthropic".to_owned())));
    exchange.feed(CODE);
    assert!(matches!(exchange.finish(&env), Step::Refuse(_)));
}

#[test]
fn a_request_that_the_filter_lets_through_is_known_by_its_head_all_the_same() {
    let snapshot = snapshot();
    let fresh = PolicyView::Fresh(&snapshot);
    let header = IdentityConfig::Header { user: "x-user".to_owned(), workspace: "x-team".to_owned() };
    let key = ("authorization", "Bearer known");
    let names = [("x-user", "ada"), ("x-team", "lab")];
    let known = Ok(("ada".to_owned(), "lab".to_owned()));
    for (config, headers, policy, expected) in [
        (&IdentityConfig::OtariKey, vec![key], fresh, known.clone()),
        (&IdentityConfig::OtariKey, vec![("x-api-key", "known")], fresh, known.clone()),
        (&IdentityConfig::OtariKey, vec![("otari-key", "known"), ("x-api-key", "theirs")], fresh, known.clone()),
        (&IdentityConfig::OtariKey, vec![], fresh, Err(Reason::KeyMissing)),
        (&IdentityConfig::OtariKey, vec![("x-api-key", "other")], fresh, Err(Reason::KeyUnknown)),
        (&IdentityConfig::OtariKey, vec![key, key], fresh, Err(Reason::HeaderDuplicate)),
        (&IdentityConfig::OtariKey, vec![key], PolicyView::Stale(&snapshot), Err(Reason::PolicyUnavailable)),
        (&IdentityConfig::OtariKey, vec![key], PolicyView::Missing, Err(Reason::PolicyUnavailable)),
        (&header, names.to_vec(), PolicyView::Missing, known),
        (&header, vec![names[0]], fresh, Err(Reason::IdentityMissing)),
        (&header, vec![names[0], names[1], names[1]], fresh, Err(Reason::HeaderDuplicate)),
        (&IdentityConfig::None, vec![], PolicyView::Missing, Ok(("default".to_owned(), "default".to_owned()))),
    ] {
        let pairs: Vec<_> = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        let identity = identify(&RequestHead { headers: &pairs }, config, policy);
        let identity = identity.map(|known| (known.user, known.workspace)).map_err(|(reason, _)| reason);
        assert_eq!(identity, expected, "{config:?} {headers:?}");
    }
}
