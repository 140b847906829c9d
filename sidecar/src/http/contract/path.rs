//! Which place of a workspace a caller means.
//!
//! INVARIANT: a path that leads out of the workspace is refused as such, however it is written.

use percent_encoding::percent_decode;

use super::failure::Failure;
use crate::sandbox::process::{OTHER_NAME, WORKSPACE};
use crate::sandbox::{MAX_PATH_BYTES, MAX_PATH_NAMES, WorkspacePath};

/// The place that a path names; `None` for the workspace itself. A path is relative to the workspace, or absolute as code
/// in the session sees it.
pub(super) fn place(path: &str) -> Result<Option<WorkspacePath>, Failure> {
    let outside = || Failure::forbidden("the path leads out of the session's workspace");
    if path.contains('\0') {
        return Err(Failure::malformed("a path holds no NUL"));
    }
    let relative = if path.starts_with('/') {
        let rest = [WORKSPACE, OTHER_NAME].iter().find_map(|name| path.strip_prefix(name)).ok_or_else(outside)?;
        if !rest.is_empty() && !rest.starts_with('/') {
            return Err(outside());
        }
        rest
    } else {
        path
    };
    let mut names = Vec::new();
    for name in relative.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop().ok_or_else(outside)?),
            name => names.push(name),
        }
    }
    if names.is_empty() {
        return Ok(None);
    }
    let too_long = || {
        let text =
            format!("a path has at most {MAX_PATH_NAMES} names and {MAX_PATH_BYTES} bytes, and a name at most 255");
        Failure::malformed(text)
    };
    WorkspacePath::parse(names.join("/")).map(Some).ok_or_else(too_long)
}

/// The value of `path` in a query; `None` if it is not there.
pub(super) fn asked(query: Option<&str>) -> Result<Option<String>, Failure> {
    let mut found = None;
    for pair in query.unwrap_or_default().split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decoded(name)? != "path" {
            continue;
        }
        if found.replace(decoded(value)?).is_some() {
            return Err(Failure::malformed("`path` stands in the address twice"));
        }
    }
    Ok(found)
}

fn decoded(text: &str) -> Result<String, Failure> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode(spaced.as_bytes()).decode_utf8();
    decoded.map(String::from).map_err(|_| Failure::malformed("the address holds what is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn named(path: &str) -> Result<Option<String>, StatusCode> {
        place(path).map(|place| place.map(|path| path.to_string())).map_err(|failure| failure.render().status())
    }

    #[test]
    fn a_path_may_be_written_in_many_ways() {
        for path in ["", ".", "./", "././.", "a/..", "/workspace", "/workspace/", "/workspace/a/../."] {
            assert_eq!(named(path), Ok(None), "{path}");
        }
        for path in [
            "a/b",
            "./a/b",
            "a//b",
            "a/b/",
            "c/../a/b",
            "/workspace/a/b",
            "/workspace//a/./b",
            "/mnt/data/a/b",
            "a/c/.././b",
        ] {
            assert_eq!(named(path), Ok(Some("a/b".to_owned())), "{path}");
        }
        assert_eq!(named("..."), Ok(Some("...".to_owned())));
    }

    #[test]
    fn a_path_out_of_the_workspace_is_forbidden_and_one_that_cannot_be_is_malformed() {
        for path in [
            "..",
            "../a",
            "a/../../b",
            "/",
            "/etc/passwd",
            "/workspaces",
            "/workspace/../etc/passwd",
            "//workspace/a",
            "/a/../workspace/b",
            "a/../../workspace/b",
        ] {
            assert_eq!(named(path), Err(StatusCode::FORBIDDEN), "{path}");
        }
        let (deep, long) = ("d/".repeat(MAX_PATH_NAMES + 1), "n".repeat(256));
        for path in ["a\0b", "\0", &deep, &long] {
            assert_eq!(named(path), Err(StatusCode::UNPROCESSABLE_ENTITY), "{path}");
        }
    }

    #[test]
    fn a_query_has_one_path() {
        let read = |query: &str| asked(Some(query)).map_err(|failure| failure.render().status());
        assert!(asked(None).unwrap().is_none());
        for (query, path) in [
            ("", None),
            ("a=1", None),
            ("path=", Some("")),
            ("path", Some("")),
            ("a=1&path=d%2Fa+b%2B.csv&c", Some("d/a b+.csv")),
            ("p%61th=%E6%9D%B1", Some("東")),
            ("path=a=b", Some("a=b")),
        ] {
            assert_eq!(read(query).unwrap().as_deref(), path, "{query}");
        }
        for query in ["path=a&path=a", "path=%ff", "%ff=1&path=a"] {
            assert_eq!(read(query), Err(StatusCode::UNPROCESSABLE_ENTITY), "{query}");
        }
    }
}
