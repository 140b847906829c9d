//! `tools` and `tool_choice` of each model call of a request: the caller's own tools, and our functions behind them.
//!
//! INVARIANT: a choice never names a tool that its call does not give; a choice of the declaration is met by one call of
//! any of our functions. The wires only spell what is decided here.

use std::borrow::Cow;

use decision::decide::Run;
use decision::problem::Problem;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::code_tool::{self, Functions};
use super::conversation::{Choice, Conversation, Function};
use super::json::{Fields, push_json, push_name};
use super::model_request::ModelRequest;

/// How a wire says what is decided here. `asked` is the caller's own choice, of which a wire may keep other members.
pub trait ToolWords {
    /// Our functions stay declared in the last call if the caller has none of its own, and a choice forbids them.
    const DECLARES_TO_THE_END: bool;

    /// A function as this wire declares one.
    fn function(function: &Function) -> Value;
    /// The model may call what it likes.
    fn auto(asked: &Value) -> Value;
    /// The model must call something.
    fn any(asked: &Value) -> Value;
    /// The model must call this function; also its entry in an allow-list.
    fn named(asked: &Value, name: &str) -> Value;
    /// The model must call nothing.
    fn none() -> Value;
}

/// The tools of one request.
#[derive(Debug)]
pub struct Tools<'a> {
    /// The caller's own, as JSON.
    own: Vec<Cow<'a, str>>,
    /// Ours.
    pub functions: Functions,
    choices: Option<Choices>,
    /// Members that stand beside tools and nowhere else; no braces, may be empty.
    pub beside: Vec<u8>,
}

/// The choice in each kind of model call.
#[derive(Debug)]
pub struct Choices {
    first: Value,
    /// What forces one of ours is met by one call of it.
    later: Value,
    /// For the call that must not use ours.
    closing: Value,
    /// The first call gives our functions and no others.
    only_ours: bool,
}

/// What a wire must know to understand a caller's choice.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// What was decided.
    pub run: &'a Run,
    /// Names of the caller's own tools.
    pub own: &'a [String],
    /// Ours.
    pub functions: &'a Functions,
}

impl Choices {
    /// The same in every call.
    pub fn always(choice: Value) -> Self {
        Self { later: choice.clone(), closing: choice.clone(), first: choice, only_ours: false }
    }

    /// Forces any tool, once.
    pub fn any_once(first: Value, free: Value) -> Self {
        Self { first, later: free.clone(), closing: free, only_ours: false }
    }

    /// Forces the declaration, once. Of several functions no wire can force "one of these" on servers that know no
    /// allow-lists, so the first call gives ours alone and demands any.
    pub fn ours_once<W: ToolWords>(asked: &Value, functions: &Functions) -> Self {
        let mut names = functions.names();
        let (first, only_ours) = match (names.next(), names.next()) {
            (Some(name), None) => (W::named(asked, name), false),
            _ => (W::any(asked), true),
        };
        Self { only_ours, ..Self::any_once(first, W::auto(asked)) }
    }

    /// An allow-list. `spell` writes one with these entries; with `true` it forces nothing any more.
    pub fn listed<W: ToolWords>(
        list: &[Value],
        is_ours: impl Fn(&Value) -> bool,
        functions: &Functions,
        spell: impl Fn(Vec<Value>, bool) -> Value,
    ) -> Self {
        let others: Vec<Value> = list.iter().filter(|entry| !is_ours(entry)).cloned().collect();
        // Without ours on it a list forces the caller's own, whose call ends the answer.
        let has_ours = others.len() < list.len();
        let mut allowed = others.clone();
        if has_ours {
            allowed.extend(functions.names().map(|name| W::named(&Value::Null, name)));
        }
        let closing = if others.is_empty() { W::none() } else { spell(others, true) };
        Self { first: spell(allowed.clone(), false), later: spell(allowed, has_ours), closing, only_ours: false }
    }
}

/// Tools of the caller's own, each behind the parameter that holds it.
pub type OwnTools = Vec<(String, Map<String, Value>)>;

/// Takes the caller's own tools out of a request that is to be translated.
pub fn take_own(body: &mut Map<String, Value>, run: &Run) -> Result<OwnTools, Problem> {
    let tools = match body.remove("tools") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(Problem::invalid("`tools` is not a list").with_param("tools")),
    };
    let own = tools.into_iter().enumerate().filter(|(position, _)| !code_tool::is_claimed(run, *position));
    own.map(|(position, tool)| {
        let param = format!("tools[{position}]");
        match tool {
            Value::Object(tool) => Ok((param, tool)),
            _ => Err(Problem::invalid(format!("`{param}` is not an object")).with_param(param)),
        }
    })
    .collect()
}

/// The schema of a function's arguments; one that says nothing allows an empty object, which every server takes.
pub fn schema_or_empty(schema: Option<Value>) -> Map<String, Value> {
    match schema {
        Some(Value::Object(schema)) if !schema.is_empty() => schema,
        _ => Map::from_iter([("type".to_owned(), "object".into()), ("properties".to_owned(), Map::new().into())]),
    }
}

impl<'a> Tools<'a> {
    /// Takes `tools` and `tool_choice` out of a request. `names_of` tells the names that a tool of the caller's takes, and
    /// `choose` understands a choice that is there and not null.
    pub fn read<N: IntoIterator<Item = String>>(
        fields: &mut Fields<'a>,
        run: &Run,
        names_of: impl Fn(&Value) -> N,
        choose: impl FnOnce(Value, Named<'_>) -> Choices,
    ) -> Result<Self, Problem> {
        let list: Vec<&RawValue> = match fields.take("tools") {
            None => Vec::new(),
            Some(tools) => serde_json::from_str(tools.get())
                .map_err(|_| Problem::invalid("`tools` is not a list").with_param("tools"))?,
        };
        let unclaimed = list.into_iter().enumerate().filter(|(position, _)| !code_tool::is_claimed(run, *position));
        let own: Vec<Cow<'a, str>> = unclaimed.map(|(_, tool)| Cow::Borrowed(tool.get())).collect();
        let tools = own.iter().filter_map(|tool| serde_json::from_str::<Value>(tool).ok());
        let names: Vec<String> = tools.flat_map(|tool| names_of(&tool)).collect();
        let functions = Functions::of(run, names.iter().map(String::as_str));
        let choice = fields.take("tool_choice").and_then(|choice| serde_json::from_str(choice.get()).ok());
        let choice = choice.filter(|choice: &Value| !choice.is_null());
        let choices = choice.map(|choice| choose(choice, Named { run, own: &names, functions: &functions }));
        Ok(Self { own, functions, choices, beside: Vec::new() })
    }

    /// Changes those of the caller's own tools of which `edit` gives another text.
    pub fn edit_own(&mut self, mut edit: impl FnMut(&str) -> Result<Option<String>, Problem>) -> Result<(), Problem> {
        for tool in &mut self.own {
            if let Some(edited) = edit(tool)? {
                *tool = Cow::Owned(edited);
            }
        }
        Ok(())
    }

    /// The tools of a neutral request. `asked`: members that every choice of the wire is to keep.
    pub fn of<W: ToolWords>(conversation: &Conversation, run: &Run, asked: &Value) -> Self {
        let names = conversation.functions.iter().map(|function| function.name.as_str());
        let functions = Functions::of(run, names);
        let choices = conversation.choice.as_ref().map(|choice| match choice {
            Choice::Auto => Choices::always(W::auto(asked)),
            Choice::Any => Choices::any_once(W::any(asked), W::auto(asked)),
            Choice::None => Choices::always(W::none()),
            Choice::Function(name) => Choices::always(W::named(asked, name)),
            Choice::Code => Choices::ours_once::<W>(asked, &functions),
        });
        let own = conversation.functions.iter().map(|function| W::function(function).to_string().into()).collect();
        Self { own, functions, choices, beside: Vec::new() }
    }

    /// Writes what each kind of model call says.
    pub fn write<W: ToolWords>(&self, request: &mut ModelRequest) {
        let ours: Vec<Cow<'_, str>> =
            self.functions.definitions().map(|function| W::function(&function).to_string().into()).collect();
        let choice = |pick: fn(&Choices) -> &Value| self.choices.as_ref().map(pick);
        let own: &[Cow<'_, str>] =
            if self.choices.as_ref().is_some_and(|choices| choices.only_ours) { &[] } else { &self.own };
        request.tools_first = self.members(own, &ours, choice(|choices| &choices.first));
        request.tools_later = self.members(&self.own, &ours, choice(|choices| &choices.later));
        request.tools_closing = match (self.own.is_empty(), W::DECLARES_TO_THE_END) {
            (true, true) => self.members(&[], &ours, Some(&W::none())),
            (true, false) => Vec::new(),
            (false, _) => self.members(&self.own, &[], choice(|choices| &choices.closing)),
        };
    }

    fn members(&self, own: &[Cow<'_, str>], ours: &[Cow<'_, str>], choice: Option<&Value>) -> Vec<u8> {
        let mut out = Vec::new();
        push_name(&mut out, "tools");
        out.push(b'[');
        for (position, tool) in own.iter().chain(ours).enumerate() {
            if position > 0 {
                out.push(b',');
            }
            out.extend_from_slice(tool.as_bytes());
        }
        out.push(b']');
        if let Some(choice) = choice {
            push_name(&mut out, "tool_choice");
            push_json(&mut out, choice);
        }
        if !self.beside.is_empty() {
            out.push(b',');
            out.extend_from_slice(&self.beside);
        }
        out
    }
}
