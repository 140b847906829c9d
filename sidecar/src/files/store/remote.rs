//! Opening stores on servers.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use object_store_opendal::OpendalStore;
use opendal::Operator;
use opendal::layers::TimeoutLayer;
use opendal::services::Sftp;
use reqwest::Url;

use super::StoreError;
use super::unfinished::{Bucket, Uploads};
use crate::files::target::{RemoteKind, RemoteTarget};

/// Where Google's buckets are, unless an option says otherwise.
const GOOGLE: &str = "https://storage.googleapis.com";
/// Least size of a part that S3 takes.
const PART_BYTES: u64 = 5 << 20;
/// Most parts of a blob that S3 takes.
const MAX_PARTS: u64 = 10_000;
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest silence of a server. A part has to be sent within it, too.
const READ_TIMEOUT: Duration = Duration::from_mins(1);
/// Longest time of one call over SFTP: of an operation, and of a piece read or written.
const SFTP_TIMEOUT: Duration = Duration::from_mins(1);
/// Retries of a request that failed for no fault of its own.
const MAX_RETRIES: usize = 5;
/// How long after a request began it is not tried again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// A store that was opened.
pub(super) struct Remote {
    pub(super) store: Arc<dyn ObjectStore>,
    /// In front of our keys.
    pub(super) prefix: Path,
    /// What is left of uploads in parts, where the store keeps it and can list it.
    pub(super) uploads: Option<Uploads>,
}

/// Size of a part for blobs of up to so many bytes.
pub(super) fn part_bytes(max_bytes: u64) -> usize {
    usize::try_from(PART_BYTES.max(max_bytes.div_ceil(MAX_PARTS))).unwrap_or(usize::MAX)
}

/// Opens a store. Does not talk to it yet.
pub(super) fn open(target: &RemoteTarget) -> Result<Remote, StoreError> {
    // Whoever comes first installs it; a second installation is refused and changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let setup = |error: object_store::Error| StoreError::Setup(Box::new(error));
    let path = || Path::from_url_path(target.url.path()).map_err(|error| StoreError::Setup(Box::new(error)));
    match target.kind {
        RemoteKind::S3 => {
            let store = Arc::new(s3(target).map_err(setup)?);
            let uploads = Uploads::new(Bucket::Amazon(Arc::<AmazonS3>::clone(&store)))?;
            Ok(Remote { store, prefix: path()?, uploads: Some(uploads) })
        }
        RemoteKind::Google => {
            let builder = google(target);
            let option = |key| builder.get_config_value(&key);
            let server = option(GoogleConfigKey::BaseUrl).unwrap_or_else(|| GOOGLE.to_owned());
            let bucket = format!("{server}/{}", option(GoogleConfigKey::Bucket).unwrap_or_default());
            let url = Url::parse(&bucket).map_err(|error| StoreError::Setup(Box::new(error)))?;
            let open = option(GoogleConfigKey::SkipSignature).is_some_and(|flag| flag == "true");
            let store = Arc::new(builder.build().map_err(setup)?);
            let credentials = (!open).then(|| Arc::clone(store.credentials()));
            let clone = Arc::<GoogleCloudStorage>::clone(&store);
            let uploads = Uploads::new(Bucket::Google { store: clone, url, credentials })?;
            Ok(Remote { store, prefix: path()?, uploads: Some(uploads) })
        }
        // What was not committed Azure forgets by itself, after a week.
        RemoteKind::Azure => {
            let builder = target.options.iter().fold(
                MicrosoftAzureBuilder::new().with_client_options(client()).with_retry(retries()),
                |builder, (name, value)| match name.parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                },
            );
            let store = builder.with_url(target.url.as_str()).build().map_err(setup)?;
            Ok(Remote { store: Arc::new(store), prefix: path()?, uploads: None })
        }
        // The folder is the server's to resolve, so it is not in front of our keys.
        RemoteKind::Sftp => {
            let operator = sftp(target).map_err(|error| StoreError::Setup(Box::new(error)))?;
            Ok(Remote { store: Arc::new(OpendalStore::new(operator)), prefix: Path::default(), uploads: None })
        }
    }
}

fn s3(target: &RemoteTarget) -> object_store::Result<AmazonS3> {
    let builder = AmazonS3Builder::new().with_client_options(client()).with_retry(retries());
    let builder = target.options.iter().fold(builder, |builder, (name, value)| match name.parse() {
        Ok(key) => builder.with_config(key, value),
        Err(_) => builder,
    });
    builder.with_url(target.url.as_str()).build()
}

fn google(target: &RemoteTarget) -> GoogleCloudStorageBuilder {
    let builder = GoogleCloudStorageBuilder::new().with_client_options(client()).with_retry(retries());
    let builder = target.options.iter().fold(builder, |builder, (name, value)| match name.parse() {
        Ok(key) => builder.with_config(key, value),
        Err(_) => builder,
    });
    builder.with_url(target.url.as_str())
}

fn sftp(target: &RemoteTarget) -> opendal::Result<Operator> {
    let (user, host) = (target.url.username(), target.url.host_str().unwrap_or_default());
    let user = if user.is_empty() { String::new() } else { format!("{user}@") };
    let port = target.url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let server = format!("ssh://{user}{host}{port}");
    let root = target.url.path();
    let builder = Sftp::default().endpoint(&server).root(if root == "/" { "" } else { root });
    let builder = target.options.iter().fold(builder, |builder, (name, value)| match name {
        "key" => builder.key(value),
        "user" => builder.user(value),
        "known_hosts_strategy" => builder.known_hosts_strategy(value),
        _ => builder,
    });
    let timeouts = TimeoutLayer::new().with_timeout(SFTP_TIMEOUT).with_io_timeout(SFTP_TIMEOUT);
    Ok(Operator::new(builder)?.layer(timeouts))
}

fn client() -> ClientOptions {
    // A whole file may take longer than any time that fits a small one.
    ClientOptions::new().with_timeout_disabled().with_connect_timeout(CONNECT_TIMEOUT).with_read_timeout(READ_TIMEOUT)
}

fn retries() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: MAX_RETRIES, retry_timeout: RETRY_TIMEOUT }
}
