//! Server-sent events: bytes in any chunking to frames, and frames to bytes.
//!
//! INVARIANT: the frames do not depend on how the bytes were cut.

use bytes::{Buf as _, Bytes, BytesMut};

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// The `event:` field; empty when there was none.
    pub event: Bytes,
    /// The `data:` lines, joined by a line feed.
    pub data: Bytes,
}

/// A frame is longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {limit} bytes")]
pub struct FrameTooLong {
    /// The limit in bytes.
    pub limit: usize,
}

/// Incremental decoder: LF, CRLF and CR, comments, several data lines.
#[derive(Debug)]
pub struct SseDecoder {
    buffer: BytesMut,
    /// How much of `buffer` is known to hold no line end.
    searched: usize,
    /// The last line ended with CR: an LF that follows belongs to it.
    after_cr: bool,
    /// Nothing was decoded yet: a byte order mark may come.
    at_start: bool,
    event: Bytes,
    data: Data,
    limit: usize,
}

/// The `data:` lines so far; one line is by far the usual case and is not copied.
#[derive(Debug)]
enum Data {
    None,
    One(Bytes),
    Many(BytesMut),
}

impl SseDecoder {
    /// A decoder that refuses frames longer than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            after_cr: false,
            at_start: true,
            event: Bytes::new(),
            data: Data::None,
            limit,
        }
    }

    /// Takes bytes and gives the frames they complete to `each`.
    pub fn feed<E: From<FrameTooLong>>(
        &mut self,
        chunk: &[u8],
        mut each: impl FnMut(Frame) -> Result<(), E>,
    ) -> Result<(), E> {
        self.buffer.extend_from_slice(chunk);
        while let Some(line) = self.next_line() {
            if let Some(frame) = self.take_line(line) {
                each(frame)?;
            }
            self.check_size(0)?;
        }
        self.check_size(self.buffer.len())?;
        Ok(())
    }

    /// The stream ended: a frame whose blank line is missing is given all the same, for models forget it.
    pub fn finish(&mut self) -> Option<Frame> {
        let rest = self.buffer.split().freeze();
        self.searched = 0;
        let dispatched = if rest.is_empty() { None } else { self.take_line(rest) };
        dispatched.or_else(|| self.dispatch())
    }

    /// `pending`: bytes of the frame that stand in the buffer still.
    fn check_size(&self, pending: usize) -> Result<(), FrameTooLong> {
        let data = match &self.data {
            Data::None => 0,
            Data::One(line) => line.len(),
            Data::Many(lines) => lines.len(),
        };
        if data.saturating_add(pending) > self.limit { Err(FrameTooLong { limit: self.limit }) } else { Ok(()) }
    }

    fn next_line(&mut self) -> Option<Bytes> {
        if self.after_cr
            && let Some(first) = self.buffer.first()
        {
            // One line feed belongs to the carriage return; the next, though it come alone, does not.
            self.after_cr = false;
            if *first == b'\n' {
                self.buffer.advance(1);
            }
        }
        let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(found) = memchr::memchr2(b'\n', b'\r', unsearched) else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + found;
        let line = self.buffer.split_to(end).freeze();
        self.after_cr = self.buffer.first() == Some(&b'\r');
        self.buffer.advance(1);
        self.searched = 0;
        Some(line)
    }

    fn take_line(&mut self, mut line: Bytes) -> Option<Frame> {
        if std::mem::take(&mut self.at_start) && line.starts_with(b"\xef\xbb\xbf") {
            line.advance(3);
        }
        if line.is_empty() {
            return self.dispatch();
        }
        let (name, value) = match memchr::memchr(b':', &line) {
            Some(colon) => {
                let value = line.slice(colon + 1..);
                let value = if value.starts_with(b" ") { value.slice(1..) } else { value };
                (line.slice(..colon), value)
            }
            None => (line, Bytes::new()),
        };
        match &name[..] {
            b"event" => self.event = value,
            b"data" => self.push_data(value),
            // Comments have an empty name; `id` and `retry` mean nothing to a model's stream.
            _ => {}
        }
        None
    }

    fn push_data(&mut self, line: Bytes) {
        self.data = match std::mem::replace(&mut self.data, Data::None) {
            Data::None => Data::One(line),
            Data::One(first) => {
                let mut lines = BytesMut::from(first);
                lines.extend_from_slice(b"\n");
                lines.extend_from_slice(&line);
                Data::Many(lines)
            }
            Data::Many(mut lines) => {
                lines.extend_from_slice(b"\n");
                lines.extend_from_slice(&line);
                Data::Many(lines)
            }
        };
    }

    fn dispatch(&mut self) -> Option<Frame> {
        let event = std::mem::take(&mut self.event);
        match std::mem::replace(&mut self.data, Data::None) {
            Data::None => None,
            Data::One(data) => Some(Frame { event, data }),
            Data::Many(data) => Some(Frame { event, data: data.freeze() }),
        }
    }
}

/// Writes one frame. An event name with a control character, which could end its line, is left out.
pub fn write_frame(out: &mut BytesMut, event: &[u8], data: &[u8]) {
    out.reserve(event.len() + data.len() + 16);
    if !event.is_empty() && !event.iter().any(u8::is_ascii_control) {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event);
        out.extend_from_slice(b"\n");
    }
    // Bytes that came in over several data lines go out the same way.
    for line in data.split(|byte| *byte == b'\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.extend_from_slice(b"\n");
    }
    out.extend_from_slice(b"\n");
}

#[cfg(test)]
mod tests;
