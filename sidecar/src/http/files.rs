//! The files API: five routes, in the words of either vendor; and what the routes of containers share with it.
//!
//! INVARIANT: whose files a caller sees is settled by [`credential::identify`] alone, and whatever it does not see is the
//! same 404; no content, no name of a file and no key goes to the log.

pub(super) mod disposition;
pub(super) mod download;
pub(super) mod failure;
pub(super) mod form;
mod media_type;
mod parameters;
mod query;
mod range;
pub(super) mod render;
mod settings;
mod upload;

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use decision::identity::Identity;
use decision::problem::Problem;
use http::StatusCode;
use http::request::Parts;

use super::access::Caller;
use super::held::Held;
use super::internal::json_response;
use super::{Refusal, Services, credential};
use crate::files::{FileRecord, Files, Page};
use query::{Question, Shape};

type IdPath = Result<Path<String>, PathRejection>;

/// Under each of the API's roots.
pub(super) fn routes() -> Router<Arc<Services>> {
    Router::new()
        .route("/files", get(list).post(upload::upload))
        .route("/files/{id}", get(metadata).delete(delete))
        .route("/files/{id}/content", get(content))
}

/// The service and the caller, when files are served and the caller is known.
pub(super) struct Visit<'a> {
    /// The service.
    files: &'a Files,
    /// Whose files they are.
    owner: Identity,
}

/// A file as a path names it.
pub(super) struct Named {
    /// The id that the store has for it.
    pub(super) id: String,
    /// What is answered when its caller sees no such file.
    pub(super) missing: Problem,
}

impl<'a> Visit<'a> {
    /// In this order: where files are off, nobody is asked for a key.
    pub(super) async fn admit(services: &'a Services, head: &Parts) -> Result<Self, Refusal> {
        let files = services.files.as_ref().ok_or_else(failure::switched_off)?;
        Ok(Self { files, owner: credential::identify(services, head).await? })
    }

    /// The file, if this caller sees it.
    pub(super) async fn file(&self, named: &Named, caller: &Caller) -> Result<FileRecord, Refusal> {
        let file = self.files.get(&self.owner, &named.id).await;
        let file = file.map_err(|error| failure::of_named(error, named))?;
        caller.notes.file(&file.id);
        Ok(file)
    }

    /// Deletes the file, if this caller sees it.
    pub(super) async fn delete(&self, named: &Named, caller: &Caller) -> Result<(), Refusal> {
        self.files.delete(&self.owner, &named.id).await.map_err(|error| failure::of_named(error, named))?;
        caller.notes.file(&named.id);
        Ok(())
    }
}

/// `GET /v1/files`
async fn list(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let Visit { files, owner } = Visit::admit(&services, &head).await?;
    let shape = Shape::of(caller.vocabulary, &head.headers);
    let page = match query::read(head.uri.query().unwrap_or_default(), shape)? {
        Question::Page(query) => {
            files.list(&owner, &query).await.map_err(|error| failure::of_list(error, &query, shape))?
        }
        Question::Ids(ids) => {
            let files = files.get_many(&owner, &ids).await.map_err(failure::of)?;
            Page { files, has_more: false }
        }
        Question::Nothing => Page { files: Vec::new(), has_more: false },
    };
    let mut room = services.bodies.share();
    room.belongs_to(&owner.workspace)?;
    Ok(Held::new(render::page(&page, shape).to_string(), room)?.response())
}

/// `GET /v1/files/{id}`
async fn metadata(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    id: IdPath,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let visit = Visit::admit(&services, &head).await?;
    let file = visit.file(&named(id, &caller), &caller).await?;
    Ok(json_response(StatusCode::OK, &render::file(&file, caller.vocabulary)))
}

/// `GET /v1/files/{id}/content`
async fn content(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    id: IdPath,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let visit = Visit::admit(&services, &head).await?;
    download::answer(&services, &caller, &visit, &named(id, &caller), &head).await
}

/// `DELETE /v1/files/{id}`
async fn delete(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    id: IdPath,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let visit = Visit::admit(&services, &head).await?;
    let named = named(id, &caller);
    visit.delete(&named, &caller).await?;
    Ok(json_response(StatusCode::OK, &render::deleted(&named.id, caller.vocabulary)))
}

/// The id in the path, decoded once. One that is no text is an id that nobody has.
fn named(id: IdPath, caller: &Caller) -> Named {
    let id = id.map(|Path(id)| id).unwrap_or_default();
    Named { missing: failure::not_found(&id, caller.vocabulary, "id"), id }
}
