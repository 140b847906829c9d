//! Starts the real parts for tests, in reading order:
//!
//! - [`mod@bench`] measures what the sidecar costs.
//! - [`scripted_model`] plays models; it is the only part of a test that is not the real one.
//! - [`gathering`] is a contract-v1 sandbox that shows how many executions wait at once.
//! - [`flood`] is one whose file claims a byte and has gigabytes; [`file_rows`] makes very many files.
//! - [`client`] speaks plain HTTP, with more control over the bytes than an SDK gives.
//! - [`stack`] starts scripted model, sidecar and Envoy, and ends them.
//! - [`wasm`] reads what the built filter asks of Envoy.

pub mod bench;
pub mod client;
pub mod file_rows;
pub mod flood;
pub mod gathering;
pub mod scripted_model;
pub mod stack;
pub mod wasm;

use sha2::{Digest, Sha256};

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len().saturating_mul(2)), |mut text, byte| {
        for nibble in [byte >> 4, byte & 0x0f] {
            text.extend(char::from_digit(nibble.into(), 16));
        }
        text
    })
}

/// Lower-case hex SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
