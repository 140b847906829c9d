//! The answer on the Messages wire, as an Anthropic server with hosted code execution would give it.
//!
//! INVARIANT: one `message_start` and one `message_delta`; indices without gaps; a call's input is valid JSON whatever
//! the model wrote; a call shown is a call answered.

mod result;
mod stream;
mod whole;

use std::sync::Arc;

use bytes::Bytes;
use decision::format::Vocabulary;
use decision::problem::{Origin, Problem, ProblemKind};
use decision::request::CodeTool;
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::stream::StreamForm;
use self::whole::WholeForm;
use super::stop_word;
use crate::clock::Clock;
use crate::ids::{self, IdSource};
use crate::wire::event::{Aside, ClientEvent, CodeOutcome, Ended, Opened};
use crate::wire::json::push_json;
use crate::wire::sse::write_frame;
use crate::wire::usage::Usage;
use crate::wire::writer::WriterOptions;

/// Writes one answer.
#[derive(Debug)]
pub struct MessagesWriter {
    answer: Answer,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Stream(StreamForm),
    Whole(WholeForm),
}

/// What both forms share: ids, and the objects that look alike in both.
#[derive(Debug)]
struct Answer {
    model: String,
    native: bool,
    show_reasoning: bool,
    request_id: String,
    ids: Arc<dyn IdSource>,
    clock: Arc<dyn Clock>,
    id: Option<String>,
    /// Ids and tools of the calls, by number.
    calls: Vec<(String, CodeTool)>,
    container: Option<String>,
    expires_at: Option<Timestamp>,
    /// Files that the text editor wrote: its blocks have no place for them, so the next program's result tells them.
    untold_files: Vec<String>,
    /// Executions that gave a result.
    runs: u64,
}

impl MessagesWriter {
    /// A writer of either form.
    pub fn new(options: WriterOptions) -> Self {
        let WriterOptions { streamed, native, show, model, request_id, ids, clock, container, .. } = options;
        let answer = Answer {
            model,
            native,
            show_reasoning: show.reasoning,
            request_id,
            ids,
            clock,
            id: None,
            calls: Vec::new(),
            container,
            expires_at: None,
            untold_files: Vec::new(),
            runs: 0,
        };
        let form = if streamed { Form::Stream(StreamForm::default()) } else { Form::Whole(WholeForm::default()) };
        Self { answer, form }
    }

    /// The container that the client is told of.
    pub fn container(&self) -> Option<&str> {
        self.answer.container.as_deref()
    }

    /// Until when it is kept.
    pub fn container_expires(&mut self, at: Timestamp) {
        self.answer.expires_at = Some(at);
    }

    /// Tells the client one thing.
    pub fn write(&mut self, event: ClientEvent) -> Result<(), Problem> {
        let answer = &mut self.answer;
        match event {
            ClientEvent::Opened(opened) => {
                let message = answer.open(opened);
                if let Form::Stream(stream) = &mut self.form {
                    stream.message_start(&message);
                }
            }
            ClientEvent::Block(event) => match &mut self.form {
                Form::Stream(stream) => return stream.block(event, answer.show_reasoning),
                Form::Whole(whole) => return whole.block(event, answer.show_reasoning),
            },
            ClientEvent::Aside(aside) => match (&mut self.form, aside) {
                (Form::Stream(stream), Aside::Ping) => stream.ping(),
                (Form::Stream(stream), Aside::Unknown { name, data }) => write_frame(&mut stream.out, &name, &data),
                (Form::Whole(_), _) => {}
            },
            _ if !answer.native => {}
            ClientEvent::CodeStart { call, tool } => {
                let id = answer.call_started(call, tool);
                match &mut self.form {
                    Form::Stream(stream) => stream.code_start(&id, tool),
                    Form::Whole(whole) => whole.code_start(id, tool),
                }
            }
            ClientEvent::CodeDelta { call: _, text } => match &mut self.form {
                Form::Stream(stream) => stream.code_delta(&text),
                Form::Whole(whole) => whole.code_delta(&text),
            },
            ClientEvent::CodeStop { call: _ } => match &mut self.form {
                Form::Stream(stream) => stream.code_stop(),
                Form::Whole(whole) => whole.code_stop(),
            },
            ClientEvent::CodeResult { call, outcome } => {
                let block = answer.result_block(call, outcome);
                match &mut self.form {
                    Form::Stream(stream) => stream.whole_block(&block),
                    Form::Whole(whole) => whole.push(&block),
                }
            }
        }
        Ok(())
    }

    /// A ping.
    pub fn keep_alive(&mut self) {
        if let Form::Stream(stream) = &mut self.form {
            stream.ping();
        }
    }

    /// The regular end.
    pub fn finish(&mut self, ended: Ended) {
        match &mut self.form {
            Form::Stream(stream) => stream.finish(&self.answer.message_delta(ended)),
            Form::Whole(whole) => whole.finish(self.answer.message(ended)),
        }
    }

    /// `event: error`, the only form of failure that the SDKs see in a stream.
    pub fn fail(&mut self, problem: &Problem) {
        if let Form::Stream(stream) = &mut self.form {
            let mut data = Vec::new();
            push_json(&mut data, &problem.body(Vocabulary::Anthropic, &self.answer.request_id));
            write_frame(&mut stream.out, b"error", &data);
        }
    }

    /// The bytes since the last time.
    pub fn take(&mut self) -> Bytes {
        match &mut self.form {
            Form::Stream(stream) => stream.out.split().freeze(),
            Form::Whole(whole) => std::mem::take(&mut whole.body).into(),
        }
    }
}

impl Answer {
    /// The message object of `message_start`.
    fn open(&mut self, opened: Opened) -> Map<String, Value> {
        let id = match opened.id {
            Some(id) if id.starts_with("msg_") => id,
            _ => self.ids.mint(ids::MESSAGE),
        };
        let mut message = opened.raw.unwrap_or_else(|| {
            object(json!({
                "id": null, "type": "message", "role": "assistant", "model": null, "content": [],
                "stop_reason": null, "stop_sequence": null, "stop_details": null,
                "usage": {"input_tokens": opened.usage.input, "output_tokens": opened.usage.output},
            }))
        });
        message.insert("id".to_owned(), id.clone().into());
        message.insert("model".to_owned(), self.model.clone().into());
        self.id = Some(id);
        message
    }

    fn call_started(&mut self, call: usize, tool: CodeTool) -> String {
        let id = self.ids.mint(ids::SERVER_TOOL_USE);
        debug_assert_eq!(self.calls.len(), call, "calls start in order");
        self.calls.push((id.clone(), tool));
        if self.container.is_none() {
            self.container = Some(self.ids.mint(ids::CONTAINER));
        }
        id
    }

    fn result_block(&mut self, call: usize, outcome: CodeOutcome) -> Vec<u8> {
        self.runs += u64::from(matches!(outcome, CodeOutcome::Ran { .. } | CodeOutcome::Edited { .. }));
        if let Some(files) = outcome.files() {
            self.untold_files.extend(files.stored().map(|(_, stored)| stored.id.clone()));
        }
        let has_place = matches!(outcome, CodeOutcome::Ran { .. });
        let files = if has_place { std::mem::take(&mut self.untold_files) } else { Vec::new() };
        let mut block = Vec::new();
        if let Some((id, tool)) = self.calls.get(call) {
            push_json(&mut block, &result::block(id, *tool, outcome, files));
        }
        block
    }

    /// The data of `message_delta`.
    fn message_delta(&self, ended: Ended) -> Map<String, Value> {
        let mut event = ended.raw.unwrap_or_default();
        event.insert("type".to_owned(), "message_delta".into());
        let mut delta = match event.remove("delta") {
            Some(Value::Object(delta)) => delta,
            _ => object(json!({"stop_reason": null, "stop_sequence": null, "stop_details": null})),
        };
        delta.insert("stop_reason".to_owned(), stop_word(&ended.stop).into());
        if let crate::wire::event::Stop::StopSequence(Some(text)) = &ended.stop {
            delta.insert("stop_sequence".to_owned(), text.clone().into());
        }
        if let Some(container) = self.container() {
            delta.insert("container".to_owned(), container);
        }
        event.insert("delta".to_owned(), delta.into());
        event.insert("usage".to_owned(), self.usage(ended.usage).into());
        event
    }

    /// The whole message, without its content.
    fn message(&self, ended: Ended) -> Map<String, Value> {
        let mut message = ended.raw.unwrap_or_else(|| {
            object(json!({
                "id": null, "type": "message", "role": "assistant", "model": null, "content": null,
                "stop_reason": null, "stop_sequence": null, "stop_details": null,
            }))
        });
        message.insert("id".to_owned(), self.id.clone().into());
        message.insert("model".to_owned(), self.model.clone().into());
        message.insert("stop_reason".to_owned(), stop_word(&ended.stop).into());
        if let crate::wire::event::Stop::StopSequence(Some(text)) = &ended.stop {
            message.insert("stop_sequence".to_owned(), text.clone().into());
        }
        if let Some(container) = self.container() {
            message.insert("container".to_owned(), container);
        }
        message.insert("usage".to_owned(), self.usage(ended.usage).into());
        message
    }

    /// A session that is not kept ends with the answer, and that is what `expires_at` says then.
    fn container(&self) -> Option<Value> {
        let id = self.container.as_ref()?;
        Some(
            json!({"id": id, "expires_at": self.expires_at.unwrap_or_else(|| self.clock.now()).to_string(), "skills": null}),
        )
    }

    fn usage(&self, usage: Usage) -> Map<String, Value> {
        let mut counts = usage.raw.unwrap_or_else(|| {
            object(json!({
                "input_tokens": usage.input,
                "cache_creation_input_tokens": usage.cache_write,
                "cache_read_input_tokens": usage.cache_read,
                "output_tokens": usage.output,
            }))
        });
        if !self.calls.is_empty() {
            let server = counts.entry("server_tool_use").or_insert(Value::Null);
            let mut known = server.as_object().cloned().unwrap_or_default();
            for name in ["web_search_requests", "web_fetch_requests"] {
                known.entry(name).or_insert_with(|| 0.into());
            }
            known.insert("code_execution_requests".to_owned(), self.runs.into());
            *server = known.into();
        }
        counts
    }
}

/// The opening of a call of ours. SDKs of late 2025 require `caller`, none refuses it.
fn code_block(id: &str, tool: CodeTool, input: &Map<String, Value>) -> Value {
    let caller = json!({"type": "direct"});
    json!({"type": "server_tool_use", "id": id, "name": tool.word(), "input": input, "caller": caller})
}

/// The signature of thinking that no provider signed: by it the gateway knows it again, and keeps it from those who check.
fn unsigned() -> String {
    format!("{}unsigned", ids::THOUGHT)
}

/// A call of the client's whose model speaks another wire: its arguments must be an object.
fn check_arguments(arguments: &str) -> Result<(), Problem> {
    let is_object = serde_json::from_str::<&RawValue>(arguments).is_ok_and(|value| value.get().starts_with('{'));
    if is_object || arguments.trim().is_empty() {
        return Ok(());
    }
    Err(Problem::new(
        ProblemKind::UpstreamFailed,
        Origin::Upstream,
        "the model called a function with arguments that are not a JSON object",
    ))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
