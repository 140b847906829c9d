//! One HTTP server that plays models, after scenarios that are data (`tests/scenarios/*.json`).
//!
//! A request's `model` names the scenario; which of its turns answers follows from the conversation in the request.
//! Wires: chat completions and Messages, whole and streamed. Another wire is one more writer and one more reader arm.

mod answer;
mod chat_completions;
mod conversation;
mod messages;
mod record;
mod scenario;
mod server;

pub use record::{End, Record};
pub use scenario::{Library, Scenario};
pub use server::ScriptedModel;

#[cfg(test)]
mod tests;
