//! Files of a session's workspace: listed, read, put in.
//!
//! INVARIANT: no file is held in memory; one that is sent is in the workspace whole or not at all, and one that is read
//! has all the bytes it announces, or breaks off.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use http_body::Body as _;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::super::files::disposition::attachment;
use super::super::files::form::{Form, Part, Patience};
use super::failure::Failure;
use super::path::{asked, place};
use super::{Contract, json_response};
use crate::sandbox::process::{Existing, Incoming, ProcessSandbox};
use crate::sandbox::{FileContent, ListedFile, Listing, SandboxBackend as _, SandboxError, SessionId, WorkspacePath};
use crate::telemetry::chain;

/// What a form may have beside the file.
const FORM_MAX_BYTES: u64 = 64 << 10;
/// How long one waits for others' files to have come in.
const UPLOAD_WAIT: Duration = Duration::from_secs(5);
/// What a file is called that came without a name.
const UNNAMED: &str = "upload.bin";

/// One file of a list.
#[derive(Serialize)]
struct Entry<'a> {
    path: &'a str,
    size_bytes: u64,
    mime_type: Option<&'static str>,
    modified_at: Box<RawValue>,
}

/// `GET /sessions/{id}/files/list`: every file below a directory, or the one that the path names.
pub(super) async fn list(contract: &Contract, id: &SessionId, address: &Uri) -> Result<Response, Failure> {
    let path = asked(address.query())?;
    let below = place(path.as_deref().unwrap_or("."))?;
    let Listing { mut files, mut left_out } = contract.sandbox.list_files(id).await?;
    files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    if let Some(below) = &below {
        files.retain(|file| lies_below(&file.path, below));
        if files.is_empty() && !contract.sandbox.is_directory(id, below).await? {
            return Err(Failure::no_such_directory());
        }
    }
    let entries: Vec<_> = files.iter().filter_map(entry).collect();
    // What JSON cannot say cannot be asked for either.
    left_out += (files.len() - entries.len()) as u64;
    Ok(json_response(StatusCode::OK, &json!({"files": entries, "left_out": left_out})))
}

fn lies_below(path: &WorkspacePath, top: &WorkspacePath) -> bool {
    path.as_bytes().strip_prefix(top.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn entry(file: &ListedFile) -> Option<Entry<'_>> {
    let path = std::str::from_utf8(file.path.as_bytes()).ok()?;
    let (seconds, nanoseconds) = ProcessSandbox::changed_at(file);
    // Digit by digit: a floating-point number would take changes within a microsecond for none.
    let modified_at = RawValue::from_string(format!("{seconds}.{nanoseconds:09}")).ok()?;
    Some(Entry { path, size_bytes: file.size_bytes, mime_type: media_type(path), modified_at })
}

fn media_type(path: &str) -> Option<&'static str> {
    mime_guess::from_path(path).first_raw()
}

/// `GET /sessions/{id}/files`
pub(super) async fn get(contract: &Contract, id: &SessionId, address: &Uri) -> Result<Response, Failure> {
    let path = asked(address.query())?;
    let path = path.ok_or_else(|| Failure::malformed("`path` is missing: name a file, as in ?path=a.txt"))?;
    let is_directory = || Failure::wrong_kind("the path names a directory: name a file");
    let path = place(&path)?.ok_or_else(is_directory)?;
    let (size, content) = match contract.sandbox.open_file(id, &path, u64::MAX).await {
        Err(SandboxError::UnknownFile) if contract.sandbox.is_directory(id, &path).await? => return Err(is_directory()),
        opened => opened?,
    };
    let mut response = Response::new(Body::from_stream(until(Instant::now() + contract.times.deadline, content)));
    *response.headers_mut() = headers(&path, size);
    Ok(response)
}

fn headers(path: &WorkspacePath, size: u64) -> HeaderMap {
    let kind = std::str::from_utf8(path.as_bytes()).ok().and_then(media_type).unwrap_or("application/octet-stream");
    [
        (CONTENT_LENGTH, HeaderValue::from(size)),
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        // What code wrote is not to be shown as a page, whatever it calls itself.
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_DISPOSITION, attachment(&path.file_name())),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ]
    .into_iter()
    .collect()
}

/// A file as it is read; broken off when it takes too long, for its session is in use until then.
fn until(
    deadline: Instant,
    content: FileContent,
) -> impl futures_util::Stream<Item = Result<bytes::Bytes, SandboxError>> {
    stream::try_unfold(content, move |mut content| async move {
        let piece = match content.next().await {
            Some(_) if Instant::now() > deadline => Err(SandboxError::TimedOut),
            Some(piece) => piece,
            None => return Ok(None),
        };
        piece.map(|piece| Some((piece, content))).inspect_err(|error| {
            tracing::warn!(error = chain(error), "a file that was being read broke off");
        })
    })
}

/// `POST /sessions/{id}/files`: a form with a part `file`, and one `path` before or behind it.
pub(super) async fn put(contract: &Contract, id: &SessionId, request: Request) -> Result<Response, Failure> {
    contract.must_know(id)?;
    let (head, body) = request.into_parts();
    let limit = contract.sandbox.limits().file_bytes;
    if body.size_hint().lower() > limit.saturating_add(FORM_MAX_BYTES) {
        return Err(Failure::too_large(limit));
    }
    let turn = tokio::time::timeout(UPLOAD_WAIT, contract.uploads.acquire()).await;
    let _turn = turn.ok().and_then(Result::ok).ok_or_else(Failure::uploads_full)?;
    let patience = Patience { silence: contract.times.silence, deadline: contract.times.deadline, min_bytes_per_s: 0 };
    let mut form = Form::begin(&head.headers, body, patience)?;
    let (mut file, mut path) = (None, None);
    while let Some(part) = form.next().await? {
        match part.disposition.field.as_str() {
            "file" if file.is_none() => file = Some(receive(contract, id, part).await?),
            "path" if path.is_none() => path = Some(part.text().await?),
            "file" | "path" => return Err(Failure::malformed("`file` or `path` comes twice in the form")),
            _ => pass_over(part).await?,
        }
    }
    let (file, name) = file.ok_or_else(|| Failure::malformed("the form has no part `file`"))?;
    let path = path.filter(|path| !path.is_empty()).unwrap_or(name);
    let named = place(&path)?.filter(|_| !path.ends_with('/'));
    let place = named.ok_or_else(|| Failure::malformed("`path` names a directory: name a file"))?;
    let keeps = head.headers.get(IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == b"*");
    let existing = if keeps { Existing::Kept } else { Existing::Replaced };
    let size_bytes = file.keep(&place, existing).await?;
    let path = String::from_utf8_lossy(place.as_bytes());
    Ok(json_response(StatusCode::CREATED, &json!({"path": path, "size_bytes": size_bytes})))
}

/// Takes a file in, and what it is to be called if nothing else is said: the last name of what its sender calls it.
async fn receive(contract: &Contract, id: &SessionId, mut part: Part<'_>) -> Result<(Incoming, String), Failure> {
    let given = part.disposition.file_name.take().unwrap_or_default();
    let last = given.rsplit(['/', '\\']).next().filter(|name| !matches!(*name, "" | "." | ".."));
    let name = last.unwrap_or(UNNAMED).to_owned();
    let mut file = contract.sandbox.receive_file(id).await?;
    while let Some(piece) = part.piece().await? {
        file.write(piece).await?;
    }
    Ok((file, name))
}

/// A part that the contract does not have means nothing.
async fn pass_over(mut part: Part<'_>) -> Result<(), Failure> {
    let mut bytes = 0;
    while let Some(piece) = part.piece().await? {
        bytes += piece.len() as u64;
        if bytes > FORM_MAX_BYTES {
            return Err(Failure::too_large(FORM_MAX_BYTES));
        }
    }
    Ok(())
}
