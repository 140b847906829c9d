//! Which wire a request speaks, from its path alone, and whose error words its caller expects.

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

impl ApiFormat {
    /// The vocabulary that belongs to this wire.
    pub fn vocabulary(self) -> Vocabulary {
        match self {
            Self::Messages => Vocabulary::Anthropic,
            Self::ChatCompletions | Self::Responses => Vocabulary::OpenAi,
        }
    }
}
