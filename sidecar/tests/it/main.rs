//! Every test of the sidecar that needs more than one module, in one binary: the real router on a real socket, SQLite in
//! a temporary folder, a scripted model behind it; and the sandboxes.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod access;
mod attachments;
mod budget;
mod cli;
mod code;
mod contract;
mod drain;
mod extract;
mod files;
mod files_run;
mod health;
mod hop;
mod kept;
mod policy;
mod private;
mod relay;
mod sandbox;
mod snapshot;
mod support;
mod sweep;
mod tools;
