//! The two tables of the file: who the providers are, and which model is whose.

use std::collections::BTreeMap;

use decision::config::{ModelInput, ModelRule, ProviderKind};
use decision::format::ApiFormat;
use serde_json::{Map, Value};

use super::reader::{Reader, is_env_name, nearest, plain_url, shown};
use super::{BaseUrl, Provider, keys, problem::HIDDEN};

/// Names become Envoy cluster names and header values.
const PROVIDER_NAME_MAX: usize = 40;
const KINDS: &[(&str, ProviderKind)] = &[
    ("anthropic", ProviderKind::Anthropic),
    ("openai", ProviderKind::Openai),
    ("openai_compatible", ProviderKind::OpenaiCompatible),
];
const WIRES: &[(&str, ApiFormat)] = &[
    ("messages", ApiFormat::Messages),
    ("chat_completions", ApiFormat::ChatCompletions),
    ("responses", ApiFormat::Responses),
];
const INPUTS: &[(&str, ModelInput)] =
    &[("text", ModelInput::Text), ("image", ModelInput::Image), ("pdf", ModelInput::Pdf)];
const PROVIDER_FIELDS: &[&str] = &["type", "base_url", "api_key_env", "wires"];
const RULE_FIELDS: &[&str] = &["match", "provider", "upstream_model", "wires", "inputs"];

/// Reads `providers`.
pub(super) fn read_providers(reader: &mut Reader<'_>) -> BTreeMap<String, Provider> {
    let table = match reader.table("providers") {
        None => return BTreeMap::new(),
        Some(Value::Object(table)) => table,
        Some(other) => {
            reader.problem("providers", shown(&other), "write a mapping from a name to {type, base_url, …}");
            return BTreeMap::new();
        }
    };
    let mut providers = BTreeMap::new();
    for (name, value) in table {
        let path = format!("providers.{name}");
        if !is_provider_name(&name) {
            reader.problem(&path, &name, "name it with a-z, 0-9, _ and -, at most 40 of them");
        }
        let Value::Object(fields) = value else {
            reader.problem(
                &path,
                shown(&value),
                "write a mapping such as {type: openai_compatible, base_url: \"http://127.0.0.1:11434\"}",
            );
            continue;
        };
        let provider = read_provider(reader, &path, &fields);
        providers.insert(name, provider);
    }
    providers
}

/// Reads `models`.
pub(super) fn read_models(reader: &mut Reader<'_>, providers: &BTreeMap<String, Provider>) -> Vec<ModelRule> {
    let list = match reader.table("models") {
        None => return Vec::new(),
        Some(Value::Array(list)) => list,
        Some(other) => {
            reader.problem("models", shown(&other), "write a list of {match, provider}");
            return Vec::new();
        }
    };
    let mut rules = Vec::new();
    let mut caught_by: Option<usize> = None;
    for (index, value) in list.into_iter().enumerate() {
        let path = format!("models[{index}]");
        let Value::Object(fields) = value else {
            reader.problem(&path, shown(&value), "write a mapping such as {match: \"gpt-*\", provider: openai}");
            continue;
        };
        let spells_prefix = fields.get("match").and_then(Value::as_str).is_some_and(|text| text.contains([':', '/']));
        if let Some(first) = caught_by
            && !spells_prefix
        {
            reader.problem(
                &path,
                "",
                format!("this rule never counts: models[{first}] matches every model; move it above that"),
            );
        }
        if let Some(rule) = read_rule(reader, &path, &fields, providers) {
            if rule.pattern == "*" {
                caught_by.get_or_insert(index);
            }
            rules.push(rule);
        }
    }
    rules
}

fn read_provider(reader: &mut Reader<'_>, path: &str, fields: &Map<String, Value>) -> Provider {
    refuse_unknown(reader, path, fields, PROVIDER_FIELDS);
    let kind = word(reader, path, fields, "type", KINDS);
    let base_url = read_base_url(reader, path, fields, kind);
    let api_key_env = match fields.get("api_key_env") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) if is_env_name(name) => Some(name.clone()),
        Some(_) => {
            // People paste the key itself here.
            let fix = "write the name of an environment variable (A-Z, 0-9 and _) that holds the key, not the key";
            reader.problem(format!("{path}.api_key_env"), HIDDEN, fix);
            None
        }
    };
    let wires = read_words(reader, path, fields, "wires", WIRES);
    // A provider with a problem stands in the table all the same, so that rules which name it are not blamed as well.
    let kind = kind.unwrap_or(ProviderKind::OpenaiCompatible);
    let wires = wires.unwrap_or_else(|| kind.default_wires().to_vec());
    Provider { kind, base_url, api_key_env, wires }
}

fn read_base_url(
    reader: &mut Reader<'_>,
    path: &str,
    fields: &Map<String, Value>,
    kind: Option<ProviderKind>,
) -> Option<BaseUrl> {
    let place = format!("{path}.base_url");
    let Some(text) = text(reader, path, fields, "base_url") else {
        let known = match kind? {
            ProviderKind::Anthropic => "https://api.anthropic.com",
            ProviderKind::Openai => "https://api.openai.com",
            // A mesh has routes of its own.
            ProviderKind::OpenaiCompatible if reader.is_set(&keys::MODEL_URL) => return None,
            ProviderKind::OpenaiCompatible => {
                reader.problem(place, "", "write the server's address, such as \"http://127.0.0.1:11434\"");
                return None;
            }
        };
        return BaseUrl::parse(known);
    };
    // The one knows what a URL may hold, the other takes it apart.
    let Some(url) = plain_url(&text).and_then(|url| BaseUrl::parse(&url)) else {
        reader.problem(
            place,
            shown(&Value::String(text)),
            "write an http:// or https:// URL without user, query or fragment",
        );
        return None;
    };
    Some(url)
}

fn read_rule(
    reader: &mut Reader<'_>,
    path: &str,
    fields: &Map<String, Value>,
    providers: &BTreeMap<String, Provider>,
) -> Option<ModelRule> {
    refuse_unknown(reader, path, fields, RULE_FIELDS);
    let pattern = required(reader, path, fields, "match", "write a model's name; `*` stands for any text");
    let provider = required(reader, path, fields, "provider", "write the name of one of `providers`");
    if let Some(name) = &provider
        && !providers.contains_key(name)
    {
        let names: Vec<_> = providers.keys().map(String::as_str).collect();
        let fix = match names.as_slice() {
            [] => "no provider of that name: add it to `providers`".to_owned(),
            names => format!("no provider of that name: write one of {}", names.join(", ")),
        };
        reader.problem(format!("{path}.provider"), name, fix);
    }
    let upstream_model = text(reader, path, fields, "upstream_model");
    let wires = read_words(reader, path, fields, "wires", WIRES);
    let inputs = read_words(reader, path, fields, "inputs", INPUTS);
    Some(ModelRule { pattern: pattern?, provider: provider?, upstream_model, wires, inputs })
}

/// A list of words, each once.
fn read_words<T: Copy + PartialEq>(
    reader: &mut Reader<'_>,
    path: &str,
    fields: &Map<String, Value>,
    name: &str,
    words: &[(&str, T)],
) -> Option<Vec<T>> {
    let place = format!("{path}.{name}");
    let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    let fix = format!("write a list with some of {}", known.join(", "));
    let list = match fields.get(name)? {
        Value::Null => return None,
        Value::Array(list) if !list.is_empty() => list,
        other => {
            reader.problem(place, shown(other), fix);
            return None;
        }
    };
    let mut found = Vec::new();
    for value in list {
        match value.as_str().and_then(|name| words.iter().find(|(word, _)| *word == name)) {
            Some((_, meant)) if !found.contains(meant) => found.push(*meant),
            Some(_) => reader.problem(&place, shown(value), "name each once"),
            None => reader.problem(&place, shown(value), &fix),
        }
    }
    Some(found)
}

fn is_provider_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    !name.is_empty() && name.len() <= PROVIDER_NAME_MAX && name.bytes().all(fits)
}

fn refuse_unknown(reader: &mut Reader<'_>, path: &str, fields: &Map<String, Value>, known: &[&str]) {
    for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
        // Not shown: a misspelt key may hold a secret.
        let fix = match name.as_str() {
            "api_key" => {
                "no such key; keys do not belong in this file: write `api_key_env` and a variable's name".to_owned()
            }
            name => match nearest(name, known.iter().copied()) {
                Some(near) => format!("no such key; did you mean `{near}`?"),
                None => format!("no such key; there are {}", known.join(", ")),
            },
        };
        reader.problem(format!("{path}.{name}"), "", fix);
    }
}

fn word<T: Copy>(
    reader: &mut Reader<'_>,
    path: &str,
    fields: &Map<String, Value>,
    name: &str,
    words: &[(&str, T)],
) -> Option<T> {
    let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    let fix = format!("write one of {}", known.join(", "));
    let text = required(reader, path, fields, name, &fix)?;
    let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text.trim()));
    if found.is_none() {
        reader.problem(format!("{path}.{name}"), text, fix);
    }
    found.map(|(_, value)| *value)
}

fn required(reader: &mut Reader<'_>, path: &str, fields: &Map<String, Value>, name: &str, fix: &str) -> Option<String> {
    if matches!(fields.get(name), None | Some(Value::Null)) {
        reader.problem(format!("{path}.{name}"), "", fix);
    }
    text(reader, path, fields, name)
}

fn text(reader: &mut Reader<'_>, path: &str, fields: &Map<String, Value>, name: &str) -> Option<String> {
    match fields.get(name)? {
        Value::Null => None,
        Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        other => {
            reader.problem(format!("{path}.{name}"), shown(other), "write some text, in quotes");
            None
        }
    }
}
