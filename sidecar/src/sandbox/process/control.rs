//! The conversation with a session's driver over its own socket.
//!
//! INVARIANT: whatever comes in is hostile once a cell has run. A frame is believed only if it is short, well formed,
//! sent by the driver's own process (the kernel says who sent it) and about the call that is running; anything else
//! is a [`ControlFault`], after which the interpreter is killed. There is no way back into step, so none is tried.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use rustix::process::Pid;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

/// Longest answer of a driver.
const MAX_FRAME_BYTES: usize = 16 * 1024;
const LENGTH_BYTES: usize = 4;

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
        let frame = self.frame().await?;
        let ready: Ready = serde_json::from_slice(&frame).map_err(|_| ControlFault::Forged("a bad greeting"))?;
        match self.driver {
            Some(driver) if ready.ready => Ok(driver),
            _ => Err(ControlFault::Forged("a bad greeting")),
        }
    }

    /// Sends code to run under a fresh id, which nobody could answer to before, and returns the id. Not safe to cancel:
    /// kill the interpreter if this does not finish.
    pub(super) async fn send(&mut self, code: &str) -> Result<u64, ControlFault> {
        self.nothing_waits()?;
        let id = getrandom::u64().map_err(|error| ControlFault::Io(error.into()))?;
        let length = u32::try_from(code.len() + size_of::<u64>()).map_err(|_| ControlFault::Forged("too much code"))?;
        let mut frame = Vec::with_capacity(LENGTH_BYTES + size_of::<u64>() + code.len());
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&id.to_be_bytes());
        frame.extend_from_slice(code.as_bytes());
        self.stream.write_all(&frame).await.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ControlFault::Closed,
            _ => ControlFault::Io(error),
        })?;
        Ok(id)
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

    /// Waits for the end of call `id`. Safe to cancel.
    pub(super) async fn done(&mut self, id: u64) -> Result<Done, ControlFault> {
        let frame = self.frame().await?;
        let done: Done = serde_json::from_slice(&frame).map_err(|_| ControlFault::Forged("a malformed frame"))?;
        if done.id == id { Ok(done) } else { Err(ControlFault::Forged("the answer to another call")) }
    }

    async fn frame(&mut self) -> Result<Vec<u8>, ControlFault> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<LENGTH_BYTES>() {
                let length = u32::from_be_bytes(*length) as usize;
                if length > MAX_FRAME_BYTES {
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
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream as StdStream;

    use super::{Control, ControlFault, Done, MAX_FRAME_BYTES};

    fn frame(text: &str) -> Vec<u8> {
        let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    async fn answer(bytes: &[u8]) -> Result<Done, ControlFault> {
        let (mut control, theirs) = Control::pair().unwrap();
        let mut theirs = StdStream::from(theirs);
        theirs.write_all(bytes).unwrap();
        drop(theirs);
        control.done(7).await
    }

    #[tokio::test]
    async fn a_good_frame_is_read_and_its_sender_known() {
        let (mut control, theirs) = Control::pair().unwrap();
        let mut theirs = StdStream::from(theirs);
        theirs.write_all(&frame(r#"{"ready":true}"#)).unwrap();
        assert_eq!(control.ready().await.unwrap(), rustix::process::getpid());
        theirs.write_all(&frame(r#"{"id":7,"return_code":3,"figures":["a.png"]}"#)).unwrap();
        let done = control.done(7).await.unwrap();
        assert_eq!(done, Done { id: 7, return_code: 3, figures: vec!["a.png".to_owned()] });
    }

    #[tokio::test]
    async fn an_answer_before_its_call_is_a_fault() {
        let (mut control, theirs) = Control::pair().unwrap();
        let mut theirs = StdStream::from(theirs);
        assert_ne!(control.send("1").await.unwrap(), control.send("1").await.unwrap());
        theirs.write_all(&frame(r#"{"id":1,"return_code":0,"figures":[]}"#)).unwrap();
        assert!(matches!(control.send("1").await, Err(ControlFault::Forged("an answer to no call"))));
        let two = [frame(r#"{"ready":true}"#), frame(r#"{"ready":true}"#)].concat();
        let (mut control, theirs) = Control::pair().unwrap();
        StdStream::from(theirs).write_all(&two).unwrap();
        control.ready().await.unwrap();
        assert!(matches!(control.send("1").await, Err(ControlFault::Forged("an answer to no call"))));
    }

    #[tokio::test]
    async fn anything_else_is_a_fault() {
        let good = r#"{"id":8,"return_code":0,"figures":[]}"#;
        assert!(matches!(answer(&frame(good)).await, Err(ControlFault::Forged("the answer to another call"))));
        for text in ["", "{}", "null", r#"{"id":7,"return_code":0}"#, r#"{"id":7,"return_code":999,"figures":[]}"#] {
            assert!(matches!(answer(&frame(text)).await, Err(ControlFault::Forged("a malformed frame"))), "{text}");
        }
        let oversize = u32::try_from(MAX_FRAME_BYTES + 1).unwrap().to_be_bytes();
        assert!(matches!(answer(&oversize).await, Err(ControlFault::Forged("an oversize frame"))));
        assert!(matches!(answer(b"").await, Err(ControlFault::Closed)));
        assert!(matches!(answer(&frame(good)[..9]).await, Err(ControlFault::Closed)));
    }
}
