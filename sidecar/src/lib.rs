//! The native side of otari-envoy, in reading order:
//!
//! - [`cli`] reads the command, [`config`] the file and the environment, [`app`] puts the parts together.
//! - [`http`] answers Envoy: the control plane, and the requests that the filter sends here.
//! - [`tool_loop`] runs a code turn, [`wire`] reads and writes the three formats, [`upstream`] calls models.
//! - [`envoy_config`] renders Envoy's bootstrap, the filter's configuration in it.
//! - [`sandbox`] runs the model's code and knows nothing else of ours.
//! - [`containers`] keeps sandbox sessions between requests.
//! - [`stored`] keeps answers that a later request may go on from.
//! - [`files`] keeps what callers uploaded and what code made.
//! - [`repository`] keeps users, workspaces, keys, policies and the rows of files; [`policy`] publishes what decisions need
//!   of them.
//! - [`attachments`] gives files to models and runs; [`extract`] reads documents as text, in a child process.
//! - [`shares`] are what a workspace may take of what all use.
//! - [`keys`], [`private`] files, [`telemetry`], and [`clock`] and [`ids`], the only sources of time and randomness.

pub mod app;
pub mod attachments;
pub mod cli;
pub mod clock;
pub mod config;
pub mod containers;
pub mod envoy_config;
pub mod extract;
pub mod files;
pub mod http;
pub mod ids;
pub mod keys;
pub mod policy;
pub mod private;
pub mod repository;
pub mod sandbox;
pub mod shares;
pub mod stored;
pub mod telemetry;
pub mod tool_loop;
pub mod upstream;
pub mod wire;
