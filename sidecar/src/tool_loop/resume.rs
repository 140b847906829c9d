//! The container that a request goes on with: claimed before anything of the request goes anywhere, or refused in the
//! caller's words.

use decision::decide::Run;
use decision::format::ApiFormat;
use decision::identity::Identity;
use decision::problem::{Origin, Problem, ProblemKind};

use super::Engine;
use crate::containers::{Claim, ContainerError};
use crate::ids;
use crate::wire::container::{ContainerAsked, asked};

/// When to come back for a container that is in use.
const BUSY_RETRY_AFTER_S: u32 = 1;

impl Engine {
    /// What a run goes on with; `None` if it gets a fresh session. An error is told with a status of its own: no model has
    /// been called.
    pub async fn resume(
        &self,
        owner: &Identity,
        caller: ApiFormat,
        body: &[u8],
        run: &Run,
    ) -> Result<Option<Claim>, Problem> {
        let (id, param) = match (asked(caller, body, run)?, &self.containers) {
            (ContainerAsked::Fresh, _) | (ContainerAsked::Last(_), None) => return Ok(None),
            (ContainerAsked::Last(id), Some(containers)) => {
                return Ok(containers.resume_if_free(owner, &id).await.inspect_err(note).ok());
            }
            (ContainerAsked::Named { id, param }, _) => (id, param),
        };
        let claimed = match &self.containers {
            Some(containers) => containers.resume(owner, &id).await,
            None => Err(ContainerError::Unknown),
        };
        claimed.map(Some).map_err(|error| {
            note(&error);
            of_container(&error, &id, &param)
        })
    }
}

/// Says why a request does not get its container.
fn of_container(error: &ContainerError, id: &str, param: &str) -> Problem {
    let id = ids::shown(id);
    match error {
        ContainerError::Unknown => {
            let message = format!(
                "`{param}` names the container `{id}`, which is not there: it is unknown, has expired, or is somebody \
                 else's; leave `{param}` out to get a new one"
            );
            Problem::invalid(message).with_param(param).with_code("container_expired")
        }
        ContainerError::Busy { waited } => {
            let message = format!(
                "the container `{id}` is in use by another request, and was for the {} s that this one waited \
                 (`containers.busy_wait_seconds`): send it again when that one has ended, or leave `{param}` out to get \
                 a new one",
                waited.as_secs()
            );
            let problem = Problem::new(ProblemKind::Conflict, Origin::Caller, message);
            let problem = problem.with_param(param).with_code("container_in_use");
            Problem { retry_after_s: Some(BUSY_RETRY_AFTER_S), ..problem }
        }
        ContainerError::Sandbox(_) => {
            let message = format!(
                "the sandbox that has the container `{id}` does not answer: try again, or leave `{param}` out to get a \
                 new one"
            );
            Problem::new(ProblemKind::SandboxFailed, Origin::Sandbox, message).with_param(param)
        }
        ContainerError::Repository(_) => {
            let message = "the gateway cannot read the containers it keeps: try again";
            Problem::new(ProblemKind::Internal, Origin::Storage, message)
        }
    }
}

fn note(error: &ContainerError) {
    match error {
        ContainerError::Unknown | ContainerError::Busy { .. } => {}
        ContainerError::Sandbox(_) | ContainerError::Repository(_) => {
            let error: &(dyn std::error::Error + 'static) = error;
            tracing::error!(error, "a container could not be gone on with");
        }
    }
}
