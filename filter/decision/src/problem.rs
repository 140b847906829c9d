//! Errors a caller can see, neutral first, then in the caller's own vocabulary.
//!
//! INVARIANT: a `Problem` holds only public text; causes stay in the log of whoever made it.

use serde_json::Value;

use crate::format::Vocabulary;

/// Who is to blame; decides log level and metrics label, never the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The request itself.
    Caller,
    /// The model or its provider.
    Upstream,
    /// The sandbox.
    Sandbox,
    /// Database or blob store.
    Storage,
    /// A bug or misconfiguration of ours.
    Gateway,
}

/// What kind of failure it is; fixes status and error type in both vocabularies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// 400: the request says something that cannot be.
    InvalidRequest,
    /// 401: no credential, or one we do not know.
    Unauthenticated,
    /// 403: known, but not allowed.
    PermissionDenied,
    /// 404: no such model, file, route.
    NotFound,
    /// 405: the route exists, the method does not.
    MethodNotAllowed,
    /// 409: what it asks for is in use; SDKs try again by themselves.
    Conflict,
    /// 413: over a limit named in the message.
    PayloadTooLarge,
    /// 415: a body we cannot inspect.
    UnsupportedMediaType,
    /// 429: too many at once.
    RateLimited,
    /// 500: ours.
    Internal,
    /// 502: the model's answer was no answer.
    UpstreamFailed,
    /// 502: the sandbox gave no usable answer.
    SandboxFailed,
    /// 503, on the Anthropic wire 529: come back later.
    Overloaded,
    /// 504: the model took too long.
    UpstreamTimedOut,
}

/// A failure as the caller may know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What kind of failure.
    pub kind: ProblemKind,
    /// Who caused it.
    pub origin: Origin,
    /// Says what is wrong and what to change; public.
    pub message: String,
    /// OpenAI's machine-readable `code`, e.g. `model_not_found`. One of [`SHARED_CODES`] is Anthropic's too.
    pub code: Option<&'static str>,
    /// The parameter at fault, e.g. `tools[0].type`.
    pub param: Option<String>,
    /// Seconds for `retry-after`.
    pub retry_after_s: Option<u32>,
    /// Code has run: the SDKs must not send the request again by themselves (`x-should-retry: false`).
    pub side_effects: bool,
}

/// A whole HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers, `content-type` among them; names lower-case.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Codes that Anthropic's SDKs know as `error.details.error_code` (wire.md 2.6), and that OpenAI's expose as they come.
pub const SHARED_CODES: &[&str] = &["storage_quota_exceeded"];

/// OpenAI's code for a key that it does not know.
pub const INVALID_KEY: &str = "invalid_api_key";

/// Seconds after which to come back when there was no room.
pub const BUSY_RETRY_AFTER_S: u32 = 1;

impl Problem {
    /// A problem of this kind and blame with nothing further to say.
    pub fn new(kind: ProblemKind, origin: Origin, message: impl Into<String>) -> Self {
        Self {
            kind,
            origin,
            message: message.into(),
            code: None,
            param: None,
            retry_after_s: None,
            side_effects: false,
        }
    }

    /// The caller's own mistake.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ProblemKind::InvalidRequest, Origin::Caller, message)
    }

    /// No room at this moment; the caller is told to come back in [`BUSY_RETRY_AFTER_S`].
    pub fn busy(message: impl Into<String>) -> Self {
        let problem = Self::new(ProblemKind::Overloaded, Origin::Gateway, message);
        Self { retry_after_s: Some(BUSY_RETRY_AFTER_S), ..problem }
    }

    /// As many bytes of request bodies are held as may.
    pub fn bodies_full() -> Self {
        Self::busy("the gateway holds as many request bodies as it may (http.max_buffered_bytes): try again")
    }

    /// Names the parameter at fault.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Sets the `code`.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// HTTP status in this vocabulary. Anthropic says 529 for overload, which its SDKs know by name.
    pub fn status(&self, vocabulary: Vocabulary) -> u16 {
        match self.kind {
            ProblemKind::InvalidRequest => 400,
            ProblemKind::Unauthenticated => 401,
            ProblemKind::PermissionDenied => 403,
            ProblemKind::NotFound => 404,
            ProblemKind::MethodNotAllowed => 405,
            ProblemKind::Conflict => 409,
            ProblemKind::PayloadTooLarge => 413,
            ProblemKind::UnsupportedMediaType => 415,
            ProblemKind::RateLimited => 429,
            ProblemKind::Internal => 500,
            ProblemKind::UpstreamFailed | ProblemKind::SandboxFailed => 502,
            ProblemKind::Overloaded => match vocabulary {
                Vocabulary::Anthropic => 529,
                Vocabulary::OpenAi => 503,
            },
            ProblemKind::UpstreamTimedOut => 504,
        }
    }

    /// `error.type` in this vocabulary (wire.md 2.6; OpenAI's SDKs classify by status and expose the type as it comes).
    pub fn error_type(&self, vocabulary: Vocabulary) -> &'static str {
        match (vocabulary, self.kind) {
            (_, ProblemKind::InvalidRequest | ProblemKind::MethodNotAllowed | ProblemKind::UnsupportedMediaType) => {
                "invalid_request_error"
            }
            (_, ProblemKind::Unauthenticated) => "authentication_error",
            (_, ProblemKind::PermissionDenied) => "permission_error",
            (_, ProblemKind::RateLimited) => "rate_limit_error",
            (Vocabulary::Anthropic, ProblemKind::NotFound) => "not_found_error",
            (Vocabulary::Anthropic, ProblemKind::Conflict) => "conflict_error",
            (Vocabulary::Anthropic, ProblemKind::PayloadTooLarge) => "request_too_large",
            (Vocabulary::Anthropic, ProblemKind::Overloaded) => "overloaded_error",
            (Vocabulary::Anthropic, ProblemKind::UpstreamTimedOut) => "timeout_error",
            (Vocabulary::Anthropic, _) => "api_error",
            (Vocabulary::OpenAi, ProblemKind::NotFound | ProblemKind::Conflict | ProblemKind::PayloadTooLarge) => {
                "invalid_request_error"
            }
            (Vocabulary::OpenAi, _) => "server_error",
        }
    }

    /// The error object, as it stands in a body or in a stream's error event.
    pub fn body(&self, vocabulary: Vocabulary, request_id: &str) -> Value {
        serde_json::to_value(self.error_object(vocabulary, request_id)).unwrap_or_default()
    }

    /// The whole answer for a failure before the first byte.
    pub fn reply(&self, vocabulary: Vocabulary, request_id: &str) -> Reply {
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            (vocabulary.request_id_header(), request_id.to_owned()),
        ];
        if let Some(seconds) = self.retry_after_s {
            headers.push(("retry-after", seconds.to_string()));
        }
        if self.side_effects {
            headers.push(("x-should-retry", "false".to_owned()));
        }
        Reply {
            status: self.status(vocabulary),
            headers,
            // From the struct, not from `Value`: its key order is the same whatever features serde_json has.
            body: serde_json::to_vec(&self.error_object(vocabulary, request_id)).unwrap_or_default(),
        }
    }

    fn error_object<'a>(&'a self, vocabulary: Vocabulary, request_id: &'a str) -> ErrorObject<'a> {
        let kind = self.error_type(vocabulary);
        match vocabulary {
            Vocabulary::Anthropic => ErrorObject::Anthropic {
                tag: "error",
                error: AnthropicError {
                    kind,
                    message: &self.message,
                    details: self
                        .code
                        .filter(|code| SHARED_CODES.contains(code))
                        .map(|error_code| Details { error_code }),
                },
                request_id,
            },
            Vocabulary::OpenAi => ErrorObject::OpenAi {
                error: OpenAiError { message: &self.message, kind, param: self.param.as_deref(), code: self.code },
            },
        }
    }
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum ErrorObject<'a> {
    Anthropic {
        #[serde(rename = "type")]
        tag: &'static str,
        error: AnthropicError<'a>,
        request_id: &'a str,
    },
    OpenAi {
        error: OpenAiError<'a>,
    },
}

#[derive(serde::Serialize)]
struct AnthropicError<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

#[derive(serde::Serialize)]
struct Details {
    error_code: &'static str,
}

#[derive(serde::Serialize)]
struct OpenAiError<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: Option<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::{Problem, Vocabulary};

    #[test]
    fn each_vocabulary_has_its_own_error_object() {
        let problem = Problem::invalid("no `model`").with_param("model").with_code("model_not_found");
        let body = |vocabulary| String::from_utf8(problem.reply(vocabulary, "req_1").body).unwrap();
        assert_eq!(
            body(Vocabulary::Anthropic),
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"no `model`"},"request_id":"req_1"}"#
        );
        assert_eq!(
            body(Vocabulary::OpenAi),
            r#"{"error":{"message":"no `model`","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#
        );
        let full = Problem::invalid("full").with_code("storage_quota_exceeded");
        assert_eq!(
            String::from_utf8(full.reply(Vocabulary::Anthropic, "req_1").body).unwrap(),
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"full","details":{"error_code":"storage_quota_exceeded"}},"request_id":"req_1"}"#
        );
    }
}
