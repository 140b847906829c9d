//! The fields beside the file in an upload: what it is for, and how long it lives.
//!
//! INVARIANT: a field is honoured or refused by name, never taken and ignored.

use decision::format::Vocabulary;
use decision::problem::Problem;

use crate::files::Purpose;
use crate::ids;

/// `purpose` (OpenAI).
const PURPOSE: &str = "purpose";
/// What the life of a file is counted from (OpenAI).
const ANCHOR: &str = "expires_after[anchor]";
/// The only anchor there is.
const CREATED_AT: &str = "created_at";
/// Seconds of it (OpenAI).
const SECONDS: &str = "expires_after[seconds]";
/// Seconds from now (Anthropic).
const EXPIRES_IN: &str = "expires_in_seconds";

/// What may be said, by the vendor's names.
#[derive(Debug)]
pub(super) struct Settings {
    vocabulary: Vocabulary,
    purpose: Option<Purpose>,
    anchored: bool,
    seconds: Option<i64>,
    /// Names of what has been said.
    said: Vec<&'static str>,
}

impl Settings {
    /// Nothing said yet.
    pub(super) fn new(vocabulary: Vocabulary) -> Self {
        Self { vocabulary, purpose: None, anchored: false, seconds: None, said: Vec::new() }
    }

    /// Refuses a field that this API does not have, or that came before.
    pub(super) fn expect(&mut self, field: &str) -> Result<(), Problem> {
        let known: &[&'static str] = match self.vocabulary {
            Vocabulary::OpenAi => &[PURPOSE, ANCHOR, SECONDS],
            Vocabulary::Anthropic => &[EXPIRES_IN],
        };
        let Some(field) = known.iter().find(|known| **known == field) else { return Err(self.unknown(field, known)) };
        if self.said.contains(field) {
            return Err(odd(field, "came more than once: send it once"));
        }
        self.said.push(field);
        Ok(())
    }

    /// Reads the value of a field that was expected.
    pub(super) fn set(&mut self, field: &str, value: &str) -> Result<(), Problem> {
        match field {
            PURPOSE => self.purpose = Some(purpose(value)?),
            ANCHOR if value == CREATED_AT => self.anchored = true,
            ANCHOR => return Err(odd(ANCHOR, "must be `created_at`")),
            SECONDS => self.seconds = Some(seconds(SECONDS, value, 3600, 2_592_000)?),
            EXPIRES_IN => self.seconds = Some(seconds(EXPIRES_IN, value, 3600, 7_776_000)?),
            other => return Err(self.unknown(other, &[])),
        }
        Ok(())
    }

    /// What the file is for, and how many milliseconds it shall live, if that was said.
    pub(super) fn finish(self) -> Result<(Purpose, Option<i64>), Problem> {
        match (self.vocabulary, self.anchored, self.seconds) {
            (Vocabulary::OpenAi, true, None) => Err(odd(SECONDS, "must come with `expires_after[anchor]`")),
            (Vocabulary::OpenAi, false, Some(_)) => Err(odd(ANCHOR, "must come with `expires_after[seconds]`")),
            (_, _, seconds) => Ok((self.purpose.unwrap_or(Purpose::UserData), seconds.map(|seconds| seconds * 1000))),
        }
    }

    fn unknown(&self, field: &str, known: &[&str]) -> Problem {
        let hint = match self.vocabulary {
            Vocabulary::OpenAi if field.starts_with("expires") => {
                "write `expires_after[anchor]` and `expires_after[seconds]`".to_owned()
            }
            Vocabulary::Anthropic if field.starts_with("expires") => format!("write `{EXPIRES_IN}`"),
            _ => format!("beside `file` it takes `{}`", known.join("`, `")),
        };
        let field = ids::shown(field);
        odd(&field, &format!("is not a field of this form: {hint}")).with_code("unknown_parameter")
    }
}

/// One that an upload may have. None at all is as good as the most general one.
fn purpose(word: &str) -> Result<Purpose, Problem> {
    let uploaded = || Purpose::ALL.into_iter().filter(|purpose| *purpose != Purpose::CodeExecutionOutput);
    if word.is_empty() {
        return Ok(Purpose::UserData);
    }
    uploaded().find(|purpose| purpose.as_str() == word).ok_or_else(|| {
        let words: Vec<_> = uploaded().map(Purpose::as_str).collect();
        odd(PURPOSE, &format!("must be one of `{}`", words.join("`, `")))
    })
}

fn seconds(field: &str, value: &str, least: i64, most: i64) -> Result<i64, Problem> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| digits && (least..=most).contains(number));
    number.ok_or_else(|| odd(field, &format!("must be a whole number of seconds from {least} to {most}")))
}

fn odd(field: &str, what: &str) -> Problem {
    Problem::invalid(format!("`{field}` {what}")).with_param(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vocabulary: Vocabulary, fields: &[(&str, &str)]) -> Result<(Purpose, Option<i64>), Problem> {
        let mut settings = Settings::new(vocabulary);
        for (field, value) in fields {
            settings.expect(field)?;
            settings.set(field, value)?;
        }
        settings.finish()
    }

    fn openai(fields: &[(&str, &str)]) -> Result<(Purpose, Option<i64>), String> {
        read(Vocabulary::OpenAi, fields).map_err(|problem| problem.param.unwrap())
    }

    fn anthropic(fields: &[(&str, &str)]) -> Result<(Purpose, Option<i64>), String> {
        read(Vocabulary::Anthropic, fields).map_err(|problem| problem.param.unwrap())
    }

    #[test]
    fn a_purpose_is_one_of_openais_or_the_general_one() {
        assert_eq!(openai(&[]), Ok((Purpose::UserData, None)));
        assert_eq!(openai(&[("purpose", "")]), Ok((Purpose::UserData, None)));
        for purpose in ["assistants", "batch", "fine-tune", "vision", "user_data", "evals"] {
            assert_eq!(openai(&[("purpose", purpose)]), Ok((Purpose::parse(purpose).unwrap(), None)));
        }
        for purpose in ["code_execution_output", "asistants", "Batch", " batch"] {
            assert_eq!(openai(&[("purpose", purpose)]), Err("purpose".to_owned()), "{purpose}");
        }
    }

    #[test]
    fn openais_expiry_is_an_anchor_and_seconds_in_brackets() {
        let of = |anchor, seconds| openai(&[(SECONDS, seconds), (ANCHOR, anchor)]);
        for (seconds, expected) in [("3600", 3_600_000), ("2592000", 2_592_000_000)] {
            assert_eq!(of("created_at", seconds), Ok((Purpose::UserData, Some(expected))));
        }
        for seconds in ["3599", "2592001", "-1", "1e9", "1000000000", "x", "", " 3600", "+3600", "3600.0"] {
            assert_eq!(of("created_at", seconds), Err(SECONDS.to_owned()), "{seconds}");
        }
        assert_eq!(of("uploaded_at", "3600"), Err(ANCHOR.to_owned()));
        assert_eq!(openai(&[(SECONDS, "3600")]), Err(ANCHOR.to_owned()));
        assert_eq!(openai(&[(ANCHOR, "created_at")]), Err(SECONDS.to_owned()));
    }

    #[test]
    fn anthropics_expiry_is_seconds_alone() {
        assert_eq!(anthropic(&[]), Ok((Purpose::UserData, None)));
        for (seconds, expected) in [("3600", 3_600_000), ("7776000", 7_776_000_000)] {
            assert_eq!(anthropic(&[(EXPIRES_IN, seconds)]), Ok((Purpose::UserData, Some(expected))));
        }
        for seconds in ["3599", "7776001", "", "x"] {
            assert_eq!(anthropic(&[(EXPIRES_IN, seconds)]), Err(EXPIRES_IN.to_owned()), "{seconds}");
        }
    }

    #[test]
    fn a_field_that_would_be_ignored_is_refused_by_name() {
        for field in ["expires_after", "expires_after.seconds", EXPIRES_IN, "user", "", "File"] {
            let problem = read(Vocabulary::OpenAi, &[(field, "3600")]).unwrap_err();
            assert_eq!((problem.param.as_deref(), problem.code), (Some(field), Some("unknown_parameter")));
            assert!(problem.message.contains("`expires_after[seconds]`"), "{}", problem.message);
        }
        for field in [PURPOSE, ANCHOR, SECONDS, "expires_after"] {
            assert_eq!(anthropic(&[(field, "3600")]), Err(field.to_owned()));
        }
        let twice = [(PURPOSE, "vision"), (PURPOSE, "vision")];
        assert_eq!(openai(&twice), Err(PURPOSE.to_owned()));
    }
}
