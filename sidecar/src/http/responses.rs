//! Answers on the Responses wire that are kept: read again, listed by what they were made from, forgotten.
//!
//! INVARIANT: whose answers a caller sees is settled by [`credential::identify`] alone, and whatever it does not see is the
//! same 404; an id that is not ours is its provider's, and the request goes on as if these routes were not there.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use decision::format::Vocabulary;
use decision::identity::Identity;
use decision::problem::{Origin, Problem, ProblemKind};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;

use super::access::Caller;
use super::budget::Share;
use super::held::Held;
use super::internal::json_response;
use super::{Refusal, Services, credential, inference};
use crate::ids;
use crate::stored::StoredResponses;
use crate::wire::responses::retrieved::{self, Asked};

/// Items on a page, at most, and where nobody says how many.
const MAX_ITEMS: usize = 100;
const USUAL_ITEMS: usize = 20;
/// Parameters of one request. Each is compared with all others.
const MAX_PARAMETERS: usize = 32;
/// What asks for the outputs of code calls.
const OUTPUTS: &str = "code_interpreter_call.outputs";

type IdPath = Result<Path<String>, PathRejection>;

/// Under each of the API's roots.
pub(super) fn routes() -> Router<Arc<Services>> {
    Router::new()
        .route("/responses/{id}", any(one))
        .route("/responses/{id}/input_items", any(input_items))
        .route("/responses/{id}/cancel", any(cancel))
}

/// `GET` and `DELETE /v1/responses/{id}`
async fn one(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    id: IdPath,
    request: Request,
) -> Response {
    let Some(id) = ours(id) else { return pass_on(services, caller, request).await };
    let answered = match *request.method() {
        Method::GET | Method::HEAD => retrieve(&services, &id, request).await,
        Method::DELETE => delete(&services, &id, request).await,
        _ => Err(not_allowed("an answer is read by GET and forgotten by DELETE")),
    };
    respond(answered, &caller)
}

/// `GET /v1/responses/{id}/input_items`
async fn input_items(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    id: IdPath,
    request: Request,
) -> Response {
    let Some(id) = ours(id) else { return pass_on(services, caller, request).await };
    let answered = match *request.method() {
        Method::GET | Method::HEAD => items(&services, &id, request).await,
        _ => Err(not_allowed("the items are read by GET")),
    };
    respond(answered, &caller)
}

/// `POST /v1/responses/{id}/cancel`
async fn cancel(
    State(services): State<Arc<Services>>,
    Extension(caller): Extension<Caller>,
    id: IdPath,
    request: Request,
) -> Response {
    if ours(id).is_none() {
        return pass_on(services, caller, request).await;
    }
    let text = "only answers that are made with `background: true` can be cancelled, and this gateway makes none: close \
                the connection of a request to stop it";
    respond(Err(Problem::invalid(text).into()), &caller)
}

/// To where the request would have gone without these routes, under the path that it came with: routes under a root see
/// what stands behind it.
async fn pass_on(services: Arc<Services>, caller: Caller, mut request: Request) -> Response {
    *request.uri_mut() = caller.uri.clone();
    inference::serve(State(services), Extension(caller), request).await
}

async fn retrieve(services: &Services, id: &str, request: Request) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let (owner, mut share) = admit(services, &head).await?;
    let query = Query::read(head.uri.query())?;
    query.refuse(
        "stream",
        |value| value == "true",
        "an answer of this gateway is complete and is not streamed again",
    )?;
    query.refuse("starting_after", |_| true, "an answer of this gateway is complete and is not streamed again")?;
    let told = kept(services, id)?.told(&owner, id, &mut |bytes| share.grow(bytes)).await?;
    let told = told.ok_or_else(|| not_found(id))?;
    if query.includes(OUTPUTS) && retrieved::hides_outputs(&told) {
        let text =
            format!("this answer was given without `{OUTPUTS}`: ask for them with the request that makes an answer");
        return Err(Problem::invalid(text).with_param("include").into());
    }
    Ok(Held::new(told, share)?.response())
}

async fn delete(services: &Services, id: &str, request: Request) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let owner = credential::identify(services, &head).await?;
    if !kept(services, id)?.forget(&owner, id).await? {
        return Err(not_found(id).into());
    }
    Ok(json_response(StatusCode::OK, &json!({"id": id, "object": "response", "deleted": true})))
}

async fn items(services: &Services, id: &str, request: Request) -> Result<Response, Refusal> {
    let (head, _) = request.into_parts();
    let (owner, mut share) = admit(services, &head).await?;
    let query = Query::read(head.uri.query())?;
    query.refuse("before", |_| true, "lists in this API go forward only: write `after`, and turn `order` round")?;
    let limit = query.limit()?;
    let oldest_first = match query.one("order") {
        None | Some("desc") => false,
        Some("asc") => true,
        Some(_) => return Err(Problem::invalid("`order` must be `asc` or `desc`").with_param("order").into()),
    };
    let conversation = kept(services, id)?.made_from(&owner, id, &mut |bytes| share.grow(bytes)).await?;
    let conversation = conversation.ok_or_else(|| not_found(id))?;
    let page = conversation.page(Asked { limit, oldest_first, after: query.one("after") });
    let text = "`after` names no item of this list: write the `last_id` of the page before";
    let (page, bytes) = page.ok_or_else(|| Problem::invalid(text).with_param("after"))?;
    share.grow(bytes)?;
    Ok(Held::new(page.json(), share)?.response())
}

/// Whose request it is, and their share of what is held. Before anything else that a caller can make long.
async fn admit(services: &Services, head: &Parts) -> Result<(Identity, Share), Refusal> {
    let owner = credential::identify(services, head).await?;
    let mut share = services.bodies.share();
    share.belongs_to(&owner.workspace)?;
    Ok((owner, share))
}

/// The parameters of a request.
struct Query(Vec<(String, String)>);

impl Query {
    /// Reads them; one that may come once and comes twice is refused, and so are more than [`MAX_PARAMETERS`].
    fn read(query: Option<&str>) -> Result<Self, Problem> {
        let given = form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned();
        let pairs: Vec<(String, String)> = given.take(MAX_PARAMETERS.saturating_add(1)).collect();
        if pairs.len() > MAX_PARAMETERS {
            let text = format!("the query has more than {MAX_PARAMETERS} parameters: send fewer");
            return Err(Problem::invalid(text).with_param("query"));
        }
        let is_list = |name: &str| name.starts_with("include");
        let twice = pairs
            .iter()
            .enumerate()
            .find(|(place, (name, _))| !is_list(name) && pairs.iter().take(*place).any(|(before, _)| before == name));
        match twice {
            Some((_, (name, _))) => {
                let text = format!("`{}` came more than once: send it once", ids::shown(name));
                Err(Problem::invalid(text).with_param(ids::shown(name)))
            }
            None => Ok(Self(pairs)),
        }
    }

    fn one(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// SDKs write lists as `include[]`, `include[0]` or by repeating the name.
    fn includes(&self, word: &str) -> bool {
        let is_list = |name: &str| name == "include" || name.starts_with("include[");
        self.0.iter().any(|(name, value)| is_list(name) && value.split(',').any(|value| value == word))
    }

    fn refuse(&self, name: &str, is_meant: fn(&str) -> bool, why: &str) -> Result<(), Problem> {
        match self.one(name) {
            Some(value) if is_meant(value) => {
                Err(Problem::invalid(format!("`{name}` cannot be served: {why}")).with_param(name))
            }
            _ => Ok(()),
        }
    }

    fn limit(&self) -> Result<usize, Problem> {
        let Some(given) = self.one("limit") else { return Ok(USUAL_ITEMS) };
        let limit = given.parse().ok().filter(|limit| (1..=MAX_ITEMS).contains(limit));
        let text = format!("`limit` must be a whole number from 1 to {MAX_ITEMS}");
        limit.ok_or_else(|| Problem::invalid(text).with_param("limit"))
    }
}

/// The id in the path if it is one of ours.
fn ours(id: IdPath) -> Option<String> {
    id.ok().map(|Path(id)| id).filter(|id| id.starts_with(ids::RESPONSE))
}

fn kept<'a>(services: &'a Services, id: &str) -> Result<&'a StoredResponses, Problem> {
    services.engine.stored.as_ref().ok_or_else(|| not_found(id))
}

/// In the words that clients know.
fn not_found(id: &str) -> Problem {
    let text = format!("Response with id '{}' not found.", ids::shown(id));
    Problem::new(ProblemKind::NotFound, Origin::Caller, text).with_param("id")
}

fn not_allowed(text: &str) -> Refusal {
    Problem::new(ProblemKind::MethodNotAllowed, Origin::Caller, text).into()
}

/// These routes are OpenAI's alone, whatever else the caller speaks.
fn respond(answered: Result<Response, Refusal>, caller: &Caller) -> Response {
    let mut response = answered.map_err(|refusal| refusal.into_vocabulary(Vocabulary::OpenAi)).into_response();
    if let Ok(id) = HeaderValue::from_str(&caller.request_id) {
        response.headers_mut().insert(Vocabulary::OpenAi.request_id_header(), id);
    }
    response
}
