//! The product from outside: a real Envoy with the built filter, the real sidecar, real sandboxes, and only the model
//! scripted. One module a behaviour.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "these are tests")]
// A task that sleeps in the background would be one nobody waits for.
#![deny(unused_must_use)]

mod attachments;
mod bodies;
mod chat;
mod code_turn;
mod containers;
mod failures;
mod files;
mod files_load;
mod files_remote;
mod filter;
mod hostile;
mod identity;
mod kept;
mod load;
mod make_run;
mod mesh;
mod packages;
mod parity;
mod pins;
mod private;
mod responses;
mod routing;
mod sdk;
mod side_by_side;
mod support;
mod table;
mod three_tools;
mod tidy;
mod wasm;
