//! What a path asks for.
//!
//! INVARIANT: what a caller may have put in front of the contract's own paths means nothing, and an id is one name of the
//! path, whatever it holds.

use percent_encoding::percent_decode_str;

use crate::sandbox::SessionId;

/// An operation, but for its method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// `/health`
    Health,
    /// `/sessions`
    Sessions,
    /// `/sessions/{id}`
    Session(SessionId),
    /// `/sessions/{id}/exec`
    Exec(SessionId),
    /// `/sessions/{id}/files`
    Files(SessionId),
    /// `/sessions/{id}/files/list`
    FileList(SessionId),
}

impl Route {
    /// Reads a path. A base address may have one of its own, with or without a slash at its end.
    pub(super) fn of(path: &str) -> Option<Self> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let (id, route): (&str, fn(SessionId) -> Self) = match *names.as_slice() {
            [.., "sessions"] => return Some(Self::Sessions),
            [.., "sessions", id, "files", "list"] => (id, Self::FileList),
            [.., "sessions", id, "files"] => (id, Self::Files),
            [.., "sessions", id, "exec"] => (id, Self::Exec),
            [.., "sessions", id] => (id, Self::Session),
            [.., "health"] => return Some(Self::Health),
            _ => return None,
        };
        Some(route(SessionId(percent_decode_str(id).decode_utf8().ok()?.into_owned())))
    }

    /// For the log.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Health => "/health",
            Self::Sessions => "/sessions",
            Self::Session(_) => "/sessions/{id}",
            Self::Exec(_) => "/sessions/{id}/exec",
            Self::Files(_) => "/sessions/{id}/files",
            Self::FileList(_) => "/sessions/{id}/files/list",
        }
    }

    /// What may be done there.
    pub(super) fn methods(&self) -> &'static str {
        match self {
            Self::Health | Self::FileList(_) => "GET",
            Self::Sessions | Self::Exec(_) => "POST",
            Self::Session(_) => "GET, DELETE",
            Self::Files(_) => "GET, POST",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_the_contract_is_read_behind_any_prefix() {
        let id = |id: &str| SessionId(id.to_owned());
        for prefix in ["", "/", "/base", "/base/path", "/sessions/of/mine", "//base//"] {
            for (path, route) in [
                ("/health", Route::Health),
                ("/sessions", Route::Sessions),
                ("/sessions/", Route::Sessions),
                ("/sessions/a1", Route::Session(id("a1"))),
                ("/sessions/a1/", Route::Session(id("a1"))),
                ("/sessions/health", Route::Session(id("health"))),
                ("/sessions/a%2Fb", Route::Session(id("a/b"))),
                ("/sessions/%2e%2E/exec", Route::Exec(id(".."))),
                ("/sessions/a1/exec", Route::Exec(id("a1"))),
                ("/sessions/a1/files", Route::Files(id("a1"))),
                ("/sessions/a1/files/list", Route::FileList(id("a1"))),
            ] {
                assert_eq!(Route::of(&format!("{prefix}{path}")), Some(route), "{prefix}{path}");
            }
        }
    }

    #[test]
    fn other_paths_are_none_of_the_contracts() {
        for path in
            ["", "/", "/session", "/Sessions", "/sessions/a/b", "/sessions/a/files/list/x", "/sessions/%ff", "/healthz"]
        {
            assert_eq!(Route::of(path), None, "{path}");
        }
    }
}
