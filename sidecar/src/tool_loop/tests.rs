//! The whole loop over real TCP: a scripted model, a sandbox of canned results, and the client's bytes.

mod canned;
mod chat_caller;
mod failures;
mod headers;
mod leaving;
mod responses;
mod support;
mod tools;
mod transcripts;
