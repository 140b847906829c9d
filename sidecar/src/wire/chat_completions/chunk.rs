//! The chunk: a streamed piece of an answer, and, as one big piece, a whole answer. Read here, and written again.
//!
//! INVARIANT: what a chunk says beyond what is understood here travels with the first thing it says, and is written
//! once; what comes with a call of ours goes nowhere.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::wire::event::Raw;
use crate::wire::json::{push_json, push_name};

/// Members of a chunk that are no news by themselves: OpenAI repeats the first two in every chunk, the third is padding.
const QUIET: &[&str] = &["system_fingerprint", "service_tier", "obfuscation"];

/// A chunk, or a whole answer.
#[derive(Deserialize)]
pub(super) struct Chunk {
    pub(super) id: Option<String>,
    #[serde(default, rename = "object")]
    _object: Option<IgnoredAny>,
    pub(super) created: Option<Value>,
    #[serde(default, rename = "model")]
    _model: Option<IgnoredAny>,
    choices: Option<Vec<Choice>>,
    pub(super) usage: Option<Value>,
    pub(super) error: Option<Value>,
    #[serde(flatten)]
    pub(super) extra: Map<String, Value>,
}

/// One of the answers in a chunk; only the first is ever asked for.
#[derive(Deserialize)]
pub(super) struct Choice {
    index: Option<u64>,
    pub(super) delta: Option<Said>,
    pub(super) message: Option<Said>,
    pub(super) finish_reason: Option<String>,
    #[serde(flatten)]
    pub(super) extra: Map<String, Value>,
}

/// A message or a delta: the same members, all optional.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Said {
    #[serde(rename = "role")]
    _role: Option<IgnoredAny>,
    pub(super) content: Option<Content>,
    pub(super) reasoning_content: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) tool_calls: Option<Vec<SaidCall>>,
    #[serde(flatten)]
    pub(super) extra: Map<String, Value>,
}

/// A text; or a list of parts, as some servers send what others say in one text and `reasoning_content`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Part {
    text: Option<String>,
    thinking: Option<Content>,
}

impl Content {
    /// Its words, and its thoughts.
    pub(super) fn apart(self) -> (String, String) {
        let parts = match self {
            Self::Text(text) => return (text, String::new()),
            Self::Parts(parts) => parts,
        };
        let (mut words, mut thoughts) = (String::new(), String::new());
        for Part { text, thinking } in parts {
            words.push_str(&text.unwrap_or_default());
            if let Some(thinking) = thinking {
                thoughts.push_str(&thinking.apart().0);
            }
        }
        (words, thoughts)
    }
}

/// A call, or a piece of one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SaidCall {
    pub(super) index: Option<u64>,
    pub(super) id: Option<String>,
    #[serde(rename = "type")]
    _kind: Option<IgnoredAny>,
    function: Option<SaidFunction>,
    custom: Option<SaidCustom>,
    #[serde(flatten)]
    pub(super) extra: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SaidFunction {
    name: Option<String>,
    arguments: Option<Value>,
}

/// A call whose input is free text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SaidCustom {
    name: Option<String>,
    input: Option<String>,
}

impl Chunk {
    /// The first choice, taken out; whatever else a server sends was not asked for.
    pub(super) fn take_choice(&mut self) -> Option<Choice> {
        let choices = self.choices.take()?;
        choices.into_iter().find(|choice| choice.index.unwrap_or(0) == 0)
    }

    /// What of the opening the client's answer repeats: id, time, the quiet members, and the first `content`, which is
    /// null where the model begins with a call.
    pub(super) fn opening(&self, content: Option<Value>) -> Map<String, Value> {
        let quiet = QUIET.iter().filter_map(|name| Some(((*name).to_owned(), self.extra.get(*name)?.clone())));
        let mut opening: Map<String, Value> = quiet.filter(|(name, _)| name != "obfuscation").collect();
        opening.insert("id".to_owned(), self.id.clone().into());
        opening.insert("created".to_owned(), self.created.clone().unwrap_or_default());
        opening.insert("content".to_owned(), content.unwrap_or_default());
        opening
    }
}

impl SaidCall {
    pub(super) fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    pub(super) fn take_name(&mut self) -> Option<String> {
        let function = self.function.as_mut().and_then(|function| function.name.take());
        function.or_else(|| self.custom.as_mut()?.name.take()).filter(|name| !name.is_empty())
    }

    /// Text as the wire wants it, or an object as some servers send it.
    pub(super) fn take_arguments(&mut self) -> String {
        if let Some(input) = self.custom.as_mut().and_then(|custom| custom.input.take()) {
            return input;
        }
        match self.function.as_mut().and_then(|function| function.arguments.take()) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        }
    }
}

/// What a chunk says beyond what is understood here, by where it stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Extras {
    /// Beside `choices`.
    pub(super) chunk: Map<String, Value>,
    /// Beside `delta`.
    pub(super) choice: Map<String, Value>,
    /// In `delta`.
    pub(super) said: Map<String, Value>,
}

impl Extras {
    /// Whether that is worth a chunk of its own.
    pub(super) fn is_news(&self) -> bool {
        let quiet = |(name, value): (&String, &Value)| value.is_null() || QUIET.contains(&name.as_str());
        ![&self.chunk, &self.choice, &self.said].into_iter().all(|map| map.iter().all(quiet))
    }

    /// Takes over what a later chunk adds.
    pub(super) fn absorb(&mut self, later: Self) {
        for (known, later) in
            [(&mut self.chunk, later.chunk), (&mut self.choice, later.choice), (&mut self.said, later.said)]
        {
            known.extend(later.into_iter().filter(|(_, value)| !value.is_null()));
        }
    }

    /// As an object of the wire's shape.
    pub(super) fn into_closing(self, finish_reason: &str) -> Map<String, Value> {
        let mut choice = self.choice;
        choice.insert("delta".to_owned(), self.said.into());
        choice.insert("finish_reason".to_owned(), finish_reason.into());
        let mut closing = self.chunk;
        closing.insert("choices".to_owned(), vec![Value::from(choice)].into());
        closing
    }

    /// Takes an object of the wire's shape apart, and the reason with it.
    pub(super) fn of(mut object: Map<String, Value>) -> (Self, Option<String>) {
        let choice = match object.shift_remove("choices") {
            Some(Value::Array(choices)) => choices.into_iter().next(),
            _ => None,
        };
        let mut choice = into_map(choice);
        let said = into_map(choice.shift_remove("delta"));
        choice.shift_remove("index");
        let finish_reason = choice.shift_remove("finish_reason").as_ref().and_then(Value::as_str).map(str::to_owned);
        (Self { chunk: object, choice, said }, finish_reason)
    }
}

fn into_map(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// A chunk without id, object, time and model, which are the same in all chunks the client gets, and without usage.
pub(super) fn tail(extras: &Extras, finish_reason: Option<&str>, delta: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = b"{".to_vec();
    push_members(&mut out, &extras.chunk);
    push_name(&mut out, "choices");
    out.extend_from_slice(br#"[{"index":0,"delta":{"#);
    delta(&mut out);
    push_members(&mut out, &extras.said);
    out.push(b'}');
    push_members(&mut out, &extras.choice);
    push_name(&mut out, "finish_reason");
    push_json(&mut out, &finish_reason);
    out.extend_from_slice(b"}]}");
    out
}

/// Words under the names they came with.
pub(super) fn words(extras: &Extras, words: &[(&str, &str)]) -> Bytes {
    let delta = |out: &mut Vec<u8>| {
        for (name, piece) in words {
            push_name(out, name);
            push_json(out, piece);
        }
    };
    tail(extras, None, delta).into()
}

/// Whose call begins, and what its kind calls its input.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallHead<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) custom: bool,
}

/// A call's beginning.
pub(super) fn call_start(extras: &Extras, head: CallHead<'_>, extra: &Map<String, Value>) -> Raw {
    call(extras, |out| {
        let kind = if head.custom { "custom" } else { "function" };
        for (name, value) in [("id", head.id), ("type", kind)] {
            push_name(out, name);
            push_json(out, value);
        }
        push_name(out, kind);
        out.push(b'{');
        for (name, value) in [("name", head.name), (input_name(head.custom), "")] {
            push_name(out, name);
            push_json(out, value);
        }
        out.push(b'}');
        push_members(out, extra);
    })
}

/// More of a call's input.
pub(super) fn call_more(extras: &Extras, custom: bool, piece: &str, extra: &Map<String, Value>) -> Raw {
    call(extras, |out| {
        push_name(out, if custom { "custom" } else { "function" });
        out.push(b'{');
        push_name(out, input_name(custom));
        push_json(out, piece);
        out.push(b'}');
        push_members(out, extra);
    })
}

fn input_name(custom: bool) -> &'static str {
    if custom { "input" } else { "arguments" }
}

fn call(extras: &Extras, members: impl FnOnce(&mut Vec<u8>)) -> Raw {
    let mut place = 0..0;
    let json = tail(extras, None, |out| {
        out.extend_from_slice(br#""tool_calls":[{"index":"#);
        place = out.len()..out.len().saturating_add(1);
        out.push(b'0');
        members(out);
        out.extend_from_slice(b"}]");
    });
    Raw { json: json.into(), index: Some(place) }
}

fn push_members(out: &mut Vec<u8>, members: &Map<String, Value>) {
    for (name, value) in members {
        push_name(out, name);
        push_json(out, value);
    }
}
