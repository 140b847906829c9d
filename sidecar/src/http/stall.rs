//! A connection that is given up when its other end does not read.
//!
//! INVARIANT: no write waits longer than the patience; what is read is not looked at.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail when nothing leaves for too long.
pub(super) struct Stalling<S> {
    stream: S,
    patience: Duration,
    end: Pin<Box<Sleep>>,
    waits: bool,
}

impl<S> Stalling<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, end: Box::pin(tokio::time::sleep(patience)), waits: false }
    }

    /// Passes on what a write came to, unless it waits for too long.
    fn watch<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waits = false;
            return polled;
        }
        if !std::mem::replace(&mut self.waits, true) {
            self.end.as_mut().reset(Instant::now() + self.patience);
        }
        ready!(self.end.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other end does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.watch(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, polled)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_may_be_slow_but_not_stand_still() {
        let patience = Duration::from_secs(10);
        let (ours, mut theirs) = duplex(4);
        let mut ours = Stalling::new(ours, patience);
        let writing = async {
            for _ in 0..4 {
                ours.write_all(&[0; 4]).await.unwrap();
            }
            let begun = Instant::now();
            let error = ours.write_all(&[0; 4]).await.unwrap_err();
            assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, patience));
        };
        let reading = async {
            for _ in 0..3 {
                tokio::time::sleep(patience * 9 / 10).await;
                theirs.read_exact(&mut [0; 4]).await.unwrap();
            }
            tokio::time::sleep(patience * 2).await;
        };
        tokio::join!(writing, reading);
    }
}
