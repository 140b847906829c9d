//! One session: a workspace that stays, and an interpreter that is replaced when a call loses it.
//!
//! INVARIANT: one call at a time, or several commands that were given as one; a session whose call was dropped, or that filled its disk, takes no other.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::OwnedSemaphorePermit;

use super::capture::Capture;
use super::control::Edit;
use super::interpreter::{Ending, Interpreter, Killer, LaunchError, Ran};
use super::launch::Launcher;
use super::printed::Printed;
use super::watch::Strike;
use super::work::Work;
use super::workspace::Workspace;
use super::{Existing, SandboxLimits, Tier, files};
use crate::sandbox::files::of_size;
use crate::sandbox::{
    EditorReport, ExecutionResult, FileContent, FileSource, Listing, ProducedFile, SandboxError, WorkspacePath,
};

/// A call may be this short; less is no time to interrupt anything.
const SHORTEST: Duration = Duration::from_millis(100);
/// Return code of a call that was interrupted at its deadline and kept its state.
const TIMED_OUT: i32 = 124;
/// Return code of a call that was killed.
const KILLED: i32 = 137;
const LOST: &str = "Variables are lost, files are kept; the next call starts a fresh interpreter.";

/// A live session. Fields are dropped in this order: processes before their files, both before the slot.
#[derive(Debug)]
pub(super) struct Session {
    state: tokio::sync::Mutex<State>,
    killer: Mutex<Option<Arc<Killer>>>,
    closed: AtomicBool,
    launcher: Arc<Launcher>,
    tier: Tier,
}

#[derive(Debug)]
struct State {
    interpreter: Option<Interpreter>,
    /// Set while a call runs and left set when its future is dropped.
    lost: bool,
    workspace: Option<Workspace>,
    slot: Option<OwnedSemaphorePermit>,
}

impl Session {
    /// Makes a workspace and starts an interpreter in it, which imports those of `modules` that it has.
    pub(super) async fn open(
        launcher: Arc<Launcher>,
        tier: Tier,
        name: &str,
        slot: OwnedSemaphorePermit,
        modules: &[&str],
    ) -> Result<Self, SandboxError> {
        let workspace = launcher.root.workspace(name).map_err(|error| unusable(LaunchError::io(error)))?;
        let interpreter = Interpreter::launch(&launcher, tier, workspace.path(), modules).await.map_err(unusable)?;
        let killer = Mutex::new(Some(interpreter.killer()));
        let state = State { interpreter: Some(interpreter), lost: false, workspace: Some(workspace), slot: Some(slot) };
        Ok(Self { state: tokio::sync::Mutex::new(state), killer, closed: AtomicBool::new(false), launcher, tier })
    }

    /// Runs a call, or several side by side, after what may be running. A result for each.
    pub(super) async fn execute(
        &self,
        work: &Work<'_>,
        timeout: Duration,
    ) -> Result<Vec<ExecutionResult>, SandboxError> {
        let mut state = self.state.lock().await;
        if state.lost || self.closed() {
            return Err(SandboxError::UnknownSession);
        }
        state.lost = true;
        let limits = &self.launcher.limits;
        let mut killed = None;
        if let Some(strike) = state.interpreter.as_ref().and_then(Interpreter::struck) {
            let note = killed_between(strike, limits);
            if let Some(interpreter) = state.interpreter.take() {
                interpreter.stop().await;
            }
            if strike.ends_session() {
                let result = ExecutionResult { stderr: note, return_code: KILLED, ..ExecutionResult::default() };
                return Ok(vec![result; work.calls()]);
            }
            killed = Some(note);
        }
        let interpreter = match state.interpreter.take() {
            Some(interpreter) => interpreter,
            None => self.restart(&state).await?,
        };
        let budget = timeout.clamp(SHORTEST, limits.wall);
        let (ran, kept) = interpreter.run(work, budget).await;
        if self.closed() {
            return Err(SandboxError::UnknownSession);
        }
        state.lost = matches!(&ran.ending, Ending::Struck(strike) if strike.ends_session());
        state.interpreter = kept;
        let mut results = results(ran, budget, limits);
        if let (Some(first), Some(note)) = (results.first_mut(), killed) {
            first.stderr.insert_str(0, &note);
        }
        Ok(results)
    }

    /// Puts a file in, between calls.
    pub(super) async fn put_file(
        &self,
        path: &WorkspacePath,
        size: u64,
        source: FileSource,
        existing: Existing,
    ) -> Result<(), SandboxError> {
        let (state, workspace) = self.at_rest().await?;
        let launcher = Arc::clone(&self.launcher);
        let path = path.clone();
        let mut draft = blocking(move || {
            files::Room::of(workspace.try_clone().map_err(files::failed)?, &launcher.limits).takes(&path, size)?;
            files::Draft::begin(workspace, &path, launcher.owner)
        })
        .await?;
        let mut pieces = files::pieces(of_size(source, size));
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(SandboxError::Unreadable)?;
            draft = blocking(move || draft.write(&piece).map(|()| draft)).await?;
        }
        blocking(move || draft.publish(existing)).await?;
        drop(state);
        Ok(())
    }

    /// Lists the files, between calls.
    pub(super) async fn list_files(&self) -> Result<Listing, SandboxError> {
        let (state, workspace) = self.at_rest().await?;
        let listing = blocking(move || Ok(files::list(workspace))).await;
        drop(state);
        listing
    }

    /// Opens a file, between calls; it is read whenever the caller likes. Tells how long it is, too.
    pub(super) async fn get_file(
        &self,
        path: &WorkspacePath,
        max_bytes: u64,
    ) -> Result<(u64, FileContent), SandboxError> {
        let (state, workspace) = self.at_rest().await?;
        let path = path.clone();
        let opened = blocking(move || files::open(workspace, &path, max_bytes)).await;
        drop(state);
        opened.map(|opened| (opened.size(), files::content(opened)))
    }

    /// Whether a directory stands at a path, between calls.
    pub(super) async fn is_directory(&self, path: &WorkspacePath) -> Result<bool, SandboxError> {
        let (state, workspace) = self.at_rest().await?;
        let path = path.clone();
        let is_directory = blocking(move || Ok(files::is_directory(&workspace, &path))).await;
        drop(state);
        is_directory
    }

    /// Waits until no call runs, and keeps it so; gives a handle of the workspace.
    async fn at_rest(&self) -> Result<(tokio::sync::MutexGuard<'_, State>, OwnedFd), SandboxError> {
        let state = self.state.lock().await;
        let workspace = state.workspace.as_ref().filter(|_| !state.lost && !self.closed());
        let workspace = workspace.ok_or(SandboxError::UnknownSession)?;
        let workspace = super::tree::open_path(workspace.path()).map_err(files::failed)?;
        Ok((state, workspace))
    }

    /// Whether it can take no call any more. While one runs that is not known, so it is not.
    pub(super) fn is_lost(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.lost)
    }

    /// Whether its interpreter runs. While a call does that is not looked at.
    pub(super) fn is_alive(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.interpreter.as_ref().is_some_and(Interpreter::is_alive))
    }

    /// Ends it: kills what runs, waits for that to be gone, removes the files. The slot is free after that.
    pub(super) async fn close(&self) -> Result<(), SandboxError> {
        self.closed.store(true, Ordering::SeqCst);
        if let Some(killer) = self.killer().as_ref() {
            killer.kill();
        }
        let mut state = self.state.lock().await;
        state.lost = true;
        let gone = match state.interpreter.take() {
            Some(interpreter) => interpreter.stop().await,
            None => true,
        };
        let (workspace, slot) = (state.workspace.take(), state.slot.take());
        // Once begun it runs to its end, also if nobody waits any more.
        let removed = tokio::task::spawn_blocking(move || {
            let removed = workspace.map_or(Ok(()), Workspace::remove);
            drop(slot);
            removed
        });
        let trouble = |reason: &str, source| SandboxError::Unreachable { reason: reason.to_owned(), source };
        match removed.await {
            Ok(Ok(())) if gone => Ok(()),
            Ok(Ok(())) => Err(trouble("its processes do not end", None)),
            Ok(Err(error)) => Err(trouble("its files cannot be removed", Some(error.into()))),
            Err(error) => Err(trouble("its files cannot be removed", Some(error.into()))),
        }
    }

    async fn restart(&self, state: &State) -> Result<Interpreter, SandboxError> {
        let workspace = state.workspace.as_ref().ok_or(SandboxError::UnknownSession)?;
        let launched = Interpreter::launch(&self.launcher, self.tier, workspace.path(), &[]).await;
        let interpreter = launched.map_err(unusable)?;
        *self.killer() = Some(interpreter.killer());
        // Closed in the meantime: whoever closed it could not know of this one.
        if self.closed() { Err(SandboxError::UnknownSession) } else { Ok(interpreter) }
    }

    fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn killer(&self) -> std::sync::MutexGuard<'_, Option<Arc<Killer>>> {
        self.killer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs work on files where it may block. Once begun it runs to its end, also if nobody waits any more.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> Result<T, SandboxError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(files::failed(io::Error::from(error))))
}

fn unusable(error: LaunchError) -> SandboxError {
    SandboxError::Unreachable { reason: "a session did not start".to_owned(), source: Some(error.into()) }
}

/// What came of each call.
fn results(ran: Ran, budget: Duration, limits: &SandboxLimits) -> Vec<ExecutionResult> {
    let Ran { ending, printed } = ran;
    let result = |(call, printed): (usize, Printed)| {
        let (return_code, note) = verdict(&ending, call, budget, limits);
        let (stdout, mut stderr) = printed.into_texts();
        if let Some(note) = note {
            if !stderr.is_empty() && !stderr.ends_with('\n') {
                stderr.push('\n');
            }
            stderr.push_str(&line(&note));
        }
        ExecutionResult { stdout, stderr, return_code, ..ExecutionResult::default() }
    };
    let mut results: Vec<_> = printed.into_iter().enumerate().map(result).collect();
    let (Ending::Finished(done) | Ending::Interrupted(done)) = ending else { return results };
    // Only what runs alone has figures, or an edit.
    if let Some(mut alone) = results.pop() {
        alone.files = done.figures.into_iter().map(|name| ProducedFile { name }).collect();
        results.push(match done.edit {
            Some(edit) => edited(edit, alone, limits),
            None => alone,
        });
    }
    results
}

/// The result of an edit. What others of the session printed meanwhile is no part of its content and goes to `stderr`.
fn edited(edit: Edit, printed: ExecutionResult, limits: &SandboxLimits) -> ExecutionResult {
    let bounded = |text: String| {
        let mut capture = Capture::new(limits.output_bytes);
        capture.push(text.as_bytes());
        capture.into_text()
    };
    ExecutionResult {
        stdout: bounded(edit.stdout),
        stderr: bounded([edit.stderr, printed.stdout, printed.stderr].concat()),
        return_code: i32::from(matches!(edit.report, EditorReport::Failed(_))),
        editor: Some(edit.report),
        ..printed
    }
}

/// A line of ours among the program's own.
fn line(note: &str) -> String {
    format!("[sandbox] {note}\n")
}

/// The return code of a call, and what a person or a model should know beyond the program's own words.
fn verdict(ending: &Ending, call: usize, budget: Duration, limits: &SandboxLimits) -> (i32, Option<String>) {
    let seconds = budget.as_secs_f32();
    match ending {
        Ending::Finished(done) => (i32::from(done.code(call)), None),
        // It was over before its neighbours were interrupted.
        Ending::Interrupted(done) if !done.is_cut(call) => (i32::from(done.code(call)), None),
        Ending::Interrupted(_) => {
            let note = format!(
                "The time limit of {seconds} s was reached and the code was interrupted. Variables and files are kept."
            );
            (TIMED_OUT, Some(note))
        }
        Ending::TimedOut => {
            let note = format!(
                "The time limit of {seconds} s was reached; the code did not stop when interrupted, so the interpreter was killed. {LOST}"
            );
            (KILLED, Some(note))
        }
        Ending::Exited(status) => {
            let how = match status {
                129.. => format!("was killed by signal {}", status - 128),
                _ => format!("ended with status {status}"),
            };
            (*status, Some(format!("The interpreter {how}. {LOST}")))
        }
        Ending::Broken(fault) => (KILLED, Some(format!("The interpreter was killed because {fault}. {LOST}"))),
        Ending::Struck(strike) if strike.ends_session() => {
            (KILLED, Some(format!("{}, so the session was ended, with its files.", cause(*strike, limits))))
        }
        Ending::Struck(strike) => {
            (KILLED, Some(format!("{}, so the interpreter was killed. {LOST}", cause(*strike, limits))))
        }
        Ending::Restless => {
            let note = format!(
                "The code left something running that could not be stopped, so the interpreter was killed. {LOST}"
            );
            (KILLED, Some(note))
        }
    }
}

/// What the caller hears first of a session that was killed between calls.
fn killed_between(strike: Strike, limits: &SandboxLimits) -> String {
    let cause = cause(strike, limits);
    line(&if strike.ends_session() {
        format!(
            "{cause}. That was seen after the last call: the session was ended, with its files. This code did not run."
        )
    } else {
        format!(
            "{cause}. That was seen after the last call: its interpreter was killed. Variables are lost, files are kept; this code ran in a fresh interpreter."
        )
    })
}

/// Which limit was passed: the beginning of a sentence.
fn cause(strike: Strike, limits: &SandboxLimits) -> String {
    const MIB: u64 = 1 << 20;
    match strike {
        Strike::Memory => format!("The session used more than its memory limit of {} MiB", limits.memory_bytes / MIB),
        Strike::Sockets => format!("The session opened more sockets than its limit of {}", limits.open_files),
        Strike::TemporaryEntries => {
            format!("`/tmp` or `/dev/shm` grew beyond its limit of {} files and directories", limits.workspace_entries)
        }
        Strike::Hidden => "A process kept itself or its open files out of sight of the limits".to_owned(),
        Strike::Awake => "A process ran on although no call did".to_owned(),
        Strike::WorkspaceBytes => {
            format!("The workspace grew beyond its limit of {} MiB", limits.workspace_bytes / MIB)
        }
        Strike::WorkspaceEntries => {
            format!("The workspace grew beyond its limit of {} files and directories", limits.workspace_entries)
        }
        Strike::WorkspaceHidden => "The workspace nests too deep or has a directory that cannot be read".to_owned(),
    }
}
