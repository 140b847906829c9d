//! The whole loop over real TCP: a scripted model, a sandbox of canned results, and the client's bytes.

mod chat_caller;
mod failures;
mod headers;
mod leaving;
mod mixed;
mod responses;
mod support;
mod transcripts;
