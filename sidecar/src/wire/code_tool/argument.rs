//! The arguments of a call of ours, as the model writes them: Python and shell commands are shown while they grow, and
//! checked when they are whole; an act of the text editor is shown when it is whole.
//!
//! INVARIANT: what runs is what was shown; arguments for which the two differ do not run.

use decision::request::CodeTool;

use super::{CODE, COMMAND, CodeInput, editor};
use crate::wire::event::CodeFailure;
use crate::wire::json::Fields;

const NO_CODE: &str = "its arguments must be one JSON object of the form {\"code\": \"<Python source>\"} and the code \
                       must not be empty or too long";
const NO_COMMAND: &str = "its arguments must be one JSON object of the form {\"command\": \"<command line>\"} and the \
                          command must not be empty or too long";

/// Collects the pieces of one call's arguments.
#[derive(Debug)]
pub struct Argument {
    /// The JSON text so far.
    raw: String,
    too_long: bool,
    limit: usize,
    /// The text that is shown while it grows; nothing of the text editor.
    live: Option<LiveText>,
}

/// Arguments that are complete.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished {
    /// What is still to be shown.
    pub shown: String,
    /// What is to be done, or why nothing can be.
    pub input: Result<CodeInput, CodeFailure>,
}

/// The text of one member, found while its object is being written.
#[derive(Debug)]
struct LiveText {
    member: &'static str,
    /// What the text asks for.
    make: fn(String) -> CodeInput,
    /// What the model is told of arguments that hold none.
    refusal: &'static str,
    /// The text so far, unescaped.
    text: String,
    at: At,
}

/// Where in the JSON text the scanner stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the object.
    Start,
    /// Between members.
    Members,
    /// In a member's name: how much of the wanted one it has matched, `None` once it is another.
    Name { matched: Option<usize>, escaped: bool },
    /// Between a name and its value.
    Colon { is_wanted: bool },
    /// In a value that is not the wanted one.
    Other { depth: u32, in_string: bool, escaped: bool },
    /// In the text, after half a surrogate pair if `high` is set.
    Text { high: Option<u32> },
    /// After a backslash in the text.
    Escape { high: Option<u32> },
    /// In the digits of `\uXXXX`.
    Unicode { high: Option<u32>, digits: u8, value: u32 },
    /// The text is complete, or the JSON makes no sense: nothing more to show.
    Done,
}

impl Argument {
    /// Arguments of at most `limit` bytes.
    pub fn new(tool: CodeTool, limit: usize) -> Self {
        let live = match tool {
            CodeTool::Python => Some(LiveText::new(CODE, CodeInput::Python, NO_CODE)),
            CodeTool::Bash => Some(LiveText::new(COMMAND, CodeInput::Bash, NO_COMMAND)),
            CodeTool::TextEditor => None,
        };
        Self { raw: String::new(), too_long: false, limit, live }
    }

    /// Takes a piece and gives the text that it brings to light.
    pub fn feed(&mut self, piece: &str) -> &str {
        if self.too_long || self.raw.len().saturating_add(piece.len()) > self.limit {
            self.too_long = true;
            return "";
        }
        self.raw.push_str(piece);
        self.live.as_mut().map_or("", |live| live.feed(piece))
    }

    /// What they ask for, if the arguments as a whole are what was shown.
    pub fn finish(self) -> Finished {
        let raw = if self.too_long { "" } else { &*self.raw };
        let Some(live) = self.live else {
            let (shown, input) = editor::read(raw);
            return Finished { shown, input };
        };
        let LiveText { make, refusal, .. } = live;
        let input = live.whole(raw).map(make).ok_or(CodeFailure::InvalidInput(refusal));
        Finished { shown: String::new(), input }
    }
}

impl LiveText {
    fn new(member: &'static str, make: fn(String) -> CodeInput, refusal: &'static str) -> Self {
        Self { member, make, refusal, text: String::new(), at: At::Start }
    }

    fn feed(&mut self, piece: &str) -> &str {
        let shown = self.text.len();
        let mut rest = piece;
        while let Some(first) = rest.chars().next() {
            let taken = match self.at {
                At::Done => break,
                At::Text { high: None } => self.take_plain(rest),
                at => {
                    self.at = self.step(at, first);
                    first.len_utf8()
                }
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        self.text.get(shown..).unwrap_or_default()
    }

    /// The text, if it is the object's one member of that name and not blank.
    fn whole(self, raw: &str) -> Option<String> {
        let fields: Fields<'_> = serde_json::from_str(raw).ok()?;
        let mut wanted = fields.0.iter().filter(|(name, _)| name == self.member);
        let text: String = serde_json::from_str(wanted.next()?.1.get()).ok()?;
        (wanted.next().is_none() && text == self.text && !text.trim().is_empty()).then_some(text)
    }

    /// Takes everything up to the next quote or backslash at once.
    fn take_plain(&mut self, rest: &str) -> usize {
        match memchr::memchr2(b'"', b'\\', rest.as_bytes()) {
            None => {
                self.text.push_str(rest);
                rest.len()
            }
            Some(0) => {
                self.at = if rest.starts_with('"') { At::Done } else { At::Escape { high: None } };
                1
            }
            Some(end) => {
                self.text.push_str(rest.get(..end).unwrap_or_default());
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
            At::Name { matched, escaped } => step_name(self.member, matched, escaped, next),
            At::Colon { .. } if next == ':' || next.is_ascii_whitespace() => at,
            At::Colon { is_wanted: true } if next == '"' => At::Text { high: None },
            At::Colon { .. } => step_other(0, false, false, next),
            At::Other { depth, in_string, escaped } => step_other(depth, in_string, escaped, next),
            At::Text { high } if next == '\\' => At::Escape { high },
            // A half pair that nothing completes is no text; the check of the whole says so too.
            At::Text { .. } => At::Done,
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
        self.text.push(plain);
        At::Text { high: None }
    }

    fn unescape_unicode(&mut self, high: Option<u32>, unit: u32) -> At {
        let point = match (high, unit) {
            (None, 0xd800..=0xdbff) => return At::Text { high: Some(unit) },
            (Some(high), 0xdc00..=0xdfff) => 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00),
            (Some(_), _) => return At::Done,
            (None, unit) => unit,
        };
        match char::from_u32(point) {
            Some(plain) => {
                self.text.push(plain);
                At::Text { high: None }
            }
            None => At::Done,
        }
    }
}

fn step_name(member: &str, matched: Option<usize>, escaped: bool, next: char) -> At {
    match next {
        // Nobody escapes the letters of these names; whoever does gets no live view.
        _ if escaped => At::Name { matched: None, escaped: false },
        '\\' => At::Name { matched: None, escaped: true },
        '"' => At::Colon { is_wanted: matched == Some(member.len()) },
        _ => {
            let matched =
                matched.filter(|&known| member.as_bytes().get(known).is_some_and(|&byte| char::from(byte) == next));
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
        let bash = raw.replace("code", "command").replace(r"\u0063ode", r"\u0063ommand");
        check_tool(CodeTool::Python, raw, shown, runs.then(|| CodeInput::Python(shown.to_owned())), NO_CODE);
        check_tool(CodeTool::Bash, &bash, shown, runs.then(|| CodeInput::Bash(shown.to_owned())), NO_COMMAND);
    }

    fn check_tool(tool: CodeTool, raw: &str, shown: &str, runs: Option<CodeInput>, refusal: &'static str) {
        for cut in (0..=raw.len()).filter(|cut| raw.is_char_boundary(*cut)) {
            let mut argument = Argument::new(tool, 1 << 20);
            let mut seen = argument.feed(&raw[..cut]).to_owned();
            seen.push_str(argument.feed(&raw[cut..]));
            assert_eq!(seen, shown, "cut at {cut} of {raw}");
            let input = runs.clone().ok_or(CodeFailure::InvalidInput(refusal));
            assert_eq!(argument.finish(), Finished { shown: String::new(), input }, "{raw}");
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
        let mut argument = Argument::new(CodeTool::Python, 20);
        assert_eq!(argument.feed(r#"{"code": "12345"#), "12345");
        assert_eq!(argument.feed(r#"6789012345"}"#), "");
        assert_eq!(argument.feed("\"}"), "");
        assert_eq!(argument.finish().input, Err(CodeFailure::InvalidInput(NO_CODE)));
        let mut argument = Argument::new(CodeTool::TextEditor, 20);
        assert_eq!(argument.feed(r#"{"command": "view", "path": "a"}"#), "");
        let finished = argument.finish();
        assert!(finished.shown == "{}" && finished.input.is_err(), "{finished:?}");
    }
}
