//! Files that answers cite by the names they have inside a container.
//!
//! INVARIANT: such a name opens the file of the same digits, for its owner alone; the container has to be one of ours by
//! its form, and that is all that counts of it, for files outlive it.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State};
use axum::response::Response;
use decision::format::Vocabulary;
use decision::problem::{Origin, Problem, ProblemKind};
use http::StatusCode;
use http::request::Parts;

use super::super::access::Caller;
use super::super::files::{Named, Visit, download, failure, render};
use super::super::internal::json_response;
use super::super::{Refusal, Services};
use crate::ids;

type Place = Result<Path<(String, String)>, PathRejection>;

/// A file of a container, and whoever asks for it.
struct Asked<'a> {
    visit: Visit<'a>,
    container: String,
    /// The file's name in it.
    name: String,
    named: Named,
}

/// `GET /v1/containers/{container}/files/{file}`
pub(super) async fn metadata(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    place: Place,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let asked = Asked::read(&services, &caller, place, &head).await?;
    let file = asked.visit.file(&asked.named, &caller).await?;
    Ok(json_response(StatusCode::OK, &render::in_container(&file, &asked.name, &asked.container)))
}

/// `GET /v1/containers/{container}/files/{file}/content`
pub(super) async fn content(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    place: Place,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let Asked { visit, named, .. } = Asked::read(&services, &caller, place, &head).await?;
    download::answer(&services, &caller, &visit, &named, &head).await
}

/// `DELETE /v1/containers/{container}/files/{file}`
pub(super) async fn delete(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    place: Place,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let asked = Asked::read(&services, &caller, place, &head).await?;
    asked.visit.delete(&asked.named, &caller).await?;
    Ok(json_response(StatusCode::OK, &render::deleted_in_container(&asked.name)))
}

impl<'a> Asked<'a> {
    async fn read(services: &'a Services, caller: &Caller, place: Place, head: &Parts) -> Result<Self, Refusal> {
        let visit = Visit::admit(services, head).await?;
        let missing = |name: &str| match caller.vocabulary {
            Vocabulary::OpenAi => no_file(name),
            Vocabulary::Anthropic => failure::not_found(name, Vocabulary::Anthropic, "file_id"),
        };
        // What is no text names nothing.
        let Ok(Path((container, name))) = place else { return Err(missing("").into()) };
        if !ids::is_minted(ids::CONTAINER, &container) {
            return Err(super::not_found(&container).into());
        }
        let missing = missing(&name);
        let id = ids::out_of_container(&name).unwrap_or_default();
        Ok(Self { visit, container, name, named: Named { id, missing } })
    }
}

fn no_file(name: &str) -> Problem {
    let text = format!("Container file with id '{}' not found.", ids::shown(name));
    Problem::new(ProblemKind::NotFound, Origin::Caller, text).with_param("file_id")
}
