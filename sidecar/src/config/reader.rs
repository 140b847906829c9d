//! Reads scalar keys from the environment, then the file, then the table of defaults.
//!
//! INVARIANT: a value that is wrong becomes a problem and the default takes its place, so that reading goes on to the
//! next problem; whoever called must look at [`Reader::finish`] before using anything.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::keys::{self, Key, Kind};
use super::problem::{ConfigProblem, HIDDEN};
use super::{Environment, ListenAddress};

/// Tables that are not scalar keys; whoever reads them looks inside.
const TABLES: &[&str] = &[
    "providers",
    "models",
    "roots",
    "policy.static_pins",
    "sandbox.allowed_images",
    "files.options",
    "files.options_env",
];

/// Collects values and problems.
pub(super) struct Reader<'a> {
    file: Map<String, Value>,
    env: &'a Environment,
    problems: Vec<ConfigProblem>,
}

/// A scalar as found, and what to call the place it was found in.
struct Found {
    place: String,
    text: String,
}

impl<'a> Reader<'a> {
    /// Takes a parsed file; keys it does not know are problems at once.
    pub(super) fn new(file: Value, env: &'a Environment) -> Self {
        let mut reader = Self { file: Map::new(), env, problems: Vec::new() };
        match file {
            Value::Null => {}
            Value::Object(map) => {
                reader.refuse_unknown("", &map);
                reader.file = map;
            }
            other => {
                reader.problem("(file)", shown(&other), "write a mapping of keys, such as `listen: 127.0.0.1:8080`");
            }
        }
        reader
    }

    /// Records a problem.
    pub(super) fn problem(&mut self, key: impl Into<String>, value: impl Into<String>, fix: impl Into<String>) {
        let problem = ConfigProblem::new(key, value, fix);
        // What two parts of the configuration read is told once.
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Everything wrong so far, or nothing.
    pub(super) fn finish(self) -> Result<(), Vec<ConfigProblem>> {
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems) }
    }

    /// The environment.
    pub(super) fn env(&self) -> &'a Environment {
        self.env
    }

    /// A table or list of the file, taken out of it.
    pub(super) fn table(&mut self, path: &str) -> Option<Value> {
        let mut steps = path.split('.');
        let first = steps.next()?;
        let mut here = self.file.get_mut(first)?;
        for step in steps {
            here = here.get_mut(step)?;
        }
        Some(here.take()).filter(|value| !value.is_null())
    }

    /// Whether the file or the environment sets this key.
    pub(super) fn is_set(&self, key: &Key) -> bool {
        self.env.get(&key.env_name()).is_some() || self.in_file(key.path).is_some_and(|value| !value.is_null())
    }

    /// A text, or the default, or nothing.
    pub(super) fn text(&mut self, key: &Key) -> Option<String> {
        self.parsed(key, |text| Some(text.to_owned()))
    }

    /// A text that has a default.
    pub(super) fn required_text(&mut self, key: &Key) -> String {
        self.text(key).unwrap_or_default()
    }

    /// An absolute path; one in the file is taken from the working directory.
    pub(super) fn path(&mut self, key: &Key) -> PathBuf {
        let path = PathBuf::from(self.required_text(key));
        std::path::absolute(&path).unwrap_or(path)
    }

    /// A number that has a default.
    pub(super) fn integer(&mut self, key: &Key) -> u64 {
        self.optional_integer(key).unwrap_or_default()
    }

    /// A number that may be unset.
    pub(super) fn optional_integer(&mut self, key: &Key) -> Option<u64> {
        self.parsed(key, |text| {
            let number = text.parse().ok()?;
            match key.kind {
                Kind::Integer(min, max) => (min..=max).contains(&number).then_some(number),
                _ => Some(number),
            }
        })
    }

    /// A number of the table that fits 32 bits.
    pub(super) fn small(&mut self, key: &Key) -> u32 {
        u32::try_from(self.integer(key)).unwrap_or(u32::MAX)
    }

    /// A number of the table that counts things in memory.
    pub(super) fn size(&mut self, key: &Key) -> usize {
        usize::try_from(self.integer(key)).unwrap_or(usize::MAX)
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, key: &Key) -> bool {
        self.parsed(key, |text| text.to_ascii_lowercase().parse().ok()).unwrap_or_default()
    }

    /// One of the key's words, in lower case.
    pub(super) fn choice(&mut self, key: &Key) -> &'static str {
        let Kind::Choice(words) = key.kind else { return "" };
        self.parsed(key, |text| words.iter().copied().find(|word| word.eq_ignore_ascii_case(text.trim())))
            .unwrap_or_default()
    }

    /// An IP address and a port.
    pub(super) fn address(&mut self, key: &Key) -> SocketAddr {
        self.parsed(key, |text| text.parse().ok()).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// A listener that may be unset.
    pub(super) fn listener(&mut self, key: &Key) -> Option<ListenAddress> {
        self.parsed(key, |text| match text.strip_prefix("unix:") {
            Some("") => None,
            Some(path) => std::path::absolute(PathBuf::from(path)).ok().map(ListenAddress::Unix),
            None => text.parse().ok().map(ListenAddress::Tcp),
        })
    }

    /// A URL that may be unset, without a slash at its end.
    pub(super) fn url(&mut self, key: &Key) -> Option<String> {
        self.parsed(key, plain_url)
    }

    /// A URL, or `unix:` and an absolute path; it may be unset.
    pub(super) fn server(&mut self, key: &Key) -> Option<String> {
        self.parsed(key, |text| match text.strip_prefix("unix:") {
            Some("") => None,
            Some(path) => Some(format!("unix:{}", std::path::absolute(path).ok()?.display())),
            None => plain_url(text),
        })
    }

    /// The secret in the environment variable that this key names.
    pub(super) fn secret(&mut self, key: &Key) -> Option<super::Secret> {
        let name = self.env_name(key)?;
        let secret = self.env.get(&name).map(super::Secret::new);
        if secret.is_none() {
            self.problem(key.path, name.clone(), format!("set the environment variable {name}, or leave this key out"));
        }
        secret
    }

    /// The name of a header.
    pub(super) fn header_name(&mut self, key: &Key) -> Option<String> {
        self.parsed(key, |text| http::HeaderName::from_bytes(text.as_bytes()).ok().map(|name| name.to_string()))
    }

    fn env_name(&mut self, key: &Key) -> Option<String> {
        self.parsed(key, |text| is_env_name(text).then(|| text.to_owned()))
    }

    fn parsed<T>(&mut self, key: &Key, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        if let Some(found) = self.found(key) {
            if !found.text.trim().is_empty()
                && let Some(value) = parse(found.text.trim())
            {
                return Some(value);
            }
            let value =
                if matches!(key.kind, Kind::EnvName) { HIDDEN.to_owned() } else { without_password(&found.text) };
            self.problem(found.place, value, format!("write {}", key.kind.wanted()));
        }
        key.default.and_then(parse)
    }

    fn found(&mut self, key: &Key) -> Option<Found> {
        let name = key.env_name();
        if let Some(text) = self.env.get(&name) {
            return Some(Found { text: text.to_owned(), place: name });
        }
        let text = match self.in_file(key.path)? {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            Value::Bool(flag) => flag.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Array(_) | Value::Object(_) => {
                self.problem(key.path, "a list or mapping", format!("write {}", key.kind.wanted()));
                return None;
            }
        };
        Some(Found { place: key.path.to_owned(), text })
    }

    fn in_file(&self, path: &str) -> Option<&Value> {
        let mut steps = path.split('.');
        let first = self.file.get(steps.next()?)?;
        steps.try_fold(first, |here, step| here.get(step))
    }

    fn refuse_unknown(&mut self, parent: &str, map: &Map<String, Value>) {
        for (name, value) in map {
            let path = if parent.is_empty() { name.clone() } else { format!("{parent}.{name}") };
            if TABLES.contains(&path.as_str()) || keys::ALL.iter().any(|key| key.path == path) {
                continue;
            }
            let section = format!("{path}.");
            let is_section = keys::ALL.iter().any(|key| key.path.starts_with(&section));
            match value {
                Value::Null if is_section => {}
                Value::Object(inner) if is_section => self.refuse_unknown(&path, inner),
                _ if is_section => {
                    self.problem(&path, shown(value), format!("write a mapping with {}", children(&section)));
                }
                // Not shown: a misspelt key may hold a secret.
                _ => self.problem(&path, "", unknown(parent, name)),
            }
        }
    }
}

/// A URL of ours: absolute, http or https, a host, nothing but a path behind it. Ends without a slash.
pub(super) fn plain_url(text: &str) -> Option<String> {
    let url = reqwest::Url::parse(text).ok()?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    plain.then(|| text.trim_end_matches('/').to_owned())
}

/// Whether this can be the name of an environment variable, and is unlikely to be a secret pasted in its place.
pub(super) fn is_env_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_uppercase() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// A value as a problem shows it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => without_password(text),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        other => other.to_string(),
    }
}

/// The known name nearest to a misspelt one, as a sentence.
pub(super) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

fn unknown(parent: &str, name: &str) -> String {
    let prefix = if parent.is_empty() { String::new() } else { format!("{parent}.") };
    let siblings = || {
        keys::ALL
            .iter()
            .map(|key| key.path)
            .chain(TABLES.iter().copied())
            .filter_map(|path| path.strip_prefix(prefix.as_str()))
            .filter_map(|rest| rest.split('.').next())
    };
    match nearest(name, siblings()) {
        Some(known) => format!("no such key; did you mean `{prefix}{known}`?"),
        None => "no such key; take it out (docs/configuration.md lists all keys)".to_owned(),
    }
}

fn children(section: &str) -> String {
    let names: Vec<_> = keys::ALL.iter().filter_map(|key| key.path.strip_prefix(section)).collect();
    names.join(", ")
}

/// A URL without its credentials; other text as it is, if it is not too long.
pub(super) fn without_password(text: &str) -> String {
    match text.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?.1))) {
        Some((scheme, rest)) => format!("{scheme}://{HIDDEN}@{rest}"),
        None => text.chars().take(200).collect(),
    }
}

/// Edit distance of two short names.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<u8> = right.bytes().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().take(64).enumerate() {
        let mut diagonal = i;
        let mut last = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(&right) {
            let next = (diagonal + usize::from(a != *b)).min(last + 1).min(*cell + 1);
            diagonal = *cell;
            *cell = next;
            last = next;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}
