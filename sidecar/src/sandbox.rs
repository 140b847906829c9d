//! Where the model's code runs: one trait, embedded processes or a contract-v1 server behind it.
//!
//! INVARIANT: nothing here knows of requests, wires or tenants; a caller hands in code and gets what it did.

mod backend;
mod error;
mod files;
mod lease;
pub mod process;
pub mod remote;
mod tool;

pub use backend::{
    Capability, ExecutionRequest, ExecutionResult, ProducedFile, SandboxBackend, SessionGrant, SessionId, SessionSpec,
};
pub use error::SandboxError;
pub use files::{
    FileContent, FileSource, FileStamp, ListedFile, Listing, MAX_LISTED, MAX_PATH_BYTES, MAX_PATH_NAMES, WorkspacePath,
};
pub use lease::{Lease, Reaper};
pub use tool::{EditorCommand, EditorFault, EditorReport, ToolInput, ViewRange};
