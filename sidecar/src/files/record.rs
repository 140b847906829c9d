//! What is known of a file, and the words for asking.

use decision::identity::Identity;

use crate::repository::{FileRow, RepositoryError};

/// A visible file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    /// Its public id, `file-otr…`.
    pub id: String,
    /// Whose it is.
    pub owner: Identity,
    /// What its owner calls it.
    pub filename: String,
    /// Its media type.
    pub mime_type: String,
    /// What it is for.
    pub purpose: Purpose,
    /// Bytes of its content.
    pub size_bytes: u64,
    /// SHA-256 of its content, lower-case hex.
    pub sha256: String,
    /// When it was stored, milliseconds since the epoch.
    pub created_at_ms: i64,
    /// When it stops being visible; `None`: never.
    pub expires_at_ms: Option<i64>,
}

/// What a file is for: the purposes that OpenAI takes on an upload, and that of what code made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// `assistants`
    Assistants,
    /// `batch`
    Batch,
    /// `fine-tune`
    FineTune,
    /// `vision`
    Vision,
    /// `user_data`
    UserData,
    /// `evals`
    Evals,
    /// `code_execution_output`
    CodeExecutionOutput,
}

/// What a caller says of a file when its bytes are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// What to call it; see [`super::name::clean`].
    pub filename: String,
    /// Its media type.
    pub mime_type: String,
    /// What it is for.
    pub purpose: Purpose,
    /// How many milliseconds after it was stored it stops being visible; `None`: `files.retention_hours` decides.
    pub lifetime_ms: Option<i64>,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// By the time the files were stored.
    pub order: Order,
    /// Where the page begins or ends.
    pub cursor: Option<Cursor>,
    /// Files on the page at most.
    pub limit: u32,
    /// Only files for this.
    pub purpose: Option<Purpose>,
}

/// The order of a list. Files stored within one millisecond have one too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Ascending,
    /// Newest first.
    Descending,
}

/// A file beside which a page stands, in the order of the list. It may be deleted or expired by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// The page begins right after it.
    After(String),
    /// The page ends right before it.
    Before(String),
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The files, in the order that was asked for.
    pub files: Vec<FileRecord>,
    /// Whether there are more beyond them: after the page, or before it if it ends at a cursor.
    pub has_more: bool,
}

/// A file that goes into a session's workspace under a name of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Its name there.
    pub name: String,
    /// The file.
    pub file: FileRecord,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Assistants,
        Self::Batch,
        Self::FineTune,
        Self::Vision,
        Self::UserData,
        Self::Evals,
        Self::CodeExecutionOutput,
    ];

    /// As the OpenAI wire says it, and as rows keep it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Assistants => "assistants",
            Self::Batch => "batch",
            Self::FineTune => "fine-tune",
            Self::Vision => "vision",
            Self::UserData => "user_data",
            Self::Evals => "evals",
            Self::CodeExecutionOutput => "code_execution_output",
        }
    }

    /// Reads one, letter by letter.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.as_str() == word)
    }
}

impl TryFrom<FileRow> for FileRecord {
    type Error = RepositoryError;

    fn try_from(row: FileRow) -> Result<Self, Self::Error> {
        let Some(purpose) = Purpose::parse(&row.purpose) else {
            return Err(RepositoryError::Corrupt { table: "files", column: "purpose", id: row.id });
        };
        Ok(Self {
            id: row.id,
            owner: row.owner,
            filename: row.filename,
            mime_type: row.mime_type,
            purpose,
            size_bytes: row.size_bytes,
            sha256: row.sha256,
            created_at_ms: row.created_at_ms,
            expires_at_ms: row.expires_at_ms,
        })
    }
}
