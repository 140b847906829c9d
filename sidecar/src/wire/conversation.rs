//! A request in no wire's words: what one wire's request becomes on its way to another wire.
//!
//! INVARIANT: whatever a wire's parser leaves out is named in `dropped`, or the request was refused.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use super::json::take_text;
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
    /// What the whole answer must look like.
    pub answer_schema: Option<AnswerSchema>,
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
    /// What the system said when the conversation had begun.
    System(String),
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
    /// A picture.
    Image {
        /// A URL, or a `data:` URL.
        url: String,
        /// How closely it is to be looked at, in the words of `OpenAI`'s wires.
        detail: Option<String>,
    },
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

/// The form of a whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerSchema {
    /// What it is called.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Its JSON schema.
    pub schema: Value,
    /// The model must keep to the schema.
    pub strict: Option<bool>,
}

impl AnswerSchema {
    /// What a form is called that has no name, where the wire demands one.
    const NAME: &str = "answer";

    /// A form that the model must keep to, in a wire that knows no other.
    pub fn strict(schema: Value) -> Self {
        Self { name: Self::NAME.to_owned(), description: None, schema, strict: Some(true) }
    }

    /// Takes it out of an object of either OpenAI wire; `None` without a schema, and then nothing is taken.
    pub fn take(format: &mut Map<String, Value>) -> Option<Self> {
        let schema = format.remove("schema")?;
        Some(Self {
            name: take_text(format, "name").unwrap_or_else(|| Self::NAME.to_owned()),
            description: take_text(format, "description"),
            schema,
            strict: format.remove("strict").as_ref().and_then(Value::as_bool),
        })
    }

    /// The members of that object.
    pub fn members(&self) -> Map<String, Value> {
        let mut members = Map::from_iter([("name".to_owned(), self.name.as_str().into())]);
        let mut put = |name: &str, value: Option<Value>| members.extend(value.map(|value| (name.to_owned(), value)));
        put("description", self.description.as_deref().map(Value::from));
        put("schema", Some(self.schema.clone()));
        put("strict", self.strict.map(Value::from));
        members
    }
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
