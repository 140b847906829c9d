//! One HTTP server that plays models, after scenarios that are data (`tests/scenarios/*.json`).
//!
//! A request's `model` names the scenario; which of its turns answers follows from the conversation in the request.
//! All three wires, whole and streamed.

mod answer;
mod chat_completions;
mod conversation;
mod messages;
mod record;
mod responses;
mod scenario;
mod server;

pub use record::{End, Record};
pub use scenario::{Library, Scenario};
pub use server::ScriptedModel;

#[cfg(test)]
mod tests;
