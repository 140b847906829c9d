//! Files of ours that a request names: where, and what stands there instead.
//!
//! INVARIANT: only what is an id of ours in a member that names a file is found; whatever else a body says keeps its
//! bytes, ids of ours in its texts too.

mod chat_completions;
mod containers;
mod messages;
mod responses;

use std::ops::Range;

use decision::format::ApiFormat;
use decision::problem::Problem;
use decision::request::{OWN_FILE, OWN_FILES};
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::{Fields, span};

pub use containers::ContainerFiles;

use containers::Opening;

/// Places in one request that may name files of ours.
pub const MAX_REFERENCES: usize = 128;

/// Everything that one request names.
#[derive(Debug, Default)]
pub struct References {
    /// In messages and items, in the order of the body.
    pub parts: Vec<Part>,
    /// For the containers of code tools.
    pub containers: Vec<ContainerFiles>,
    /// Where files can be shown that stand in no message.
    opening: Option<Opening>,
}

/// A part of a message, or an item, that names a file.
#[derive(Debug)]
pub struct Part {
    /// The file's id, [`OWN_FILE`] and more; that of the file itself where its name inside a container stood.
    pub id: String,
    /// Where the id stands, for an error to say.
    pub param: String,
    /// It asks for the file to lie in the working directory, not to be shown.
    pub is_upload: bool,
    place: Range<usize>,
    /// It stands among items where only a message may hold it.
    is_bare: bool,
}

/// What the model is shown of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown<'a> {
    /// Nothing but what is said about it.
    Nothing,
    /// Words of the gateway's own.
    Text(&'a str),
    /// Its text, as a document where the wire has such.
    Document {
        /// What to call it.
        name: &'a str,
        /// All of it.
        text: &'a str,
        /// The same between marks, for wires that have no documents of text.
        marked: &'a str,
    },
    /// A picture: its bytes follow in base64.
    Image {
        /// `image/…`.
        media_type: &'a str,
    },
    /// A PDF: its bytes follow in base64.
    Pdf {
        /// What to call it.
        name: &'a str,
    },
    /// Any file as it is, where the wire takes such: its bytes follow in base64.
    File {
        /// What to call it.
        name: &'a str,
        /// Its media type.
        media_type: &'a str,
    },
}

/// What stands in the place of a part. Of those that show bytes, the base64 of them belongs between the two.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spelled {
    /// What stands in front.
    pub before: String,
    /// What stands behind.
    pub after: String,
}

/// A place to write, and what it was.
#[derive(Debug)]
pub struct Place<'a> {
    /// Its bytes in the body.
    pub range: Range<usize>,
    /// What stood there.
    pub what: What<'a>,
}

/// What stood in a place.
#[derive(Debug)]
pub enum What<'a> {
    /// A part.
    Part(&'a Part),
    /// The ids for a container; what is left of them.
    Ids(&'a str),
    /// Nothing, or the text that the files of containers are shown beside: what to write in front of them and behind.
    Opening(&'a str, &'a str),
}

impl References {
    /// Looks through a request. An error when it names too many, or is no request of its wire.
    pub fn find(wire: ApiFormat, body: &[u8]) -> Result<Self, Problem> {
        let fields: Fields<'_> =
            serde_json::from_slice(body).map_err(|_| Problem::invalid("the body is not a JSON object"))?;
        let mut finder = Finder { body, parts: Vec::new(), count: 0 };
        match wire {
            ApiFormat::Messages => messages::find(&fields, &mut finder)?,
            ApiFormat::ChatCompletions => chat_completions::find(&fields, &mut finder)?,
            ApiFormat::Responses => responses::find(&fields, &mut finder)?,
        }
        let containers = containers::find(&fields, &mut finder)?;
        let mut parts = finder.parts;
        parts.sort_by_key(|part| part.place.start);
        let opening = (wire == ApiFormat::Responses && !containers.is_empty())
            .then(|| containers::opening(&fields, body))
            .flatten();
        Ok(Self { parts, containers, opening })
    }

    /// Nothing is named.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.containers.is_empty()
    }

    /// The parts' places in their order; with `containers`, those of the containers' lists too, and one where their files
    /// can be shown if there is one.
    pub fn places(&self, containers: bool) -> Vec<Place<'_>> {
        let part = |part: &'_ Part| part.place.clone();
        let mut places: Vec<Place<'_>> =
            self.parts.iter().map(|one| Place { range: part(one), what: What::Part(one) }).collect();
        if containers {
            let ids = |list: &'_ ContainerFiles| list.place.clone();
            places.extend(self.containers.iter().map(|one| Place { range: ids(one), what: What::Ids(&one.kept) }));
            places.extend(self.opening.iter().map(|opening| Place {
                range: opening.place.clone(),
                what: What::Opening(&opening.before, &opening.after),
            }));
        }
        // An insertion stands in front of what begins at the same place.
        places.sort_by_key(|place| (place.range.start, place.range.end));
        places
    }

    /// Files named for containers can be shown in a message.
    pub fn can_show_containers(&self) -> bool {
        self.opening.is_some()
    }
}

impl Part {
    /// What stands in its place: what is said of the file, if anything, and what is shown of it.
    pub fn spell(&self, wire: ApiFormat, body: &[u8], said: Option<&str>, shown: Shown<'_>) -> Spelled {
        let old: Fields<'_> =
            body.get(self.place.clone()).and_then(|part| serde_json::from_slice(part).ok()).unwrap_or_default();
        let mut spelled = spell(wire, &old, said, shown);
        if self.is_bare {
            spelled.before.insert_str(0, r#"{"type":"message","role":"user","content":["#);
            spelled.after.push_str("]}");
        }
        spelled
    }
}

/// A part of its own.
pub fn spell_new(wire: ApiFormat, shown: Shown<'_>) -> Spelled {
    spell(wire, &Fields::default(), None, shown)
}

fn spell(wire: ApiFormat, old: &Fields<'_>, said: Option<&str>, shown: Shown<'_>) -> Spelled {
    let spell_one = match wire {
        ApiFormat::Messages => messages::spell,
        ApiFormat::ChatCompletions => chat_completions::spell,
        ApiFormat::Responses => responses::spell,
    };
    match (said, shown) {
        (None, shown) => spell_one(old, shown),
        (Some(said), Shown::Nothing) => spell_one(old, Shown::Text(said)),
        (Some(said), shown) => {
            // What the caller says of the part, such as where a cache ends, belongs to the last one.
            let first = spell_one(&Fields::default(), Shown::Text(said));
            let rest = spell_one(old, shown);
            Spelled { before: format!("{}{},{}", first.before, first.after, rest.before), after: rest.after }
        }
    }
}

/// Looks for parts.
struct Finder<'a> {
    body: &'a [u8],
    parts: Vec<Part>,
    count: usize,
}

impl Finder<'_> {
    /// Remembers a part if the id is one of ours.
    fn part(&mut self, id: Option<String>, text: &str, param: &str, member: &str) -> Result<(), Problem> {
        let Some(id) = id.as_deref().and_then(own_id) else { return Ok(()) };
        let Some(place) = span(self.body, text) else { return Ok(()) };
        let param = format!("{param}.{member}");
        self.count(&param)?;
        self.parts.push(Part { id, param, is_upload: false, place, is_bare: false });
        Ok(())
    }

    /// The part found last, if one was found since there were so many.
    fn since(&mut self, before: usize) -> Option<&mut Part> {
        if self.parts.len() > before { self.parts.last_mut() } else { None }
    }

    fn count(&mut self, param: &str) -> Result<(), Problem> {
        self.count = self.count.saturating_add(1);
        if self.count > MAX_REFERENCES {
            let message = format!("the request names files of this gateway in more than {MAX_REFERENCES} places");
            return Err(Problem::invalid(message).with_param(param));
        }
        Ok(())
    }

    /// Opens each part of a list that may name one of ours.
    fn each(
        &mut self,
        list: Option<&RawValue>,
        param: &str,
        mut look: impl FnMut(&mut Self, &str, &Fields<'_>, &str) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let Some(list) = list.filter(|list| mentions_ours(list.get())) else { return Ok(()) };
        // A text, or another shape that is none of this wire's.
        let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(list.get()) else { return Ok(()) };
        for (position, part) in parts.into_iter().enumerate().filter(|(_, part)| mentions_ours(part.get())) {
            let Ok(fields) = serde_json::from_str::<Fields<'_>>(part.get()) else { continue };
            look(self, part.get(), &fields, &format!("{param}[{position}]"))?;
        }
        Ok(())
    }
}

/// An id of a file of ours, well formed or not, under either of its names.
pub fn is_ours(id: &str) -> bool {
    own_id(id).is_some()
}

/// A file that is none of ours, named for a container that is here.
pub fn foreign(param: &str) -> Problem {
    let message = format!(
        "`{param}` is no file of this gateway, and the code of this request runs here: upload the file to the \
         gateway's `/v1/files`"
    );
    Problem::invalid(message).with_param(param)
}

/// The id of the file itself, if this is an id of ours.
fn own_id(id: &str) -> Option<String> {
    let [file, in_container] = OWN_FILES;
    let digits = id.strip_prefix(file).or_else(|| id.strip_prefix(in_container))?;
    Some(format!("{OWN_FILE}{digits}"))
}

/// Whether an id of ours may stand in a JSON text. Its letters can be escaped in one way only.
fn mentions_ours(text: &str) -> bool {
    let says = |needle: &str| memchr::memmem::find(text.as_bytes(), needle.as_bytes()).is_some();
    OWN_FILES.iter().any(|prefix| says(prefix)) || says("\\u")
}

/// A member that is an object.
fn object<'a>(fields: &Fields<'a>, name: &str) -> Fields<'a> {
    fields.read(name).unwrap_or_default()
}

/// `,"name":value` for each member but those.
fn others(fields: &Fields<'_>, but: &[&str]) -> String {
    let mut kept = String::new();
    for (name, value) in fields.0.iter().filter(|(name, _)| !but.contains(&&**name)) {
        kept.extend([",", &quoted(name), ":", value.get()]);
    }
    kept
}

/// The one member, in the same form.
fn only(fields: &Fields<'_>, name: &str) -> String {
    fields.get(name).map_or_else(String::new, |value| format!(",{}:{}", quoted(name), value.get()))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
