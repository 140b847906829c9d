//! `files.url` and its options: which store, and how it is opened.
//!
//! INVARIANT: options may be secrets. Their values show in no log, no error and no `Debug`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;
use reqwest::Url;

/// What `files.url` may be.
const WANTED: &str = "write file://FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, \
                      sftp://USER@HOST:PORT/FOLDER or memory://";
/// Options of `sftp://`, whose store has no names of its own for them.
const SFTP_OPTIONS: [&str; 3] = ["key", "known_hosts_strategy", "user"];
/// How the names of options end whose values are secrets.
const SECRET_ENDINGS: [&str; 8] = [
    "access_key_id",
    "secret_access_key",
    "session_token",
    "account_key",
    "client_secret",
    "sas_key",
    "storage_token",
    "service_account_key",
];

/// Where blobs are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreTarget {
    /// A folder of this host, absolute.
    Local(PathBuf),
    /// This process's memory: gone when it ends.
    Memory,
    /// A server.
    Remote(RemoteTarget),
}

/// A store on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteTarget {
    /// Which of them.
    pub kind: RemoteKind,
    /// Its URL, without secrets.
    pub(super) url: Url,
    /// How to reach it, and as whom.
    pub options: StoreOptions,
}

/// The kinds of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteKind {
    /// Anything that speaks Amazon's S3.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
    /// A folder by SFTP.
    Sftp,
}

/// Options of a store, by the name its own tools give them.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StoreOptions(BTreeMap<String, String>);

/// What an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// It may stand in a file.
    Open,
    /// It must come from the environment.
    Secret,
}

impl StoreTarget {
    /// Reads `files.url`, without options; a relative `file://` is inside `data_dir`. The error says what to write instead.
    pub fn parse(url: &str, data_dir: &Path) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or(WANTED)?;
        let (kind, url) = match scheme {
            "file" if rest.is_empty() => return Err("name a folder, as in file://files".to_owned()),
            "file" => return Ok(Self::Local(data_dir.join(rest))),
            "memory" if rest.is_empty() => return Ok(Self::Memory),
            "s3" => (RemoteKind::S3, url.to_owned()),
            "gs" | "gcs" => (RemoteKind::Google, format!("gs://{rest}")),
            "az" | "abfs" | "abfss" => (RemoteKind::Azure, url.to_owned()),
            "sftp" => (RemoteKind::Sftp, url.to_owned()),
            _ => return Err(WANTED.to_owned()),
        };
        let url = Url::parse(&url).map_err(|_| WANTED)?;
        if !url.has_host() || url.query().is_some() || url.fragment().is_some() || url.password().is_some() {
            return Err(format!("{WANTED}; what else it needs goes to files.options and files.options_env"));
        }
        Ok(Self::Remote(RemoteTarget { kind, url, options: StoreOptions::default() }))
    }
}

impl RemoteKind {
    /// What an option of this name is; `None` if there is none.
    pub fn option(self, name: &str) -> Option<OptionKind> {
        let name = match self {
            Self::S3 => name.parse::<AmazonS3ConfigKey>().ok()?.as_ref().to_owned(),
            Self::Google => name.parse::<GoogleConfigKey>().ok()?.as_ref().to_owned(),
            Self::Azure => name.parse::<AzureConfigKey>().ok()?.as_ref().to_owned(),
            Self::Sftp => (*SFTP_OPTIONS.iter().find(|known| **known == name)?).to_owned(),
        };
        let secret = SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending)) || name.contains("encryption_key");
        Some(if secret { OptionKind::Secret } else { OptionKind::Open })
    }

    /// How the variables begin by which the vendor's own tools are set up; those that are options count as such.
    pub fn environment_prefix(self) -> Option<&'static str> {
        match self {
            Self::S3 => Some("AWS_"),
            Self::Google => Some("GOOGLE_"),
            Self::Azure => Some("AZURE_"),
            Self::Sftp => None,
        }
    }
}

impl StoreOptions {
    /// Sets one.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// All of them, secrets too.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
