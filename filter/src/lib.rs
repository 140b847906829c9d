//! The proxy-wasm filter: Envoy callbacks in, decisions out. No rule lives here, in reading order:
//!
//! - [`abi`] is what Envoy calls, and no more: every further export would be entered for every response chunk.
//! - [`exchange`] maps one request's callbacks onto `decision::exchange`, line by line.
//! - [`root`] holds the plugin configuration, the policy snapshot and the counters of one plugin instance.
//! - [`host`] is what we call in Envoy, each call with a `Result`.
//!
//! INVARIANT: nothing here can trap. A trap ends every stream of the worker, so a host call that fails turns into a
//! refused request, never into a panic and never into the other executor.
#![deny(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::unreachable
)]

mod abi;
mod exchange;
mod host;
mod root;
