//! A contract-v1 server as the place where code runs.
//!
//! INVARIANT: what a server sends is read leniently where the contract may grow (unknown fields, unknown block types)
//! and strictly where it must not shrink; an error names the field, never its value.

mod answer;
mod call;
mod files;

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde_json::json;

use super::{
    Capability, ExecutionRequest, ExecutionResult, FileContent, FileSource, Listing, SandboxBackend, SandboxError,
    SessionGrant, SessionId, SessionSpec, WorkspacePath,
};

/// How a contract-v1 server is reached.
#[derive(Clone)]
pub struct HttpSettings {
    /// Base address, `http` or `https`; it may have a path, and a trailing slash. Or `unix:` and the path of a socket.
    pub url: String,
    /// Sent as a bearer token with every call.
    pub token: Option<String>,
    /// Every limit.
    pub limits: HttpLimits,
}

impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("HttpSettings")
            .field("url", &self.url)
            .field("token", &token)
            .field("limits", &self.limits)
            .finish()
    }
}

/// Limits of the conversation with a contract-v1 server.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Time to open a connection.
    pub connect_timeout: Duration,
    /// Time for a call that runs no code.
    pub call_timeout: Duration,
    /// What an execution gets on top of the time granted to the code: the server needs some to answer in.
    pub execute_grace: Duration,
    /// Time for a file on its way in or out.
    pub file_timeout: Duration,
    /// Longest answer that is read.
    pub answer_bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(30),
            execute_grace: Duration::from_secs(10),
            file_timeout: Duration::from_mins(5),
            answer_bytes: 16 << 20,
        }
    }
}

/// Why a client cannot be made of the settings. The text says what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum HttpSettingsError {
    /// Not an `http` or `https` address.
    #[error("`sandbox.url` is not an address; write one such as `http://127.0.0.1:8080` or `unix:/run/sandbox.sock`")]
    Url,
    /// The token holds characters no header can carry.
    #[error(
        "the sandbox's token holds characters that no header can carry; check the variable `sandbox.token_env` names"
    )]
    Token,
    /// TLS could not be set up.
    #[error("the HTTP client cannot be built")]
    Client(#[source] reqwest::Error),
}

/// Runs code on a contract-v1 server.
#[derive(Debug)]
pub struct HttpSandbox {
    client: Client,
    base: Url,
    limits: HttpLimits,
    /// When the server last said that it has no lists of files.
    lists_refused: Mutex<Option<Instant>>,
}

impl HttpSandbox {
    /// Builds the client; nothing is called yet.
    pub fn new(settings: HttpSettings) -> Result<Self, HttpSettingsError> {
        let socket = settings.url.strip_prefix("unix:");
        let url = socket.map_or(settings.url.as_str(), |_| "http://localhost");
        let mut base = Url::parse(url).map_err(|_| HttpSettingsError::Url)?;
        if !matches!(base.scheme(), "http" | "https") || base.query().is_some() || base.fragment().is_some() {
            return Err(HttpSettingsError::Url);
        }
        base.path_segments_mut().map_err(|()| HttpSettingsError::Url)?.pop_if_empty();
        let mut headers = HeaderMap::new();
        if let Some(token) = &settings.token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| HttpSettingsError::Token)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // Fails if it is installed already, by us or by another part: either way there is one then.
        drop(rustls::crypto::ring::default_provider().install_default());
        let builder = Client::builder()
            .default_headers(headers)
            .connect_timeout(settings.limits.connect_timeout)
            // A redirect would carry code and token to an address nobody configured.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        let builder = match socket {
            Some("") => return Err(HttpSettingsError::Url),
            Some(path) => builder.unix_socket(path),
            None => builder,
        };
        let client = builder.build().map_err(HttpSettingsError::Client)?;
        Ok(Self { client, base, limits: settings.limits, lists_refused: Mutex::default() })
    }

    async fn create(&self, spec: &SessionSpec) -> Result<SessionGrant, SandboxError> {
        let mut body = serde_json::Map::new();
        for (name, hint) in [("idle_timeout_seconds", spec.idle_timeout), ("max_lifetime_seconds", spec.max_lifetime)] {
            if let Some(hint) = hint {
                body.insert(name.to_owned(), json!(whole_seconds(hint)));
            }
        }
        let request = self.client.post(self.address(&["sessions"])?).json(&body);
        let answer = self.call(request, self.limits.call_timeout).await?;
        answer::session(&answer)
    }

    async fn run(&self, session: &SessionId, request: &ExecutionRequest) -> Result<ExecutionResult, SandboxError> {
        let (tool, input) = call::tool_and_input(&request.input);
        let body = json!({
            "tool": tool,
            "input": input,
            "timeout_seconds": whole_seconds(request.timeout),
            "tool_use_id": request.call_id,
        });
        let call = self.client.post(self.address(&["sessions", &session.0, "exec"])?).json(&body);
        let answer = self.call(call, request.timeout + self.limits.execute_grace).await;
        let answer = answer.map_err(|error| match error {
            SandboxError::Refused { reason } => SandboxError::Refused {
                reason: format!("{reason} to `{tool}`: it does not serve this tool, or does not take this input"),
            },
            other => other,
        })?;
        answer::execution(&answer, &request.input)
    }

    async fn destroy(&self, session: &SessionId) -> Result<(), SandboxError> {
        let call = self.client.delete(self.address(&["sessions", &session.0])?);
        match self.call(call, self.limits.call_timeout).await {
            Ok(_) | Err(SandboxError::UnknownSession) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The address of an operation; what a server gave as an id is one segment of it, whatever it holds.
    fn address(&self, segments: &[&str]) -> Result<Url, SandboxError> {
        let mut url = self.base.clone();
        let mut path = url.path_segments_mut().map_err(|()| broken("the base address cannot have a path"))?;
        path.extend(segments);
        drop(path);
        Ok(url)
    }

    /// Sends a request and reads the answer of a success.
    async fn call(&self, request: RequestBuilder, patience: Duration) -> Result<Bytes, SandboxError> {
        let response = request.timeout(patience).send().await.map_err(failed)?;
        let status = response.status();
        if !status.is_success() {
            return Err(refusal(status, response.headers()));
        }
        read(response, self.limits.answer_bytes).await
    }
}

impl SandboxBackend for HttpSandbox {
    fn create_session<'a>(&'a self, spec: &'a SessionSpec) -> BoxFuture<'a, Result<SessionGrant, SandboxError>> {
        self.create(spec).boxed()
    }

    fn execute<'a>(
        &'a self,
        session: &'a SessionId,
        request: &'a ExecutionRequest,
    ) -> BoxFuture<'a, Result<ExecutionResult, SandboxError>> {
        self.run(session, request).boxed()
    }

    fn destroy_session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), SandboxError>> {
        self.destroy(session).boxed()
    }

    fn put_file<'a>(
        &'a self,
        session: &'a SessionId,
        path: &'a WorkspacePath,
        size: u64,
        source: FileSource,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        self.put(session, path, size, source).boxed()
    }

    fn list_files<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Listing, SandboxError>> {
        self.list(session).boxed()
    }

    fn get_file<'a>(
        &'a self,
        session: &'a SessionId,
        path: &'a WorkspacePath,
        max_bytes: u64,
    ) -> BoxFuture<'a, Result<FileContent, SandboxError>> {
        self.get(session, path, max_bytes).boxed()
    }

    fn capability(&self) -> Capability {
        Capability { backend: "http", isolation: "remote", detail: "a contract-v1 server".to_owned() }
    }
}

/// The contract counts in whole seconds and takes none below one.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

async fn read(mut response: reqwest::Response, limit: usize) -> Result<Bytes, SandboxError> {
    let too_long = || broken(format!("its answer is longer than {limit} bytes"));
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Err(too_long());
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > limit {
            return Err(too_long());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

/// What a status that is no success means. The body is not read: it may quote the code.
fn refusal(status: StatusCode, headers: &HeaderMap) -> SandboxError {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => SandboxError::Unauthorized,
        StatusCode::NOT_FOUND => SandboxError::UnknownSession,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::PAYLOAD_TOO_LARGE => {
            SandboxError::Refused { reason: format!("the contract-v1 server answered {}", status.as_u16()) }
        }
        StatusCode::SERVICE_UNAVAILABLE => SandboxError::AtCapacity { retry_after: retry_after(headers) },
        _ => broken(format!("the contract-v1 server answered {}", status.as_u16())),
    }
}

/// Seconds only, at most six digits: a date or a century is no advice to follow.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    const MOST_DIGITS: usize = 6;
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let digits = (1..=MOST_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok().map(Duration::from_secs))?
}

fn failed(error: reqwest::Error) -> SandboxError {
    if error.is_timeout() && !error.is_connect() {
        return SandboxError::TimedOut;
    }
    let reason = if error.is_connect() { "no connection to the contract-v1 server" } else { "the connection broke" };
    SandboxError::Unreachable { reason: reason.to_owned(), source: Some(error.without_url().into()) }
}

/// The server breaks the contract.
fn broken(reason: impl Into<String>) -> SandboxError {
    SandboxError::Unreachable { reason: reason.into(), source: None }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};

    use super::{HttpLimits, HttpSandbox, HttpSettings, retry_after, whole_seconds};

    #[test]
    fn retry_after_takes_up_to_six_digits() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            retry_after(&headers).map(|time| time.as_secs())
        };
        assert_eq!(read("0"), Some(0));
        assert_eq!(read("999999"), Some(999_999));
        for text in ["", "1000000", "-1", "+1", "1.5", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn seconds_are_rounded_up_and_never_none() {
        let rounded = |millis| whole_seconds(Duration::from_millis(millis));
        assert_eq!([rounded(0), rounded(1), rounded(1000), rounded(1001)], [1, 1, 1, 2]);
    }

    fn address(url: &str, id: &str) -> Option<String> {
        let settings = HttpSettings { url: url.to_owned(), token: None, limits: HttpLimits::default() };
        let sandbox = HttpSandbox::new(settings).ok()?;
        sandbox.address(&["sessions", id, "exec"]).ok().map(String::from)
    }

    #[test]
    fn addresses_keep_the_base_and_hold_an_id_in_one_segment() {
        for base in ["http://host:1/base/path", "http://host:1/base/path/"] {
            assert_eq!(address(base, "s1").as_deref(), Some("http://host:1/base/path/sessions/s1/exec"));
        }
        assert_eq!(address("http://host", "s1").as_deref(), Some("http://host/sessions/s1/exec"));
        assert_eq!(
            address("http://host", "a/../b?c#d").as_deref(),
            Some("http://host/sessions/a%2F..%2Fb%3Fc%23d/exec")
        );
        for base in ["", "host:1", "ftp://host", "http://host/?q=1", "unix:", "unixsocket"] {
            assert_eq!(address(base, "s1"), None, "{base}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        let settings = HttpSettings {
            url: "http://host".to_owned(),
            token: Some("hush".to_owned()),
            limits: HttpLimits::default(),
        };
        assert!(!format!("{settings:?}").contains("hush"));
        assert!(!format!("{:?}", HttpSandbox::new(settings).unwrap()).contains("hush"));
    }
}
