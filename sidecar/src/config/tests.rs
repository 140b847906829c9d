//! The file, the environment, and everything that can be wrong with them.

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
fn every_problem_is_told_at_once_and_no_secret_is_shown() {
    let text = r#"
listen: localhost
lissten: 127.0.0.1:1
data_dirr: secret-value
database_url: postgres://user:secret-value@host:many/db
api_key: secret-value
max_body_bytes: 12
explain: maybe
code_execution_executor: me
policy: {poll_ms: 5000, max_age_ms: 200, static_pins: {team: everybody}}
sandbox: {backend: http, token_env: sk-secret-value}
files: 5
providers:
  Bad Name: {type: anthropic}
  one: {type: openai_compatible, api_key: secret-value}
  two: {type: gemini, base_url: "https://user:secret-value@host", wires: [telnet]}
  three: {type: openai, api_key_env: sk-proj-secret-value, base_ulr: x}
  four: 7
models:
  - {match: "*", provider: nobody}
  - {match: "gpt-*", provider: three}
  - {provider: three, wires: []}
"#;
    let pairs = [
        ("OTARI_LOG_FORMAT", "xml"),
        ("OTARI_MASTER_KEY", "secret"),
        ("OTARI_BOOTSTRAP_KEY", "secret with blanks in"),
        ("OTARI_SANDBOX_MAX_SESSIONS", "many"),
    ];
    check(
        text,
        &pairs,
        expect![[r#"
            lissten: no such key; did you mean `listen`?
            data_dirr: no such key; did you mean `data_dir`?
            api_key: no such key; take it out (docs/configuration.md lists all keys)
            files: `5`: write a mapping with enabled, url, max_bytes, upload_deadline_ms, workspace_max_bytes, workspace_max_files, max_concurrent_uploads, max_concurrent_uploads_per_workspace, upload_min_bytes_per_s, output_max_files, output_max_bytes, retention_hours, sweep_interval_sec, inline_max_bytes, inline_max_request_bytes, text_max_chars, extraction, extraction_timeout_ms, extraction_max_bytes, extraction_max_concurrent, extraction_max_concurrent_per_workspace
            providers.Bad Name: `Bad Name`: name it with a-z, 0-9, _ and -, at most 40 of them
            providers.one.api_key: no such key; keys do not belong in this file: write `api_key_env` and a variable's name
            providers.one.base_url: write the server's address, such as "http://127.0.0.1:11434"
            providers.two.type: `gemini`: write one of anthropic, openai, openai_compatible
            providers.two.base_url: `https://(hidden)@host`: write an http:// or https:// URL without user, query or fragment
            providers.two.wires: `telnet`: write a list with some of messages, chat_completions, responses
            providers.three.base_ulr: no such key; did you mean `base_url`?
            providers.three.api_key_env: `(hidden)`: write the name of an environment variable (A-Z, 0-9 and _) that holds the key, not the key
            providers.four: `7`: write a mapping such as {type: openai_compatible, base_url: "http://127.0.0.1:11434"}
            models[0].provider: `nobody`: no provider of that name: write one of Bad Name, one, three, two
            models[1]: this rule never counts: models[0] matches every model; move it above that
            models[2]: this rule never counts: models[0] matches every model; move it above that
            models[2].match: write a model's name; `*` stands for any text
            models[2].wires: `a list`: write a list with some of messages, chat_completions, responses
            sandbox.token_env: `(hidden)`: write the name of an environment variable (A-Z, 0-9 and _) that holds the secret
            sandbox.url: write the address of the contract-v1 server
            OTARI_SANDBOX_MAX_SESSIONS: `many`: write a whole number from 1 to 4096
            listen: `localhost`: write an IP address and a port, such as 127.0.0.1:8080
            database_url: `(hidden)`: write sqlite, or the URL of a PostgreSQL database, as in postgres://user:password@host:5432/name
            max_body_bytes: `12`: write a whole number from 1024 to 1073741824
            code_execution_executor: `me`: write one of auto, otari, provider
            explain: `maybe`: write true or false
            policy.static_pins.team: `everybody`: write `auto`, `otari` or `provider`
            OTARI_LOG_FORMAT: `xml`: write one of text, json
            OTARI_BOOTSTRAP_KEY: `(hidden)`: choose at least 16 visible ASCII characters without blanks and commas
            OTARI_MASTER_KEY: `(hidden)`: choose at least 16 visible ASCII characters without blanks and commas
            policy.max_age_ms: `200`: a snapshot would be too old before the next poll: write at least twice policy.poll_ms
        "#]],
    );
    let problems = Config::parse(text, &env(&pairs)).unwrap_err();
    assert!(problems.iter().all(|problem| !problem.to_string().contains("secret-value")));
}

#[test]
fn a_list_of_words_names_each_once() {
    let text = r"
providers: {one: {type: openai}}
models: [{match: a, provider: one, inputs: [image, sound, image]}, {match: b, provider: one, inputs: [text]}]
";
    check(
        text,
        &[],
        expect![[r"
            models[0].inputs: `sound`: write a list with some of text, image, pdf
            models[0].inputs: `image`: name each once
        "]],
    );
}

#[test]
fn contradictions_are_problems() {
    let text = r#"
listen: 0.0.0.0:8080
identity: {mode: none, user_header: x-user}
sandbox: {backend: none, url: "http://127.0.0.1:1"}
http: {max_buffered_bytes: 65536}
hop_secret_env: HOP
"#;
    check(
        text,
        &[],
        expect![[r"
            identity.user_header: means nothing with mode none: take it out, or write mode: header
            sandbox.url: means nothing with backend none: take it out, or write backend: http
            hop_secret_env: `HOP`: set the environment variable HOP, or leave this key out
            identity.mode: `none`: anybody who reaches this address could run code: write otari_key or header, or listen on 127.0.0.1
            http.max_buffered_bytes: `65536`: a body of max_body_bytes would never fit: write at least as much here, or less there
        "]],
    );
    let mesh = r#"
model_url: http://mesh:8080
providers: {own: {type: openai_compatible}}
models: [{match: "a", provider: own}, {match: "b", provider: own, upstream_model: c}]
"#;
    check(
        mesh,
        &[],
        expect![[r"
        models[1].upstream_model: means nothing with model_url, for the mesh's routes know the caller's name: take it out
    "]],
    );
    check(
        "identity: {mode: header, user_header: x-user}",
        &[],
        expect![[r"
        identity.workspace_header: name the header your own authentication writes
    "]],
    );
    check(
        "identity: {mode: header, user_header: x-user, workspace_header: X-User}",
        &[],
        expect![[r"
        identity.workspace_header: `x-user`: name another header than user_header
    "]],
    );
    check("identity: {mode: header, user_header: x-user, workspace_header: x-team}", &[], expect![[""]]);
    check(
        "containers: {idle_seconds: 10, lifetime_seconds: 5, max_kept: 2, max_kept_per_workspace: 3}\n\
         sandbox: {serve: unix:/tmp/served.sock, advertise_url: \"http://replica:1\"}",
        &[],
        expect![[r"
            sandbox.advertise_url: nobody would be let in there: set sandbox.serve and sandbox.serve_token_env, the same token in all replicas, or take it out
            containers.idle_seconds: `10`: write no more than containers.lifetime_seconds, or more there
            containers.max_kept_per_workspace: `3`: write no more than containers.max_kept, or more there
        "]],
    );
}

#[test]
fn a_sandbox_is_served_on_a_socket_or_to_those_who_bring_a_strong_token() {
    let serve = |text: &str| Config::parse(text, &env(&[("T", "0123456789abcdef")])).unwrap().sandbox.serve.unwrap();
    assert!(serve("sandbox: {serve: 'unix:/run/x.sock'}").token.is_none());
    assert!(serve("sandbox: {serve: '0.0.0.0:1', serve_token_env: T}").token.is_some());
    assert!(serve("sandbox: {serve: 'unix:x', serve_token_env: T}").token.is_some());
    for (text, expected) in [
        (
            "sandbox: {serve: '127.0.0.1:1'}",
            expect![[r"
                sandbox.serve_token_env: whoever reaches a TCP address could run code: name the variable that holds a token, or serve on a Unix socket, as in sandbox.serve: unix:/path/to.sock
            "]],
        ),
        (
            "sandbox: {serve: '127.0.0.1:1', serve_token_env: WEAK}",
            expect![[r"
                sandbox.serve_token_env: `(hidden)`: let the variable hold at least 16 visible ASCII characters without blanks and commas
            "]],
        ),
        (
            "sandbox: {serve: '127.0.0.1:1', serve_token_env: UNSET}",
            expect![[r"
                sandbox.serve_token_env: `UNSET`: set the environment variable UNSET, or leave this key out
            "]],
        ),
        (
            "sandbox: {serve_token_env: T}",
            expect![[r"
                sandbox.serve_token_env: means nothing without sandbox.serve: take it out
            "]],
        ),
        (
            "sandbox: {backend: none, serve: 'unix:/x'}",
            expect![[r"
                sandbox.serve: means nothing with backend none, for only the embedded sandbox is served: take it out
            "]],
        ),
        (
            "{sidecar_listen: 'unix:/x', sandbox: {serve: 'unix:/x'}}",
            expect![[r"
                sandbox.serve: `/x`: the sidecar listens there for Envoy: choose another path
            "]],
        ),
    ] {
        check(text, &[("WEAK", "secret"), ("T", "0123456789abcdef")], expected);
    }
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
