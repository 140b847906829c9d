//! Containers, as OpenAI's API has them: what the answers of the Responses wire cite is fetched there.

mod files;
mod session;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use super::Services;

/// Under each of the API's roots.
pub(super) fn routes() -> Router<Arc<Services>> {
    Router::new()
        .route("/containers/{container}", get(session::tell).delete(session::delete))
        .route("/containers/{container}/files/{file}", get(files::metadata).delete(files::delete))
        .route("/containers/{container}/files/{file}/content", get(files::content))
}
