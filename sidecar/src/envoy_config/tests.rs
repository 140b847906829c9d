use std::path::Path;

use expect_test::expect_file;
use serde_json::{Value, json};

use super::{Surroundings, bootstrap, render};
use crate::config::{BaseUrl, Config, Environment, Secret};

/// The configuration whose rendering stands in `envoy/`.
const EXAMPLE: &str = r#"
data_dir: /run/otari
providers:
  anthropic: {type: anthropic, api_key_env: ANTHROPIC_API_KEY}
  openai: {type: openai, api_key_env: OPENAI_API_KEY}
  local: {type: openai_compatible, base_url: "http://127.0.0.1:11434"}
models:
  - {match: "claude-*", provider: anthropic}
  - {match: "gpt-*", provider: openai}
  - {match: "*", provider: local}
"#;

fn example() -> Config {
    Config::parse(EXAMPLE, &Environment::default()).unwrap()
}

fn with_surroundings<T>(render: impl FnOnce(Surroundings<'_>) -> T) -> T {
    render(Surroundings {
        hop_secret: &Secret::new("change-me"),
        wasm: Path::new("/etc/otari/filter.wasm"),
        ca_bundle: Path::new("/etc/ssl/certs/ca-certificates.crt"),
    })
}

fn yaml() -> String {
    with_surroundings(|around| render(&example(), around).unwrap())
}

fn rendered(change: impl FnOnce(&mut Config)) -> Value {
    let mut config = example();
    change(&mut config);
    with_surroundings(|around| bootstrap(&config, around).unwrap())
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
    expect_file!["../../../envoy/envoy.yaml"].assert_eq(&yaml());
}

#[test]
fn the_yaml_says_what_was_meant() {
    let read: Value = serde_saphyr::from_str(&yaml()).unwrap();
    assert_eq!(read, rendered(|_| {}));
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
        let own_prefix = |prefix: &Value| prefix != &json!("/");
        let own_path = when.get("path_separated_prefix").is_some() || when.get("prefix").is_some_and(own_prefix);
        let own_path = own_path && route.get("route").is_some();
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
        let bootstrap = rendered(|config| config.providers.get_mut("local").unwrap().base_url = BaseUrl::parse(url));
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
    let yaml = yaml();
    assert!(!yaml.contains("retry_policy"));
    assert_eq!(yaml.matches("max_retries: 0").count(), 5);
}

#[test]
fn identity_headers_of_a_mesh_are_stripped_from_clients() {
    let identity =
        decision::config::IdentityConfig::Header { user: "x-user".to_owned(), workspace: "x-workspace".to_owned() };
    let bootstrap = rendered(|config| config.identity = identity);
    let manager = &bootstrap["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
    let stripped = manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"].to_string();
    for name in decision::header::INTERNAL.iter().chain(&["x-user", "x-workspace"]) {
        assert!(stripped.contains(&format!(r#"{{"remove":"{name}"}}"#)), "{name} in {stripped}");
    }
}

#[test]
fn a_request_has_a_deadline_and_a_taken_one_is_served_to_its_end() {
    let deadlines = |body_ms, upload_ms| {
        let of = std::time::Duration::from_millis;
        rendered(move |config| (config.http.body_deadline, config.http.upload_deadline) = (of(body_ms), of(upload_ms)))
    };
    let bootstrap = deadlines(90_500, 1000);
    let uploads = deadlines(1000, 7_200_000);
    let uploads = &uploads["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
    assert_eq!(uploads["request_timeout"], json!("7200.000s"));
    let listeners = &bootstrap["static_resources"]["listeners"];
    let manager = |listener: usize| &listeners[listener]["filter_chains"][0]["filters"][0]["typed_config"];
    assert_eq!(manager(0)["request_timeout"], json!("90.500s"));
    assert_eq!(manager(1).get("request_timeout"), None);
    assert_eq!(listeners[0].get("bypass_overload_manager"), None);
    assert_eq!(listeners[1]["bypass_overload_manager"], json!(true));
}
