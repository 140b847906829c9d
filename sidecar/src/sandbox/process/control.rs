//! The conversation with a session's driver over its own socket.
//!
//! INVARIANT: whatever comes in is hostile once a cell has run. A frame is believed only if it is short, well formed,
//! sent by the driver's own process (the kernel says who sent it) and about the call that is running; anything else
//! is a [`ControlFault`], after which the interpreter is killed. There is no way back into step, so none is tried.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg, sockopt,
};
use rustix::process::Pid;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use super::work::{SHELLS_AT_ONCE, Work};
use crate::sandbox::EditorReport;

/// Longest answer of a driver.
const MAX_FRAME_BYTES: usize = 16 * 1024;
/// Longest answer to an edit, which carries text: what the driver shows at most, were every character escaped.
const MAX_EDIT_FRAME_BYTES: usize = 2 << 20;
/// The driver's return code for an edit that was interrupted and has nothing to report.
const INTERRUPTED: u8 = 130;
const LENGTH_BYTES: usize = 4;
/// Descriptors that go over at once: two for each command beside the first.
const MAX_HANDED: usize = 2 * (SHELLS_AT_ONCE - 1);

/// Our end of the socket.
#[derive(Debug)]
pub(super) struct Control {
    stream: UnixStream,
    /// The driver's process as seen from here; known from its first frame, which it sends before any code ran.
    driver: Option<Pid>,
    buffer: Vec<u8>,
}

/// What a driver says when a call is over.
#[derive(Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Done {
    pub(super) id: u64,
    pub(super) return_code: u8,
    /// Figures saved into the workspace.
    pub(super) figures: Vec<String>,
    /// With an edit only.
    pub(super) edit: Option<Edit>,
    /// With commands only: one for each, in their order.
    pub(super) shells: Option<Vec<Shell>>,
}

/// How a command ended: the code as a shell gives it, and whether it was asked to end before it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub(super) struct Shell(pub(super) u8, pub(super) bool);

impl Done {
    /// The return code of one of the calls.
    pub(super) fn code(&self, call: usize) -> u8 {
        self.shell(call).map_or(self.return_code, |Shell(code, _)| *code)
    }

    /// Whether one of the calls was asked to end before it did, if somebody asked.
    pub(super) fn is_cut(&self, call: usize) -> bool {
        self.shell(call).is_none_or(|Shell(_, cut)| *cut)
    }

    fn shell(&self, call: usize) -> Option<&Shell> {
        self.shells.as_ref()?.get(call)
    }
}

/// What an edit came to. Its texts come here and not through the descriptors, where others write too.
#[derive(Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    pub(super) report: EditorReport,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Ready {
    ready: bool,
}

/// Why a conversation is over.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlFault {
    /// The other end is closed: the interpreter ended, or the code closed the descriptor.
    #[error("the control channel was closed")]
    Closed,
    /// Another process of the session wrote, or the driver wrote what no driver says.
    #[error("the control channel carried {0}")]
    Forged(&'static str),
    /// The socket failed.
    #[error("the control channel failed")]
    Io(#[source] io::Error),
}

impl Control {
    /// A connected pair: our end, and the one the driver gets as its descriptor 3. Needs a tokio runtime.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        sockopt::set_socket_passcred(&ours, true)?;
        let stream = UnixStream::from_std(ours)?;
        Ok((Self { stream, driver: None, buffer: Vec::new() }, theirs.into()))
    }

    /// Waits for the driver's first frame and learns its process id from the kernel.
    pub(super) async fn ready(&mut self) -> Result<Pid, ControlFault> {
        let frame = self.frame(MAX_FRAME_BYTES).await?;
        let ready: Ready = serde_json::from_slice(&frame).map_err(|_| ControlFault::Forged("a bad greeting"))?;
        match self.driver {
            Some(driver) if ready.ready => Ok(driver),
            _ => Err(ControlFault::Forged("a bad greeting")),
        }
    }

    /// Sends what is to be run under a fresh id, which nobody could answer to before, and returns the id. Not safe to cancel:
    /// kill the interpreter if this does not finish.
    pub(super) async fn send(&mut self, work: &Work<'_>) -> Result<u64, ControlFault> {
        self.nothing_waits()?;
        let id = getrandom::u64().map_err(|error| ControlFault::Io(error.into()))?;
        let frame = request(id, work).ok_or(ControlFault::Forged("too long a request"))?;
        self.stream.write_all(&frame).await.map_err(unsent)?;
        Ok(id)
    }

    /// Sends descriptors behind the request that needs them, at most [`MAX_HANDED`]. Not safe to cancel either.
    pub(super) async fn hand_over(&mut self, ends: &[OwnedFd]) -> Result<(), ControlFault> {
        let ends: Vec<_> = ends.iter().map(AsFd::as_fd).collect();
        let stream = &self.stream;
        let send = || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_HANDED))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(&ends)) {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            }
            // They travel with a byte, or not at all.
            Ok(sendmsg(stream, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?)
        };
        stream.async_io(Interest::WRITABLE, send).await.map(drop).map_err(unsent)
    }

    /// Between calls a driver is silent.
    fn nothing_waits(&self) -> Result<(), ControlFault> {
        if !self.buffer.is_empty() {
            return Err(ControlFault::Forged("an answer to no call"));
        }
        // The kernel is asked itself: the runtime may not have heard of the last bytes yet.
        match receive(&self.stream, &mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Ok((0, _)) => Err(ControlFault::Closed),
            Ok(_) => Err(ControlFault::Forged("an answer to no call")),
            Err(error) => Err(ControlFault::Io(error)),
        }
    }

    /// Waits for the end of request `id`, which is `work`. Safe to cancel.
    pub(super) async fn done(&mut self, id: u64, work: &Work<'_>) -> Result<Done, ControlFault> {
        let limit = if matches!(work, Work::Edit(_)) { MAX_EDIT_FRAME_BYTES } else { MAX_FRAME_BYTES };
        let frame = self.frame(limit).await?;
        let done: Done = serde_json::from_slice(&frame).map_err(|_| ControlFault::Forged("a malformed frame"))?;
        if done.id != id {
            return Err(ControlFault::Forged("the answer to another call"));
        }
        let fits = match (work, &done.edit, &done.shells) {
            (Work::Python(_), None, None) => true,
            (Work::Shells(commands), None, Some(shells)) => done.figures.is_empty() && shells.len() == commands.len(),
            (Work::Edit(_), ..) if !done.figures.is_empty() => false,
            (Work::Edit(command), Some(edit), None) => command.can_end_in(&edit.report),
            (Work::Edit(_), None, None) => done.return_code == INTERRUPTED,
            _ => false,
        };
        if fits { Ok(done) } else { Err(ControlFault::Forged("the answer to other work")) }
    }

    async fn frame(&mut self, limit: usize) -> Result<Vec<u8>, ControlFault> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<LENGTH_BYTES>() {
                let length = u32::from_be_bytes(*length) as usize;
                if length > limit {
                    return Err(ControlFault::Forged("an oversize frame"));
                }
                if let Some(frame) = rest.get(..length) {
                    let frame = frame.to_vec();
                    self.buffer.drain(..LENGTH_BYTES + length);
                    return Ok(frame);
                }
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), ControlFault> {
        let mut bytes = [0u8; 4096];
        let stream = &self.stream;
        let received = stream.async_io(Interest::READABLE, || receive(stream, &mut bytes)).await;
        let (count, sender) = match received {
            Ok((0, _)) => return Err(ControlFault::Closed),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(ControlFault::Closed),
            Err(error) => return Err(ControlFault::Io(error)),
        };
        let sender = sender.ok_or(ControlFault::Forged("bytes of an unknown sender"))?;
        if *self.driver.get_or_insert(sender) != sender {
            return Err(ControlFault::Forged("bytes of another process"));
        }
        self.buffer.extend_from_slice(bytes.get(..count).unwrap_or_default());
        Ok(())
    }
}

/// A request as the driver reads it; `None` if its length cannot be told.
fn request(id: u64, work: &Work<'_>) -> Option<Vec<u8>> {
    let mut frame = vec![0; LENGTH_BYTES];
    frame.extend_from_slice(&id.to_be_bytes());
    for text in work.texts() {
        frame.extend_from_slice(&u32::try_from(text.len()).ok()?.to_be_bytes());
        frame.extend_from_slice(text.as_bytes());
    }
    let length = u32::try_from(frame.len() - LENGTH_BYTES).ok()?;
    frame.splice(..LENGTH_BYTES, length.to_be_bytes());
    Some(frame)
}

fn unsent(error: io::Error) -> ControlFault {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ControlFault::Closed,
        _ => ControlFault::Io(error),
    }
}

/// One read, with the sender's process id as the kernel translates it into our pid namespace.
fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<Pid>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let sender = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(credentials) => Some(credentials.pid),
        _ => None,
    });
    Ok((message.bytes, sender))
}

#[cfg(test)]
mod tests;
