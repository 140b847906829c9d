//! The files API: five routes, in the words of either vendor.
//!
//! INVARIANT: whose files a caller sees is settled by [`credential::identify`] alone, and whatever it does not see is the
//! same 404; no content, no name of a file and no key goes to the log.

pub(super) mod disposition;
mod download;
mod failure;
pub(super) mod form;
mod media_type;
mod parameters;
mod query;
mod range;
mod render;
mod settings;
mod upload;

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use decision::identity::Identity;
use http::StatusCode;
use http::request::Parts;

use super::access::Caller;
use super::internal::json_response;
use super::{Refusal, Services, credential};
use crate::files::{Files, Page};
use query::{Question, Shape};

type IdPath = Result<Path<String>, PathRejection>;

/// Under each of the API's roots.
pub(super) fn routes() -> Router<Arc<Services>> {
    Router::new()
        .route("/files", get(list).post(upload::upload))
        .route("/files/{id}", get(metadata).delete(delete))
        .route("/files/{id}/content", get(download::content))
}

/// The service and the caller, when files are served and the caller is known. In this order: where files are off, nobody
/// is asked for a key.
async fn admitted<'a>(services: &'a Services, head: &Parts) -> Result<(&'a Files, Identity), Refusal> {
    let files = services.files.as_ref().ok_or_else(failure::switched_off)?;
    Ok((files, credential::identify(services, head).await?))
}

/// `GET /v1/files`
async fn list(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let (files, owner) = admitted(&services, &head).await?;
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
    Ok(json_response(StatusCode::OK, &render::page(&page, shape)))
}

/// `GET /v1/files/{id}`
async fn metadata(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    id: IdPath,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let (files, owner) = admitted(&services, &head).await?;
    let id = named(id);
    let file = files.get(&owner, &id).await.map_err(|error| failure::of_file(error, &id, &caller))?;
    caller.notes.file(&file.id);
    Ok(json_response(StatusCode::OK, &render::file(&file, caller.vocabulary)))
}

/// `DELETE /v1/files/{id}`
async fn delete(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    id: IdPath,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let (files, owner) = admitted(&services, &head).await?;
    let id = named(id);
    files.delete(&owner, &id).await.map_err(|error| failure::of_file(error, &id, &caller))?;
    caller.notes.file(&id);
    Ok(json_response(StatusCode::OK, &render::deleted(&id, caller.vocabulary)))
}

/// The id in the path, decoded once. One that is no text is an id that nobody has.
fn named(id: IdPath) -> String {
    id.map(|Path(id)| id).unwrap_or_default()
}
