//! A request in no wire's words: what one wire's request becomes on its way to another wire.
//!
//! INVARIANT: whatever a wire's parser leaves out is named in `dropped`, or the request was refused.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use super::model_request::Show;

/// A parsed request.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// Model name as the caller wrote it.
    pub model: String,
    /// System text.
    pub system: Option<String>,
    /// The history, in order.
    pub messages: Vec<Message>,
    /// The caller's own functions.
    pub functions: Vec<Function>,
    /// Which function the model must call.
    pub choice: Option<Choice>,
    /// Whether the model may call several functions at once.
    pub parallel_calls: Option<bool>,
    /// Texts at which the model stops.
    pub stop: Vec<String>,
    /// Most tokens to generate.
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<Number>,
    /// Nucleus sampling.
    pub top_p: Option<Number>,
    /// The caller's own name for the person behind the request.
    pub user: Option<String>,
    /// JSON schema of the whole answer.
    pub answer_schema: Option<Value>,
    /// Streamed.
    pub stream: bool,
    /// How much the model is to think, in the caller's word; and the parameter that said it.
    pub reasoning_effort: Option<(&'static str, String)>,
    /// What the caller asked to see.
    pub show: Show,
    /// What could not be carried over, by parameter.
    pub dropped: BTreeSet<String>,
}

/// One step of the history.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// What the person said.
    User(Vec<Part>),
    /// What the model said.
    Assistant {
        /// Its words.
        text: String,
        /// Its calls.
        calls: Vec<Call>,
    },
    /// What a call gave.
    Result {
        /// The call.
        call_id: String,
        /// What it gave, as text.
        text: String,
    },
}

/// A piece of what the person said.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Words.
    Text(String),
    /// A picture, as a URL or `data:` URL.
    Image(String),
    /// A PDF, as a `data:` URL, with its name.
    Pdf {
        /// File name.
        name: String,
        /// `data:application/pdf;base64,…`.
        data: String,
    },
}

/// A call of a function in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its id.
    pub id: String,
    /// The function.
    pub name: String,
    /// Its arguments, one JSON text.
    pub arguments: String,
}

/// A function of the caller's.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// JSON schema of its arguments.
    pub schema: Map<String, Value>,
    /// The model must keep to the schema.
    pub strict: Option<bool>,
}

/// Which function the model must call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// As it likes.
    Auto,
    /// Any one.
    Any,
    /// None.
    None,
    /// This one of the caller's.
    Function(String),
    /// Any of our functions.
    Code,
}
