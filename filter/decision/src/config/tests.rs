use serde_json::json;

use super::{FilterConfig, ModelTable};

fn table() -> ModelTable {
    serde_json::from_value(json!({
        "providers": {
            "anthropic": {"kind": "anthropic", "wires": ["messages"]},
            "local": {"kind": "openai_compatible", "wires": []},
            "openai": {"kind": "openai"},
        },
        "rules": [
            {"pattern": "openai/gpt-oss-*", "provider": "local"},
            {"pattern": "claude-*", "provider": "anthropic"},
            {"pattern": "fast", "provider": "openai", "upstream_model": "gpt-5-mini", "wires": ["responses"]},
            {"pattern": "a*b*c", "provider": "openai"},
            {"pattern": "q*", "provider": "local"},
        ],
    }))
    .unwrap()
}

#[track_caller]
fn check(model: &str, expected: Option<(&str, Option<&str>)>) {
    let table = table();
    let route = table.resolve(model);
    let seen = route.as_ref().map(|route| (route.provider, route.upstream_model.as_deref()));
    assert_eq!(seen, expected, "{model}");
}

#[test]
fn rules_in_order_then_nothing() {
    check("claude-sonnet-4-5", Some(("anthropic", None)));
    check("claude-", Some(("anthropic", None)));
    check("claude", None);
    check("Claude-sonnet", None);
    check("fast", Some(("openai", Some("gpt-5-mini"))));
    check("faster", None);
    check("", None);
}

#[test]
fn stars_stand_for_any_text() {
    check("abc", Some(("openai", None)));
    check("aXbYbZc", Some(("openai", None)));
    check("ac", None);
    check("abcd", None);
    check("abb", None);
}

#[test]
fn prefixes_work_without_a_rule_and_are_stripped() {
    check("anthropic:claude-x", Some(("anthropic", Some("claude-x"))));
    check("anthropic/claude-x", Some(("anthropic", Some("claude-x"))));
    check("local:q:4b", Some(("local", Some("q:4b"))));
    check("unknown:claude-x", None);
    check("anthropic:", None);
    check("anthropic", None);
}

#[test]
fn a_prefix_yields_only_to_a_rule_that_spells_it_out() {
    check("openai/gpt-oss-20b", Some(("local", None)));
    check("openai/gpt-5", Some(("openai", Some("gpt-5"))));
    let mut table = table();
    table.rules.insert(
        0,
        super::ModelRule {
            pattern: "*".to_owned(),
            provider: "local".to_owned(),
            upstream_model: None,
            wires: None,
            inputs: None,
        },
    );
    assert_eq!(table.resolve("anthropic:claude-x").map(|route| route.provider), Some("anthropic"));
    assert_eq!(table.resolve("claude-x").map(|route| route.provider), Some("local"));
}

#[test]
fn wires_of_rule_over_provider_over_kind() {
    use crate::format::ApiFormat::{ChatCompletions, Messages, Responses};
    let table = table();
    let wires = |model| table.resolve(model).map(|route| route.wires.to_vec());
    assert_eq!(wires("fast"), Some(vec![Responses]));
    assert_eq!(wires("claude-x"), Some(vec![Messages]));
    assert_eq!(wires("qwen"), Some(vec![ChatCompletions]));
    assert_eq!(wires("openai:gpt"), Some(vec![Responses, ChatCompletions]));
}

#[test]
fn inputs_of_rule_over_kind() {
    use super::ModelInput::{Image, Pdf, Text};
    let mut table = table();
    let inputs = |table: &ModelTable, model| table.resolve(model).map(|route| route.inputs.to_vec());
    assert_eq!(inputs(&table, "claude-x"), Some(vec![Text, Image, Pdf]));
    assert_eq!(inputs(&table, "openai:gpt"), Some(vec![Text, Image, Pdf]));
    assert_eq!(inputs(&table, "qwen"), Some(vec![Text]));
    for rule in &mut table.rules {
        rule.inputs = Some(vec![Image]);
    }
    assert_eq!(inputs(&table, "qwen"), Some(vec![Image]));
}

#[test]
fn only_provider_needs_exactly_one() {
    let mut table = table();
    assert_eq!(table.only_provider(), None);
    table.providers.retain(|name, _| name == "openai");
    assert_eq!(table.only_provider().map(|route| route.provider), Some("openai"));
    table.providers.clear();
    assert_eq!(table.only_provider(), None);
}

fn config() -> serde_json::Value {
    json!({
        "identity": {"mode": "header", "user": "x-user", "workspace": "x-workspace"},
        "models": {"providers": {"p": {"kind": "anthropic"}}, "rules": [{"pattern": "*", "provider": "p"}]},
        "max_body_bytes": 1024,
        "policy": {"cluster": "sidecar", "authority": "sidecar", "path": "/otari/internal/snapshot",
                   "poll_ms": 1000, "max_age_ms": 5000, "hop_secret": "s3cret"},
        "providers_routed": true,
    })
}

#[test]
fn a_configuration_survives_its_own_writing() {
    let read = FilterConfig::parse(config().to_string().as_bytes()).unwrap();
    assert_eq!(read.roots, ["/v1", "/api/v1"]);
    assert!(!format!("{read:?}").contains("s3cret"));
    let written = serde_json::to_vec(&read).unwrap();
    assert_eq!(FilterConfig::parse(&written).unwrap(), read);
}

#[test]
fn contradictions_are_refused_by_name() {
    for (pointer, value, named) in [
        ("/models/rules/0/provider", json!("q"), "`q`"),
        ("/roots", json!(["v1"]), "`v1`"),
        ("/roots", json!(["/v1/"]), "`/v1/`"),
        ("/identity/user", json!("X-User"), "`X-User`"),
        ("/identity/workspace", json!(""), "``"),
        ("/surprise", json!(1), "surprise"),
        ("/identity", json!({"mode": "maybe"}), "maybe"),
    ] {
        let mut config = config();
        match config.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => {
                config.as_object_mut().unwrap().insert(pointer.trim_start_matches('/').to_owned(), value);
            }
        }
        let error = FilterConfig::parse(config.to_string().as_bytes()).unwrap_err();
        assert!(error.contains(named), "{pointer}: {error}");
    }
}
