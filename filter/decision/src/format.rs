//! Which wire a request speaks, from its path alone, and whose error words its caller expects.
//!
//! INVARIANT: no path that a server could read as an endpoint is [`Endpoint::Other`].

pub(crate) mod path;

use crate::header;

/// Shape of body and stream: what a caller is owed, or what a model serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiFormat {
    /// OpenAI Chat Completions, `/v1/chat/completions`.
    ChatCompletions,
    /// Anthropic Messages, `/v1/messages`.
    Messages,
    /// OpenAI Responses, `/v1/responses`.
    Responses,
}

/// Whose error objects the caller's SDK understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vocabulary {
    /// `{"error": {message, type, param, code}}`.
    OpenAi,
    /// `{"type": "error", "error": {type, message}, "request_id"}`.
    Anthropic,
}

impl Vocabulary {
    /// That of the caller of an endpoint; where both vendors share a path, Anthropic's own headers tell.
    pub fn of(endpoint: Endpoint, has_header: impl Fn(&str) -> bool) -> Self {
        let speaks_anthropic = || header::ANTHROPIC.iter().any(|name| has_header(name));
        match (endpoint, endpoint.format()) {
            (_, Some(format)) | (Endpoint::TokenCount(format), None) => format.vocabulary(),
            (_, None) if speaks_anthropic() => Self::Anthropic,
            (_, None) => Self::OpenAi,
        }
    }

    /// The response header that carries the request's id.
    pub fn request_id_header(self) -> &'static str {
        match self {
            Self::Anthropic => "request-id",
            Self::OpenAi => "x-request-id",
        }
    }
}

impl ApiFormat {
    /// The vocabulary that belongs to this wire.
    pub fn vocabulary(self) -> Vocabulary {
        match self {
            Self::Messages => Vocabulary::Anthropic,
            Self::ChatCompletions | Self::Responses => Vocabulary::OpenAi,
        }
    }
}

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// A model's answer.
    Inference(ApiFormat),
    /// Files and containers: streamed, never buffered.
    Files,
    /// The sidecar's own pages and endpoints.
    Control,
    /// Requests to models that their provider takes apart later, or step by step: batches, assistants, agents. Code may
    /// run there by declarations that nobody here has seen.
    Uninspected,
    /// How long a request would be, which its provider counts: the body is one of this wire, and no model answers it.
    TokenCount(ApiFormat),
    /// Everything else.
    Other,
    /// Some server could read it as this endpoint (`None`: it is too long and too odd to tell), but it is not spelled
    /// so: refused, passed on to nobody.
    Misspelled(Option<&'static Place>),
}

/// An endpoint of ours, as a path names it.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// Without the root and its slash.
    path: &'static str,
    /// Stands under one of the API's roots.
    rooted: bool,
    endpoint: Endpoint,
}

impl Endpoint {
    /// The wire it serves, or would if it were spelled right.
    pub fn format(self) -> Option<ApiFormat> {
        match self {
            Self::Inference(format) => Some(format),
            Self::Misspelled(Some(place)) => place.endpoint.format(),
            Self::Misspelled(None)
            | Self::Files
            | Self::Control
            | Self::Uninspected
            | Self::TokenCount(_)
            | Self::Other => None,
        }
    }

    /// Files and containers live there, or would if it were spelled right: both vendors have the path.
    pub fn is_files(self) -> bool {
        match self {
            Self::Files => true,
            Self::Misspelled(Some(place)) => place.endpoint == Self::Files,
            Self::Misspelled(None)
            | Self::Inference(_)
            | Self::Control
            | Self::Uninspected
            | Self::TokenCount(_)
            | Self::Other => false,
        }
    }

    /// A model may run code for it, or would if it were spelled right.
    pub(crate) fn reaches_models(self) -> bool {
        match self {
            Self::Inference(_) | Self::Uninspected => true,
            Self::Misspelled(Some(place)) => place.endpoint.reaches_models(),
            Self::Misspelled(None) | Self::Files | Self::Control | Self::TokenCount(_) | Self::Other => false,
        }
    }
}

impl Place {
    /// The one spelling that is served, under the first root; of children, how they begin.
    pub fn spelling(&self, roots: &[String]) -> String {
        let root = roots.first().filter(|_| self.rooted).map_or("", String::as_str);
        format!("{root}/{}", self.path)
    }

    /// Longer paths belong to it as well.
    fn has_children(&self) -> bool {
        !matches!(self.endpoint, Endpoint::Inference(_) | Endpoint::TokenCount(_))
    }
}

/// Reads a path as it stands on the wire, with or without a query. `roots` are the API's roots.
///
/// An endpoint has one spelling. Servers read `/v1//messages`, `/v1/%6dessages` or `/v1/x/../messages` in ways of their
/// own, so a path that any of them could take for an endpoint is [`Endpoint::Misspelled`] unless it is spelled exactly.
pub fn classify(path: &[u8], roots: &[String]) -> Endpoint {
    path::read(path, roots)
}

const PLACES: &[Place] = &[
    Place { path: "messages", rooted: true, endpoint: Endpoint::Inference(ApiFormat::Messages) },
    Place { path: "chat/completions", rooted: true, endpoint: Endpoint::Inference(ApiFormat::ChatCompletions) },
    Place { path: "responses", rooted: true, endpoint: Endpoint::Inference(ApiFormat::Responses) },
    Place { path: "messages/count_tokens", rooted: true, endpoint: Endpoint::TokenCount(ApiFormat::Messages) },
    Place { path: "messages/batches", rooted: true, endpoint: Endpoint::Uninspected },
    Place { path: "batches", rooted: true, endpoint: Endpoint::Uninspected },
    Place { path: "assistants", rooted: true, endpoint: Endpoint::Uninspected },
    Place { path: "threads", rooted: true, endpoint: Endpoint::Uninspected },
    Place { path: "conversations", rooted: true, endpoint: Endpoint::Uninspected },
    Place { path: "evals", rooted: true, endpoint: Endpoint::Uninspected },
    Place { path: "fine_tuning", rooted: true, endpoint: Endpoint::Uninspected },
    Place { path: "chatkit", rooted: true, endpoint: Endpoint::Uninspected },
    Place { path: "agents", rooted: true, endpoint: Endpoint::Uninspected },
    Place { path: "sessions", rooted: true, endpoint: Endpoint::Uninspected },
    Place { path: "files", rooted: true, endpoint: Endpoint::Files },
    Place { path: "containers", rooted: true, endpoint: Endpoint::Files },
    Place { path: "tools", rooted: true, endpoint: Endpoint::Control },
    Place { path: "workspaces", rooted: true, endpoint: Endpoint::Control },
    Place { path: "settings", rooted: true, endpoint: Endpoint::Control },
    Place { path: "otari", rooted: false, endpoint: Endpoint::Control },
    Place { path: "healthz", rooted: false, endpoint: Endpoint::Control },
];

/// The value of a hexadecimal digit.
pub(crate) fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests;
