//! The only asynchronous part of the loop: carries out what the machine says and tells it what happened.
//!
//! INVARIANT: dropping the driver, or the client's body, stops the model call and the sandbox at once.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use decision::problem::{Origin, Problem, ProblemKind};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::limits::Limits;
use super::machine::{Input, NextTurn, Output, ToolLoop};
use super::memory::Notes;
use super::model_side::{self, Call, ModelSide, problem_of};
use super::session::{self, Finished, Session};
use super::tally::Tally;
use super::{failure, report};
use crate::sandbox::SandboxError;
use crate::stored::Keeping;
use crate::upstream::ModelAnswer;
use crate::wire::event::{ClientEvent, TurnEvent};
use crate::wire::model_request::{CallResult, TurnKind};
use crate::wire::writer::ClientWriter;

/// One request on its way.
pub(super) struct Driver {
    pub(super) model: ModelSide,
    pub(super) session: Session,
    pub(super) writer: ClientWriter,
    /// `None` only while it handles an input.
    pub(super) machine: Option<ToolLoop>,
    /// The answer has its regular end.
    pub(super) finished: bool,
    /// Kept for its memory.
    pub(super) outputs: Vec<Output>,
    pub(super) deadline: Instant,
    pub(super) limits: Limits,
    pub(super) request_id: String,
    pub(super) tally: Arc<Tally>,
    /// Where the conversation may go on without what ran.
    pub(super) notes: Option<Notes>,
    /// Where the answer is kept.
    pub(super) keeping: Option<Keeping>,
}

/// Where the client's bytes go.
pub(super) enum Sink {
    /// Nowhere before the end.
    Whole,
    /// To the body of the response.
    Stream(mpsc::Sender<Bytes>),
}

/// Why the machine's outputs are carried out no further.
enum Halt {
    /// The answer is over.
    Failed(Problem),
    /// The request cannot go on; the machine is to close the answer.
    Stuck(Problem),
}

/// Something that ends a wait.
enum Happened {
    Model(model_side::Happened),
    Sandbox(session::Happened),
    Deadline,
    Quiet,
    ClientGone,
}

impl Driver {
    /// Waits for the first answer's head.
    pub(super) async fn first_answer(&mut self) -> Result<ModelAnswer, Problem> {
        self.tally.turn();
        self.model.open(TurnKind::First);
        loop {
            match tokio::time::timeout_at(self.deadline, self.model.happened()).await {
                Err(_) => return Err(failure::deadline(self.limits.request_timeout)),
                Ok(model_side::Happened::Answered(answer)) => {
                    return answer.map_err(|error| self.upstream_problem(&error));
                }
                Ok(model_side::Happened::Said(_) | model_side::Happened::Closed) => {}
            }
        }
    }

    /// Runs the loop to its end. An error is returned only towards a client that has nothing yet.
    pub(super) async fn run(&mut self, first: ModelAnswer, sink: &Sink) -> Result<(), Problem> {
        let mut events = Vec::new();
        let timeout = tokio::time::sleep_until(self.deadline);
        tokio::pin!(timeout);
        let quiet = tokio::time::sleep(self.keep_alive(sink));
        tokio::pin!(quiet);
        self.answered(first)?;
        loop {
            if self.finished
                && let (Some(keeping), Some(answer)) = (self.keeping.take(), self.writer.kept())
            {
                // Before the client hears of the end: its next request may name this answer.
                keeping.keep(answer).await;
            }
            if !self.flush(sink, timeout.as_mut(), quiet.as_mut()).await {
                self.tell(Input::ClientGone)?;
            }
            if self.machine.as_ref().is_none_or(ToolLoop::is_over) {
                self.session.cancel();
                return Ok(());
            }
            let happened = tokio::select! {
                biased;
                () = closed(sink) => Happened::ClientGone,
                happened = self.session.happened() => Happened::Sandbox(happened),
                happened = self.model.happened() => Happened::Model(happened),
                () = &mut timeout => Happened::Deadline,
                () = &mut quiet => Happened::Quiet,
            };
            self.digest(happened, sink, &mut events).await?;
        }
    }

    async fn digest(&mut self, happened: Happened, sink: &Sink, events: &mut Vec<TurnEvent>) -> Result<(), Problem> {
        match happened {
            Happened::ClientGone => self.tell(Input::ClientGone),
            Happened::Quiet => {
                self.writer.keep_alive();
                Ok(())
            }
            Happened::Deadline => self.tell(Input::Failed(failure::deadline(self.limits.request_timeout))),
            Happened::Sandbox(session::Happened::NotOpened(error)) => {
                let problem = self.sandbox_problem(&error);
                // A stream has begun; the call that needs the session will be told.
                if matches!(sink, Sink::Whole) && !self.session.has_run() { Err(problem) } else { Ok(()) }
            }
            Happened::Sandbox(session::Happened::NotSeeded(error)) => {
                self.log(&error, "code cannot run without its files");
                let problem = failure::of_seed(&error);
                if matches!(sink, Sink::Whole) && !self.session.has_run() {
                    return Err(problem);
                }
                self.tell(Input::Failed(problem))
            }
            Happened::Sandbox(session::Happened::Finished(Finished { call, input, result, files })) => {
                if let Err(error) = &result {
                    self.log(error, "code was not run");
                }
                let outcome = report::outcome(&input, result, files, &self.limits);
                self.tell(Input::ToolFinished { call, outcome })
            }
            Happened::Model(model_side::Happened::Answered(Ok(answer))) if answer.status.is_success() => {
                self.answered(answer)
            }
            Happened::Model(model_side::Happened::Answered(Ok(answer))) => {
                let problem = problem_of(self.model.wires.model, answer, &self.limits).await;
                self.tell(Input::TurnFailed(problem))
            }
            Happened::Model(model_side::Happened::Answered(Err(error)) | model_side::Happened::Said(Err(error))) => {
                let problem = self.upstream_problem(&error);
                self.tell(Input::TurnFailed(problem))
            }
            Happened::Model(model_side::Happened::Said(Ok(chunk))) => self.read(Some(&chunk), events),
            Happened::Model(model_side::Happened::Closed) => self.read(None, events),
        }
    }

    fn answered(&mut self, answer: ModelAnswer) -> Result<(), Problem> {
        match self.model.read(answer) {
            Ok(()) => self.tell(Input::TurnOpened),
            Err(message) => {
                let problem = Problem::new(ProblemKind::UpstreamFailed, Origin::Upstream, message);
                self.tell(Input::TurnFailed(problem))
            }
        }
    }

    /// Gives bytes, or their end, to the reader and its events to the machine.
    fn read(&mut self, chunk: Option<&[u8]>, events: &mut Vec<TurnEvent>) -> Result<(), Problem> {
        let Call::Reading(reader, _) = &mut self.model.call else { return Ok(()) };
        let read = match chunk {
            Some(chunk) => reader.feed(chunk, events),
            None => reader.close(events),
        };
        for event in events.drain(..) {
            self.tell(Input::Event(event))?;
        }
        match read {
            Err(error) => {
                self.log(&error, "the model's answer cannot be used");
                self.model.stop_reading();
                self.tell(Input::TurnFailed(error.into()))
            }
            Ok(()) if chunk.is_none() => self.tell(Input::TurnClosed),
            Ok(()) => Ok(()),
        }
    }

    /// Tells the machine, and carries out what it says before it is told anything else.
    fn tell(&mut self, input: Input) -> Result<(), Problem> {
        let Some(machine) = self.machine.take() else { return Ok(()) };
        let mut outputs = std::mem::take(&mut self.outputs);
        self.machine = Some(machine.handle(input, &mut outputs));
        let halted = outputs.drain(..).try_for_each(|output| self.carry_out(output));
        self.outputs = outputs;
        match halted {
            Ok(()) => Ok(()),
            Err(Halt::Failed(problem)) => Err(problem),
            Err(Halt::Stuck(problem)) => self.tell(Input::Failed(problem)),
        }
    }

    fn carry_out(&mut self, output: Output) -> Result<(), Halt> {
        match output {
            Output::Emit(event) => {
                if let Some(notes) = &mut self.notes {
                    notes.told(&event);
                }
                if matches!(event, ClientEvent::CodeStart { .. }) {
                    self.session.prepare();
                }
                return self.writer.write(event).map_err(Halt::Stuck);
            }
            Output::OpenTurn(next) => return self.open_turn(next),
            Output::StartTool { call, id, input } => {
                self.tally.code_run();
                if let Some(notes) = &mut self.notes {
                    notes.started(call, id);
                }
                self.session.start(call, input);
            }
            Output::CancelTools => self.session.cancel(),
            Output::Finish(ended) => {
                self.writer.finish(ended);
                self.finished = true;
                if let Some(notes) = self.notes.take() {
                    notes.keep();
                }
            }
            Output::Fail(problem) => {
                self.writer.fail(&problem);
                return Err(Halt::Failed(problem));
            }
        }
        Ok(())
    }

    fn open_turn(&mut self, next: NextTurn) -> Result<(), Halt> {
        let turn = self.model.take_history();
        self.model.request.append(&turn);
        let mut results: Vec<CallResult> = next
            .results
            .into_iter()
            .map(|(call_id, outcome)| {
                let (text, is_error) = report::text_for_model(&outcome);
                CallResult { call_id, text, is_error }
            })
            .collect();
        if next.closing
            && let Some(last) = results.last_mut()
        {
            // Its functions go; a model that is not told why may say that it cannot go on.
            last.text.push_str(report::NO_MORE_CODE);
        }
        self.model.wires.model.append_results(&mut self.model.request, &results);
        // One answer and its results, each with a limit of its own, may stand above this one for a moment.
        let limit = self.limits.max_transcript_bytes;
        if self.model.request.history.len() > limit {
            return Err(Halt::Stuck(failure::transcript_too_long(limit)));
        }
        self.tally.turn();
        self.model.open(if next.closing { TurnKind::Closing } else { TurnKind::Later });
        Ok(())
    }

    /// Sends what there is to send. `false` when the client is gone, or reads nothing until the deadline.
    async fn flush(&mut self, sink: &Sink, timeout: Pin<&mut Sleep>, quiet: Pin<&mut Sleep>) -> bool {
        let Sink::Stream(client) = sink else { return true };
        let bytes = self.writer.take();
        if bytes.is_empty() {
            return true;
        }
        let sent = tokio::select! {
            biased;
            sent = client.send(bytes) => sent.is_ok(),
            () = timeout => false,
        };
        quiet.reset(Instant::now() + self.limits.keep_alive);
        sent
    }

    /// A whole answer has nothing to be kept alive with.
    fn keep_alive(&self, sink: &Sink) -> Duration {
        match sink {
            Sink::Whole => self.limits.request_timeout,
            Sink::Stream(_) => self.limits.keep_alive,
        }
    }

    fn upstream_problem(&self, error: &crate::upstream::UpstreamError) -> Problem {
        self.log(error, "the model gave no answer");
        Problem::from(error)
    }

    fn sandbox_problem(&self, error: &SandboxError) -> Problem {
        self.log(error, "no sandbox session");
        failure::of_sandbox(error)
    }

    fn log(&self, error: &(dyn std::error::Error + 'static), what: &'static str) {
        tracing::warn!(request.id = %self.request_id, error, "{what}");
    }
}

async fn closed(sink: &Sink) {
    match sink {
        Sink::Whole => std::future::pending().await,
        Sink::Stream(client) => client.closed().await,
    }
}
