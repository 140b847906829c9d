//! Whose request it is, and which credentials must not travel on.
//!
//! INVARIANT: the workspace comes from a known key or from the mesh, never from anything a client can set.

/// Whose request it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub user: String,
    /// The workspace whose policy applies.
    pub workspace: String,
}
