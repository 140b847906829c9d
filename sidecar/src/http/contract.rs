//! Contract v1: the embedded sandbox, served to other gateways.
//!
//! INVARIANT: but for the bare word that it is alive, nothing is told to, read from or done for a caller without the
//! token; a caller that leaves takes along what was done for it. What code and files say goes to no log.

mod call;
mod exec;
mod failure;
mod files;
mod line;
mod path;
mod route;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::budget::BodyBudget;
use super::credential::is_secret;
use super::fetch::{self, BodyLimits, Fetched};
use super::listener::Reserved;
use crate::config::Secret;
use crate::ids::IdSource;
use crate::sandbox::process::ProcessSandbox;
use crate::sandbox::{SandboxBackend as _, SandboxError, SessionId};

use failure::Failure;
use line::Line;
use route::Route;

/// Files that come in at once; each may take the room of one file beside the workspaces.
const MAX_UPLOADS: usize = 16;

/// What serves the contract.
#[derive(Debug)]
pub struct Contract {
    sandbox: Arc<ProcessSandbox>,
    token: Option<Secret>,
    times: Times,
    bodies: BodyBudget,
    uploads: Semaphore,
    ids: Arc<dyn IdSource>,
    tasks: TaskTracker,
}

/// How long a caller may take to send, and to read.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Longest silence: `http.body_timeout_ms`.
    pub silence: Duration,
    /// Longest time of a whole body: `http.body_deadline_ms`.
    pub deadline: Duration,
}

impl Contract {
    /// Serves `sandbox` to whoever brings the token, or to everybody without one. What must not be broken off is a task of
    /// `tasks`. JSON bodies share `bodies`.
    pub fn new(
        sandbox: Arc<ProcessSandbox>,
        token: Option<Secret>,
        times: Times,
        bodies: BodyBudget,
        ids: Arc<dyn IdSource>,
        tasks: TaskTracker,
    ) -> Self {
        Self { sandbox, token, times, bodies, uploads: Semaphore::new(MAX_UPLOADS), ids, tasks }
    }

    /// Every route.
    pub fn router(self) -> Router {
        Router::new().fallback(serve).with_state(Arc::new(self))
    }

    async fn answer(&self, request: Request, line: &mut Line) -> Result<Response, Failure> {
        let route = Route::of(request.uri().path());
        line.route = route.as_ref().map_or("other", Route::name);
        let is_reserved = request.extensions().get::<Reserved>().is_some();
        let is_admitted = self.admits(request.headers());
        let method = request.method().clone();
        match (route, method) {
            (Some(Route::Health), Method::GET) => Ok(self.health(is_admitted)),
            _ if is_reserved => Err(Failure::crowded()),
            _ if !is_admitted => Err(Failure::unauthorized()),
            (Some(Route::Sessions), Method::POST) => sessions::create(self, request).await,
            (Some(Route::Session(id)), Method::GET) => sessions::tell(self, &id),
            (Some(Route::Session(id)), Method::DELETE) => sessions::destroy(self, id).await,
            (Some(Route::Exec(id)), Method::POST) => exec::execute(self, &id, request).await,
            (Some(Route::Files(id)), Method::POST) => files::put(self, &id, request).await,
            (Some(Route::Files(id)), Method::GET) => files::get(self, &id, request.uri()).await,
            (Some(Route::FileList(id)), Method::GET) => files::list(self, &id, request.uri()).await,
            (Some(route), _) => Err(Failure::no_such_method(route.methods())),
            (None, _) => Err(Failure::no_such_route()),
        }
    }

    /// Whether the caller brings the token, compared in constant time. Two are none.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let Some((scheme, given)) = value.as_bytes().split_at_checked(b"bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"bearer ") && is_secret(given.trim_ascii(), token)
    }

    fn health(&self, is_admitted: bool) -> Response {
        let mut body = json!({"status": "ok"});
        if is_admitted {
            let (alive, most) = self.sandbox.occupancy();
            body = json!({"status": "ok", "isolation": self.isolation(), "session_count": alive, "max_sessions": most});
        }
        json_response(StatusCode::OK, &body)
    }

    fn isolation(&self) -> &'static str {
        self.sandbox.capability().isolation
    }

    /// Refuses a session that is not there, before anything is read for it.
    fn must_know(&self, id: &SessionId) -> Result<(), Failure> {
        self.sandbox.session(id).map(|_| ()).ok_or_else(|| SandboxError::UnknownSession.into())
    }

    /// Reads a JSON body.
    async fn body(&self, request: Request, max_bytes: u64) -> Result<Fetched, Failure> {
        let Times { silence: patience, deadline } = self.times;
        let limits = BodyLimits { max_bytes, patience, deadline, budget: &self.bodies };
        Ok(fetch::whole(request.into_body(), limits, fetch::unseen).await?)
    }
}

async fn serve(State(contract): State<Arc<Contract>>, request: Request) -> Response {
    let mut line = Line::begin(&request);
    let response = match contract.answer(request, &mut line).await {
        Ok(response) => response,
        Err(failure) => {
            let response = failure.render();
            line.failure = Some(failure);
            response
        }
    };
    line.status = response.status();
    response
}

fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    // Nothing that is answered here can fail to be JSON.
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
