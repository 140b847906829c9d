//! The content of a file, or a part of it, streamed.
//!
//! INVARIANT: an answer that says 200 or 206 has all the bytes it announces, or breaks off; a file is never shown by a
//! browser in the gateway's name.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use futures_util::TryStreamExt as _;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::super::access::Caller;
use super::super::{Refusal, Services};
use super::range::{Wanted, wanted};
use super::{Named, Visit, disposition, failure, media_type};
use crate::files::FileRecord;
use crate::telemetry::chain;

/// To be asked for again each time, for a file may be deleted; and not compressed or otherwise changed by a proxy, whose
/// bytes would not fit the tag, the length and the ranges.
const CACHING: HeaderValue = HeaderValue::from_static("private, no-cache, no-transform");

/// Answers with the content of the file that the path names.
pub(in crate::http) async fn answer(
    services: &Services,
    caller: &Caller,
    visit: &Visit<'_>,
    named: &Named,
    head: &Parts,
) -> Result<Response, Refusal> {
    let file = visit.file(named, caller).await?;
    let etag = format!("\"{}\"", file.sha256);
    let is_head = head.method == Method::HEAD;
    let (status, range) = match wanted(&head.headers, &etag, file.size_bytes) {
        Wanted::Whole => (StatusCode::OK, 0..file.size_bytes),
        // A range means something to GET alone (RFC 9110, section 14.2).
        Wanted::Part(_) | Wanted::Unsatisfiable if is_head => (StatusCode::OK, 0..file.size_bytes),
        Wanted::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Wanted::Known => return not_modified(&etag),
        Wanted::Unsatisfiable => return Err(Refusal::unsatisfiable(file.size_bytes)),
    };
    let mut headers = headers(&file, &etag)?;
    headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
    if status == StatusCode::PARTIAL_CONTENT {
        let part = format!("bytes {}-{}/{}", range.start, range.end - 1, file.size_bytes);
        headers.insert(CONTENT_RANGE, HeaderValue::try_from(part).map_err(Refusal::internal)?);
    }
    let body = if is_head {
        Body::empty()
    } else {
        let pieces = visit.files.read(&file, range).await.map_err(|error| failure::of_named(error, named))?;
        let metrics = services.metrics.clone();
        let request_id = Arc::clone(&caller.request_id);
        let pieces = pieces.inspect_ok(move |piece| metrics.file_bytes_sent(piece.len()));
        Body::from_stream(pieces.inspect_err(move |error| {
            let error = chain(error);
            tracing::error!(request.id = &*request_id, file.id = file.id, error, "a download broke off");
        }))
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

fn headers(file: &FileRecord, etag: &str) -> Result<HeaderMap, Refusal> {
    let media_type = HeaderValue::try_from(&file.mime_type).unwrap_or(HeaderValue::from_static(media_type::UNKNOWN));
    let pairs = [
        (CONTENT_TYPE, media_type),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_DISPOSITION, disposition::attachment(&file.filename)),
        (ACCEPT_RANGES, HeaderValue::from_static("bytes")),
        (ETAG, HeaderValue::try_from(etag).map_err(Refusal::internal)?),
        (CACHE_CONTROL, CACHING),
    ];
    Ok(pairs.into_iter().collect())
}

fn not_modified(etag: &str) -> Result<Response, Refusal> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.headers_mut().insert(ETAG, HeaderValue::try_from(etag).map_err(Refusal::internal)?);
    response.headers_mut().insert(CACHE_CONTROL, CACHING);
    Ok(response)
}
