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

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// A model's answer.
    Inference(ApiFormat),
    /// Files and containers: streamed, never buffered.
    Files,
    /// The sidecar's own pages and endpoints.
    Control,
    /// Everything else.
    Other,
}

/// Reads a path as it stands on the wire, with or without a query. Percent-escapes are decoded once, empty segments
/// and dots are resolved, so that no spelling of an endpoint's path goes unrecognised. `roots` are the API's roots.
pub fn classify(path: &[u8], roots: &[String]) -> Endpoint {
    let path = normalize(path);
    if matches!(path.split('/').nth(1), Some("healthz" | "otari")) {
        return Endpoint::Control;
    }
    let under = |root: &String| path.strip_prefix(root.as_str()).and_then(|rest| rest.strip_prefix('/'));
    let Some(rest) = roots.iter().find_map(under) else {
        return Endpoint::Other;
    };
    match rest {
        "chat/completions" => return Endpoint::Inference(ApiFormat::ChatCompletions),
        "messages" => return Endpoint::Inference(ApiFormat::Messages),
        "responses" => return Endpoint::Inference(ApiFormat::Responses),
        _ => {}
    }
    match rest.split_once('/').map_or(rest, |(first, _)| first) {
        "files" | "containers" => Endpoint::Files,
        "tools" | "workspaces" | "settings" => Endpoint::Control,
        _ => Endpoint::Other,
    }
}

/// The path without query and fragment, decoded once, its segments joined by single slashes, without a trailing one.
/// Bytes that are no UTF-8 are replaced: no endpoint of ours has any.
fn normalize(path: &[u8]) -> String {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
    let decoded = percent_decode(path.get(..end).unwrap_or_default());
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in decoded.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                segments.pop();
            }
            _ => segments.push(segment),
        }
    }
    let mut out = String::new();
    for segment in segments {
        out.push('/');
        out.push_str(&String::from_utf8_lossy(segment));
    }
    out
}

fn percent_decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let decoded = match (byte, tail) {
            (b'%', [high, low, after @ ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| ((high << 4) | low, after)),
            _ => None,
        };
        match decoded {
            Some((byte, after)) => {
                out.push(byte);
                rest = after;
            }
            None => out.push(byte),
        }
    }
    out
}

/// The value of a hexadecimal digit.
pub(crate) fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests;
