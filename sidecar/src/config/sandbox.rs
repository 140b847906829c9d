//! `sandbox`: where code runs, within which limits, and to whom the embedded sandbox is served.

use std::path::Path;
use std::time::Duration;

use decision::config::IdentityConfig;
use serde_json::Value;

use super::problem::HIDDEN;
use super::read::{STRONG, is_strong, millis};
use super::reader::{Reader, shown};
use super::share::{self, Usual};
use super::{ListenAddress, SandboxBackendConfig, SandboxConfig, ServeConfig, keys};
use crate::sandbox::process::{ProcessSettings, RunAs, SandboxLimits};
use crate::sandbox::remote::{HttpLimits, HttpSettings};

/// What a workspace gets of the sessions, unless the file says otherwise.
const USUAL_SHARE: Usual = Usual { part: 4, least: 1 };
/// Longest name of a session image.
const IMAGE_MAX_CHARS: usize = 255;

/// Reads it. Everything is looked at, whatever the backend.
pub(super) fn read(reader: &mut Reader<'_>, data_dir: &Path, identity: &IdentityConfig) -> SandboxConfig {
    let backend = reader.choice(&keys::SANDBOX_BACKEND);
    let url = reader.server(&keys::SANDBOX_URL);
    let token = reader.secret(&keys::SANDBOX_TOKEN_ENV);
    if backend == "http" {
        if !reader.is_set(&keys::SANDBOX_URL) {
            reader.problem(keys::SANDBOX_URL.path, "", "write the address of the contract-v1 server");
        }
    } else {
        for key in [&keys::SANDBOX_URL, &keys::SANDBOX_TOKEN_ENV] {
            if reader.is_set(key) {
                let fix = format!("means nothing with backend {backend}: take it out, or write backend: http");
                reader.problem(key.path, "", fix);
            }
        }
    }
    let exec_timeout_s = reader.small(&keys::SANDBOX_EXEC_TIMEOUT_S);
    let embedded = read_embedded(reader, data_dir, exec_timeout_s);
    let limits = HttpLimits {
        connect_timeout: millis(reader, &keys::SANDBOX_CONNECT_TIMEOUT_MS),
        call_timeout: millis(reader, &keys::SANDBOX_CALL_TIMEOUT_MS),
        execute_grace: millis(reader, &keys::SANDBOX_EXECUTE_GRACE_MS),
        file_timeout: millis(reader, &keys::SANDBOX_FILE_TIMEOUT_MS),
        answer_bytes: reader.size(&keys::SANDBOX_MAX_ANSWER_BYTES),
    };
    SandboxConfig {
        max_sessions: embedded.limits.sessions,
        backend: match backend {
            "http" => SandboxBackendConfig::Http(HttpSettings {
                url: url.unwrap_or_default(),
                token: token.map(|token| token.expose().to_owned()),
                limits: limits.clone(),
            }),
            "none" => SandboxBackendConfig::None,
            _ => SandboxBackendConfig::Embedded(Box::new(embedded)),
        },
        exec_timeout_s,
        max_sessions_per_workspace: read_share(reader, identity),
        allowed_images: read_images(reader),
        serve: read_serve(reader, backend),
        http: limits,
    }
}

fn read_serve(reader: &mut Reader<'_>, backend: &str) -> Option<ServeConfig> {
    let address = reader.listener(&keys::SANDBOX_SERVE);
    let token = reader.secret(&keys::SANDBOX_SERVE_TOKEN_ENV);
    if backend != "embedded" && reader.is_set(&keys::SANDBOX_SERVE) {
        let fix = format!("means nothing with backend {backend}, for only the embedded sandbox is served: take it out");
        reader.problem(keys::SANDBOX_SERVE.path, "", fix);
    }
    let names_token = reader.is_set(&keys::SANDBOX_SERVE_TOKEN_ENV);
    if names_token && !reader.is_set(&keys::SANDBOX_SERVE) {
        reader.problem(keys::SANDBOX_SERVE_TOKEN_ENV.path, "", "means nothing without sandbox.serve: take it out");
    }
    if matches!(address, Some(ListenAddress::Tcp(_))) && !names_token {
        let fix = "whoever reaches a TCP address could run code: name the variable that holds a token, or serve on a Unix \
                   socket, as in sandbox.serve: unix:/path/to.sock";
        reader.problem(keys::SANDBOX_SERVE_TOKEN_ENV.path, "", fix);
    }
    if token.as_ref().is_some_and(|token| !is_strong(token.expose())) {
        let fix = format!("let the variable hold {STRONG}");
        reader.problem(keys::SANDBOX_SERVE_TOKEN_ENV.path, HIDDEN, fix);
    }
    let advertise_url = reader.url(&keys::SANDBOX_ADVERTISE_URL);
    if advertise_url.is_some() && !(names_token && reader.is_set(&keys::SANDBOX_SERVE)) {
        let fix = "nobody would be let in there: set sandbox.serve and sandbox.serve_token_env, the same token in all \
                   replicas, or take it out";
        reader.problem(keys::SANDBOX_ADVERTISE_URL.path, "", fix);
    }
    Some(ServeConfig { address: address?, token, advertise_url })
}

fn read_share(reader: &mut Reader<'_>, identity: &IdentityConfig) -> usize {
    let all = (&keys::SANDBOX_MAX_SESSIONS, reader.integer(&keys::SANDBOX_MAX_SESSIONS));
    let share = share::read(reader, identity, all, &keys::SANDBOX_MAX_SESSIONS_PER_WORKSPACE, USUAL_SHARE);
    usize::try_from(share).unwrap_or(usize::MAX)
}

fn read_embedded(reader: &mut Reader<'_>, data_dir: &Path, exec_timeout_s: u32) -> ProcessSettings {
    let run_as = reader.required_text(&keys::SANDBOX_RUN_AS);
    let run_as = RunAs::parse(&run_as).unwrap_or_else(|fix| {
        reader.problem(keys::SANDBOX_RUN_AS.path, run_as, fix);
        RunAs::NOBODY
    });
    ProcessSettings {
        data_dir: data_dir.to_owned(),
        bwrap: reader.path(&keys::SANDBOX_BWRAP),
        python: reader.path(&keys::SANDBOX_PYTHON),
        run_as,
        warm_sessions: reader.size(&keys::SANDBOX_WARM_SESSIONS),
        limits: SandboxLimits {
            wall: Duration::from_secs(exec_timeout_s.into()),
            memory_bytes: reader.integer(&keys::SANDBOX_MEMORY_BYTES),
            address_space_bytes: reader.integer(&keys::SANDBOX_ADDRESS_SPACE_BYTES),
            tasks: reader.small(&keys::SANDBOX_MAX_TASKS),
            open_files: reader.small(&keys::SANDBOX_MAX_OPEN_FILES),
            file_bytes: reader.integer(&keys::SANDBOX_MAX_FILE_BYTES),
            workspace_bytes: reader.integer(&keys::SANDBOX_WORKSPACE_BYTES),
            workspace_entries: reader.integer(&keys::SANDBOX_WORKSPACE_ENTRIES),
            tmp_bytes: reader.integer(&keys::SANDBOX_TMP_BYTES),
            output_bytes: reader.size(&keys::SANDBOX_MAX_OUTPUT_BYTES),
            code_bytes: reader.size(&keys::SANDBOX_MAX_CODE_BYTES),
            sessions: reader.size(&keys::SANDBOX_MAX_SESSIONS),
            idle: Duration::from_secs(reader.integer(&keys::SANDBOX_SESSION_IDLE_S)),
            lifetime: Duration::from_secs(reader.integer(&keys::SANDBOX_SESSION_LIFETIME_S)),
        },
    }
}

fn read_images(reader: &mut Reader<'_>) -> Vec<String> {
    let path = "sandbox.allowed_images";
    let list = match reader.table(path) {
        None => return Vec::new(),
        Some(Value::Array(list)) => list,
        Some(other) => {
            reader.problem(path, shown(&other), "write a list of image names");
            return Vec::new();
        }
    };
    let mut images = Vec::new();
    for value in list {
        match value.as_str().filter(|image| (1..=IMAGE_MAX_CHARS).contains(&image.len())) {
            Some(image) => images.push(image.to_owned()),
            None => {
                reader.problem(path, shown(&value), format!("write image names of up to {IMAGE_MAX_CHARS} characters"));
            }
        }
    }
    images
}
