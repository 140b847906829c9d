//! Which keys matter at which depth of a request, in all three wires at once.
//!
//! INVARIANT: a key listed for a node may stand in it once; every other key is free.

mod node;

use super::text::Marks;
use super::{Fault, MAX_ALLOWED, MAX_DECLARATIONS, MAX_MODEL, MAX_TYPE, ScanErrorKind};
use crate::request::{
    DATED_PREFIX, Keyword, NamedTool, OWN_CONTAINER, RequestView, ToolChoice, ToolDeclaration, WEB_SEARCH,
};
use node::{Flag, Node, Slot, keys, path, text_limit};

// A frame has a bit for each key.
const _: () = node::check_rows(u16::BITS);

/// JSON type of a value that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    Text,
    Number,
    True,
    False,
    Null,
}

/// What to do with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing in it matters.
    Skip,
    /// Its text is wanted, up to so many bytes.
    Keep(usize),
    /// Its parts matter.
    Enter,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    node: Node,
    /// A bit per key of the node's row in [`keys`].
    seen: u16,
}

/// What has been found so far.
#[derive(Debug, Default)]
pub(super) struct Schema {
    /// The containers we are in; at most 6, as deep as the nodes above nest.
    frames: Vec<Frame>,
    slot: Slot,
    view: RequestView,
    /// Entries of `tools` so far.
    entries: u32,
    tool: Tool,
    /// The entry of the allow-list being read.
    allowed: NamedTool,
}

/// The entry of `tools` being read; its buffers are reused from entry to entry.
#[derive(Debug, Default)]
struct Tool {
    kind: Held,
    name: Held,
    hint: Held,
}

/// A text that may be absent or cut.
#[derive(Debug, Default)]
struct Held {
    text: String,
    present: bool,
    /// Its limit, if it is longer.
    cut_at: Option<usize>,
}

impl Schema {
    /// A key of the innermost container.
    pub(super) fn key(&mut self, key: &[u8]) -> Result<(), Fault> {
        self.slot = Slot::Free;
        let entries = self.entries;
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        let mut bit: u16 = 1;
        for (name, slot) in keys(frame.node) {
            if name.as_bytes() == key {
                if frame.seen & bit != 0 {
                    return Err(ScanErrorKind::DuplicateKey(path(frame.node, entries, name)).into());
                }
                frame.seen |= bit;
                self.slot = *slot;
                return Ok(());
            }
            bit <<= 1;
        }
        // Some parsers (Go's) look for no more than the letters of a key.
        match keys(frame.node).iter().find(|(name, _)| folds_to(key, name)) {
            Some((name, _)) => Err(Fault::from(ScanErrorKind::Misspelled {
                param: path(frame.node, entries, &String::from_utf8_lossy(key)),
                expected: path(frame.node, entries, name),
            })),
            None => Ok(()),
        }
    }

    /// A value begins.
    pub(super) fn begin(&mut self, kind: Kind) -> Result<Plan, Fault> {
        let slot = self.current();
        match (slot, kind) {
            (Slot::Root, Kind::Object) => Ok(self.enter(Node::Root)),
            (Slot::Root, _) => Err(ScanErrorKind::NotAnObject.into()),
            (Slot::Model, Kind::Text) => Ok(Plan::Keep(MAX_MODEL)),
            (Slot::Tools, Kind::Array) => Ok(self.enter(Node::Tools)),
            (Slot::Model | Slot::Tools | Slot::Stream | Slot::MaxToolIterations, Kind::Null) => Ok(Plan::Skip),
            (Slot::Model, _) => Err(ScanErrorKind::WrongType { param: "model", expected: "a string" }.into()),
            (Slot::Tools, _) => Err(ScanErrorKind::WrongType { param: "tools", expected: "an array" }.into()),
            (Slot::Stream, _) => {
                self.view.stream = kind == Kind::True;
                self.unusable_if(!matches!(kind, Kind::True | Kind::False), "stream");
                Ok(Plan::Skip)
            }
            (Slot::MaxToolIterations, _) => {
                self.unusable_if(kind != Kind::Number, "max_tool_iterations");
                Ok(Plan::Skip)
            }
            (Slot::Tool, _) => {
                self.entries = self.entries.saturating_add(1);
                Ok(if kind == Kind::Object { self.enter(Node::Tool) } else { Plan::Skip })
            }
            (Slot::Flagged(flag), Kind::Array) => Ok(self.enter(Node::Flagged(flag))),
            (Slot::Flagged(_), Kind::Null) => Ok(Plan::Skip),
            (Slot::Flagged(flag) | Slot::FlaggedEntry(flag), _) => {
                match flag {
                    Flag::Mcp => self.view.mcp = true,
                    Flag::Skills => self.view.skills = true,
                    Flag::StoredPrompt => self.view.stored_prompt = true,
                }
                Ok(Plan::Skip)
            }
            (Slot::Choice, Kind::Text | Kind::Object) => {
                self.view.tool_choice = Some(ToolChoice::default());
                Ok(if kind == Kind::Object { self.enter(Node::Choice) } else { Plan::Keep(MAX_TYPE) })
            }
            (Slot::Container, Kind::Object) => Ok(self.enter(Node::Container)),
            (Slot::AllowedTools, Kind::Object) => Ok(self.enter(Node::AllowedTools)),
            (Slot::AllowedList, Kind::Array) => Ok(self.enter(Node::AllowedList)),
            (Slot::Allowed, Kind::Object) => Ok(self.enter(Node::Allowed)),
            (Slot::Named { in_list }, Kind::Object) => Ok(self.enter(Node::Named { in_list })),
            (_, Kind::Text) => Ok(text_limit(slot).map_or(Plan::Skip, Plan::Keep)),
            _ => Ok(Plan::Skip),
        }
    }

    /// A kept text has ended; `cut_at` is its limit if it was longer.
    pub(super) fn text(&mut self, bytes: &[u8], cut_at: Option<usize>) -> Result<(), Fault> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            // The scanner has checked it: only a cut can leave half a character.
            Err(error) => std::str::from_utf8(bytes.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default(),
        };
        let whole = || cut_at.is_none().then(|| text.to_owned());
        match self.current() {
            Slot::Model => match whole() {
                Some(model) => self.view.model = Some(model),
                None => return Err(ScanErrorKind::ValueTooLong { param: "model".to_owned(), limit: MAX_MODEL }.into()),
            },
            Slot::ToolType => self.tool.kind.set(text, cut_at),
            Slot::ToolName => self.tool.name.set(text, cut_at),
            Slot::ToolHint => self.tool.hint.set(text, cut_at),
            Slot::Container | Slot::ContainerId => self.container(text, cut_at)?,
            Slot::Choice | Slot::ChoiceType { in_list: false } => self.choice().kind = whole(),
            Slot::ChoiceName { in_list: false } => self.choice().name = whole(),
            Slot::ChoiceType { in_list: true } => self.allowed.kind = whole(),
            Slot::ChoiceName { in_list: true } => self.allowed.name = whole(),
            _ => {}
        }
        Ok(())
    }

    /// A number has ended; its value if it is a plain integer.
    pub(super) fn number(&mut self, value: Option<u32>) {
        if self.current() == Slot::MaxToolIterations {
            self.view.max_tool_iterations = value;
            self.unusable_if(value.is_none(), "max_tool_iterations");
        }
    }

    /// The innermost container ends.
    pub(super) fn close(&mut self) -> Result<(), Fault> {
        match self.frames.pop().map(|frame| frame.node) {
            Some(Node::Tool) => self.declare(),
            Some(Node::Allowed) => {
                let entry = std::mem::take(&mut self.allowed);
                let list = &mut self.view.tool_choice.get_or_insert_default().allowed;
                if list.len() < MAX_ALLOWED {
                    list.push(entry);
                } else {
                    self.unusable_if(true, "tool_choice");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The body is over.
    pub(super) fn finish(self, marks: Marks) -> RequestView {
        RequestView { own_file_ids: marks.own_file, minted_history: marks.minted, ..self.view }
    }

    /// The place where a value stands now.
    fn current(&self) -> Slot {
        match self.frames.last().map(|frame| frame.node) {
            Some(Node::Tools) => Slot::Tool,
            Some(Node::AllowedList) => Slot::Allowed,
            Some(Node::Flagged(flag)) => Slot::FlaggedEntry(flag),
            _ => self.slot,
        }
    }

    fn enter(&mut self, node: Node) -> Plan {
        match node {
            Node::Tool => self.tool.clear(),
            Node::Allowed => self.allowed = NamedTool::default(),
            _ => {}
        }
        self.frames.push(Frame { node, seen: 0 });
        Plan::Enter
    }

    fn unusable_if(&mut self, condition: bool, param: &'static str) {
        if condition && self.view.unusable.is_none() {
            self.view.unusable = Some(param);
        }
    }

    fn choice(&mut self) -> &mut NamedTool {
        &mut self.view.tool_choice.get_or_insert_default().tool
    }

    fn container(&mut self, id: &str, cut_at: Option<usize>) -> Result<(), Fault> {
        if !id.starts_with(OWN_CONTAINER) {
            return Ok(());
        }
        if let Some(limit) = cut_at {
            return Err(ScanErrorKind::ValueTooLong { param: "container".to_owned(), limit }.into());
        }
        match &self.view.own_container {
            Some(other) => self.view.containers_differ |= other != id,
            None => self.view.own_container = Some(id.to_owned()),
        }
        Ok(())
    }

    /// An entry of `tools` is complete.
    fn declare(&mut self) -> Result<(), Fault> {
        let index = self.entries.saturating_sub(1);
        let kind = &self.tool.kind;
        if !kind.present {
            return Ok(());
        }
        if kind.cut_at.is_some() && !kind.text.starts_with(DATED_PREFIX) {
            return Ok(());
        }
        let Some(keyword) = Keyword::parse(&kind.text) else {
            self.view.web_search |= kind.text == WEB_SEARCH;
            let expected = kind.text.trim().to_ascii_lowercase();
            return match Keyword::parse(&expected) {
                Some(_) => Err(ScanErrorKind::Misspelled { param: format!("tools[{index}].type"), expected }.into()),
                None => Ok(()),
            };
        };
        for (held, field) in [(kind, "type"), (&self.tool.name, "name"), (&self.tool.hint, "purpose_hint")] {
            if let Some(limit) = held.cut_at {
                return Err(ScanErrorKind::ValueTooLong { param: format!("tools[{index}].{field}"), limit }.into());
            }
        }
        if self.view.declarations.len() >= MAX_DECLARATIONS {
            return Err(ScanErrorKind::TooManyDeclarations.into());
        }
        self.view.declarations.push(ToolDeclaration {
            index,
            keyword,
            name: self.tool.name.get(),
            purpose_hint: self.tool.hint.get().filter(|hint| !hint.trim().is_empty()),
        });
        Ok(())
    }
}

/// Equal but for the case of its letters, two of which have a third form.
fn folds_to(key: &[u8], name: &str) -> bool {
    // A letter that is none of ASCII takes two or three bytes.
    if key.len() < name.len() || key.len() > name.len().saturating_mul(3) {
        return false;
    }
    let Ok(key) = std::str::from_utf8(key) else { return false };
    key.chars().map(folded).eq(name.chars())
}

fn folded(letter: char) -> char {
    match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        _ => letter.to_ascii_lowercase(),
    }
}

impl Tool {
    fn clear(&mut self) {
        for held in [&mut self.kind, &mut self.name, &mut self.hint] {
            held.present = false;
            held.cut_at = None;
        }
    }
}

impl Held {
    fn set(&mut self, text: &str, cut_at: Option<usize>) {
        self.text.clear();
        self.text.push_str(text);
        self.present = true;
        self.cut_at = cut_at;
    }

    fn get(&self) -> Option<String> {
        self.present.then(|| self.text.clone())
    }
}
