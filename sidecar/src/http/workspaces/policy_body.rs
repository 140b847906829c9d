//! The body of a policy's `PUT`, checked whole.
//!
//! INVARIANT: every wrong field is named in one answer, and nothing is stored unless all are right.

use std::fmt::Display;
use std::ops::RangeInclusive;

use decision::decide::{MAX_EXEC_TIMEOUT_S, MAX_ITERATIONS};
use decision::policy::Preference;
use decision::request::CodeTool;
use serde_json::{Map, Value};

use crate::http::Refusal;
use crate::repository::PolicyFields;

/// Tool kinds this sandbox serves.
pub(super) const SERVED: &[&str] = &["code_execution"];
/// Longest hint.
const HINT_MAX_CHARS: usize = 2048;
const FIELDS: &[&str] =
    &["enabled", "executor", "max_iterations", "exec_timeout_s", "default_purpose_hint", "image", "tools"];
const KINDS: [CodeTool; 3] = [CodeTool::Python, CodeTool::Bash, CodeTool::TextEditor];

/// What the deployment allows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds<'a> {
    /// Longest execution.
    pub(super) exec_timeout_s: u32,
    /// Images a policy may name.
    pub(super) allowed_images: &'a [String],
}

struct Reader<'a> {
    body: &'a Map<String, Value>,
    problems: Vec<(&'static str, String)>,
}

/// Reads a policy, or says everything that is wrong with it.
pub(super) fn parse(body: &Value, bounds: Bounds<'_>) -> Result<PolicyFields, Refusal> {
    let empty = Map::new();
    let body = body.as_object().unwrap_or(&empty);
    let mut reader = Reader { body, problems: Vec::new() };
    if let Some(name) = body.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        let name: String = name.chars().take(64).collect();
        reader.problems.push(("", format!("`{name}` is no field of a policy; there are {}", FIELDS.join(", "))));
    }
    let longest = bounds.exec_timeout_s.min(MAX_EXEC_TIMEOUT_S);
    let fields = PolicyFields {
        enabled: reader.enabled(),
        executor: reader.executor(),
        max_iterations: reader.number("max_iterations", 1..=MAX_ITERATIONS),
        exec_timeout_s: reader.number("exec_timeout_s", 1..=longest),
        default_purpose_hint: reader.hint(),
        image: reader.image(bounds.allowed_images),
        tools: reader.tools(),
    };
    match reader.problems.first() {
        None => Ok(fields),
        Some((param, _)) => {
            let texts: Vec<_> = reader.problems.iter().map(|(_, text)| text.as_str()).collect();
            Err(Refusal::unprocessable(texts.join("; "), Some(*param).filter(|param| !param.is_empty())))
        }
    }
}

impl Reader<'_> {
    fn enabled(&mut self) -> bool {
        match self.body.get("enabled") {
            Some(Value::Bool(flag)) => *flag,
            _ => self.wrong("enabled", "must be true or false").unwrap_or(false),
        }
    }

    fn executor(&mut self) -> Option<Preference> {
        match self.value("executor")? {
            Value::String(word) if word.trim().is_empty() => None,
            Value::String(word) if Preference::parse(word.as_bytes()).is_some() => Preference::parse(word.as_bytes()),
            _ => self.wrong("executor", format!("must be {}, or null for no pin", Preference::WORDS)),
        }
    }

    fn number(&mut self, name: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let number = self.value(name)?.as_u64().and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Some(number),
            None => {
                self.wrong(name, format!("must be a whole number from {} to {}, or null", range.start(), range.end()))
            }
        }
    }

    fn hint(&mut self) -> Option<String> {
        let name = "default_purpose_hint";
        match self.value(name)? {
            Value::String(text) if text.trim().is_empty() => None,
            Value::String(text) if text.chars().count() <= HINT_MAX_CHARS => Some(text.trim().to_owned()),
            _ => self.wrong(name, format!("must be text of up to {HINT_MAX_CHARS} characters, or null")),
        }
    }

    fn image(&mut self, allowed: &[String]) -> Option<String> {
        match self.value("image")? {
            Value::String(image) if allowed.contains(image) => Some(image.clone()),
            _ if allowed.is_empty() => self.wrong("image", "must be null: no session images are allowed here"),
            _ => self.wrong("image", format!("must be one of {}, or null", allowed.join(", "))),
        }
    }

    fn tools(&mut self) -> Option<Vec<String>> {
        let value = self.value("tools")?;
        let known = |word: &&str| KINDS.iter().any(|kind| kind.word() == *word);
        let words: Option<Vec<&str>> = value
            .as_array()
            .map(|list| list.iter().map(|word| word.as_str().filter(known)).collect())
            .unwrap_or_default();
        let mut words = words.unwrap_or_default();
        words.sort_unstable();
        words.dedup();
        if words.iter().any(|word| SERVED.contains(word)) {
            return Some(words.into_iter().map(str::to_owned).collect());
        }
        let kinds = KINDS.map(CodeTool::word).join(", ");
        self.wrong("tools", format!("must be null or a list of {kinds} with one that is served: {}", SERVED.join(", ")))
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.body.get(name).filter(|value| !value.is_null())
    }

    fn wrong<T>(&mut self, name: &'static str, text: impl Display) -> Option<T> {
        self.problems.push((name, format!("`{name}` {text}")));
        None
    }
}
