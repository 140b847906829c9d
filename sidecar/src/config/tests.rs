//! The file, the environment, and everything that can be wrong with them.

mod problems;

use expect_test::{Expect, expect};

use super::*;

const DESIGN: &str = r#"
listen: 127.0.0.1:8080
data_dir: ./.otari
database_url: sqlite
identity: {mode: otari_key}
providers:
  anthropic: {type: anthropic, base_url: "https://api.anthropic.com", api_key_env: ANTHROPIC_API_KEY}
  openai:    {type: openai, base_url: "https://api.openai.com", api_key_env: OPENAI_API_KEY}
  local:     {type: openai_compatible, base_url: "http://127.0.0.1:11434", wires: [chat_completions]}
models:
  - {match: "claude-*", provider: anthropic}
  - {match: "gpt-*", provider: openai}
  - {match: "*", provider: local}
code_execution_executor: auto
sandbox: {backend: embedded}
files: {url: "file://files", max_bytes: 536870912, output_max_files: 20, output_max_bytes: 67108864, retention_hours: null, sweep_interval_sec: 3600}
"#;

fn env(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn check(text: &str, pairs: &[(&str, &str)], expected: Expect) {
    let problems = Config::parse(text, &env(pairs)).err().unwrap_or_default();
    let lines: Vec<_> = problems.iter().map(|problem| problem.to_string() + "\n").collect();
    expected.assert_eq(&lines.concat());
}

#[test]
fn the_file_of_the_design_is_good() {
    let config = Config::parse(DESIGN, &Environment::default()).unwrap();
    assert_eq!(config.listen.port(), 8080);
    assert!(config.providers["openai"].wires.contains(&ApiFormat::Responses));
    assert_eq!(config.models.len(), 3);
    let files = config.files.unwrap();
    assert_eq!(files.store, StoreTarget::Local(config.data_dir.join("files")));
    assert_eq!((files.limits.max_bytes, files.limits.output_max_files), (512 << 20, 20));
    assert_eq!(files.limits.retention, None, "null is unset");
    assert_eq!(files.sweep_interval, Some(Duration::from_hours(1)));
    assert_eq!(config.max_body_bytes, 64 << 20);
    assert!(config.data_dir.is_absolute());
    assert_eq!(config.sidecar_listen, ListenAddress::Unix(config.data_dir.join("sidecar.sock")));
}

#[test]
fn an_empty_file_is_all_defaults() {
    let config = Config::parse("", &Environment::default()).unwrap();
    assert_eq!(config.identity, IdentityConfig::OtariKey);
    assert_eq!(config.tool_loop.max_calls_per_turn, Limits::default().max_calls_per_turn);
    assert_eq!(config.upstream.header_timeout, ModelLimits::default().header_timeout);
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn files_can_be_off_and_so_can_their_sweep() {
    let files = |text: &str| Config::parse(text, &Environment::default()).unwrap().files;
    assert!(files("files: {enabled: false}").is_none());
    assert_eq!(files("files: {sweep_interval_sec: 0}").unwrap().sweep_interval, None);
    assert_eq!(files("files: {url: \"memory://\"}").unwrap().store, StoreTarget::Memory);
    assert_eq!(files("files: {url: \"file:///srv/blobs\"}").unwrap().store, StoreTarget::Local("/srv/blobs".into()));
    check(
        r#"files: {enabled: false, url: "ftp://user:canary@host/x", max_bytes: 0}"#,
        &[],
        expect![[r"
            files.url: `ftp://(hidden)@host/x`: write file://FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, sftp://USER@HOST:PORT/FOLDER or memory://
            files.max_bytes: `0`: write a whole number from 1 to 1099511627776
        "]],
    );
}

#[test]
fn options_of_a_store_come_from_three_places_and_secrets_only_from_the_environment() {
    let text = r#"
files:
  url: "s3://bucket/prefix"
  options: {region: eu-central-1, endpoint: "http://127.0.0.1:1", allow_http: true}
  options_env: {secret_access_key: STORE_SECRET}
"#;
    let pairs = [("AWS_ACCESS_KEY_ID", "canary-1"), ("STORE_SECRET", "canary-2"), ("AWS_PROFILE", "canary-3")];
    let config = Config::parse(text, &env(&pairs)).unwrap();
    let shown = format!("{:?}", config.files.unwrap().store);
    assert!(
        shown.contains(r#"{"allow_http", "aws_access_key_id", "endpoint", "region", "secret_access_key"}"#),
        "{shown}"
    );
    assert!(!shown.contains("canary"), "{shown}");
    check(
        r#"
files:
  url: "az://container"
  options: {account_key: canary, regoin: canary, endpoint: [1], account_name: me}
  options_env: {sas_key: "canary", client_secret: ABSENT, nothing: STORE_SECRET}
"#,
        &pairs,
        expect![[r"
            files.options.account_key: `(hidden)`: a secret does not belong here: write `files.options_env.account_key` and a variable's name
            files.options.regoin: this store has no such option: docs/files.md says where they are named
            files.options.endpoint: `a list`: write some text
            files.options_env.sas_key: `(hidden)`: write the name of an environment variable (A-Z, 0-9 and _) that holds the secret
            files.options_env.client_secret: `ABSENT`: set the environment variable ABSENT, or leave this key out
            files.options_env.nothing: this store has no such option: docs/files.md says where they are named
        "]],
    );
    check(
        "files: {options: {region: here}, options_env: {}}",
        &[],
        expect![[r"
        files.options: means nothing with this files.url: take it out
    "]],
    );
    for (url, good) in [
        ("gcs://bucket/a/b", true),
        ("abfs://container@account.dfs.core.windows.net/x", true),
        ("sftp://ann@host:2222/srv", true),
        ("s3://", false),
        ("s3://bucket?secret=canary", false),
        ("s3://key:canary@bucket", false),
        ("ftp://host", false),
        ("files", false),
        ("file://", false),
    ] {
        let problems = Config::parse("", &env(&[("OTARI_FILES_URL", url)])).err().unwrap_or_default();
        assert_eq!(problems.is_empty(), good, "{url}: {problems:?}");
        assert!(problems.iter().all(|problem| !problem.to_string().contains("canary")), "{problems:?}");
    }
}

#[test]
fn one_workspace_gets_a_share_of_the_sessions() {
    let share = |text: &str| Config::parse(text, &Environment::default()).unwrap().sandbox.max_sessions_per_workspace;
    assert_eq!(share(""), 8);
    assert_eq!(share("sandbox: {max_sessions: 3}"), 1);
    assert_eq!(share("sandbox: {max_sessions: 3, max_sessions_per_workspace: 3}"), 3);
    assert_eq!(share("identity: {mode: none}"), 32);
    check(
        "sandbox: {max_sessions: 3, max_sessions_per_workspace: 4}",
        &[],
        expect![[r"
        sandbox.max_sessions_per_workspace: `4`: write no more than sandbox.max_sessions, or more there
    "]],
    );
}

#[test]
fn the_filters_own_check_accepts_what_is_rendered() {
    let config = Config::parse(DESIGN, &Environment::default()).unwrap();
    let rendered = serde_json::to_vec(&config.filter_config(&Secret::new("hop"))).unwrap();
    assert_eq!(FilterConfig::parse(&rendered), Ok(config.filter_config(&Secret::new("hop"))));
}

#[test]
fn the_environment_wins_over_the_file() {
    let pairs = [
        ("OTARI_LISTEN", "127.0.0.1:9"),
        ("OTARI_SANDBOX_BACKEND", "NONE"),
        ("OTARI_CODE_EXECUTION_EXECUTOR", " Provider "),
        ("OTARI_POLICY_POLL_MS", "50"),
        ("OTARI_BOOTSTRAP_KEY", "sixteen-chars-ok"),
        ("OTARI_MISSPELT", "x"),
    ];
    let config = Config::parse(DESIGN, &env(&pairs)).unwrap();
    assert_eq!(config.listen.port(), 9);
    assert!(matches!(config.sandbox.backend, SandboxBackendConfig::None));
    assert_eq!(config.code_execution_executor, Preference::Provider);
    assert_eq!(config.policy.poll, Duration::from_millis(50));
    assert_eq!(config.bootstrap_key.unwrap().expose(), "sixteen-chars-ok");
    assert!(config.warnings.iter().any(|warning| warning.contains("OTARI_MISSPELT")), "{:?}", config.warnings);
}

#[test]
fn a_database_is_sqlite_or_postgresql_and_its_password_is_never_shown() {
    let database = |url: &str| {
        let config = Config::parse("", &env(&[("OTARI_DATABASE_URL", url)])).unwrap();
        assert!(!format!("{config:?}").contains("canary"), "{config:?}");
        config.database
    };
    for url in ["postgres://ann:canary@db:5432/otari?sslmode=verify-full", "postgresql:///otari?host=/run/canary"] {
        assert!(matches!(database(url), Database::Postgres(_)), "{url}");
    }
    assert!(matches!(database("sqlite"), Database::Sqlite(path) if path.ends_with("otari.db")));
    for url in ["mysql://ann:canary@db/otari", "postgres://ann:canary@db:many/otari", "sqlite://canary.db", "canary"] {
        let problems = Config::parse("", &env(&[("OTARI_DATABASE_URL", url)])).unwrap_err();
        let text = problems[0].to_string();
        assert!(
            problems.len() == 1 && text.contains("postgres://user:password@") && !text.contains("canary"),
            "{text}"
        );
    }
}

#[test]
fn a_socket_path_that_is_too_long_is_told_before_binding_fails() {
    let text = format!("data_dir: /tmp/{}", "x".repeat(100));
    let problems = Config::parse(&text, &Environment::default()).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].key, "data_dir");
}

#[test]
fn what_is_not_yaml_or_not_a_mapping_is_told() {
    check(
        "- a\n- b",
        &[],
        expect![[r"
        (file): `a list`: write a mapping of keys, such as `listen: 127.0.0.1:8080`
    "]],
    );
    check(
        "just words",
        &[],
        expect![[r"
        (file): `just words`: write a mapping of keys, such as `listen: 127.0.0.1:8080`
    "]],
    );
    let broken = Config::parse("a: [1\nb: secret-value", &Environment::default()).unwrap_err();
    assert_eq!(broken.len(), 1);
    assert!(!broken[0].to_string().contains("secret-value"), "{}", broken[0]);
    let twice = Config::parse("listen: 127.0.0.1:1\nlisten: 127.0.0.1:2", &Environment::default()).unwrap_err();
    assert_eq!(twice.len(), 1);
}

#[test]
fn configuration_page_is_fresh() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let written = std::fs::read_to_string(&page).unwrap_or_default();
    if written == reference::markdown() {
        return;
    }
    let asked = Environment::of_process().get("OTARI_WRITE_DOCS").is_some();
    assert!(asked, "docs/configuration.md is out of date: OTARI_WRITE_DOCS=1 cargo test -p sidecar configuration_page");
    std::fs::create_dir_all(page.parent().unwrap()).unwrap();
    std::fs::write(&page, reference::markdown()).unwrap();
}

#[test]
fn every_key_is_read() {
    // A key that nothing reads would accept any value: give each one that its kind refuses.
    for key in keys::ALL {
        if matches!(key.kind, keys::Kind::Text | keys::Kind::Path) {
            continue;
        }
        let pairs = [(key.env_name(), "\u{1}not a value".to_owned())];
        let problems = Config::parse("", &pairs.into_iter().collect()).err().unwrap_or_default();
        assert!(problems.iter().any(|problem| problem.key == key.env_name()), "{} is not read", key.path);
    }
}
