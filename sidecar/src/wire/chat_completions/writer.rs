//! The answer on the Chat Completions wire, as one turn of one model: code that ran here shows only on request.
//!
//! INVARIANT: one role, one reason, one id, time and model; calls of the caller's functions are counted from 0 without a
//! gap; of a call of ours no byte is told outside the account.

mod stream;
mod whole;

use std::sync::Arc;

use bytes::Bytes;
use decision::problem::Problem;
use decision::request::CodeTool;
use serde_json::{Map, Value, json};

use self::stream::StreamForm;
use self::whole::WholeForm;
use super::chunk::{self, CallHead, Extras};
use super::finish_word;
use crate::clock::Clock;
use crate::ids::{self, IdSource};
use crate::wire::code_tool;
use crate::wire::event::{
    Aside, BlockEvent, BlockKind, ClientEvent, CodeFailure, CodeFile, CodeFiles, CodeOutcome, Delta, Ended, Opened, Raw,
};
use crate::wire::model_request::Show;
use crate::wire::usage::Usage;
use crate::wire::writer::WriterOptions;

/// Member of the answer that holds the account of what ran, if the caller asked for it.
const ACCOUNT: &str = "otari_code_execution";
/// What stands between the texts of two turns: they were two messages, and Markdown knows them apart by a blank line.
const BETWEEN_TURNS: &str = "\n\n";

/// Writes one answer.
#[derive(Debug)]
pub struct ChatWriter {
    answer: Answer,
    form: Form,
    /// The open block is a call of the caller's functions, and whether any input of it was told.
    open_call: Option<bool>,
}

#[derive(Debug)]
enum Form {
    Stream(Box<StreamForm>),
    Whole(Box<WholeForm>),
}

/// What both forms share.
#[derive(Debug)]
struct Answer {
    model: String,
    show: Show,
    ids: Arc<dyn IdSource>,
    clock: Arc<dyn Clock>,
    /// How many line feeds the text told so far ends with, up to those of [`BETWEEN_TURNS`]; nothing before any text.
    line_feeds: Option<usize>,
    /// Code was called since the last text.
    between_turns: bool,
    /// The code calls, by number; empty unless the caller asked. They stand in the transcript too, whose limit is theirs.
    runs: Vec<CodeRun>,
}

#[derive(Debug)]
struct CodeRun {
    id: String,
    tool: CodeTool,
    shown: String,
    outcome: Option<CodeOutcome>,
}

/// What all chunks of an answer have in common.
#[derive(Debug, Default)]
struct Head {
    id: String,
    created: Value,
    model: String,
    /// What the model's first chunk said beside it, for chunks that the gateway adds.
    beside: Extras,
}

impl ChatWriter {
    /// A writer of either form.
    pub fn new(options: WriterOptions) -> Self {
        let WriterOptions { streamed, show, model, request_id, ids, clock, .. } = options;
        let form = if streamed {
            Form::Stream(Box::new(StreamForm::new(show.usage, request_id)))
        } else {
            Form::Whole(Box::default())
        };
        let answer = Answer { model, show, ids, clock, line_feeds: None, between_turns: false, runs: Vec::new() };
        Self { answer, form, open_call: None }
    }

    /// Tells the client one thing.
    pub fn write(&mut self, event: ClientEvent) -> Result<(), Problem> {
        match event {
            ClientEvent::Opened(opened) => {
                let (head, content) = self.answer.open(opened);
                match &mut self.form {
                    Form::Stream(stream) => stream.open(head, &content),
                    Form::Whole(whole) => whole.open(head),
                }
            }
            ClientEvent::Block(event) => self.block(event),
            ClientEvent::Aside(Aside::Ping) => self.keep_alive(),
            ClientEvent::Aside(Aside::Unknown { name: _, data }) => self.tail(&data),
            ClientEvent::CodeStart { call: _, tool } => self.answer.code_started(tool),
            ClientEvent::CodeDelta { call, text } => {
                if let Some(run) = self.answer.runs.get_mut(call) {
                    run.shown.push_str(&text);
                }
            }
            ClientEvent::CodeStop { call: _ } => {}
            ClientEvent::CodeResult { call, outcome } => {
                if let Some(run) = self.answer.runs.get_mut(call) {
                    run.outcome = Some(outcome);
                }
            }
        }
        Ok(())
    }

    /// A comment.
    pub fn keep_alive(&mut self) {
        if let Form::Stream(stream) = &mut self.form {
            stream.comment();
        }
    }

    /// The regular end.
    pub fn finish(&mut self, ended: Ended) {
        let (mut extras, word) = Extras::of(ended.raw.unwrap_or_default());
        if self.answer.show.runs {
            extras.chunk.insert(ACCOUNT.to_owned(), self.answer.account());
        }
        let reason = finish_word(&ended.stop, word.as_deref());
        let usage = usage_object(ended.usage);
        match &mut self.form {
            Form::Stream(stream) => stream.finish(extras, reason, &usage),
            Form::Whole(whole) => whole.finish(extras, reason, &usage),
        }
    }

    /// An error object in a frame of its own, which the SDKs raise.
    pub fn fail(&mut self, problem: &Problem) {
        if let Form::Stream(stream) = &mut self.form {
            stream.fail(problem);
        }
    }

    /// The bytes since the last time.
    pub fn take(&mut self) -> Bytes {
        match &mut self.form {
            Form::Stream(stream) => stream.out.split().freeze(),
            Form::Whole(whole) => std::mem::take(&mut whole.body).into(),
        }
    }

    fn block(&mut self, event: BlockEvent) {
        match event {
            BlockEvent::Start(BlockKind::Call { id, name }, raw) => {
                // A model of another wire may give no input at all, which is no JSON text here.
                self.open_call = Some(raw.is_some());
                let head = CallHead { id: &id, name: &name, custom: false };
                let raw = raw.unwrap_or_else(|| chunk::call_start(&Extras::default(), head, &Map::new()));
                self.call(&raw, true);
            }
            BlockEvent::Start(BlockKind::Text | BlockKind::Reasoning | BlockKind::Other, _) => {}
            BlockEvent::Delta(Delta::Text(piece), raw) => {
                if let Some(separator) = self.answer.separator(&piece) {
                    self.tail(&chunk::words(&Extras::default(), &[("content", separator)]));
                }
                let tail = raw.map(|raw| raw.json);
                let tail = tail.unwrap_or_else(|| chunk::words(&Extras::default(), &[("content", &piece)]));
                self.tail(&tail);
            }
            // Thinking of another wire has no member that every client of this one would take for thinking.
            BlockEvent::Delta(Delta::Reasoning(_), raw) => {
                if let Some(raw) = raw {
                    self.tail(&raw.json);
                }
            }
            BlockEvent::Delta(Delta::Arguments(piece), raw) => {
                let Some(has_input) = &mut self.open_call else { return };
                *has_input |= !piece.is_empty();
                let more = || chunk::call_more(&Extras::default(), false, &piece, &Map::new());
                self.call(&raw.unwrap_or_else(more), false);
            }
            BlockEvent::Delta(Delta::Other, _) => {}
            BlockEvent::Stop(_) => {
                if self.open_call.take() == Some(false) {
                    self.call(&chunk::call_more(&Extras::default(), false, "{}", &Map::new()), false);
                }
            }
        }
    }

    fn tail(&mut self, tail: &[u8]) {
        match &mut self.form {
            Form::Stream(stream) => stream.chunk(tail),
            Form::Whole(whole) => whole.absorb(tail, false),
        }
    }

    fn call(&mut self, raw: &Raw, begins: bool) {
        match &mut self.form {
            Form::Stream(stream) => stream.call(raw, begins),
            Form::Whole(whole) => whole.absorb(&raw.json, begins),
        }
    }
}

impl Answer {
    /// The head, and the `content` of the first delta.
    fn open(&self, opened: Opened) -> (Head, Value) {
        let Some(mut raw) = opened.raw else {
            let created = self.clock.now().as_second().into();
            let head =
                Head { id: self.ids.mint(ids::COMPLETION), created, model: self.model.clone(), ..Head::default() };
            return (head, "".into());
        };
        raw.remove("id");
        let content = raw.remove("content").unwrap_or_default();
        let created = raw.remove("created").filter(Value::is_number);
        let head = Head {
            id: opened.id.unwrap_or_else(|| self.ids.mint(ids::COMPLETION)),
            created: created.unwrap_or_else(|| self.clock.now().as_second().into()),
            model: self.model.clone(),
            beside: Extras { chunk: raw, ..Extras::default() },
        };
        (head, content)
    }

    fn code_started(&mut self, tool: CodeTool) {
        self.between_turns = true;
        if self.show.runs {
            let id = self.ids.mint(ids::CALL);
            self.runs.push(CodeRun { id, tool, shown: String::new(), outcome: None });
        }
    }

    /// What is to stand before this piece of text.
    fn separator(&mut self, piece: &str) -> Option<&'static str> {
        if piece.is_empty() {
            return None;
        }
        let known = self.line_feeds;
        let is_next = std::mem::take(&mut self.between_turns);
        let trailing = piece.bytes().rev().take_while(|byte| *byte == b'\n').count();
        let all_of_it = trailing == piece.len();
        let before = if all_of_it { known.unwrap_or_default() } else { 0 };
        self.line_feeds = Some(before.saturating_add(trailing).min(BETWEEN_TURNS.len()));
        let missing = BETWEEN_TURNS.get(known?..).filter(|missing| !missing.is_empty());
        missing.filter(|_| is_next)
    }

    /// What ran, in order.
    fn account(&mut self) -> Value {
        std::mem::take(&mut self.runs).into_iter().map(CodeRun::told).collect()
    }
}

impl CodeRun {
    /// The entry of the account: which tool, the members of its input, and what became of it.
    fn told(self) -> Value {
        let Self { id, tool, shown, outcome } = self;
        let result = match outcome.unwrap_or(CodeOutcome::Failed(CodeFailure::Unavailable)) {
            CodeOutcome::Ran { stdout, stderr, return_code, files } => {
                json!({"stdout": stdout, "stderr": stderr, "return_code": return_code, "files": told(&files)})
            }
            CodeOutcome::Edited { text, note, edit: _, files } => {
                json!({"stdout": text, "stderr": note, "return_code": 0, "files": told(&files)})
            }
            CodeOutcome::EditFailed { failure, message } => {
                json!({"error_code": failure.code(), "error_message": message})
            }
            CodeOutcome::Failed(failure) => json!({"error_code": failure.code()}),
        };
        let mut entry = Map::from_iter([("id".to_owned(), id.into()), ("tool".to_owned(), tool.word().into())]);
        entry.extend(code_tool::shown_input(tool, shown));
        entry.extend(result.as_object().cloned().unwrap_or_default());
        entry.into()
    }
}

/// The files that a call wrote; one that is not kept has no id.
fn told(files: &CodeFiles) -> Vec<Value> {
    let file = |file: &CodeFile| match &file.kept {
        Ok(stored) => json!({
            "path": file.path, "file_id": stored.id, "filename": stored.filename, "mime_type": stored.mime_type,
            "size_bytes": stored.size_bytes,
        }),
        Err(_) => json!({"path": file.path, "file_id": null}),
    };
    files.files.iter().map(file).collect()
}

/// All turns' usage. Where the model's own object is known, only what every client requires is added to it.
fn usage_object(usage: Usage) -> Map<String, Value> {
    let prompt = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    let is_foreign = usage.raw.is_none();
    let mut counts = usage.raw.unwrap_or_default();
    for (name, count) in [
        ("prompt_tokens", prompt),
        ("completion_tokens", usage.output),
        ("total_tokens", prompt.saturating_add(usage.output)),
    ] {
        counts.entry(name).or_insert_with(|| count.into());
    }
    if is_foreign {
        counts.insert("prompt_tokens_details".to_owned(), json!({"cached_tokens": usage.cache_read}));
        // Nothing said is not zero.
        if usage.reasoning > 0 {
            counts.insert("completion_tokens_details".to_owned(), json!({"reasoning_tokens": usage.reasoning}));
        }
    }
    counts
}

#[cfg(test)]
mod tests;
