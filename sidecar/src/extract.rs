//! The text of documents, read in a child process of this program: what a document does there harms nobody.
//!
//! INVARIANT: the sidecar itself never parses a document. A child that crashes, hangs or talks without end yields what it
//! said until then, marked as broken off.

mod child;
mod documents;
mod jail;

use std::path::PathBuf;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::shares::Shares;

pub use child::run as run_child;

/// The hidden command that is the child's side.
pub const COMMAND: &str = "extract-text";
/// This program itself, also after its file was replaced by an upgrade.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// Bytes read from a child at once.
const PIECE_BYTES: usize = 1 << 16;
/// Longest character of UTF-8.
const CHAR_BYTES: usize = 4;

/// What can be read as text, besides text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Document {
    /// A PDF.
    Pdf,
    /// A docx, xlsx or pptx file.
    Office,
    /// A web page.
    Html,
}

/// How much and how long. Each is a config key under `files`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtractLimits {
    /// Wall clock of one document, and its processor time.
    pub timeout: Duration,
    /// Longest document that is read, bytes.
    pub max_document_bytes: u64,
    /// Longest text that is kept of one document, characters.
    pub max_chars: usize,
    /// Documents read at once.
    pub max_concurrent: usize,
    /// Of these, those of one workspace.
    pub max_concurrent_per_workspace: usize,
}

/// Reads documents, a few at a time.
#[derive(Debug, Clone)]
pub struct Extractor {
    program: PathBuf,
    limits: ExtractLimits,
    turns: Arc<Semaphore>,
    shares: Shares,
}

/// What was read of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extracted {
    /// Its text, at most [`ExtractLimits::max_chars`] characters; no control characters but line breaks and tabs.
    pub text: String,
    /// There is more than that.
    pub is_cut: bool,
    /// It could not be read to its end.
    pub is_broken: bool,
}

/// Why nothing was tried, or whose failure it was.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError<E> {
    /// No turn came before the deadline.
    #[error("too many documents are being read")]
    Busy,
    /// The document did not arrive.
    #[error(transparent)]
    Source(E),
}

impl Extractor {
    /// `program` is that of the sidecar, whose [`COMMAND`] is the child.
    pub fn new(program: PathBuf, limits: ExtractLimits) -> Self {
        let shares = Shares::new(limits.max_concurrent_per_workspace);
        Self { program, limits, turns: Arc::new(Semaphore::new(limits.max_concurrent)), shares }
    }

    /// The limits.
    pub fn limits(&self) -> &ExtractLimits {
        &self.limits
    }

    /// Reads a document of a workspace's that comes in pieces. Waits for a turn until `deadline`, and reads no longer than
    /// that.
    pub async fn text<E>(
        &self,
        workspace: &str,
        kind: Document,
        pieces: impl Stream<Item = Result<Bytes, E>>,
        deadline: Instant,
    ) -> Result<Extracted, ExtractError<E>> {
        // First its own share: who waits for that keeps nobody else waiting.
        let turn = async { (self.shares.wait(workspace).await, self.turns.acquire().await) };
        let Ok((_seat, Ok(_turn))) = timeout_at(deadline, turn).await else { return Err(ExtractError::Busy) };
        let end = deadline.min(Instant::now() + self.limits.timeout);
        let mut child = match self.spawn(kind) {
            Ok(child) => child,
            Err(error) => {
                tracing::error!(%error, "the child that reads documents cannot be started");
                return Ok(Extracted { is_broken: true, ..Extracted::default() });
            }
        };
        let mut said = Said::new(self.limits.max_chars);
        // Dropping the child kills it: at the end of the patience, of the room, and of the request.
        let read = timeout_at(end, self.converse(&mut child, pieces, &mut said)).await;
        let is_whole = if let Ok(read) = read {
            read.map_err(ExtractError::Source)?
        } else {
            tracing::warn!(?kind, "a document was not read within files.extraction_timeout_ms");
            false
        };
        Ok(said.finish(is_whole))
    }

    fn spawn(&self, kind: Document) -> std::io::Result<Child> {
        let kind = clap::ValueEnum::to_possible_value(&kind).map(|value| value.get_name().to_owned());
        let seconds = self.limits.timeout.as_secs().saturating_add(1);
        Command::new(&self.program)
            .args([COMMAND, kind.as_deref().unwrap_or_default(), "--cpu-seconds", &seconds.to_string()])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
    }

    /// Gives the child the document and takes what it says; whether it read to the document's end, or all that is kept.
    async fn converse<E>(
        &self,
        child: &mut Child,
        pieces: impl Stream<Item = Result<Bytes, E>>,
        said: &mut Said,
    ) -> Result<bool, E> {
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let feed = async {
            let Some(mut input) = input else { return Ok(()) };
            let mut pieces = pin!(pieces);
            while let Some(piece) = pieces.next().await {
                // A child that has enough, or died, hears no more.
                if input.write_all(&piece?).await.is_err() {
                    break;
                }
            }
            Ok(())
        };
        {
            let (mut feed, mut listen) = (pin!(feed), pin!(said.listen(output)));
            let mut is_given = false;
            loop {
                tokio::select! {
                    ended = &mut feed, if !is_given => {
                        ended?;
                        is_given = true;
                    }
                    () = &mut listen => break,
                }
            }
        }
        if said.is_full() {
            return Ok(true);
        }
        let status = child.wait().await.ok().and_then(|status| status.code());
        if status == Some(i32::from(child::NO_JAIL)) {
            tracing::error!("documents are not read as text: this system gives no seccomp filters");
        }
        Ok(status == Some(0))
    }
}

/// What a child said so far.
struct Said {
    bytes: Vec<u8>,
    max_chars: usize,
    max_bytes: usize,
}

impl Said {
    fn new(max_chars: usize) -> Self {
        // One character more than is kept, to know that there is one.
        let max_bytes = max_chars.saturating_add(1).saturating_mul(CHAR_BYTES);
        Self { bytes: Vec::new(), max_chars, max_bytes }
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= self.max_bytes
    }

    /// Until the child ends or there is no more room.
    async fn listen(&mut self, output: Option<ChildStdout>) {
        let Some(mut output) = output else { return };
        while !self.is_full() {
            let room = self.max_bytes.saturating_sub(self.bytes.len()).min(PIECE_BYTES);
            let mut piece = (&mut output).take(room as u64);
            if !matches!(piece.read_buf(&mut self.bytes).await, Ok(1..)) {
                return;
            }
        }
    }

    /// Text fit to be shown: PDFs in particular are full of blank lines.
    fn finish(self, is_whole: bool) -> Extracted {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut kept = String::new();
        let (mut chars, mut breaks) = (0, 0);
        let mut is_cut = self.is_full();
        for character in text.trim().chars() {
            match character {
                '\n' => breaks += 1,
                '\t' => breaks = 0,
                other if other.is_control() => continue,
                _ => breaks = 0,
            }
            if breaks > 2 {
                continue;
            }
            if chars == self.max_chars {
                is_cut = true;
                break;
            }
            kept.push(character);
            chars += 1;
        }
        Extracted { text: kept, is_cut, is_broken: !is_whole }
    }
}

#[cfg(test)]
mod tests;
