use std::collections::BTreeMap;
use std::path::PathBuf;

use decision::config::{FilterConfig, IdentityConfig, ModelRule, ModelTable, PolicySource, ProviderInfo, ProviderKind};
use expect_test::expect_file;
use serde_json::{Value, json};

use super::{EnvoyConfigInput, EnvoyProvider, EnvoyTimeouts, ListenAddress, RenderError, bootstrap, render};

/// The configuration whose rendering stands in `envoy/`.
fn example() -> EnvoyConfigInput {
    let provider = |name: &str, kind, base_url: &str, api_key_env: Option<&str>| EnvoyProvider {
        name: name.to_owned(),
        kind,
        base_url: base_url.to_owned(),
        api_key_env: api_key_env.map(str::to_owned),
    };
    let providers = vec![
        provider("anthropic", ProviderKind::Anthropic, "https://api.anthropic.com", Some("ANTHROPIC_API_KEY")),
        provider("openai", ProviderKind::Openai, "https://api.openai.com", Some("OPENAI_API_KEY")),
        provider("local", ProviderKind::OpenaiCompatible, "http://127.0.0.1:11434", None),
    ];
    let rule = |pattern: &str, provider: &str| ModelRule {
        pattern: pattern.to_owned(),
        provider: provider.to_owned(),
        upstream_model: None,
        wires: None,
    };
    EnvoyConfigInput {
        listen: "127.0.0.1:8080".parse().unwrap(),
        admin_socket: PathBuf::from("/run/otari/admin.sock"),
        sidecar: ListenAddress::Unix(PathBuf::from("/run/otari/sidecar.sock")),
        model_socket: PathBuf::from("/run/otari/model.sock"),
        hop_secret: "change-me".to_owned(),
        filter: FilterConfig {
            identity: IdentityConfig::OtariKey,
            models: ModelTable {
                providers: providers
                    .iter()
                    .map(|provider| (provider.name.clone(), ProviderInfo { kind: provider.kind, wires: Vec::new() }))
                    .collect(),
                rules: vec![rule("claude-*", "anthropic"), rule("gpt-*", "openai"), rule("*", "local")],
            },
            roots: decision::config::default_roots(),
            max_body_bytes: 64 * 1024 * 1024,
            policy: PolicySource {
                cluster: "sidecar".to_owned(),
                authority: "sidecar".to_owned(),
                path: "/otari/internal/snapshot".to_owned(),
                poll_ms: 1000,
                max_age_ms: 30_000,
                hop_secret: "change-me".to_owned(),
            },
            static_pins: BTreeMap::new(),
            providers_routed: true,
            explain: false,
        },
        providers,
        ca_bundle: PathBuf::from("/etc/ssl/certs/ca-certificates.crt"),
        wasm_path: PathBuf::from("/etc/otari/filter.wasm"),
        timeouts: EnvoyTimeouts::default(),
    }
}

fn rendered(change: impl FnOnce(&mut EnvoyConfigInput)) -> Value {
    let mut input = example();
    change(&mut input);
    bootstrap(&input).unwrap()
}

fn routes(bootstrap: &Value, listener: usize) -> Vec<Value> {
    let hcm = &bootstrap["static_resources"]["listeners"][listener]["filter_chains"][0]["filters"][0]["typed_config"];
    hcm["route_config"]["virtual_hosts"][0]["routes"].as_array().unwrap().clone()
}

fn provider_routes(bootstrap: &Value, provider: &str) -> Vec<Value> {
    routes(bootstrap, 0).into_iter().filter(|route| route["route"]["cluster"] == json!(provider)).collect()
}

#[test]
fn the_committed_default_is_fresh() {
    expect_file!["../../../envoy/envoy.yaml"].assert_eq(&render(&example()).unwrap());
}

#[test]
fn the_yaml_says_what_was_meant() {
    let yaml = render(&example()).unwrap();
    let read: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(read, bootstrap(&example()).unwrap());
}

#[test]
fn every_route_leads_to_a_cluster_or_nowhere() {
    let bootstrap = rendered(|_| {});
    let clusters = bootstrap["static_resources"]["clusters"].as_array().unwrap();
    let mut known: Vec<&Value> = clusters.iter().map(|cluster| &cluster["name"]).collect();
    let nowhere = json!(super::routes::NOWHERE);
    assert!(!known.contains(&&nowhere));
    known.push(&nowhere);
    for route in routes(&bootstrap, 0).iter().chain(&routes(&bootstrap, 1)) {
        assert!(route.get("direct_response").is_some() || known.contains(&&route["route"]["cluster"]), "{route}");
    }
}

#[test]
fn the_hop_secret_goes_to_the_sidecar_alone() {
    let bootstrap = rendered(|_| {});
    for listener in 0..2 {
        for route in routes(&bootstrap, listener) {
            let to_sidecar =
                route["route"]["cluster"] == json!("sidecar") && route["match"]["path"] != json!("/healthz");
            assert_eq!(route.to_string().contains("change-me"), to_sidecar, "{route}");
        }
    }
}

#[test]
fn only_the_sidecars_own_paths_pass_the_filter_by() {
    for route in routes(&rendered(|_| {}), 0) {
        let unfiltered = route.get("typed_per_filter_config").is_some();
        let when = &route["match"];
        let own_path = when.get("path_separated_prefix").is_some() && route.get("route").is_some();
        assert_eq!(unfiltered, own_path || when.get("safe_regex").is_some(), "{route}");
        // What passes the filter by is streamed; the rest may be held, up to the limit.
        let held = route.get("request_body_buffer_limit").is_some();
        assert!(!(unfiltered && held), "{route}");
    }
}

#[test]
fn internal_paths_are_hidden_before_the_sidecar_is_reached() {
    let routes = routes(&rendered(|_| {}), 0);
    let place = |when: &Value| routes.iter().position(|route| &route["match"] == when).unwrap();
    let to_sidecar = |route: &Value| route["route"]["cluster"] == json!("sidecar");
    let internal = place(&json!({"path_separated_prefix": "/otari/internal"}));
    assert!(!routes[..internal].iter().any(|route| to_sidecar(route) && route["match"]["path"] != json!("/healthz")));
    let odd = place(&json!({"safe_regex": {"regex": super::routes::ODD_OTARI}}));
    assert!(odd < place(&json!({"path_separated_prefix": "/otari"})));
}

#[test]
fn a_clients_own_credential_comes_before_the_operators() {
    let bootstrap = rendered(|_| {});
    let routes = provider_routes(&bootstrap, "provider_anthropic");
    let headers: Vec<&Value> = routes.iter().map(|route| &route["match"]["headers"][1]["name"]).collect();
    assert_eq!(headers, [&json!("authorization"), &json!("x-api-key"), &Value::Null]);
    let added: Vec<bool> = routes.iter().map(|route| route.get("request_headers_to_add").is_some()).collect();
    assert_eq!(added, [false, false, true]);
    assert_eq!(routes[2]["request_headers_to_add"][0]["header"]["value"], json!("%ENVIRONMENT(ANTHROPIC_API_KEY)%"));
    let openai = &provider_routes(&bootstrap, "provider_openai")[2];
    assert_eq!(openai["request_headers_to_add"][0]["header"]["value"], json!("Bearer %ENVIRONMENT(OPENAI_API_KEY)%"));
    assert_eq!(provider_routes(&bootstrap, "provider_local").len(), 1);
}

#[test]
fn a_path_in_the_base_url_is_put_before_the_requests() {
    let rewrite = |url: &str| {
        let bootstrap = rendered(|input| input.providers[2].base_url = url.to_owned());
        provider_routes(&bootstrap, "provider_local")[0]["route"].get("regex_rewrite").cloned()
    };
    let expected =
        |regex: &str, substitution: &str| Some(json!({"pattern": {"regex": regex}, "substitution": substitution}));
    assert_eq!(rewrite("http://host:1"), None);
    assert_eq!(rewrite("http://host:1/"), None);
    assert_eq!(rewrite("http://host:1/proxy"), expected("^/", "/proxy/"));
    assert_eq!(rewrite("http://host:1/api/openai/v1"), expected("^(?:/v1|/api/v1)/", "/api/openai/v1/"));
}

#[test]
fn https_is_verified_by_name() {
    let bootstrap = rendered(|_| {});
    let clusters = bootstrap["static_resources"]["clusters"].as_array().unwrap();
    let tls = |name: &str| {
        let cluster = clusters.iter().find(|cluster| cluster["name"] == json!(name)).unwrap();
        cluster.get("transport_socket").map(|socket| socket["typed_config"].clone())
    };
    let openai = tls("provider_openai").unwrap();
    assert_eq!(openai["sni"], json!("api.openai.com"));
    let checked = &openai["common_tls_context"]["validation_context"];
    assert_eq!(checked["match_typed_subject_alt_names"][0]["matcher"]["exact"], json!("api.openai.com"));
    assert_eq!(checked["trusted_ca"]["filename"], json!("/etc/ssl/certs/ca-certificates.crt"));
    assert_eq!(tls("provider_local"), None);
}

#[test]
fn nothing_is_tried_again() {
    let yaml = render(&example()).unwrap();
    assert!(!yaml.contains("retry_policy"));
    assert_eq!(yaml.matches("max_retries: 0").count(), 4);
}

#[test]
fn identity_headers_of_a_mesh_are_stripped_from_clients() {
    let identity = IdentityConfig::Header { user: "x-user".to_owned(), workspace: "x-workspace".to_owned() };
    let bootstrap = rendered(|input| input.filter.identity = identity);
    let manager = &bootstrap["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
    let stripped = manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"].to_string();
    for name in decision::header::INTERNAL.iter().chain(&["x-user", "x-workspace"]) {
        assert!(stripped.contains(&format!(r#"{{"remove":"{name}"}}"#)), "{name} in {stripped}");
    }
}

#[test]
fn a_url_that_is_none_names_its_provider() {
    let mut input = example();
    input.providers[0].base_url = "api.anthropic.com".to_owned();
    let error = render(&input).unwrap_err();
    assert!(matches!(&error, RenderError::BaseUrl { name, .. } if name == "anthropic"), "{error}");
}
