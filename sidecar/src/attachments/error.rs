//! Why a request's files cannot be given to it.

use decision::format::Vocabulary;
use decision::problem::{Origin, Problem, ProblemKind};

use crate::files::FilesError;

/// Longest id that an error repeats, characters.
const MAX_ID_CHARS: usize = 64;

/// What its caller may know, and the cause for the log.
#[derive(Debug)]
pub struct AttachmentError {
    /// What its caller may know.
    pub problem: Box<Problem>,
    /// What happened, if it is not all in the problem.
    pub cause: Option<FilesError>,
}

impl From<Problem> for AttachmentError {
    fn from(problem: Problem) -> Self {
        Self { problem: Box::new(problem), cause: None }
    }
}

/// Looking up and reading can fail in no way that is the caller's mistake, save that a file went in between.
impl From<FilesError> for AttachmentError {
    fn from(error: FilesError) -> Self {
        let problem = match &error {
            FilesError::NotFound | FilesError::CursorNotFound | FilesError::Deleted => {
                let message = "a file that the request names was deleted just now";
                Problem::new(ProblemKind::NotFound, Origin::Caller, message)
            }
            FilesError::Busy => Problem::busy("the gateway's file store has no room at this moment: try again"),
            FilesError::TooLarge { .. }
            | FilesError::WorkspaceBytes { .. }
            | FilesError::WorkspaceFiles { .. }
            | FilesError::Storage(_)
            | FilesError::Repository(_) => {
                let message = "a file that the request names could not be read: try again later";
                Problem::new(ProblemKind::Internal, Origin::Storage, message)
            }
        };
        Self { problem: Box::new(problem), cause: Some(error) }
    }
}

impl AttachmentError {
    /// Memory takes whatever is written to it.
    pub(super) fn encoding(_: std::io::Error) -> Self {
        Problem::new(ProblemKind::Internal, Origin::Gateway, "a file could not be put into the request").into()
    }
}

/// The one answer for everything that the owner cannot see, in the words that each vendor's own service has for it.
pub(super) fn not_found(vocabulary: Vocabulary, id: &str, param: &str) -> Problem {
    let id: String = id.chars().filter(|character| !character.is_control()).take(MAX_ID_CHARS).collect();
    let message = match vocabulary {
        Vocabulary::OpenAi => format!("No such File object: {id}"),
        Vocabulary::Anthropic => format!("File `{id}` not found."),
    };
    Problem::new(ProblemKind::NotFound, Origin::Caller, message).with_param(param)
}

/// A file for the code of a provider, which neither the code nor the model would have.
pub(super) fn out_of_reach(param: &str) -> Problem {
    let message = format!(
        "`{param}` is a file of this gateway that the model cannot be shown, and the provider's code tool would run \
         without it: have the code run here (`otari-code-execution: otari`), or upload the file to the provider"
    );
    Problem::invalid(message).with_param(param)
}

/// A file that is too much for a request to a model.
pub(super) fn too_large(name: &str, limit: &str, param: &str) -> Problem {
    let message = format!(
        "the file {name} is too large to be shown to the model ({limit}): name a smaller one, or have code run at this \
         gateway (`otari-code-execution: otari`), where files of any size lie in the working directory"
    );
    Problem::new(ProblemKind::PayloadTooLarge, Origin::Caller, message).with_param(param)
}
