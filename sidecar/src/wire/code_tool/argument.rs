//! The arguments of a code call, as the model writes them: the code is shown while it grows, and checked when it is whole.
//!
//! INVARIANT: what runs is what was shown; arguments for which the two differ do not run.

/// Collects the pieces of one call's arguments.
#[derive(Debug)]
pub struct CodeArgument {
    /// The JSON text so far.
    raw: String,
    /// The code so far, unescaped.
    code: String,
    at: At,
    too_long: bool,
    limit: usize,
}

/// The arguments are no `{"code": "…"}`, or longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotCode;

/// Where in the JSON text the scanner stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the object.
    Start,
    /// Between members.
    Members,
    /// In a member's name: how much of `code` it has matched, `None` once it is another.
    Name { matched: Option<usize>, escaped: bool },
    /// Between a name and its value.
    Colon { is_code: bool },
    /// In a value that is not the code.
    Other { depth: u32, in_string: bool, escaped: bool },
    /// In the code, after half a surrogate pair if `high` is set.
    Code { high: Option<u32> },
    /// After a backslash in the code.
    Escape { high: Option<u32> },
    /// In the digits of `\uXXXX`.
    Unicode { high: Option<u32>, digits: u8, value: u32 },
    /// The code is complete, or the text makes no sense: nothing more to show.
    Done,
}

const NAME: &[u8] = b"code";

impl CodeArgument {
    /// Arguments of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { raw: String::new(), code: String::new(), at: At::Start, too_long: false, limit }
    }

    /// Takes a piece and gives the code that it brings to light.
    pub fn feed(&mut self, piece: &str) -> &str {
        if self.too_long || self.raw.len().saturating_add(piece.len()) > self.limit {
            self.too_long = true;
            return "";
        }
        self.raw.push_str(piece);
        let shown = self.code.len();
        let mut rest = piece;
        while let Some(first) = rest.chars().next() {
            let taken = match self.at {
                At::Done => break,
                At::Code { high: None } => self.take_plain_code(rest),
                at => {
                    self.at = self.step(at, first);
                    first.len_utf8()
                }
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        self.code.get(shown..).unwrap_or_default()
    }

    /// The code, if the arguments as a whole are what was shown.
    pub fn finish(self) -> Result<String, NotCode> {
        #[derive(serde::Deserialize)]
        struct Arguments {
            code: String,
        }
        let whole: Arguments = serde_json::from_str(&self.raw).map_err(|_| NotCode)?;
        if self.too_long || whole.code != self.code || whole.code.trim().is_empty() {
            return Err(NotCode);
        }
        Ok(whole.code)
    }

    /// Takes everything up to the next quote or backslash at once.
    fn take_plain_code(&mut self, rest: &str) -> usize {
        match memchr::memchr2(b'"', b'\\', rest.as_bytes()) {
            None => {
                self.code.push_str(rest);
                rest.len()
            }
            Some(0) => {
                self.at = if rest.starts_with('"') { At::Done } else { At::Escape { high: None } };
                1
            }
            Some(end) => {
                self.code.push_str(rest.get(..end).unwrap_or_default());
                end
            }
        }
    }

    fn step(&mut self, at: At, next: char) -> At {
        match at {
            At::Start if next == '{' => At::Members,
            At::Start | At::Members if next.is_ascii_whitespace() => at,
            At::Members if next == ',' => at,
            At::Members if next == '"' => At::Name { matched: Some(0), escaped: false },
            At::Start | At::Members => At::Done,
            At::Name { matched, escaped } => step_name(matched, escaped, next),
            At::Colon { .. } if next == ':' || next.is_ascii_whitespace() => at,
            At::Colon { is_code: true } if next == '"' => At::Code { high: None },
            At::Colon { .. } => step_other(0, false, false, next),
            At::Other { depth, in_string, escaped } => step_other(depth, in_string, escaped, next),
            At::Code { high } if next == '\\' => At::Escape { high },
            // A half pair that nothing completes is no text; the check of the whole says so too.
            At::Code { .. } => At::Done,
            At::Escape { high } if next == 'u' => At::Unicode { high, digits: 0, value: 0 },
            At::Escape { high: Some(_) } => At::Done,
            At::Escape { high: None } => self.unescape(next),
            At::Unicode { high, digits, value } => match next.to_digit(16) {
                Some(digit) if digits < 3 => At::Unicode { high, digits: digits + 1, value: value * 16 + digit },
                Some(digit) => self.unescape_unicode(high, value * 16 + digit),
                None => At::Done,
            },
            At::Done => At::Done,
        }
    }

    fn unescape(&mut self, next: char) -> At {
        let plain = match next {
            '"' | '\\' | '/' => next,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            _ => return At::Done,
        };
        self.code.push(plain);
        At::Code { high: None }
    }

    fn unescape_unicode(&mut self, high: Option<u32>, unit: u32) -> At {
        let point = match (high, unit) {
            (None, 0xd800..=0xdbff) => return At::Code { high: Some(unit) },
            (Some(high), 0xdc00..=0xdfff) => 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00),
            (Some(_), _) => return At::Done,
            (None, unit) => unit,
        };
        match char::from_u32(point) {
            Some(plain) => {
                self.code.push(plain);
                At::Code { high: None }
            }
            None => At::Done,
        }
    }
}

fn step_name(matched: Option<usize>, escaped: bool, next: char) -> At {
    match next {
        // Nobody escapes the letters of `code`; whoever does gets no live view.
        _ if escaped => At::Name { matched: None, escaped: false },
        '\\' => At::Name { matched: None, escaped: true },
        '"' => At::Colon { is_code: matched == Some(NAME.len()) },
        _ => {
            let matched = matched.filter(|&known| NAME.get(known).is_some_and(|&byte| char::from(byte) == next));
            At::Name { matched: matched.map(|known| known + 1), escaped: false }
        }
    }
}

fn step_other(depth: u32, in_string: bool, escaped: bool, next: char) -> At {
    if in_string {
        let (in_string, escaped) = if escaped { (true, false) } else { (next != '"', next == '\\') };
        return At::Other { depth, in_string, escaped };
    }
    match next {
        '"' => At::Other { depth, in_string: true, escaped: false },
        '{' | '[' => At::Other { depth: depth.saturating_add(1), in_string, escaped },
        '}' | ']' if depth == 0 => At::Done,
        '}' | ']' => At::Other { depth: depth - 1, in_string, escaped },
        ',' if depth == 0 => At::Members,
        _ => At::Other { depth, in_string, escaped },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown, and what runs, for every way to cut the text in two.
    fn check(raw: &str, shown: &str, runs: bool) {
        for cut in (0..=raw.len()).filter(|cut| raw.is_char_boundary(*cut)) {
            let mut argument = CodeArgument::new(1 << 20);
            let mut seen = argument.feed(&raw[..cut]).to_owned();
            seen.push_str(argument.feed(&raw[cut..]));
            assert_eq!(seen, shown, "cut at {cut} of {raw}");
            assert_eq!(argument.finish(), if runs { Ok(shown.to_owned()) } else { Err(NotCode) }, "{raw}");
        }
    }

    #[test]
    fn the_code_is_shown_unescaped_and_runs() {
        check(r#"{"code": "print(1)\n"}"#, "print(1)\n", true);
        check(r#" {"n": {"code": ["}", "\""]}, "code" : "a\tb \"\\\/"} "#, "a\tb \"\\/", true);
        check(r#"{"code":"\u00e9 é \ud83d\ude00 😀"}"#, "é é 😀 😀", true);
        check(r#"{"code":"x", "why": "y"}"#, "x", true);
    }

    #[test]
    fn what_is_no_code_does_not_run() {
        check("", "", false);
        check("print(1)", "", false);
        check("[]", "", false);
        check("{}", "", false);
        check(r#"{"code": 1}"#, "", false);
        check(r#"{"code": ""}"#, "", false);
        check(r#"{"code": "pri"#, "pri", false);
        check(r#"{"code": "a" "b"}"#, "a", false);
        check(r#"{"code": "a\q"}"#, "a", false);
        check(r#"{"code": "a\ud83d"}"#, "a", false);
        check(r#"{"code": "a\ud83dx"}"#, "a", false);
    }

    #[test]
    fn what_was_not_shown_does_not_run() {
        check(r#"{"code": "a", "code": "b"}"#, "a", false);
        check(r#"{"\u0063ode": "a"}"#, "", false);
    }

    #[test]
    fn arguments_over_the_limit_do_not_run() {
        let mut argument = CodeArgument::new(20);
        assert_eq!(argument.feed(r#"{"code": "12345"#), "12345");
        assert_eq!(argument.feed(r#"6789012345"}"#), "");
        assert_eq!(argument.feed("\"}"), "");
        assert_eq!(argument.finish(), Err(NotCode));
    }
}
