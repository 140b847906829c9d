//! What the scripted model received, for tests to read.
//!
//! INVARIANT: memory is bounded: large bodies are kept as a hash, old requests are forgotten.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// Requests remembered; the oldest goes first.
const MAX_RECORDS: usize = 4096;
/// Bytes of a body kept as text; a longer one is known by its hash alone.
const MAX_BODY_BYTES: usize = 256 * 1024;

/// One request as it arrived.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Counts up from 0, also over a reset.
    pub id: u64,
    /// HTTP method.
    pub method: String,
    /// Path and query as on the wire.
    pub path: String,
    /// Header pairs in order, names lower-case, values as Latin-1.
    pub headers: Vec<(String, String)>,
    /// Lower-case hex SHA-256 of the body.
    pub sha256: String,
    /// Length of the body in bytes.
    pub bytes: usize,
    /// The body, if it is UTF-8 and short.
    pub body: Option<String>,
    /// How it ended.
    pub end: End,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It is still being answered.
    Open,
    /// The whole answer was sent, or broken off as the scenario says.
    Answered,
    /// The client went away before the answer was complete.
    Left,
}

impl Record {
    /// The values of a header, in order.
    pub fn header(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The body as JSON; null when it is none or was too long to keep.
    pub fn json(&self) -> serde_json::Value {
        self.body.as_deref().and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default()
    }
}

/// The requests so far, shared by all connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    next_id: u64,
    kept: VecDeque<Record>,
}

/// Marks a request as left when it is dropped before [`OpenRecord::answered`].
#[derive(Debug)]
pub(crate) struct OpenRecord {
    records: Records,
    id: u64,
    end: End,
}

impl Records {
    /// Adds a request that is about to be answered.
    pub(crate) fn add(&self, head: &http::request::Parts, body: &[u8], sha256: &str) -> OpenRecord {
        let headers = head
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.as_bytes().iter().map(|byte| char::from(*byte)).collect()))
            .collect();
        let text = if body.len() <= MAX_BODY_BYTES { std::str::from_utf8(body).ok() } else { None };
        let mut book = self.lock();
        let id = book.next_id;
        book.next_id += 1;
        if book.kept.len() == MAX_RECORDS {
            book.kept.pop_front();
        }
        book.kept.push_back(Record {
            id,
            method: head.method.to_string(),
            path: head.uri.to_string(),
            headers,
            sha256: sha256.to_owned(),
            bytes: body.len(),
            body: text.map(str::to_owned),
            end: End::Open,
        });
        OpenRecord { records: self.clone(), id, end: End::Left }
    }

    /// All requests as JSON.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.lock().kept).unwrap_or_default()
    }

    /// Forgets all requests.
    pub(crate) fn reset(&self) {
        self.lock().kept.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenRecord {
    /// The answer went out as the scenario says.
    pub(crate) fn answered(mut self) {
        self.end = End::Answered;
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        let mut book = self.records.lock();
        if let Some(request) = book.kept.iter_mut().rev().find(|request| request.id == self.id) {
            request.end = self.end;
        }
    }
}
