//! Header names, each in one place: what a client may say, and what only the gateway's own parts may say.

/// The client's wish about who runs code: `auto`, `otari` or `provider`.
pub const EXECUTOR: &str = "otari-code-execution";
/// The same wish under its older name. Both present and different is refused.
pub const EXECUTOR_X: &str = "x-otari-code-execution";
/// An otari key, when `authorization` and `x-api-key` carry the client's own provider credential.
pub const KEY: &str = "otari-key";
/// `authorization: Bearer <credential>`.
pub const AUTHORIZATION: &str = "authorization";
/// The credential as the Anthropic SDKs before 2.0 send it.
pub const API_KEY: &str = "x-api-key";
/// Every Anthropic SDK sends it.
pub const ANTHROPIC_VERSION: &str = "anthropic-version";
/// What an Anthropic client asks for beyond the version; a comma-separated list, which may come in several lines.
pub const ANTHROPIC_BETA: &str = "anthropic-beta";
/// Headers that no client but Anthropic's sends.
pub const ANTHROPIC: &[&str] = &[ANTHROPIC_VERSION, ANTHROPIC_BETA];
/// The request's id, made by Envoy; see [`crate::identity::request_id`].
pub const REQUEST_ID: &str = "x-request-id";

/// Internal, filter → Envoy's route table: `sidecar` picks the sidecar's route.
pub const ROUTE: &str = "x-otari-route";
/// The only value of [`ROUTE`].
pub const ROUTE_SIDECAR: &str = "sidecar";
/// Internal, filter or sidecar → Envoy's route table: name of the provider that serves the request.
pub const PROVIDER: &str = "x-otari-provider";
/// Internal, Envoy's route → sidecar: proof that the call came through Envoy.
pub const HOP: &str = "x-otari-hop";
/// Internal, filter → sidecar: what the filter decided, why, and under which snapshot version.
pub const DECISION: &str = "x-otari-decision";

/// Response header naming what could not be carried over to the model's wire.
pub const DROPPED: &str = "otari-dropped";

/// Headers no client may bring: Envoy's early header mutation strips them, the filter again.
pub const INTERNAL: &[&str] = &[ROUTE, PROVIDER, HOP, DECISION];
/// Headers that end at the gateway, whoever sent them: never forwarded to a provider.
pub const CONTROL: &[&str] = &[EXECUTOR, EXECUTOR_X, KEY];
