//! Containers, as OpenAI's API has them: what the answers of the Responses wire cite is fetched there.

mod files;
mod session;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use decision::problem::{Origin, Problem, ProblemKind};

use super::Services;
use crate::ids;

/// Under each of the API's roots.
pub(super) fn routes() -> Router<Arc<Services>> {
    Router::new()
        .route("/containers/{container}", get(session::tell).delete(session::delete))
        .route("/containers/{container}/files/{file}", get(files::metadata).delete(files::delete))
        .route("/containers/{container}/files/{file}/content", get(files::content))
}

/// In OpenAI's own words, by which clients tell it.
fn not_found(id: &str) -> Problem {
    let text = format!("Container with id '{}' not found.", ids::shown(id));
    Problem::new(ProblemKind::NotFound, Origin::Caller, text).with_param("container_id")
}
