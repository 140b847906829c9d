//! From text to a checked `Config`: section by section, then what contradicts what.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use decision::config::IdentityConfig;
use decision::policy::Preference;
use serde_json::Value;

use super::problem::HIDDEN;
use super::reader::{Reader, shown};
use super::share::{self, Usual};
use super::{
    Config, ConfigProblem, Environment, HttpConfig, ListenAddress, LogConfig, PolicyConfig, Secret, ServeConfig,
    containers, files, keys, models, sandbox, tool_loop,
};
use crate::repository::Database;
use crate::stored::StoredLimits;
use crate::upstream::ModelLimits;

const BOOTSTRAP_KEY: &str = "OTARI_BOOTSTRAP_KEY";
const MASTER_KEY: &str = "OTARI_MASTER_KEY";
/// Shortest key a person may choose; ours have 128 random bits.
const SECRET_MIN_CHARS: usize = 16;
pub(super) const STRONG: &str = "at least 16 visible ASCII characters without blanks and commas";
/// The system's limit on the path of a Unix socket.
const SOCKET_PATH_MAX_BYTES: usize = 107;

/// Reads and checks everything.
pub(super) fn read(text: &str, env: &Environment) -> Result<Config, Vec<ConfigProblem>> {
    let file: Value = if text.trim().is_empty() {
        Value::Null
    } else {
        // A syntax error hides what comes after it, so it is reported alone; its snippet may show a secret, so it is not.
        serde_saphyr::from_str(text).map_err(|error| {
            let fix = format!("the file is not YAML this version reads: {}", error.without_snippet());
            vec![ConfigProblem::new("(file)", "", fix)]
        })?
    };
    let mut reader = Reader::new(file, env);
    let config = read_config(&mut reader);
    check(&mut reader, &config);
    reader.finish().map(|()| config)
}

fn read_config(reader: &mut Reader<'_>) -> Config {
    let data_dir = reader.path(&keys::DATA_DIR);
    let sidecar_socket = || ListenAddress::Unix(data_dir.join("sidecar.sock"));
    let providers = models::read_providers(reader);
    let models = models::read_models(reader, &providers);
    let identity = read_identity(reader);
    let sandbox = sandbox::read(reader, &data_dir, &identity);
    let tool_loop = tool_loop::read(reader);
    Config {
        listen: reader.address(&keys::LISTEN),
        database: read_database(reader, &data_dir),
        sidecar_listen: reader.listener(&keys::SIDECAR_LISTEN).unwrap_or_else(sidecar_socket),
        model_url: reader.url(&keys::MODEL_URL),
        hop_secret: reader.secret(&keys::HOP_SECRET_ENV),
        max_body_bytes: reader.integer(&keys::MAX_BODY_BYTES),
        roots: read_roots(reader),
        code_execution_executor: preference(reader.choice(&keys::CODE_EXECUTION_EXECUTOR)),
        explain: reader.boolean(&keys::EXPLAIN),
        providers,
        models,
        policy: read_policy(reader),
        containers: containers::read(reader, &sandbox),
        sandbox,
        tool_loop,
        stored: StoredLimits {
            retention: Duration::from_hours(reader.integer(&keys::RESPONSES_RETENTION_HOURS)),
            max_bytes: reader.size(&keys::RESPONSES_MAX_BYTES),
            max_workspace_bytes: reader.integer(&keys::RESPONSES_WORKSPACE_MAX_BYTES),
        },
        files: files::read(reader, &data_dir, &identity),
        upstream: ModelLimits {
            connect_timeout: millis(reader, &keys::UPSTREAM_CONNECT_TIMEOUT_MS),
            header_timeout: millis(reader, &keys::UPSTREAM_HEADER_TIMEOUT_MS),
            idle_timeout: millis(reader, &keys::UPSTREAM_IDLE_TIMEOUT_MS),
        },
        http: read_http(reader, &identity),
        log: LogConfig {
            json: reader.choice(&keys::LOG_FORMAT) == "json",
            level: reader.required_text(&keys::LOG_LEVEL),
        },
        bootstrap_key: read_key(reader, BOOTSTRAP_KEY),
        master_key: read_key(reader, MASTER_KEY),
        warnings: ignored_environment(reader.env()),
        identity,
        data_dir,
    }
}

fn read_http(reader: &mut Reader<'_>, identity: &IdentityConfig) -> HttpConfig {
    let max_buffered_bytes = reader.integer(&keys::HTTP_MAX_BUFFERED_BYTES);
    // One body of the largest size has to fit in any case.
    let usual = Usual { part: 2, least: reader.integer(&keys::MAX_BODY_BYTES) };
    let all = (&keys::HTTP_MAX_BUFFERED_BYTES, max_buffered_bytes);
    let share = share::read(reader, identity, all, &keys::HTTP_MAX_BUFFERED_BYTES_PER_WORKSPACE, usual);
    HttpConfig {
        max_connections: reader.size(&keys::HTTP_MAX_CONNECTIONS),
        max_buffered_bytes,
        max_buffered_bytes_per_workspace: share,
        header_timeout: millis(reader, &keys::HTTP_HEADER_TIMEOUT_MS),
        body_timeout: millis(reader, &keys::HTTP_BODY_TIMEOUT_MS),
        body_deadline: millis(reader, &keys::HTTP_BODY_DEADLINE_MS),
        upload_deadline: millis(reader, &keys::FILES_UPLOAD_DEADLINE_MS),
        upload_min_bytes_per_s: reader.integer(&keys::FILES_UPLOAD_MIN_BYTES_PER_S),
        stall_timeout: millis(reader, &keys::HTTP_STALL_TIMEOUT_MS),
        drain_timeout: millis(reader, &keys::HTTP_DRAIN_TIMEOUT_MS),
    }
}

fn read_database(reader: &mut Reader<'_>, data_dir: &Path) -> Database {
    let url = reader.required_text(&keys::DATABASE_URL);
    Database::parse(&url, data_dir).unwrap_or_else(|fix| {
        reader.problem(keys::DATABASE_URL.path, HIDDEN, fix);
        Database::Sqlite(data_dir.to_owned())
    })
}

fn read_roots(reader: &mut Reader<'_>) -> Vec<String> {
    let list = match reader.table("roots") {
        None => return decision::config::default_roots(),
        Some(Value::Array(list)) if !list.is_empty() => list,
        Some(other) => {
            reader.problem("roots", shown(&other), "write a list of path prefixes, such as [/v1, /api/v1]");
            return Vec::new();
        }
    };
    let mut roots = Vec::new();
    for value in list {
        match value.as_str().filter(|root| is_root(root)) {
            Some(root) => roots.push(root.to_owned()),
            None => reader.problem("roots", shown(&value), "start it with a slash, end it without one, as in /v1"),
        }
    }
    roots
}

fn is_root(root: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    root.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|segment| !matches!(segment, "" | "." | "..") && segment.bytes().all(plain))
    })
}

fn read_identity(reader: &mut Reader<'_>) -> IdentityConfig {
    let mode = reader.choice(&keys::IDENTITY_MODE);
    let user = reader.header_name(&keys::IDENTITY_USER_HEADER);
    let workspace = reader.header_name(&keys::IDENTITY_WORKSPACE_HEADER);
    for key in [&keys::IDENTITY_USER_HEADER, &keys::IDENTITY_WORKSPACE_HEADER] {
        match (mode, reader.is_set(key)) {
            ("header", false) => reader.problem(key.path, "", "name the header your own authentication writes"),
            ("header", true) | (_, false) => {}
            (mode, true) => reader.problem(
                key.path,
                "",
                format!("means nothing with mode {mode}: take it out, or write mode: header"),
            ),
        }
    }
    match mode {
        "header" => {
            let (user, workspace) = (user.unwrap_or_default(), workspace.unwrap_or_default());
            if !user.is_empty() && user == workspace {
                reader.problem(
                    keys::IDENTITY_WORKSPACE_HEADER.path,
                    &workspace,
                    "name another header than user_header",
                );
            }
            IdentityConfig::Header { user, workspace }
        }
        "none" => IdentityConfig::None,
        _ => IdentityConfig::OtariKey,
    }
}

fn read_policy(reader: &mut Reader<'_>) -> PolicyConfig {
    let mut static_pins = BTreeMap::new();
    match reader.table("policy.static_pins") {
        None => {}
        Some(Value::Object(pins)) => {
            for (workspace, word) in pins {
                match word.as_str().and_then(|word| Preference::parse(word.as_bytes())) {
                    Some(pin) => drop(static_pins.insert(workspace, pin)),
                    None => reader.problem(
                        format!("policy.static_pins.{workspace}"),
                        shown(&word),
                        format!("write {}", Preference::WORDS),
                    ),
                }
            }
        }
        Some(other) => {
            let fix = format!("write a mapping from workspace to {}", Preference::WORDS);
            reader.problem("policy.static_pins", shown(&other), fix);
        }
    }
    PolicyConfig {
        poll: millis(reader, &keys::POLICY_POLL_MS),
        max_age: millis(reader, &keys::POLICY_MAX_AGE_MS),
        static_pins,
    }
}

/// What is right by itself and wrong together.
fn check(reader: &mut Reader<'_>, config: &Config) {
    if matches!(config.identity, IdentityConfig::None) && !config.listen.ip().is_loopback() {
        let fix = "anybody who reaches this address could run code: write otari_key or header, or listen on 127.0.0.1";
        reader.problem(keys::IDENTITY_MODE.path, "none", fix);
    }
    if config.policy.max_age < config.policy.poll * 2 {
        let fix = "a snapshot would be too old before the next poll: write at least twice policy.poll_ms";
        reader.problem(keys::POLICY_MAX_AGE_MS.path, config.policy.max_age.as_millis().to_string(), fix);
    }
    if config.model_url.is_some() {
        for (index, _) in config.models.iter().enumerate().filter(|(_, rule)| rule.upstream_model.is_some()) {
            let fix = "means nothing with model_url, for the mesh's routes know the caller's name: take it out";
            reader.problem(format!("models[{index}].upstream_model"), "", fix);
        }
    }
    if config.http.max_buffered_bytes < config.max_body_bytes {
        let fix = "a body of max_body_bytes would never fit: write at least as much here, or less there";
        reader.problem(keys::HTTP_MAX_BUFFERED_BYTES.path, config.http.max_buffered_bytes.to_string(), fix);
    }
    if config.http.max_buffered_bytes_per_workspace < config.max_body_bytes
        && config.max_body_bytes <= config.http.max_buffered_bytes
    {
        let fix = "a body of max_body_bytes would never fit: write at least as much here, or less there";
        let share = config.http.max_buffered_bytes_per_workspace.to_string();
        reader.problem(keys::HTTP_MAX_BUFFERED_BYTES_PER_WORKSPACE.path, share, fix);
    }
    let mut sockets = vec![(keys::DATA_DIR.path, config.model_socket()), (keys::DATA_DIR.path, config.admin_socket())];
    if let ListenAddress::Unix(path) = &config.sidecar_listen {
        let from_data_dir = path.starts_with(&config.data_dir);
        let key = if from_data_dir { keys::DATA_DIR.path } else { keys::SIDECAR_LISTEN.path };
        sockets.push((key, path.clone()));
    }
    if let Some(ServeConfig { address: ListenAddress::Unix(path), .. }) = &config.sandbox.serve {
        if config.sidecar_listen == ListenAddress::Unix(path.clone()) {
            let fix = "the sidecar listens there for Envoy: choose another path";
            reader.problem(keys::SANDBOX_SERVE.path, path.display().to_string(), fix);
        }
        sockets.push((keys::SANDBOX_SERVE.path, path.clone()));
    }
    let length = |path: &PathBuf| path.as_os_str().len();
    if let Some((key, path)) = sockets.into_iter().max_by_key(|(_, path)| length(path))
        && length(&path) > SOCKET_PATH_MAX_BYTES
    {
        let fix = format!("choose a shorter path: a socket's may have {SOCKET_PATH_MAX_BYTES} bytes");
        reader.problem(key, path.display().to_string(), fix);
    }
    if tracing_subscriber::EnvFilter::try_new(&config.log.level).is_err() {
        reader.problem(
            keys::LOG_LEVEL.path,
            &config.log.level,
            "write error, warn, info, debug or trace, or directives",
        );
    }
}

fn read_key(reader: &mut Reader<'_>, name: &str) -> Option<Secret> {
    let text = reader.env().get(name)?;
    if !is_strong(text) {
        reader.problem(name, HIDDEN, format!("choose {STRONG}"));
    }
    Some(Secret::new(text))
}

/// A comma in a bearer token means two of them.
pub(super) fn is_strong(secret: &str) -> bool {
    secret.len() >= SECRET_MIN_CHARS && secret.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

/// A person may have misspelt one.
fn ignored_environment(env: &Environment) -> Vec<String> {
    let known: Vec<_> = keys::ALL.iter().map(keys::Key::env_name).collect();
    env.names("OTARI_")
        .filter(|name| *name != BOOTSTRAP_KEY && *name != MASTER_KEY && !known.iter().any(|known| known == name))
        .map(|name| format!("the variable {name} starts with OTARI_ but is no key of the configuration"))
        .collect()
}

fn preference(word: &str) -> Preference {
    Preference::parse(word.as_bytes()).unwrap_or(Preference::Auto)
}

pub(super) fn millis(reader: &mut Reader<'_>, key: &keys::Key) -> Duration {
    Duration::from_millis(reader.integer(key))
}
