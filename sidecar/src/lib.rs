//! The native side of otari-envoy, in reading order:
//!
//! - [`envoy_config`] renders Envoy's bootstrap, the filter's configuration in it.
//! - [`sandbox`] runs the model's code and knows nothing else of ours.
//! - [`clock`] and [`ids`] are the only sources of time and randomness.
//! - [`upstream`] calls models through Envoy's model listener.

pub mod clock;
pub mod envoy_config;
pub mod ids;
pub mod sandbox;
pub mod upstream;
