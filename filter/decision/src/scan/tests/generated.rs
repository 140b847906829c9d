//! Valid requests, as odd as JSON allows: any key order, any escape, keywords in every wrong place.

use std::fmt::Write as _;

use proptest::prelude::*;

/// A JSON value whose text can be written in several ways.
#[derive(Debug, Clone)]
pub(super) enum Json {
    Word(&'static str),
    Number(String),
    Text(String),
    Array(Vec<Json>),
    /// No key stands twice.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// As text. The style chooses blanks and how characters are escaped.
    pub(super) fn text(&self, style: u8) -> String {
        let mut out = String::new();
        self.write(style, &mut out);
        out
    }

    /// The same with the first key of its object once more at the end.
    pub(super) fn with_a_key_twice(mut self) -> Self {
        if let Self::Object(fields) = &mut self {
            fields.extend(fields.first().cloned());
        }
        self
    }

    fn write(&self, style: u8, out: &mut String) {
        let blank = ["", " ", "\n\t"][usize::from(style % 3)];
        match self {
            Self::Word(word) => out.push_str(word),
            Self::Number(number) => out.push_str(number),
            Self::Text(text) => write_text(text, style, out),
            Self::Array(entries) => {
                out.push('[');
                for (index, entry) in entries.iter().enumerate() {
                    out.push_str(if index == 0 { blank } else { "," });
                    entry.write(style, out);
                    out.push_str(blank);
                }
                out.push(']');
            }
            Self::Object(fields) => {
                out.push('{');
                for (index, (key, value)) in fields.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { "," });
                    out.push_str(blank);
                    write_text(key, style, out);
                    out.push_str(blank);
                    out.push(':');
                    out.push_str(blank);
                    value.write(style, out);
                }
                out.push_str(blank);
                out.push('}');
            }
        }
    }
}

fn write_text(text: &str, style: u8, out: &mut String) {
    out.push('"');
    for (index, character) in text.chars().enumerate() {
        let escape = match style / 3 % 4 {
            0 => false,
            1 => true,
            2 => index == 0,
            _ => index % 2 == 1,
        };
        if escape {
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").unwrap();
            }
        } else if matches!(character, '"' | '\\') {
            out.push('\\');
            out.push(character);
        } else if character < ' ' {
            write!(out, "\\u{:04X}", u32::from(character)).unwrap();
        } else {
            out.push(character);
        }
    }
    out.push('"');
}

const TEXTS: &[&str] = &[
    "",
    "code_execution",
    "code_interpreter",
    "code_execution_20250825",
    "code_execution_",
    "otari_code_execution",
    "otari_web_search",
    "Code_execution",
    "function",
    "auto",
    "file-otr1",
    "file-ot",
    "cfile_otr1",
    "otari_srvtoolu_1",
    "otari_thought_unsigned",
    "otari_ci_",
    "otari_c",
    "otari_cntr_1",
    "otari_cntr_2",
    "claude-x",
    "a \"quoted\" \\ text that is a little longer than sixteen bytes",
    "naïve 😀",
    "\u{0}\n\u{1f}",
];

const KEYS: &[&str] = &[
    "model",
    "stream",
    "tools",
    "tool_choice",
    "container",
    "mcp_servers",
    "mcp_server_ids",
    "prompt",
    "max_tool_iterations",
    "messages",
    "input",
    "type",
    "name",
    "purpose_hint",
    "id",
    "skills",
    "function",
    "custom",
    "allowed_tools",
    "",
    "Model",
    "möglich",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => proptest::sample::select(TEXTS).prop_map(str::to_owned), 1 => ".{0,40}"]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![6 => proptest::sample::select(KEYS).prop_map(str::to_owned), 1 => ".{0,20}"]
}

fn leaf() -> impl Strategy<Value = Json> {
    prop_oneof![
        2 => proptest::sample::select(vec!["true", "false", "null"]).prop_map(Json::Word),
        1 => any::<u32>().prop_map(|number| Json::Number(number.to_string())),
        1 => "-?(0|[1-9][0-9]{0,9})(\\.[0-9]{1,5})?([eE][+-]?[0-9])?".prop_map(Json::Number),
        6 => text().prop_map(Json::Text),
    ]
}

/// Keys of which a choice has one at most: with two, the order of the text counts, and a DOM has none.
const ONE_OF: [&[&str]; 2] = [&["name", "function", "tool", "custom"], &["tools", "allowed_tools"]];

/// An object of these fields, the first of each key kept.
fn object(fields: Vec<(String, Json)>) -> Json {
    let rivals = |one: &str, other: &str| {
        one == other || ONE_OF.iter().any(|group| group.contains(&one) && group.contains(&other))
    };
    let mut kept: Vec<(String, Json)> = Vec::new();
    for (key, value) in fields {
        if kept.iter().all(|(other, _)| !rivals(other, &key)) {
            kept.push((key, value));
        }
    }
    Json::Object(kept)
}

fn noise() -> impl Strategy<Value = Json> {
    leaf().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Json::Array),
            proptest::collection::vec((key(), inner), 0..6).prop_map(object),
        ]
    })
}

fn entries() -> impl Strategy<Value = Json> {
    let field = (key(), prop_oneof![3 => leaf(), 1 => noise()]).boxed();
    let entry = prop_oneof![
        4 => (text(), proptest::collection::vec(field.clone(), 0..4)).prop_map(|(kind, mut fields)| {
            let place = kind.len() % (fields.len() + 1);
            fields.insert(place, ("type".to_owned(), Json::Text(kind)));
            object(fields)
        }),
        1 => noise(),
    ];
    proptest::collection::vec(entry, 0..5).prop_map(Json::Array)
}

/// A request body: an object that has a good chance of being one.
pub(super) fn request() -> impl Strategy<Value = Json> {
    let value = |key: String| -> BoxedStrategy<(String, Json)> {
        let value = match key.as_str() {
            "model" => prop_oneof![9 => text().prop_map(Json::Text), 1 => noise()].boxed(),
            "tools" => prop_oneof![9 => entries(), 1 => noise()].boxed(),
            "max_tool_iterations" | "stream" => prop_oneof![9 => leaf(), 1 => noise()].boxed(),
            "tool_choice" | "container" => {
                let nested = (key_of_choice(), prop_oneof![2 => leaf(), 1 => noise(), 1 => entries()]).boxed();
                prop_oneof![
                    2 => leaf(),
                    3 => proptest::collection::vec(nested.clone(), 0..5).prop_map(object),
                    1 => proptest::collection::vec(nested, 0..4)
                        .prop_map(|fields| object(vec![("allowed_tools".to_owned(), object(fields))])),
                ]
                .boxed()
            }
            _ => noise().boxed(),
        };
        value.prop_map(move |value| (key.clone(), value)).boxed()
    };
    proptest::collection::vec(key().prop_flat_map(value), 0..9).prop_map(object)
}

fn key_of_choice() -> impl Strategy<Value = String> {
    let keys = ["type", "name", "function", "tool", "custom", "allowed_tools", "tools", "id", "skills", "mode"];
    proptest::sample::select(keys.to_vec()).prop_map(str::to_owned)
}
