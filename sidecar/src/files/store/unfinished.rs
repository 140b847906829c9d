//! Uploads in parts that were never finished: S3 and Google keep them, unseen and paid for, until somebody aborts them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use object_store::aws::AmazonS3;
use object_store::gcp::{GcpCredentialProvider, GoogleCloudStorage};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::signer::{Method, SignedUrlOptions, Signer as _};
use reqwest::Url;
use serde::Deserialize;

use super::StoreError;
use crate::files::id::FileId;

/// Uploads listed at once.
const PAGE: &str = "1000";
/// Pages of one look; what is beyond them waits for the next.
const MAX_PAGES: usize = 100;
/// How long a request to list them may take, and its signature is good.
const PATIENCE: Duration = Duration::from_mins(1);
/// Longest list that is read: each upload is a few hundred bytes.
const LIST_MAX_BYTES: usize = 8 << 20;

/// The unfinished uploads of a bucket. Both vendors list them in the same words.
#[derive(Debug, Clone)]
pub(super) struct Uploads {
    bucket: Bucket,
    client: reqwest::Client,
}

/// Which bucket, and how one proves that one may look into it.
#[derive(Debug, Clone)]
pub(super) enum Bucket {
    /// By a signature in the URL.
    Amazon(Arc<AmazonS3>),
    /// By a token, unless the bucket is open to all.
    Google {
        /// The store, which aborts.
        store: Arc<GoogleCloudStorage>,
        /// The bucket itself.
        url: Url,
        /// Where tokens come from.
        credentials: Option<GcpCredentialProvider>,
    },
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::files) struct UnfinishedUpload {
    /// Whose it is.
    pub(in crate::files) id: FileId,
    /// When it began, milliseconds since the epoch.
    pub(in crate::files) began_ms: i64,
    pub(super) key: Path,
    upload_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct List {
    #[serde(default)]
    upload: Vec<Listed>,
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    next_key_marker: String,
    #[serde(default)]
    next_upload_id_marker: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    key: String,
    upload_id: String,
    initiated: String,
}

impl Uploads {
    pub(super) fn new(bucket: Bucket) -> Result<Self, StoreError> {
        let client = reqwest::Client::builder()
            .timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .build()
            .map_err(|error| StoreError::Setup(Box::new(error.without_url())))?;
        Ok(Self { bucket, client })
    }

    /// Those that began before a time, below `prefix`. Without one that is the whole bucket: whose they are, the caller tells
    /// by their keys.
    pub(super) async fn before(&self, time_ms: i64, prefix: &Path) -> Result<Vec<UnfinishedUpload>, StoreError> {
        let (mut found, mut markers) = (Vec::new(), (String::new(), String::new()));
        for _ in 0..MAX_PAGES {
            let list = self.page(prefix, &markers).await?;
            found.extend(list.upload.into_iter().filter_map(of_a_file).filter(|upload| upload.began_ms <= time_ms));
            let next = (list.next_key_marker, list.next_upload_id_marker);
            if !list.is_truncated || next == markers {
                break;
            }
            markers = next;
        }
        Ok(found)
    }

    /// Ends one; one that is over is fine.
    pub(super) async fn abort(&self, upload: &UnfinishedUpload) -> Result<(), StoreError> {
        let (key, upload_id) = (&upload.key, &upload.upload_id);
        let aborted = match &self.bucket {
            Bucket::Amazon(store) => store.abort_multipart(key, upload_id).await,
            Bucket::Google { store, .. } => store.abort_multipart(key, upload_id).await,
        };
        match aborted {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            aborted => Ok(aborted?),
        }
    }

    async fn page(&self, prefix: &Path, markers: &(String, String)) -> Result<List, StoreError> {
        let mut query = vec![("uploads", ""), ("max-uploads", PAGE)];
        // With its slash: `otari` also begins the names of `otari-staging`.
        let below = format!("{prefix}/");
        if !prefix.as_ref().is_empty() {
            query.push(("prefix", &below));
        }
        if !markers.0.is_empty() {
            query.extend([("key-marker", markers.0.as_str()), ("upload-id-marker", markers.1.as_str())]);
        }
        let request = match &self.bucket {
            Bucket::Amazon(store) => {
                let options = SignedUrlOptions::new().with_query(query);
                self.client.get(store.signed_url_opts(Method::GET, &Path::default(), PATIENCE, &options).await?)
            }
            Bucket::Google { url, credentials, .. } => {
                let mut url = url.clone();
                url.query_pairs_mut().extend_pairs(query);
                let request = self.client.get(url);
                match credentials {
                    None => request,
                    Some(credentials) => request.bearer_auth(&credentials.get_credential().await?.bearer),
                }
            }
        };
        // The URL is a key to the bucket for as long as it is good: no error may show it.
        let failed = |error: reqwest::Error| StoreError::List(Box::new(error.without_url()));
        let answer = request.send().await.and_then(reqwest::Response::error_for_status);
        let mut answer = answer.map_err(failed)?;
        let mut text = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(failed)? {
            text.extend_from_slice(&piece);
            if text.len() > LIST_MAX_BYTES {
                return Err(StoreError::List("the list is too long".into()));
            }
        }
        let text = String::from_utf8_lossy(&text);
        quick_xml::de::from_str(&text).map_err(|error| StoreError::List(Box::new(error)))
    }
}

/// `None` for one that has no id of a file for its name.
fn of_a_file(listed: Listed) -> Option<UnfinishedUpload> {
    let key = Path::parse(&listed.key).ok()?;
    let id = FileId::of_digits(key.filename()?)?;
    let began_ms = listed.initiated.parse::<Timestamp>().ok()?.as_millisecond();
    Some(UnfinishedUpload { id, began_ms, key, upload_id: listed.upload_id })
}
