//! The native side of otari-envoy, in reading order:
//!
//! - [`sandbox`] runs the model's code and knows nothing else of ours.
//! - [`clock`] and [`ids`] are the only sources of time and randomness.
//! - [`upstream`] calls models through Envoy's model listener.
//! - [`wire`] turns the bytes of each wire format into neutral events and back.
//! - [`tool_loop`] lets model and sandbox take turns until there is one answer for the client.

pub mod clock;
pub mod ids;
pub mod sandbox;
pub mod tool_loop;
pub mod upstream;
pub mod wire;
