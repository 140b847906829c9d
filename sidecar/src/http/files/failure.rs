//! Failures of files as problems in the caller's words.

use decision::format::Vocabulary;
use decision::problem::{Origin, Problem, ProblemKind};

use super::super::Refusal;
use super::super::access::Caller;
use super::query::{Shape, bad_token};
use crate::files::{Cursor, FilesError, ListQuery};
use crate::ids;

/// One of [`decision::problem::SHARED_CODES`].
const QUOTA: &str = "storage_quota_exceeded";

/// `files.enabled: false`
pub(super) fn switched_off() -> Refusal {
    let text = "this gateway keeps no files: its operator has switched them off (`files.enabled`)";
    Problem::new(ProblemKind::NotFound, Origin::Caller, text).into()
}

/// A failure that concerns the file of this id.
pub(super) fn of_file(error: FilesError, id: &str, caller: &Caller) -> Refusal {
    match error {
        FilesError::NotFound => not_found(id, caller.vocabulary, "id").into(),
        other => of(other),
    }
}

/// A failure of a list.
pub(super) fn of_list(error: FilesError, query: &ListQuery, shape: Shape) -> Refusal {
    match (error, &query.cursor, shape) {
        (FilesError::CursorNotFound, _, Shape::Pages) => bad_token().into(),
        (FilesError::CursorNotFound, Some(Cursor::After(id)), Shape::OpenAi) => {
            not_found(id, Vocabulary::OpenAi, "after").into()
        }
        (FilesError::CursorNotFound, Some(Cursor::After(id) | Cursor::Before(id)), _) => {
            not_found(id, Vocabulary::Anthropic, "after_id").into()
        }
        (other, _, _) => of(other),
    }
}

/// Any failure.
pub(super) fn of(error: FilesError) -> Refusal {
    match error {
        // Where an id is known, the callers above say which.
        FilesError::NotFound | FilesError::CursorNotFound => {
            Problem::new(ProblemKind::NotFound, Origin::Caller, "there is no such file").into()
        }
        FilesError::TooLarge { limit } => too_large(limit).into(),
        FilesError::WorkspaceBytes { limit } => full(&format!("{limit} bytes (`files.workspace_max_bytes`)")).into(),
        FilesError::WorkspaceFiles { limit } => full(&format!("{limit} (`files.workspace_max_files`)")).into(),
        FilesError::Busy => {
            let text = "as many uploads are under way as may (`files.max_concurrent_uploads`): try again";
            Problem::busy(text).into()
        }
        FilesError::Deleted => {
            let text =
                "the file was deleted while it arrived, or arrived so slowly that it was given up: send it again";
            Problem::new(ProblemKind::Internal, Origin::Storage, text).into()
        }
        FilesError::Storage(_) | FilesError::Repository(_) => Refusal::storage(error),
    }
}

/// Over `files.max_bytes`.
pub(super) fn too_large(limit: u64) -> Problem {
    let text = format!("the file is longer than {limit} bytes (`files.max_bytes`): send it in smaller ones");
    Problem::new(ProblemKind::PayloadTooLarge, Origin::Caller, text).with_param("file")
}

fn full(limit: &str) -> Problem {
    let text = format!("the files of this workspace may have {limit}: delete some, and send this one again");
    Problem::invalid(text).with_code(QUOTA)
}

/// The words that each vendor's own service has for it, which clients know.
fn not_found(id: &str, vocabulary: Vocabulary, param: &str) -> Problem {
    let id = ids::shown(id);
    let text = match vocabulary {
        Vocabulary::OpenAi => format!("No such File object: {id}"),
        Vocabulary::Anthropic => format!("File `{id}` not found."),
    };
    Problem::new(ProblemKind::NotFound, Origin::Caller, text).with_param(param)
}
