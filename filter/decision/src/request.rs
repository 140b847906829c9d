//! The few fields of a request that a decision reads.
//!
//! INVARIANT: every text here is unescaped and within the limit its doc names.

use serde::Serialize;

/// What the scanner found in a body.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own; none excludes another")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestView {
    /// `model`, at most [`crate::scan::MAX_MODEL`] bytes.
    pub model: Option<String>,
    /// `stream` is `true`.
    pub stream: bool,
    /// Every code tool among `tools`, at most [`crate::scan::MAX_DECLARATIONS`].
    pub declarations: Vec<ToolDeclaration>,
    /// `tool_choice`, if it is there and not null.
    pub tool_choice: Option<ToolChoice>,
    /// A container of ours, from the top level or from a tool entry.
    pub own_container: Option<String>,
    /// Two different containers of ours are named.
    pub containers_differ: bool,
    /// `container.skills` is not empty.
    pub skills: bool,
    /// Some string anywhere starts with one of [`OWN_FILES`].
    pub own_file_ids: bool,
    /// Some string anywhere starts with one of [`MINTED`]: an answer of ours comes back as history.
    pub minted_history: bool,
    /// `mcp_servers` or `mcp_server_ids` is there and not empty.
    pub mcp: bool,
    /// `prompt` is there and not empty: on the Responses wire, a request kept at the provider, tools and all.
    pub stored_prompt: bool,
    /// A tool of type [`WEB_SEARCH`] is declared.
    pub web_search: bool,
    /// `max_tool_iterations`, a field of this gateway's own.
    pub max_tool_iterations: Option<u32>,
    /// A parameter that only a run here reads has a value such a run cannot honour.
    pub unusable: Option<&'static str>,
}

impl RequestView {
    /// The request names things only the sidecar can resolve: files, history or containers of ours.
    pub fn needs_sidecar(&self) -> bool {
        self.own_file_ids || self.minted_history || self.own_container.is_some()
    }
}

/// Prefix of file ids of ours.
pub const OWN_FILE: &str = "file-otr";
/// The same, and the prefix of files inside a container on the OpenAI wire.
pub const OWN_FILES: [&str; 2] = [OWN_FILE, "cfile_otr"];
/// Prefix of the ids of `server_tool_use` blocks we minted.
pub const SERVER_TOOL_USE: &str = "otari_srvtoolu_";
/// Prefix of the ids of `code_interpreter_call` items we minted.
pub const CODE_INTERPRETER_CALL: &str = "otari_ci_";
/// Prefix of what stands as a signature in `thinking` blocks we minted; no provider takes it.
pub const THOUGHT: &str = "otari_thought_";
/// Prefix of the ids of answers on the Responses wire that the sidecar keeps.
pub const RESPONSE: &str = "resp_otr";
/// Prefix of the ids of messages on the Responses wire that we minted.
pub const MESSAGE: &str = "msg_otr";
/// Prefix of the ids of reasoning items that we minted.
pub const REASONING: &str = "rs_otr";
/// Prefix of the ids of function calls on the Responses wire that we minted.
pub const FUNCTION_CALL: &str = "fc_otr";
/// Prefixes of what tells an answer, or a part of one, as ours: Messages blocks, Responses and their items.
pub const MINTED: [&str; 7] =
    [SERVER_TOOL_USE, CODE_INTERPRETER_CALL, THOUGHT, RESPONSE, MESSAGE, REASONING, FUNCTION_CALL];
/// Prefix of container ids of ours.
pub const OWN_CONTAINER: &str = "otari_cntr_";
/// The gateway's own web search, which we do not serve.
pub const WEB_SEARCH: &str = "otari_web_search";

/// One code tool, as declared in `tools`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDeclaration {
    /// Position in `tools`, from 0.
    pub index: u32,
    /// Its `type`, read.
    pub keyword: Keyword,
    /// `name`, at most [`crate::scan::MAX_NAME`] bytes.
    pub name: Option<String>,
    /// `purpose_hint`, not blank, at most [`crate::scan::MAX_HINT`] bytes.
    pub purpose_hint: Option<String>,
}

/// A tool type that asks for code to be run. Only `type` counts, never `name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keyword {
    /// `otari_code_execution`: always this gateway.
    Explicit,
    /// `code_execution`.
    Bare,
    /// `code_interpreter`.
    Interpreter,
    /// `code_execution_<suffix>`, with the suffix.
    Dated(String),
}

impl Keyword {
    /// Reads a tool's `type`; `None` for everything that asks for no code.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "otari_code_execution" => Some(Self::Explicit),
            "code_execution" => Some(Self::Bare),
            "code_interpreter" => Some(Self::Interpreter),
            _ => text.strip_prefix(DATED_PREFIX).map(|suffix| Self::Dated(suffix.to_owned())),
        }
    }

    /// The `type` it was read from.
    pub fn text(&self) -> String {
        match self {
            Self::Explicit => "otari_code_execution".to_owned(),
            Self::Bare => "code_execution".to_owned(),
            Self::Interpreter => "code_interpreter".to_owned(),
            Self::Dated(suffix) => format!("{DATED_PREFIX}{suffix}"),
        }
    }

    /// A word of the providers' (not the gateway's own).
    pub fn is_provider(&self) -> bool {
        *self != Self::Explicit
    }

    /// What the declared tool offers: Python; from 2025-08-25 on also a shell and a text editor.
    pub fn tools(&self) -> &'static [CodeTool] {
        match self {
            Self::Dated(suffix) if is_date_since(suffix, FIRST_WITH_BASH) => {
                &[CodeTool::Python, CodeTool::Bash, CodeTool::TextEditor]
            }
            _ => &[CodeTool::Python],
        }
    }
}

/// What [`Keyword::Dated`] types begin with.
pub const DATED_PREFIX: &str = "code_execution_";
/// The first version of Anthropic's tool that has bash and the text editor.
const FIRST_WITH_BASH: &str = "20250825";

/// `YYYYMMDD` dates compare as text.
fn is_date_since(suffix: &str, first: &str) -> bool {
    suffix.len() == first.len() && suffix.bytes().all(|byte| byte.is_ascii_digit()) && suffix >= first
}

/// One ability of the sandbox, in the words of contract v1 and of the workspace policy's `tools`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum CodeTool {
    /// A Python interpreter that keeps its state.
    #[serde(rename = "code_execution")]
    Python,
    /// A shell.
    #[serde(rename = "bash_code_execution")]
    Bash,
    /// View, create and edit files.
    #[serde(rename = "text_editor_code_execution")]
    TextEditor,
}

impl CodeTool {
    /// The word of contract v1.
    pub fn word(self) -> &'static str {
        match self {
            Self::Python => "code_execution",
            Self::Bash => "bash_code_execution",
            Self::TextEditor => "text_editor_code_execution",
        }
    }
}

/// `tool_choice` in any of the three wires' forms. Texts over their limit are absent here: they name nothing of ours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolChoice {
    /// The plain string, or the object's `type`, and the `name` beside it or in `function`, `tool` or `custom`.
    pub tool: NamedTool,
    /// Entries of `tools` (Responses) or `allowed_tools.tools` (Chat), at most [`crate::scan::MAX_ALLOWED`].
    pub allowed: Vec<NamedTool>,
}

/// A reference to a declared tool, by type, by name or by both.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamedTool {
    /// `type`.
    pub kind: Option<String>,
    /// `name`.
    pub name: Option<String>,
}
