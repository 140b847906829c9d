//! Random identifiers, and the prefixes that make them ours; those that the filter looks for are its own.

use std::fmt::Debug;

/// Prefix of the `server_tool_use` ids we mint on the Messages wire.
pub const SERVER_TOOL_USE: &str = decision::request::SERVER_TOOL_USE;
/// Prefix of the signatures of thinking on the Messages wire whose model speaks another.
pub const THOUGHT: &str = decision::request::THOUGHT;
/// Prefix of the ids of code calls on the Responses wire.
pub const CODE_INTERPRETER_CALL: &str = decision::request::CODE_INTERPRETER_CALL;
/// Prefix of container ids.
pub const CONTAINER: &str = decision::request::OWN_CONTAINER;
/// Prefix of the ids of answers on the Messages wire, and of messages on the Responses wire, whose model has none of the
/// wire.
pub const MESSAGE: &str = decision::request::MESSAGE;
/// Prefix of the ids of answers on the Chat Completions wire whose model has none of this wire.
pub const COMPLETION: &str = "chatcmpl-otr";
/// Prefix of the ids of calls to which the model gave none, and of code calls on the Chat Completions wire.
pub const CALL: &str = "call_otr";
/// Prefix of the ids of answers on the Responses wire.
pub const RESPONSE: &str = decision::request::RESPONSE;
/// Prefix of the ids of reasoning items on the Responses wire whose model speaks another.
pub const REASONING: &str = decision::request::REASONING;
/// Prefix of the ids of function calls on the Responses wire whose model speaks another.
pub const FUNCTION_CALL: &str = decision::request::FUNCTION_CALL;
/// Prefix of request ids.
pub const REQUEST: &str = decision::identity::REQUEST_ID_PREFIX;

/// Hex digits of an id.
pub const DIGITS: usize = 32;
/// Longest part of an id that a person is shown, in characters.
const MAX_SHOWN: usize = 64;

/// Whether a text can be an id of ours: at most 64 of `A-Z`, `a-z`, `0-9` and `_`. What is not is asked of no database.
pub fn is_plain(id: &str) -> bool {
    id.len() <= MAX_SHOWN && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// As much of a caller's id as a message repeats.
pub fn shown(id: &str) -> String {
    id.chars().filter(|character| !character.is_control()).take(MAX_SHOWN).collect()
}

/// Bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]);
    nibbles.filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
}

/// The name that a file of ours has inside a container on the OpenAI wire: the same digits behind another prefix.
pub fn in_container(file_id: &str) -> String {
    let [file, in_container] = decision::request::OWN_FILES;
    format!("{in_container}{}", file_id.strip_prefix(file).unwrap_or(file_id))
}

/// The id of a file of ours from the name that it has inside a container; `None` for any other text.
pub fn out_of_container(name: &str) -> Option<String> {
    let [file, in_container] = decision::request::OWN_FILES;
    name.strip_prefix(in_container).map(|digits| format!("{file}{digits}"))
}

/// Whether a text is this prefix and [`DIGITS`] lower-case hex digits, as [`IdSource::mint`] makes them.
pub fn is_minted(prefix: &str, text: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix(prefix).is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(hex))
}

/// Where randomness comes from.
pub trait IdSource: Send + Sync + Debug {
    /// 128 random bits as 32 lower-case hex digits.
    fn hex128(&self) -> String;

    /// A prefix and 32 hex digits.
    fn mint(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.hex128())
    }
}

/// The operating system's random source.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

impl IdSource for SystemIds {
    fn hex128(&self) -> String {
        let mut bytes = [0u8; 16];
        // Without randomness no id is safe to give out; the process must not go on.
        #[expect(clippy::expect_used, reason = "no id is safe to give out without randomness")]
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        bytes
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 0x0f])
            .filter_map(|nibble| char::from_digit(nibble.into(), 16))
            .collect()
    }
}
