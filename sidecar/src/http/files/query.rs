//! What a list is asked for: three vendors' shapes of one question.
//!
//! INVARIANT: a parameter that this shape has is honoured or refused by name; one of another shape is refused, for its
//! sender would take the answer for what it is not.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use decision::format::Vocabulary;
use decision::header;
use decision::problem::Problem;
use http::HeaderMap;

use crate::files::{Cursor, ListQuery, Order, Purpose};

/// The beta whose lists have cursors of ids (wire.md 2.3).
const CURSOR_BETA: &[u8] = b"files-api-2025-04-14";
/// Ids in one question (wire.md 2.3).
const MAX_IDS: usize = 100;
/// How page tokens begin.
const TOKEN_PREFIX: &str = "page_";
/// What OpenAI's service makes and ours never does: a list of it is empty.
const NEVER_STORED: &[&str] = &["assistants_output", "batch_output", "fine-tune-results"];

/// How a caller asks for lists and reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// OpenAI: `after`, `order`, `purpose`.
    OpenAi,
    /// Anthropic with the files beta: `after_id`, `before_id`.
    Cursors,
    /// Anthropic without it: `page`, `ids[]`.
    Pages,
}

/// The question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// A page.
    Page(ListQuery),
    /// These files, as far as they are there.
    Ids(Vec<String>),
    /// Nothing that could be there.
    Nothing,
}

impl Shape {
    /// By the caller's headers.
    pub(super) fn of(vocabulary: Vocabulary, headers: &HeaderMap) -> Self {
        let mut betas =
            headers.get_all(header::ANTHROPIC_BETA).iter().flat_map(|list| list.as_bytes().split(|&byte| byte == b','));
        match vocabulary {
            Vocabulary::OpenAi => Self::OpenAi,
            Vocabulary::Anthropic if betas.any(|beta| beta.trim_ascii() == CURSOR_BETA) => Self::Cursors,
            Vocabulary::Anthropic => Self::Pages,
        }
    }

    fn limits(self) -> Limits {
        match self {
            Self::OpenAi => Limits { largest: 10_000, usual: 10_000 },
            Self::Cursors | Self::Pages => Limits { largest: 1000, usual: 20 },
        }
    }

    /// Parameters that this shape does not have and another has, and what to do about each.
    fn foreign(self) -> &'static [(&'static str, &'static str)] {
        const ORDER: (&str, &str) = ("order", "lists in this API are newest first");
        const PURPOSE: (&str, &str) = ("purpose", "files have no purpose in this API");
        const SCOPE: (&str, &str) = ("scope_id", "no file here belongs to a session");
        const IDS: (&str, &str) = ("ids", "write `ids[]`");
        match self {
            Self::OpenAi => &[
                ("after_id", "write `after`"),
                ("before_id", "lists in this API go forward only: write `after`, and turn `order` round"),
                ("before", "lists in this API go forward only: write `after`, and turn `order` round"),
                ("page", "write `after`"),
                ("ids[]", "ask for each file by its id"),
                ("ids", "ask for each file by its id"),
                SCOPE,
            ],
            Self::Cursors => &[
                ("page", "with the beta files-api-2025-04-14, write `after_id`; or leave the beta out"),
                ("ids[]", "with the beta files-api-2025-04-14, ask for each file by its id; or leave the beta out"),
                ("ids", "ask for each file by its id"),
                ("after", "write `after_id`"),
                ("before", "write `before_id`"),
                ORDER,
                PURPOSE,
                SCOPE,
            ],
            Self::Pages => &[
                (
                    "after_id",
                    "write `page` with the `next_page` of the page before; or send the beta files-api-2025-04-14",
                ),
                (
                    "before_id",
                    "write `page` with the `next_page` of the page before; or send the beta files-api-2025-04-14",
                ),
                ("after", "write `page` with the `next_page` of the page before"),
                ("before", "write `page` with the `next_page` of the page before"),
                IDS,
                ORDER,
                PURPOSE,
                SCOPE,
            ],
        }
    }
}

/// Files on a page.
struct Limits {
    largest: u32,
    usual: u32,
}

/// Reads the query of a list.
pub(super) fn read(query: &str, shape: Shape) -> Result<Question, Problem> {
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    for (name, advice) in shape.foreign() {
        if pairs.iter().any(|(given, _)| given == name) {
            return Err(odd(name, &format!("is not a parameter of this list: {advice}")));
        }
    }
    let one = |name: &str| single(&pairs, name);
    let limit = limit(one("limit")?, &shape.limits())?;
    let page = |order, cursor, purpose| Question::Page(ListQuery { order, cursor, limit, purpose });
    match shape {
        Shape::OpenAi => {
            let order = order(one("order")?)?;
            let cursor = one("after")?.map(|id| Cursor::After(id.to_owned()));
            match one("purpose")? {
                Some(word) if NEVER_STORED.contains(&word) => Ok(Question::Nothing),
                word => Ok(page(order, cursor, word.map(purpose).transpose()?)),
            }
        }
        Shape::Cursors => {
            let cursor = match (one("after_id")?, one("before_id")?) {
                (Some(_), Some(_)) => {
                    return Err(odd("before_id", "cannot be combined with `after_id`: send one of them"));
                }
                (Some(id), None) => Some(Cursor::After(id.to_owned())),
                (None, Some(id)) => Some(Cursor::Before(id.to_owned())),
                (None, None) => None,
            };
            Ok(page(Order::Descending, cursor, None))
        }
        Shape::Pages => {
            let token = one("page")?;
            if let Some(ids) = ids(&pairs)? {
                if let Some(other) =
                    ["page", "limit"].into_iter().find(|name| pairs.iter().any(|(given, _)| given == name))
                {
                    return Err(odd(other, "cannot be combined with `ids[]`, whose answer has no pages"));
                }
                return Ok(Question::Ids(ids));
            }
            let cursor = token.map(id_of_token).transpose()?.map(Cursor::After);
            Ok(page(Order::Descending, cursor, None))
        }
    }
}

/// The token of the page after the one that ends with this file.
pub(super) fn token_after(id: &str) -> String {
    format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(id))
}

/// What is said of a token that we did not make, or whose file is forgotten.
pub(super) fn bad_token() -> Problem {
    odd("page", "is not a token of this list: send the `next_page` of the page before, unchanged")
}

fn id_of_token(token: &str) -> Result<String, Problem> {
    let encoded = token.strip_prefix(TOKEN_PREFIX).ok_or_else(bad_token)?;
    let id = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| bad_token())?;
    String::from_utf8(id).map_err(|_| bad_token())
}

fn single<'a>(pairs: &'a [(String, String)], name: &str) -> Result<Option<&'a str>, Problem> {
    let mut values = pairs.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str());
    match (values.next(), values.next()) {
        (Some(_), Some(_)) => Err(odd(name, "came more than once: send it once")),
        (value, _) => Ok(value),
    }
}

fn ids(pairs: &[(String, String)]) -> Result<Option<Vec<String>>, Problem> {
    let mut distinct: Vec<String> = Vec::new();
    for (_, id) in pairs.iter().filter(|(name, _)| name == "ids[]") {
        if !distinct.contains(id) {
            distinct.push(id.clone());
        }
        if distinct.len() > MAX_IDS {
            return Err(odd(
                "ids[]",
                &format!("may name {MAX_IDS} different files: ask for the rest in another request"),
            ));
        }
    }
    Ok(Some(distinct).filter(|ids| !ids.is_empty()))
}

fn limit(given: Option<&str>, limits: &Limits) -> Result<u32, Problem> {
    let Some(text) = given else { return Ok(limits.usual) };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && (1..=limits.largest).contains(number));
    number.ok_or_else(|| odd("limit", &format!("must be a whole number from 1 to {}", limits.largest)))
}

fn order(given: Option<&str>) -> Result<Order, Problem> {
    match given {
        None | Some("desc") => Ok(Order::Descending),
        Some("asc") => Ok(Order::Ascending),
        Some(_) => Err(odd("order", "must be `asc` or `desc`")),
    }
}

fn purpose(word: &str) -> Result<Purpose, Problem> {
    let known = || Purpose::ALL.map(Purpose::as_str).join("`, `");
    Purpose::parse(word).ok_or_else(|| odd("purpose", &format!("must be one of `{}`", known())))
}

fn odd(name: &str, what: &str) -> Problem {
    Problem::invalid(format!("`{name}` {what}")).with_param(name)
}

#[cfg(test)]
mod tests;
