//! The whole loop over real TCP: a scripted model, a sandbox of canned results, and the client's bytes.

mod answers;
mod chat_caller;
mod failures;
mod headers;
mod leaving;
mod mixed;
mod pairs;
mod responses;
mod scripts;
mod support;
mod transcripts;
