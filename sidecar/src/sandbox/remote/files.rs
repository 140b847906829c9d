//! The contract's operations on files, each of which a server may leave out.
//!
//! INVARIANT: no file is held in memory, neither on its way in nor out; nothing of one that is too large is read; what a
//! server says of paths, sizes and numbers is checked.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::header::{HeaderMap, IF_NONE_MATCH};
use reqwest::multipart::{Form, Part};
use reqwest::{Body, Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{HttpSandbox, broken, failed, read, refusal};
use crate::sandbox::files::of_size;
use crate::sandbox::{
    FileContent, FileSource, FileStamp, ListedFile, Listing, MAX_LISTED, SandboxError, SessionId, WorkspacePath,
};

/// How long a server that has no lists is not asked for one: every run would ask twice.
const ASK_AGAIN: Duration = Duration::from_mins(1);

/// What is asked of the server.
#[derive(Clone, Copy)]
enum Operation {
    Put,
    List,
    Get,
}

/// The answer to `ListFiles`.
#[derive(Deserialize)]
struct Files<'a> {
    #[serde(borrow)]
    files: Vec<Entry<'a>>,
    /// What our own server tells beside the contract.
    #[serde(borrow, default)]
    left_out: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    size_bytes: u64,
    #[serde(borrow, default)]
    modified_at: Option<&'a RawValue>,
}

/// The answer to `PutFile`.
#[derive(Deserialize)]
struct Kept {
    size_bytes: Option<u64>,
}

impl HttpSandbox {
    pub(super) async fn put(
        &self,
        session: &SessionId,
        path: &WorkspacePath,
        size: u64,
        source: FileSource,
    ) -> Result<(), SandboxError> {
        let text = std::str::from_utf8(path.as_bytes())
            .map_err(|_| SandboxError::BadPath { reason: "it is not UTF-8, which the contract demands" })?;
        let fault = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&fault);
        // The client tells only that a body broke off; why is noted beside it.
        let source = of_size(source, size).map_err(move |error| {
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            std::io::Error::other("the file could not be read")
        });
        let file = Part::stream_with_length(Body::wrap_stream(source), size).file_name(path.file_name());
        let form = Form::new().text("path", text.to_owned()).part("file", file);
        let request = self.client.post(self.address(&["sessions", &session.0, "files"])?).multipart(form);
        // Not the contract's: a server that knows the header writes over nothing.
        let request = request.header(IF_NONE_MATCH, "*").timeout(self.limits.file_timeout);
        let answer = request.send().await;
        if let Some(error) = fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(SandboxError::Unreadable(error));
        }
        let answer = accepted(Operation::Put, answer.map_err(failed)?)?;
        let answer = read(answer, self.limits.answer_bytes).await?;
        let kept: Kept =
            serde_json::from_slice(&answer).map_err(|_| broken("its answer to a file is no JSON object"))?;
        if kept.size_bytes.is_some_and(|kept| kept != size) {
            return Err(broken("it kept a file that has another size than the one it was sent"));
        }
        Ok(())
    }

    pub(super) async fn list(&self, session: &SessionId) -> Result<Listing, SandboxError> {
        if self.lists_refused().is_some_and(|refused| refused.elapsed() < ASK_AGAIN) {
            return Err(SandboxError::NotServed);
        }
        let mut address = self.address(&["sessions", &session.0, "files", "list"])?;
        address.query_pairs_mut().append_pair("path", ".");
        let answer = self.client.get(address).timeout(self.limits.call_timeout).send().await.map_err(failed)?;
        if matches!(answer.status(), StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) {
            // It says so of the operation, whatever the session.
            *self.lists_refused() = Some(Instant::now());
        }
        let answer = accepted(Operation::List, answer)?;
        listing(&read(answer, self.limits.answer_bytes).await?)
    }

    fn lists_refused(&self) -> MutexGuard<'_, Option<Instant>> {
        self.lists_refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn get(
        &self,
        session: &SessionId,
        path: &WorkspacePath,
        max_bytes: u64,
    ) -> Result<FileContent, SandboxError> {
        let text = std::str::from_utf8(path.as_bytes()).map_err(|_| SandboxError::UnknownFile)?;
        let mut address = self.address(&["sessions", &session.0, "files"])?;
        address.query_pairs_mut().append_pair("path", text);
        let answer = self.client.get(address).timeout(self.limits.file_timeout).send().await.map_err(failed)?;
        let answer = accepted(Operation::Get, answer)?;
        let too_large = move || SandboxError::FileTooLarge { limit: max_bytes };
        if answer.content_length().is_some_and(|length| length > max_bytes) {
            return Err(too_large());
        }
        let content = stream::try_unfold((answer, max_bytes), move |(mut answer, left)| async move {
            let Some(piece) = answer.chunk().await.map_err(failed)? else { return Ok(None) };
            let left = left.checked_sub(piece.len() as u64).ok_or_else(too_large)?;
            Ok(Some((piece, (answer, left))))
        });
        Ok(content.boxed())
    }
}

/// The answer if it is a success, else what its status means.
fn accepted(operation: Operation, answer: Response) -> Result<Response, SandboxError> {
    let status = answer.status();
    if status.is_success() { Ok(answer) } else { Err(refused(operation, status, answer.headers())) }
}

fn refused(operation: Operation, status: StatusCode, headers: &HeaderMap) -> SandboxError {
    match (status, operation) {
        (StatusCode::NOT_FOUND, Operation::Get) => SandboxError::UnknownFile,
        // A session that is gone cannot be told from an operation that is not there.
        (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED, _) => {
            SandboxError::NotServed
        }
        (StatusCode::FORBIDDEN, _) => SandboxError::BadPath { reason: "the contract-v1 server does not allow it" },
        _ => refusal(status, headers),
    }
}

/// Reads a listing, of some directories or of all.
fn listing(bytes: &[u8]) -> Result<Listing, SandboxError> {
    // The parser's own message would quote the text.
    let Files { files, left_out } = serde_json::from_slice(bytes)
        .map_err(|_| broken("`files` of its answer is missing, or an entry has no `path` or `size_bytes`"))?;
    let left_out = left_out.and_then(|count| count.get().parse().ok()).unwrap_or_default();
    let mut listing = Listing { left_out, ..Listing::default() };
    for Entry { path, size_bytes, modified_at } in files {
        if path.ends_with('/') {
            continue;
        }
        let Some(path) = WorkspacePath::parse(&*path).filter(|_| listing.files.len() < MAX_LISTED) else {
            listing.left_out = listing.left_out.saturating_add(1);
            continue;
        };
        if path.is_hidden() {
            continue;
        }
        let mut hasher = DefaultHasher::new();
        modified_at.map(RawValue::get).hash(&mut hasher);
        let stamp = FileStamp([0, size_bytes, hasher.finish(), 0]);
        listing.files.push(ListedFile { path, size_bytes, stamp });
    }
    Ok(listing)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{MAX_LISTED, listing};

    fn list(files: &Value) -> (Vec<String>, u64) {
        let listing = listing(json!({"files": files, "new": 1}).to_string().as_bytes()).unwrap();
        (listing.files.iter().map(|file| file.path.to_string()).collect(), listing.left_out)
    }

    #[test]
    fn paths_that_lead_out_are_left_out_and_directories_and_caches_mean_nothing() {
        let file = |path: &str| json!({"path": path, "size_bytes": 1, "modified_at": 1.5, "new": []});
        let paths = ["a", "./b/c", "../x", "/etc/passwd", "d/", ".cache/e", "f/../../g", "", "h\u{0}", "i\nj"];
        let files: Value = paths.iter().map(|path| file(path)).collect();
        assert_eq!(list(&files), (vec!["a".to_owned(), "b/c".to_owned(), "i\\nj".to_owned()], 5));
        let many: Value = (0..MAX_LISTED + 3).map(|number| file(&number.to_string())).collect();
        assert_eq!((list(&many).0.len(), list(&many).1), (MAX_LISTED, 3));
        // One entry is beyond any workspace, whatever the server counts itself.
        let most = format!(r#"{{"files": [{{"path": "../x", "size_bytes": 1}}], "left_out": {}}}"#, u64::MAX);
        assert_eq!(super::listing(most.as_bytes()).unwrap().left_out, u64::MAX);
        for (told, left_out) in [("3", 3), ("-1", 0), ("\"canary\"", 0), ("{}", 0), ("null", 0)] {
            let answer = format!(r#"{{"files": [], "left_out": {told}}}"#);
            assert_eq!(super::listing(answer.as_bytes()).unwrap().left_out, left_out, "{told}");
        }
    }

    #[test]
    fn a_stamp_differs_with_size_and_time() {
        let stamp = |file: Value| listing(json!({"files": [file]}).to_string().as_bytes()).unwrap().files[0].stamp;
        let one = |size: u64, time: Value| stamp(json!({"path": "a", "size_bytes": size, "modified_at": time}));
        let known = one(1, json!(5.25));
        assert_eq!(one(1, json!(5.25)), known);
        for other in [one(2, json!(5.25)), one(1, json!(5.5)), one(1, json!("5.25")), one(1, Value::Null)] {
            assert_ne!(other, known);
        }
        assert_eq!(stamp(json!({"path": "a", "size_bytes": 1})), one(1, Value::Null));
    }

    #[test]
    fn a_listing_that_breaks_the_contract_quotes_nothing() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"files": {"canary": 1}}"#,
            r#"{"files": [{"path": "canary"}]}"#,
            r#"{"files": [{"path": 1, "size_bytes": 1}]}"#,
            r#"{"files": [{"path": "a", "size_bytes": -1}]}"#,
            r#"{"files": [{"path": "a", "size_bytes": "canary"}]}"#,
        ] {
            let error = listing(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("`files`") && !error.contains("canary"), "{text}: {error}");
        }
    }
}
