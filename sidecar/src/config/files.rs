//! `files`: where they are kept, and how much there may be.

use std::path::Path;
use std::time::Duration;

use decision::config::IdentityConfig;
use serde_json::{Map, Value};

use super::keys::Key;
use super::problem::HIDDEN;
use super::read::millis;
use super::reader::{Reader, is_env_name, shown, without_password};
use super::share::{self, Usual};
use super::{FilesConfig, keys};
use crate::attachments::AttachmentLimits;
use crate::extract::ExtractLimits;
use crate::files::{FilesLimits, OptionKind, RemoteKind, StoreOptions, StoreTarget};

/// Options that may stand in a file.
const OPTIONS: &str = "files.options";
/// Names of the variables that hold options.
const OPTIONS_ENV: &str = "files.options_env";
const NO_SUCH: &str = "this store has no such option: docs/files.md says where they are named";

/// What a workspace gets of uploads and readings, unless the file says otherwise.
const USUAL_SHARE: Usual = Usual { part: 2, least: 1 };
const HOUR_S: u64 = 3600;

/// Reads them; `None` when they are off. Everything is looked at all the same.
pub(super) fn read(reader: &mut Reader<'_>, data_dir: &Path, identity: &IdentityConfig) -> Option<FilesConfig> {
    let enabled = reader.boolean(&keys::FILES_ENABLED);
    let url = reader.required_text(&keys::FILES_URL);
    let mut store = StoreTarget::parse(&url, data_dir).unwrap_or_else(|fix| {
        // What stands behind these signs is often a secret.
        let shown = url.split(['?', '#']).next().unwrap_or_default();
        reader.problem(keys::FILES_URL.path, without_password(shown), fix);
        StoreTarget::Memory
    });
    match &mut store {
        StoreTarget::Remote(remote) => remote.options = read_options(reader, remote.kind),
        StoreTarget::Local(_) | StoreTarget::Memory => {
            for path in [OPTIONS, OPTIONS_ENV] {
                if !read_table(reader, path).is_empty() {
                    reader.problem(path, "", "means nothing with this files.url: take it out");
                }
            }
        }
    }
    let retention = reader.optional_integer(&keys::FILES_RETENTION_HOURS);
    let sweep = reader.integer(&keys::FILES_SWEEP_INTERVAL_SEC);
    let config = FilesConfig {
        store,
        limits: FilesLimits {
            max_bytes: reader.integer(&keys::FILES_MAX_BYTES),
            output_max_files: reader.size(&keys::FILES_OUTPUT_MAX_FILES),
            output_max_bytes: reader.integer(&keys::FILES_OUTPUT_MAX_BYTES),
            retention: retention.map(|hours| Duration::from_secs(hours.saturating_mul(HOUR_S))),
            workspace_max_bytes: reader.integer(&keys::FILES_WORKSPACE_MAX_BYTES),
            workspace_max_files: reader.integer(&keys::FILES_WORKSPACE_MAX_FILES),
            max_concurrent_uploads: reader.size(&keys::FILES_MAX_CONCURRENT_UPLOADS),
            max_concurrent_uploads_per_workspace: read_share(
                reader,
                identity,
                &keys::FILES_MAX_CONCURRENT_UPLOADS,
                &keys::FILES_MAX_CONCURRENT_UPLOADS_PER_WORKSPACE,
            ),
        },
        attachments: AttachmentLimits {
            inline_max_bytes: reader.integer(&keys::FILES_INLINE_MAX_BYTES),
            inline_max_request_bytes: reader.integer(&keys::FILES_INLINE_MAX_REQUEST_BYTES),
            text_max_chars: reader.size(&keys::FILES_TEXT_MAX_CHARS),
        },
        extraction: read_extraction(reader, identity),
        sweep_interval: (sweep > 0).then(|| Duration::from_secs(sweep)),
    };
    enabled.then_some(config)
}

fn read_share(reader: &mut Reader<'_>, identity: &IdentityConfig, of: &Key, key: &Key) -> usize {
    let all = (of, reader.integer(of));
    usize::try_from(share::read(reader, identity, all, key, USUAL_SHARE)).unwrap_or(usize::MAX)
}

fn read_extraction(reader: &mut Reader<'_>, identity: &IdentityConfig) -> Option<ExtractLimits> {
    let enabled = reader.boolean(&keys::FILES_EXTRACTION);
    let limits = ExtractLimits {
        timeout: millis(reader, &keys::FILES_EXTRACTION_TIMEOUT_MS),
        max_document_bytes: reader.integer(&keys::FILES_EXTRACTION_MAX_BYTES),
        max_chars: reader.size(&keys::FILES_TEXT_MAX_CHARS),
        max_concurrent: reader.size(&keys::FILES_EXTRACTION_MAX_CONCURRENT),
        max_concurrent_per_workspace: read_share(
            reader,
            identity,
            &keys::FILES_EXTRACTION_MAX_CONCURRENT,
            &keys::FILES_EXTRACTION_MAX_CONCURRENT_PER_WORKSPACE,
        ),
    };
    enabled.then_some(limits)
}

/// What the environment says to the vendor's own tools, over that `files.options`, and over that `files.options_env`.
fn read_options(reader: &mut Reader<'_>, kind: RemoteKind) -> StoreOptions {
    let mut options = StoreOptions::default();
    let env = reader.env();
    for variable in kind.environment_prefix().into_iter().flat_map(|prefix| env.names(prefix)) {
        let name = variable.to_ascii_lowercase();
        if let (Some(_), Some(value)) = (kind.option(&name), env.get(variable)) {
            options.set(name, value);
        }
    }
    for (name, value) in read_table(reader, OPTIONS) {
        let path = format!("{OPTIONS}.{name}");
        match (kind.option(&name), scalar(&value)) {
            (None, _) => reader.problem(path, "", NO_SUCH),
            // It may be the secret itself.
            (Some(OptionKind::Secret), _) => {
                let fix = format!("a secret does not belong here: write `{OPTIONS_ENV}.{name}` and a variable's name");
                reader.problem(path, HIDDEN, fix);
            }
            (Some(OptionKind::Open), None) => reader.problem(path, shown(&value), "write some text"),
            (Some(OptionKind::Open), Some(text)) => options.set(name, text),
        }
    }
    for (name, value) in read_table(reader, OPTIONS_ENV) {
        let path = format!("{OPTIONS_ENV}.{name}");
        let variable = value.as_str().filter(|variable| is_env_name(variable));
        match (kind.option(&name), variable, variable.and_then(|variable| env.get(variable))) {
            (None, _, _) => reader.problem(path, "", NO_SUCH),
            (Some(_), None, _) => reader.problem(path, HIDDEN, format!("write {}", keys::Kind::EnvName.wanted())),
            (Some(_), Some(_), Some(value)) => options.set(name, value),
            (Some(_), Some(variable), None) => {
                let fix = format!("set the environment variable {variable}, or leave this key out");
                reader.problem(path, variable, fix);
            }
        }
    }
    options
}

fn read_table(reader: &mut Reader<'_>, path: &str) -> Map<String, Value> {
    match reader.table(path) {
        None => Map::new(),
        Some(Value::Object(table)) => table,
        Some(other) => {
            reader.problem(path, shown(&other), "write a mapping from option to value");
            Map::new()
        }
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
