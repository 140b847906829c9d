//! Files that go into a session's workspace and come out of it, in words that every backend shares.
//!
//! INVARIANT: a [`WorkspacePath`] never leaves the workspace by its names alone; whether a link leads out of it is the
//! backend's to see.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::SandboxError;

/// Longest path of a file, in bytes. What lies deeper, or under longer names, is not taken out.
pub const MAX_PATH_BYTES: usize = 256;
/// Most names of a path.
pub const MAX_PATH_NAMES: usize = 10;
/// Most files of one listing.
pub const MAX_LISTED: usize = 10_000;
/// Longest name that common file systems take, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// What a file holds, on its way into a workspace. An error is the source's, not the sandbox's.
pub type FileSource = BoxStream<'static, Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>;
/// What a file holds, on its way out of a workspace, as far as it is read. Dropping it ends the reading.
pub type FileContent = BoxStream<'static, Result<Bytes, SandboxError>>;

/// A file's place in a workspace: names with `/` between them, of which none is empty, `.` or `..`. Names are bytes, for
/// a program may write any; they are shown escaped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspacePath(Arc<[u8]>);

/// All that a backend tells of a workspace.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The regular files, at most [`MAX_LISTED`]. Links, sockets and devices are none, and what lies in hidden
    /// directories and in caches is left out.
    pub files: Vec<ListedFile>,
    /// Files and directories that were not looked at: too many, too deep, under too long a name, or closed.
    pub left_out: u64,
}

/// One file of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFile {
    /// Where it lies.
    pub path: WorkspacePath,
    /// How long it says it is.
    pub size_bytes: u64,
    /// Equal as long as the file is the same and holds the same.
    pub stamp: FileStamp,
}

/// Tells whether a file changed between two listings of one session. Nothing else can be read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp(pub(crate) [u64; 4]);

/// A source that fails where it has more or fewer bytes than was said.
pub(super) fn of_size(source: FileSource, size: u64) -> FileSource {
    let wrong = || Err("the file has another size than it was said to have".into());
    stream::try_unfold(Some((source, size)), move |state| async move {
        let Some((mut source, left)) = state else { return Ok(None) };
        match source.try_next().await? {
            None if left > 0 => wrong(),
            None => Ok(None),
            Some(piece) => match left.checked_sub(piece.len() as u64) {
                None => wrong(),
                Some(left) => Ok(Some((piece, Some((source, left))))),
            },
        }
    })
    .boxed()
}

impl WorkspacePath {
    /// Reads a path; `None` for one that is empty or absolute, that holds an empty name, `.`, `..` or a NUL, or that is
    /// too long or too deep. A `./` in front means nothing and goes.
    pub fn parse(path: impl AsRef<[u8]>) -> Option<Self> {
        let path = path.as_ref();
        let path = path.strip_prefix(b"./").unwrap_or(path);
        let fits = |name: &[u8]| {
            (1..=MAX_NAME_BYTES).contains(&name.len()) && !matches!(name, b"." | b"..") && !name.contains(&0)
        };
        let is_path = path.len() <= MAX_PATH_BYTES
            && path.split(|byte| *byte == b'/').all(fits)
            && path.split(|byte| *byte == b'/').count() <= MAX_PATH_NAMES;
        is_path.then(|| Self(path.into()))
    }

    /// The path as it is.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its names, the file's own last.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/')
    }

    /// The file's own name, as it is shown.
    pub fn file_name(&self) -> String {
        self.names().next_back().map(shown).unwrap_or_default()
    }

    /// Whether it lies in a directory whose files are nobody's output.
    pub fn is_hidden(&self) -> bool {
        self.names().rev().skip(1).any(is_hidden)
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

/// A directory whose files are nobody's output: hidden, or a cache.
pub(super) fn is_hidden(directory: &[u8]) -> bool {
    directory.starts_with(b".") || directory == b"__pycache__"
}

/// A name as a person or a model may read it: what is no text, what would break a line or turn its direction, and the
/// backslash, is escaped.
fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char == '\\' || char.is_control() || is_invisible(char) {
                text.extend(char.escape_default());
            } else {
                text.push(char);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a text cannot fail.
            write!(text, "\\x{byte:02x}").ok();
        }
    }
    text
}

/// Characters that separate lines, join or direct what stands around them, and are not seen themselves.
fn is_invisible(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_in_the_workspace() {
        let long = "a".repeat(MAX_NAME_BYTES + 1);
        let deep = ["d"; MAX_PATH_NAMES + 1].join("/");
        let wide = ["a".repeat(200), "b".repeat(200)].join("/");
        for path in [
            "", ".", "./", "..", "/", "/a", "a/", "a//b", "../a", "a/../b", "a/..", "a/./b", "./../a", "././a", "a\0b",
            &long, &deep, &wide,
        ] {
            assert_eq!(WorkspacePath::parse(path), None, "{path:?}");
        }
        for path in ["a", "...", ".env", "a b/é.csv", "-rf", "a\\..\\b", "line\nfeed", &deep[2..], &long[1..]] {
            assert_eq!(WorkspacePath::parse(path).unwrap().as_bytes(), path.as_bytes(), "{path:?}");
        }
        assert_eq!(WorkspacePath::parse("./a/b"), WorkspacePath::parse("a/b"));
    }

    #[test]
    fn what_cannot_be_shown_is_escaped_and_stays_apart() {
        let shown = |path: &[u8]| WorkspacePath::parse(path).unwrap().to_string();
        assert_eq!(shown("a b/Zürich 東京.csv".as_bytes()), "a b/Zürich 東京.csv");
        assert_eq!(shown(b"a\xffb\xc3"), "a\\xffb\\xc3");
        assert_eq!(shown(b"a\nb\t"), "a\\nb\\t");
        assert_eq!(shown("gpj\u{202e}.exe".as_bytes()), "gpj\\u{202e}.exe");
        assert_eq!(shown(b"a\\xff"), "a\\\\xff");
        assert_eq!(WorkspacePath::parse(b"d\xff/e\xfe").unwrap().file_name(), "e\\xfe");
    }

    #[test]
    fn directories_are_hidden_and_files_are_not() {
        let hidden = |path: &str| WorkspacePath::parse(path).unwrap().is_hidden();
        for path in [".cache/a", "a/.git/b", "__pycache__/a.pyc", ".ipynb_checkpoints/a/b"] {
            assert!(hidden(path), "{path}");
        }
        for path in [".gitignore", "a/.env", "__pycache__", "pycache/a"] {
            assert!(!hidden(path), "{path}");
        }
    }
}
