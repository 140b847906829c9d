//! The native side of otari-envoy, in reading order:
//!
//! - [`sandbox`] runs the model's code and knows nothing else of ours.
//! - [`clock`] and [`ids`] are the only sources of time and randomness.
//! - [`upstream`] calls models through Envoy's model listener.

pub mod clock;
pub mod ids;
pub mod sandbox;
pub mod upstream;
