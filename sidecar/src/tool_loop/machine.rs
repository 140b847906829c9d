//! The tool loop without I/O: what happened goes in, what is to be done comes out.
//!
//! INVARIANT: one terminal output per request; every code call that was shown gets its result before it; no more
//! model calls than `max_turns` with the tool and one without; a `StartTool` is answered once.

use decision::problem::{Origin, Problem, ProblemKind};
use decision::request::CodeTool;

use super::limits::Limits;
use crate::wire::code_tool::{Argument, CodeInput, Finished, Functions};
use crate::wire::event::{BlockEvent, BlockKind, ClientEvent, CodeFailure, CodeOutcome, Delta, Ended, Stop, TurnEvent};
use crate::wire::usage::Usage;

/// What the machine is told once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The functions the model was given; calls of them are ours, all others the client's.
    pub functions: Functions,
    /// Model calls that may use the tool; one more without it closes the answer.
    pub max_turns: u32,
    /// Code calls that may run; when they have, the next model call closes the answer.
    pub max_calls: usize,
    /// Bounds on what a model may write.
    pub limits: Limits,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// The model took the call.
    TurnOpened,
    /// The model said something.
    Event(TurnEvent),
    /// The model's bytes ended.
    TurnClosed,
    /// The model failed. What becomes of its connection after its end means nothing any more.
    TurnFailed(Problem),
    /// The request cannot go on: a deadline passed, or what is left of it cannot be told.
    Failed(Problem),
    /// A started call is over.
    ToolFinished {
        /// Which call.
        call: usize,
        /// How it ended.
        outcome: CodeOutcome,
    },
    /// Nobody listens any more.
    ClientGone,
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Call the model again.
    OpenTurn(NextTurn),
    /// Run a call.
    StartTool {
        /// Which call; counts from 0 over the request.
        call: usize,
        /// The model's own id of it.
        id: String,
        /// What it asks for.
        input: CodeInput,
    },
    /// Stop whatever runs; its result is of no use.
    CancelTools,
    /// Tell the client.
    Emit(ClientEvent),
    /// Close the answer; nothing follows.
    Finish(Ended),
    /// Close the answer with an error; nothing follows.
    Fail(Problem),
}

/// What the next model call must say.
#[derive(Debug, Clone, PartialEq)]
pub struct NextTurn {
    /// The results of the turn before: the model's own call id, and what became of it.
    pub results: Vec<(String, CodeOutcome)>,
    /// The model gets no tool this time.
    pub closing: bool,
}

/// One request's loop.
#[derive(Debug)]
pub struct ToolLoop {
    stage: Stage,
    ledger: Ledger,
}

#[derive(Debug)]
enum Stage {
    AwaitingTurn { closing: bool },
    ReadingTurn(ReadingTurn),
    Executing(Executing),
    Over,
}

/// What outlives a turn.
#[derive(Debug)]
struct Ledger {
    settings: Settings,
    usage: Usage,
    /// The client was told that the answer began.
    opened: bool,
    /// Model calls so far, the current one included.
    turns: u32,
    /// Code calls so far.
    calls: usize,
    /// Code calls that were fit to run.
    runnable: usize,
    /// Some code was started.
    ran: bool,
}

#[derive(Debug)]
struct ReadingTurn {
    closing: bool,
    /// The open block, if it is a code call.
    writing: Option<Writing>,
    calls: Vec<Written>,
    /// The model called a function of the client's.
    client_called: bool,
    /// It said something that nobody here knows, and that may be a call too.
    unknown: bool,
}

#[derive(Debug)]
struct Writing {
    call: usize,
    id: String,
    argument: Argument,
}

#[derive(Debug)]
struct Written {
    call: usize,
    id: String,
    input: Result<CodeInput, CodeFailure>,
}

#[derive(Debug)]
struct Executing {
    calls: Vec<Pending>,
    /// Results that the client was told; they go out in the order of the calls.
    told: usize,
    /// The client has calls of its own to answer: the answer ends here, with this.
    last: Option<Ended>,
}

#[derive(Debug)]
struct Pending {
    call: usize,
    id: String,
    outcome: Option<CodeOutcome>,
}

impl ToolLoop {
    /// A loop whose first model call is on its way.
    pub fn new(settings: Settings) -> Self {
        let ledger =
            Ledger { settings, usage: Usage::default(), opened: false, turns: 1, calls: 0, runnable: 0, ran: false };
        Self { stage: Stage::AwaitingTurn { closing: false }, ledger }
    }

    /// Takes one input, writes what is to be done to `out`, in order.
    #[must_use]
    pub fn handle(mut self, input: Input, out: &mut Vec<Output>) -> Self {
        self.stage = match (self.stage, input) {
            (Stage::Over, _) => Stage::Over,
            (stage, Input::ClientGone) => {
                if matches!(stage, Stage::Executing(_)) {
                    out.push(Output::CancelTools);
                }
                Stage::Over
            }
            (stage, Input::Failed(problem)) => self.ledger.fail(stage, problem, out),
            (Stage::AwaitingTurn { closing }, Input::TurnOpened) => Stage::ReadingTurn(ReadingTurn::new(closing)),
            (Stage::ReadingTurn(turn), Input::Event(event)) => turn.event(event, &mut self.ledger, out),
            (stage @ (Stage::AwaitingTurn { .. } | Stage::ReadingTurn(_)), Input::TurnFailed(problem)) => {
                self.ledger.fail(stage, problem, out)
            }
            (stage @ Stage::ReadingTurn(_), Input::TurnClosed) => self.ledger.fail(stage, cut_off(), out),
            (Stage::Executing(tools), Input::ToolFinished { call, outcome }) => {
                tools.finished(call, outcome, &mut self.ledger, out)
            }
            // What a model says after its end, and the end of its bytes, mean nothing any more.
            (
                stage,
                Input::TurnOpened
                | Input::Event(_)
                | Input::TurnClosed
                | Input::TurnFailed(_)
                | Input::ToolFinished { .. },
            ) => stage,
        };
        self
    }

    /// Whether the terminal output was given.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }
}

impl ReadingTurn {
    fn new(closing: bool) -> Self {
        Self { closing, writing: None, calls: Vec::new(), client_called: false, unknown: false }
    }

    fn event(mut self, event: TurnEvent, ledger: &mut Ledger, out: &mut Vec<Output>) -> Stage {
        match event {
            TurnEvent::Opened(opened) => {
                if !std::mem::replace(&mut ledger.opened, true) {
                    out.push(Output::Emit(ClientEvent::Opened(opened)));
                }
            }
            TurnEvent::Block(event) => self.block(event, ledger, out),
            TurnEvent::Aside(aside) => out.push(Output::Emit(ClientEvent::Aside(aside))),
            TurnEvent::Ended(ended) => return self.ended(ended, ledger, out),
        }
        Stage::ReadingTurn(self)
    }

    fn block(&mut self, event: BlockEvent, ledger: &mut Ledger, out: &mut Vec<Output>) {
        match (event, &mut self.writing) {
            (BlockEvent::Start(BlockKind::Call { id, name }, raw), None) => {
                if let Some(tool) = ledger.settings.functions.tool(&name) {
                    self.start_writing(id, tool, ledger, out);
                } else {
                    self.client_called = true;
                    let block = BlockEvent::Start(BlockKind::Call { id, name }, raw);
                    out.push(Output::Emit(ClientEvent::Block(block)));
                }
            }
            (BlockEvent::Delta(Delta::Arguments(piece), _), Some(writing)) => {
                let text = writing.argument.feed(&piece);
                if !text.is_empty() {
                    out.push(Output::Emit(ClientEvent::CodeDelta { call: writing.call, text: text.to_owned() }));
                }
            }
            (BlockEvent::Delta(..), Some(_)) => {}
            (BlockEvent::Stop(_) | BlockEvent::Start(..), Some(_)) => self.stop_writing(ledger, out),
            (event, None) => {
                self.unknown |= matches!(event, BlockEvent::Start(BlockKind::Other, _));
                out.push(Output::Emit(ClientEvent::Block(event)));
            }
        }
    }

    fn start_writing(&mut self, id: String, tool: CodeTool, ledger: &mut Ledger, out: &mut Vec<Output>) {
        let call = ledger.calls;
        ledger.calls += 1;
        let argument = Argument::new(tool, ledger.settings.limits.max_argument_bytes);
        self.writing = Some(Writing { call, id, argument });
        out.push(Output::Emit(ClientEvent::CodeStart { call, tool }));
    }

    fn stop_writing(&mut self, ledger: &mut Ledger, out: &mut Vec<Output>) {
        let Some(Writing { call, id, argument }) = self.writing.take() else { return };
        let Finished { shown, mut input } = argument.finish();
        if !shown.is_empty() {
            out.push(Output::Emit(ClientEvent::CodeDelta { call, text: shown }));
        }
        let Settings { max_calls, limits, .. } = &ledger.settings;
        if self.calls.len() >= limits.max_calls_per_turn || ledger.runnable >= *max_calls {
            input = Err(CodeFailure::TooMany);
        }
        ledger.runnable += usize::from(input.is_ok());
        self.calls.push(Written { call, id, input });
        out.push(Output::Emit(ClientEvent::CodeStop { call }));
    }

    fn ended(mut self, mut ended: Ended, ledger: &mut Ledger, out: &mut Vec<Output>) -> Stage {
        self.stop_writing(ledger, out);
        ledger.usage.add(std::mem::take(&mut ended.usage));
        if self.calls.is_empty() {
            if ended.stop == Stop::ToolUse && !self.client_called && !self.unknown {
                // It waits for a call that it never made.
                ended.stop = Stop::EndTurn;
            }
            return ledger.finish(ended, out);
        }
        if self.closing || ended.stop != Stop::ToolUse {
            // The model would never see these results, so nothing runs.
            for Written { call, input, .. } in self.calls {
                let failure = input.err().unwrap_or(CodeFailure::Unavailable);
                let outcome = CodeOutcome::Failed(failure);
                out.push(Output::Emit(ClientEvent::CodeResult { call, outcome }));
            }
            if ended.stop == Stop::ToolUse && !self.client_called {
                ended.stop = Stop::EndTurn;
            }
            return ledger.finish(ended, out);
        }
        let mut tools = Executing { calls: Vec::new(), told: 0, last: self.client_called.then_some(ended) };
        for Written { call, id, input } in self.calls {
            let outcome = match input {
                Ok(input) => {
                    ledger.ran = true;
                    out.push(Output::StartTool { call, id: id.clone(), input });
                    None
                }
                Err(failure) => Some(CodeOutcome::Failed(failure)),
            };
            tools.calls.push(Pending { call, id, outcome });
        }
        tools.advance(ledger, out)
    }
}

impl Executing {
    fn finished(mut self, call: usize, outcome: CodeOutcome, ledger: &mut Ledger, out: &mut Vec<Output>) -> Stage {
        if let Some(pending) = self.calls.iter_mut().find(|pending| pending.call == call)
            && pending.outcome.is_none()
        {
            pending.outcome = Some(outcome);
        }
        self.advance(ledger, out)
    }

    /// Tells what can be told in order, and goes on when all is told.
    fn advance(mut self, ledger: &mut Ledger, out: &mut Vec<Output>) -> Stage {
        while let Some(Pending { call, outcome: Some(outcome), .. }) = self.calls.get(self.told) {
            out.push(Output::Emit(ClientEvent::CodeResult { call: *call, outcome: outcome.clone() }));
            self.told += 1;
        }
        if self.told < self.calls.len() {
            return Stage::Executing(self);
        }
        if let Some(ended) = self.last {
            return ledger.finish(ended, out);
        }
        let results = self.calls.into_iter().filter_map(|pending| Some((pending.id, pending.outcome?))).collect();
        let closing = ledger.turns >= ledger.settings.max_turns || ledger.runnable >= ledger.settings.max_calls;
        ledger.turns += 1;
        out.push(Output::OpenTurn(NextTurn { results, closing }));
        Stage::AwaitingTurn { closing }
    }
}

impl Ledger {
    fn finish(&mut self, mut ended: Ended, out: &mut Vec<Output>) -> Stage {
        ended.usage = std::mem::take(&mut self.usage);
        out.push(Output::Finish(ended));
        Stage::Over
    }

    fn fail(&mut self, stage: Stage, mut problem: Problem, out: &mut Vec<Output>) -> Stage {
        let unanswered: Vec<usize> = match stage {
            Stage::ReadingTurn(mut turn) => {
                turn.stop_writing(self, out);
                turn.calls.iter().map(|call| call.call).collect()
            }
            Stage::Executing(tools) => {
                out.push(Output::CancelTools);
                tools.calls.iter().skip(tools.told).map(|pending| pending.call).collect()
            }
            Stage::AwaitingTurn { .. } | Stage::Over => Vec::new(),
        };
        for call in unanswered {
            let outcome = CodeOutcome::Failed(CodeFailure::Unavailable);
            out.push(Output::Emit(ClientEvent::CodeResult { call, outcome }));
        }
        problem.side_effects |= self.ran;
        out.push(Output::Fail(problem));
        Stage::Over
    }
}

fn cut_off() -> Problem {
    Problem::new(ProblemKind::UpstreamFailed, Origin::Upstream, "the model's answer broke off before its end")
}

#[cfg(test)]
mod tests;
