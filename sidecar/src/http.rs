//! Everything the sidecar answers over HTTP, behind Envoy.
//!
//! INVARIANT: only this module turns a `Problem` into an answer, in the caller's own words; every call but
//! `GET /healthz` carries the hop secret or goes no further.

mod access;
mod admission;
mod budget;
mod contract;
mod credential;
mod fetch;
mod files;
mod health;
mod inference;
mod internal;
mod linger;
pub mod listener;
mod refusal;
mod responses;
mod stall;
mod tools;
mod workspaces;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use decision::config::FilterConfig;
use decision::problem::{Origin, Problem, ProblemKind};

use crate::attachments::Attachments;
use crate::clock::Clock;
use crate::config::{SNAPSHOT_PATH, Secret};
use crate::files::Files;
use crate::ids::IdSource;
use crate::policy::PolicyHolder;
use crate::repository::Repository;
use crate::sandbox::SandboxBackend;
use crate::telemetry::Metrics;
use crate::tool_loop::Engine;
use crate::upstream::ModelClient;

use fetch::BodyLimits;

pub use budget::BodyBudget;
pub use contract::{Contract, ContractTimes};
pub use refusal::Refusal;

/// The parts that answer requests.
#[derive(Debug)]
pub struct Services {
    /// What the filter decides by, and the sidecar again.
    pub filter_config: FilterConfig,
    /// The secret Envoy adds.
    pub hop_secret: Secret,
    /// The admin credential; without one the admin routes are off.
    pub master_key: Option<Secret>,
    /// Longest silence inside a request's body.
    pub body_timeout: Duration,
    /// Longest time of a whole request body.
    pub body_deadline: Duration,
    /// Longest time of a whole upload.
    pub upload_deadline: Duration,
    /// Room for request bodies, over all connections.
    pub bodies: BodyBudget,
    /// Longest execution the deployment allows, seconds.
    pub exec_timeout_s: u32,
    /// The database.
    pub repository: Repository,
    /// The snapshot.
    pub policy: Arc<PolicyHolder>,
    /// Calls to models.
    pub models: ModelClient,
    /// Code turns.
    pub engine: Arc<Engine>,
    /// Where code runs, if anywhere.
    pub sandbox: Option<Arc<dyn SandboxBackend>>,
    /// What gives files to models.
    pub attachments: Attachments,
    /// What callers uploaded and code made; `None` when `files.enabled` is off.
    pub files: Option<Files>,
    /// Counters.
    pub metrics: Metrics,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub ids: Arc<dyn IdSource>,
}

impl Services {
    /// How a request's body is read.
    fn body_limits(&self, max_bytes: u64) -> BodyLimits<'_> {
        BodyLimits { max_bytes, patience: self.body_timeout, deadline: self.body_deadline, budget: &self.bodies }
    }
}

/// Every route. What is not a route of our own goes to [`inference`], which decides by the path's meaning.
pub fn router(services: Arc<Services>) -> Router {
    let mut router = Router::new()
        .route("/healthz", get(health::health))
        .route("/otari/metrics", get(internal::metrics))
        .route("/otari/explain", post(internal::explain))
        .route(SNAPSHOT_PATH, get(internal::snapshot));
    for root in &services.filter_config.roots {
        router = router.nest(root, api());
    }
    router
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(inference::serve)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&services), admission::admit))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&services), access::observe))
        .with_state(services)
}

fn api() -> Router<Arc<Services>> {
    Router::new()
        .merge(files::routes())
        .merge(responses::routes())
        .route("/tools", get(tools::list))
        .route("/workspaces", get(workspaces::list).post(workspaces::create))
        .route(
            "/workspaces/{id}/code-execution-policy",
            get(workspaces::get_policy).put(workspaces::put_policy).delete(workspaces::delete_policy),
        )
}

async fn method_not_allowed() -> Refusal {
    Problem::new(ProblemKind::MethodNotAllowed, Origin::Caller, "this path has no such method").into()
}
