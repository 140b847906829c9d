//! What a session's programs print: the interpreter's own two pipes, and two more for each command that runs beside another.
//!
//! INVARIANT: pipes are kept for the life of their interpreter, since what a command left in the background goes on
//! writing there; whatever comes, no call holds more than its two limits.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

use super::capture::Capture;

/// The largest buffer a pipe can have: what was written before the answer is in it, what background threads go on
/// writing must not hold the answer up.
const DRAIN_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 64 * 1024;

/// Our ends of the pipes, standard output and standard error in turn.
#[derive(Debug)]
pub(super) struct Pipes {
    pairs: Vec<[Stream; 2]>,
}

#[derive(Debug)]
struct Stream {
    pipe: pipe::Receiver,
    /// Somebody may still write.
    open: bool,
}

/// What one call printed.
#[derive(Debug)]
pub(super) struct Printed {
    stdout: Capture,
    stderr: Capture,
}

impl Printed {
    /// Nothing yet, and at most `limit` bytes of each.
    pub(super) fn new(limit: usize) -> Self {
        Self { stdout: Capture::new(limit), stderr: Capture::new(limit) }
    }

    /// Standard output and standard error, each with a marker in the place of what was too much.
    pub(super) fn into_texts(self) -> (String, String) {
        (self.stdout.into_text(), self.stderr.into_text())
    }
}

impl Pipes {
    /// The interpreter's own pair.
    pub(super) fn new(stdout: pipe::Receiver, stderr: pipe::Receiver) -> Self {
        Self { pairs: vec![[stdout, stderr].map(|pipe| Stream { pipe, open: true })] }
    }

    /// Makes pairs until each of so many calls has one; gives the ends that are to be written to.
    pub(super) fn widen(&mut self, calls: usize) -> io::Result<Vec<OwnedFd>> {
        let mut ends = Vec::new();
        while self.pairs.len() < calls {
            let [(stdout, stdout_end), (stderr, stderr_end)] = [io::pipe()?, io::pipe()?];
            let stream = |pipe: io::PipeReader| {
                pipe::Receiver::from_owned_fd(pipe.into()).map(|pipe| Stream { pipe, open: true })
            };
            self.pairs.push([stream(stdout)?, stream(stderr)?]);
            ends.extend([stdout_end.into(), stderr_end.into()]);
        }
        Ok(ends)
    }

    /// A buffer to read with, so that a session at rest has none.
    pub(super) fn buffer() -> Vec<u8> {
        vec![0; READ_BYTES]
    }

    /// Waits until there is something, and takes one piece from each pipe that has some; for ever if nobody can write.
    /// Safe to cancel. What a pipe of no call of now has goes to the first.
    pub(super) async fn read(&mut self, calls: &mut [Printed], buffer: &mut [u8]) {
        poll_fn(|context| {
            let mut any = false;
            for (number, [stdout, stderr]) in self.pairs.iter_mut().enumerate() {
                let Some(printed) = owner(calls, number) else { continue };
                any |= stdout.poll(context, buffer, &mut printed.stdout);
                any |= stderr.poll(context, buffer, &mut printed.stderr);
            }
            if any { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Takes what is in the pipes now.
    pub(super) fn drain(&self, calls: &mut [Printed], buffer: &mut [u8]) {
        for (number, [stdout, stderr]) in self.pairs.iter().enumerate() {
            let Some(printed) = owner(calls, number) else { continue };
            stdout.drain(buffer, &mut printed.stdout);
            stderr.drain(buffer, &mut printed.stderr);
        }
    }
}

/// Whose call prints through a pair.
fn owner(calls: &mut [Printed], number: usize) -> Option<&mut Printed> {
    let number = if number < calls.len() { number } else { 0 };
    calls.get_mut(number)
}

impl Stream {
    /// Whether one read gave something, the end of the stream included.
    fn poll(&mut self, context: &mut Context<'_>, buffer: &mut [u8], capture: &mut Capture) -> bool {
        if !self.open {
            return false;
        }
        let mut piece = ReadBuf::new(buffer);
        match Pin::new(&mut self.pipe).poll_read(context, &mut piece) {
            Poll::Pending => false,
            Poll::Ready(read) => {
                self.open = read.is_ok() && !piece.filled().is_empty();
                capture.push(piece.filled());
                true
            }
        }
    }

    /// Asks the kernel itself: the runtime may not have heard of the last bytes yet.
    fn drain(&self, buffer: &mut [u8], capture: &mut Capture) {
        let mut left = DRAIN_BYTES;
        while left > 0 {
            let read = rustix::io::read(&self.pipe, &mut *buffer).unwrap_or(0);
            let Some(piece) = buffer.get(..read).filter(|piece| !piece.is_empty()) else { return };
            capture.push(piece);
            left = left.saturating_sub(read);
        }
    }
}
