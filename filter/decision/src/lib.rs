//! Who runs the code of this request: the one decision of filter and sidecar.
//!
//! Pure: no I/O, clock, randomness, hash maps, floats, panics or unsafe.
#![forbid(unsafe_code)]
#![deny(
    missing_docs,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::iter_over_hash_type
)]
// Overflow in a test is a failed test.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod config;
pub mod decide;
pub mod exchange;
pub mod explain;
pub mod format;
pub mod header;
pub mod identity;
pub mod policy;
pub mod problem;
pub mod reason;
pub mod request;
pub mod scan;
