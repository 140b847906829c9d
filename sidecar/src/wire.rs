//! The wire formats: bytes to neutral events and back, requests of one wire to requests of another.
//!
//! INVARIANT: nothing here knows the network, the sandbox, or who runs what; a tool of ours is a name and a schema.

pub mod chat_completions;
pub mod code_tool;
pub mod container;
pub mod conversation;
pub mod event;
pub mod json;
pub mod messages;
pub mod model_request;
pub mod past;
pub mod reader;
pub mod references;
pub mod responses;
pub mod served;
pub mod splice;
pub mod sse;
pub mod tools;
pub mod usage;
pub mod writer;
