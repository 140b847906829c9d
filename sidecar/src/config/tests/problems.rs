//! What is wrong in a file is told all at once, with what to write instead.

use expect_test::expect;

use super::*;

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
