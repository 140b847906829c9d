//! Reader, machine and writer without a network: a model's bytes in, the client's bytes out.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use decision::decide::Dialect;
use decision::problem::Problem;

use super::support::{Answer, CountingIds, FixedClock};
use crate::tool_loop::machine::{Input, Output, Settings, ToolLoop};
use crate::tool_loop::{Limits, RunRequest};
use crate::wire::code_tool::CodeInput;
use crate::wire::event::{CodeFiles, CodeOutcome};
use crate::wire::past::{PastRun, PastRuns, Place};
use crate::wire::reader::{ReaderOptions, TurnReader};
use crate::wire::served::Wires;
use crate::wire::writer::{ClientWriter, WriterOptions};

/// What came of a script.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Played {
    /// All that the client got.
    pub(super) client: String,
    /// Model calls.
    pub(super) turns: usize,
    /// Pieces of code that were started.
    pub(super) started: Vec<String>,
}

struct Nothing;

impl PastRuns for Nothing {
    fn find(&self, _: &HashSet<String>, _: &Place) -> Option<Arc<[PastRun]>> {
        None
    }
}

struct Loop {
    machine: Option<ToolLoop>,
    writer: ClientWriter,
    next_turn: bool,
    started: Vec<String>,
}

/// Plays a script of streamed answers, cut in pieces of so many bytes, until the answer or the script ends. Code prints
/// itself.
pub(super) fn play(asked: &RunRequest, script: &[Answer], piece: usize) -> Played {
    let wires = Wires::choose(asked.caller, &asked.model_wires).expect("wires");
    let prepared = wires.prepare(&asked.body, &asked.run, None, None, &Nothing).expect("a request");
    let ids = Arc::new(CountingIds::default());
    let limits = Limits::default();
    let options = WriterOptions {
        wire: wires.caller,
        streamed: true,
        native: asked.run.dialect == Dialect::Native,
        show: prepared.show,
        kept: false,
        settings: prepared.caller.members,
        model: prepared.model,
        request_id: asked.request_id.clone(),
        ids: ids.clone(),
        clock: Arc::new(FixedClock),
    };
    let (functions, max_turns) = (prepared.functions, asked.run.max_iterations);
    let machine = ToolLoop::new(Settings { functions, max_turns, max_calls: usize::MAX, limits });
    let mut this =
        Loop { machine: Some(machine), writer: ClientWriter::new(options), next_turn: true, started: Vec::new() };
    let mut turns = 0;
    for answer in script {
        if !std::mem::take(&mut this.next_turn) {
            break;
        }
        turns += 1;
        this.read(
            answer,
            piece,
            TurnReader::new(ReaderOptions {
                wire: wires.model,
                streamed: true,
                keep_raw: wires.are_same(),
                max_frame_bytes: limits.max_frame_bytes,
                max_answer_bytes: limits.max_answer_bytes,
                ids: ids.clone(),
            }),
        );
    }
    assert!(this.machine.is_some_and(|machine| machine.is_over()), "stuck");
    let client = String::from_utf8(this.writer.take().to_vec()).expect("text");
    Played { client, turns, started: this.started }
}

impl Loop {
    fn read(&mut self, answer: &Answer, piece: usize, mut reader: TurnReader) {
        self.tell(Input::TurnOpened);
        let mut events = Vec::new();
        let chunks = answer.body.chunks(piece).map(Some).chain([None]);
        for chunk in chunks {
            let read = match chunk {
                Some(chunk) => reader.feed(chunk, &mut events),
                None => reader.close(&mut events),
            };
            for event in events.drain(..) {
                self.tell(Input::Event(event));
            }
            match (read, chunk) {
                (Err(error), _) => return self.tell(Input::TurnFailed(Problem::from(error))),
                (Ok(()), None) => self.tell(Input::TurnClosed),
                (Ok(()), Some(_)) => {}
            }
            if self.next_turn {
                return;
            }
        }
    }

    fn tell(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let machine = self.machine.take().expect("a machine");
            let mut outputs = Vec::new();
            self.machine = Some(machine.handle(input, &mut outputs));
            for output in outputs {
                match output {
                    Output::Emit(event) => inputs.extend(self.writer.write(event).err().map(Input::Failed)),
                    Output::OpenTurn(_) => self.next_turn = true,
                    Output::StartTool { call, input, id: _ } => {
                        let CodeInput::Python(code) = input else { panic!("the scripts have Python alone: {input:?}") };
                        let outcome = CodeOutcome::Ran {
                            stdout: code.clone(),
                            stderr: String::new(),
                            return_code: 0,
                            files: CodeFiles::default(),
                        };
                        self.started.push(code);
                        inputs.push_back(Input::ToolFinished { call, outcome });
                    }
                    Output::CancelTools => {}
                    Output::Finish(ended) => self.writer.finish(ended),
                    Output::Fail(problem) => self.writer.fail(&problem),
                }
            }
        }
    }
}
