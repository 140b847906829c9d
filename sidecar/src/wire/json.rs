//! Looking into JSON without rebuilding it: the members of an object as the bytes they came in.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use decision::problem::Problem;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// The members of an object in their order, values unread.
#[derive(Debug, Default)]
pub struct Fields<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The value of a member.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Takes a member out.
    pub fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let position = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(position).1)
    }

    /// The value of a member, read; `None` when it is absent, null or of another shape.
    pub fn read<T: Deserialize<'a>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// All members, read.
    pub fn into_map(self) -> serde_json::Result<Map<String, Value>> {
        self.0.into_iter().map(|(name, value)| Ok((name.into_owned(), serde_json::from_str(value.get())?))).collect()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut fields = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    fields.push((name, map.next_value()?));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// A name that borrows when it holds no escape.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Borrowing<'a>(#[serde(borrow)] Cow<'a, str>);
        Borrowing::deserialize(deserializer).map(|Borrowing(name)| Self(name))
    }
}

/// Shows `see` the entries of an array, one after the other; of what is no array, none.
pub fn each_entry<'a>(array: &'a str, see: impl FnMut(&'a RawValue)) {
    struct Entries<F>(F);
    impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for Entries<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut array: A) -> Result<(), A::Error> {
            while let Some(entry) = array.next_element()? {
                (self.0)(entry);
            }
            Ok(())
        }
    }
    let mut json = serde_json::Deserializer::from_str(array);
    // Of what breaks off, what stands before that was seen.
    json.deserialize_seq(Entries(see)).unwrap_or_default();
}

/// Whether a JSON text holds no more than so many values. What a tree of it takes is bounded by their number, not by
/// its length: `[1,1,…]` takes a hundred times its own.
pub fn has_at_most(text: &[u8], values: usize) -> bool {
    let mut left = values;
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b',' | b'[' | b'{' => match left.checked_sub(1) {
                Some(fewer) => left = fewer,
                None => return false,
            },
            b'"' => rest = after_text(rest),
            _ => {}
        }
    }
    true
}

/// What stands behind the quote that ends a text.
fn after_text(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let is_end = rest.get(at) == Some(&b'"');
        // A backslash takes the byte behind it along.
        rest = rest.get(at.saturating_add(if is_end { 1 } else { 2 })..).unwrap_or_default();
        if is_end {
            return rest;
        }
    }
    &[]
}

/// Takes a text out; what is none is gone too.
pub fn take_text(map: &mut Map<String, Value>, name: &str) -> Option<String> {
    match map.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Takes a number out. An error names the parameter when it is something else; null is nothing.
pub fn take_number(map: &mut Map<String, Value>, name: &str) -> Result<Option<Number>, Problem> {
    match map.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => Ok(Some(number)),
        Some(_) => Err(Problem::invalid(format!("`{name}` must be a number")).with_param(name)),
    }
}

/// Takes a whole number out, which is at least 0.
pub fn take_count(map: &mut Map<String, Value>, name: &str) -> Result<Option<u64>, Problem> {
    let Some(number) = take_number(map, name)? else { return Ok(None) };
    let refused = || Problem::invalid(format!("`{name}` must be a whole number")).with_param(name);
    number.as_u64().ok_or_else(refused).map(Some)
}

/// Appends a value as JSON text. Strings, numbers, and trees of them always have one.
pub fn push_json(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

/// Appends `"name":` with the comma it needs in the object being written.
pub fn push_name(out: &mut Vec<u8>, name: &str) {
    if !matches!(out.last(), None | Some(b'{' | b'[' | b',')) {
        out.push(b',');
    }
    push_json(out, name);
    out.push(b':');
}

/// Where in `whole` a value stands that was borrowed from it.
pub fn span(whole: &[u8], part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let range = start..start.checked_add(part.len())?;
    whole.get(range.clone()).map(|_| range)
}

/// A text with a part of it, which was borrowed from it, replaced.
pub fn replaced(whole: &[u8], part: &str, by: &[u8]) -> Option<Vec<u8>> {
    let place = span(whole, part)?;
    Some([whole.get(..place.start)?, by, whole.get(place.end..)?].concat())
}

/// What stands between the brackets of a JSON array.
pub fn inside_array(array: &str) -> Option<&str> {
    Some(array.trim().strip_prefix('[')?.strip_suffix(']')?.trim())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_setting_of_another_type_is_refused_by_its_name() {
        let take = |value: Value| take_count(&mut Map::from_iter([("n".to_owned(), value)]), "n");
        assert_eq!(take(json!(7)), Ok(Some(7)));
        assert_eq!(take(Value::Null), Ok(None));
        for value in [json!("7"), json!(true), json!(-1), json!(1.5), json!([7])] {
            let problem = take(value.clone()).expect_err("refused");
            assert_eq!(problem.param.as_deref(), Some("n"), "{value}");
        }
        let mut map = Map::from_iter([("n".to_owned(), json!(0.5))]);
        assert_eq!(take_number(&mut map, "n"), Ok(Number::from_f64(0.5)));
        assert!(map.is_empty() && take_number(&mut map, "n") == Ok(None));
    }

    #[test]
    fn values_are_counted_and_texts_are_none() {
        for (text, values) in
            [("{}", 1), ("[1,1,1]", 3), (r#"{"a":"[,,,{","b":["\",[","]}"#, 4), (r#"{"a\\":[1,2],"b":{"c":null}}"#, 5)]
        {
            assert!(has_at_most(text.as_bytes(), values), "{text}");
            assert!(!has_at_most(text.as_bytes(), values - 1), "{text}");
        }
        assert!(has_at_most(br#"["never ends [,,,,"#, 1));
        assert!(has_at_most(br#"["\"#, 1));
    }
}
