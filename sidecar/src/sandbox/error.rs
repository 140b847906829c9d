//! What can go wrong around an execution; never the program's own failure.

use std::time::Duration;

/// Mirrors contract v1's list of statuses.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Every session is taken; worth another try later.
    #[error("the sandbox is at capacity")]
    AtCapacity {
        /// When the backend says to come back, if it does.
        retry_after: Option<Duration>,
    },
    /// The session is gone: killed, expired, or never ours.
    #[error("the sandbox session is gone")]
    UnknownSession,
    /// The session has as many calls and file operations at once as it may have; worth another try when one of them ended.
    #[error("the session has {limit} calls running or waiting, as many as it may have")]
    Busy {
        /// As many as it may have.
        limit: usize,
    },
    /// The backend refused the input.
    #[error("the sandbox refused the request: {reason}")]
    Refused {
        /// Why, without the payload.
        reason: String,
    },
    /// Our credential for the backend is wrong.
    #[error("the sandbox refused our credential")]
    Unauthorized,
    /// The backend has no such operation; contract v1 leaves those on files open.
    #[error("the sandbox does not serve this operation")]
    NotServed,
    /// There is no such file in the workspace, or it is none that may be taken out: a link, a pipe, a device.
    #[error("the workspace has no such file")]
    UnknownFile,
    /// The file is too large: for the workspace on its way in, for the caller on its way out.
    #[error("the file is larger than {limit} bytes")]
    FileTooLarge {
        /// What there is room for, in bytes.
        limit: u64,
    },
    /// No file can stand at this path of the workspace.
    #[error("the sandbox takes no file at this path: {reason}")]
    BadPath {
        /// Why.
        reason: &'static str,
    },
    /// The bytes of a file that was to go in could not be had. The sandbox is not at fault.
    #[error("the file could not be read on its way into the sandbox")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer within the budget plus the grace.
    #[error("the sandbox did not answer in time")]
    TimedOut,
    /// It cannot be reached, or what it says is not contract v1. Names fields, never payload values.
    #[error("the sandbox is unreachable or broken: {reason}")]
    Unreachable {
        /// What was tried and failed.
        reason: String,
        /// The cause, if there is one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}
