//! Forms as clients write them, and as nobody should.

use crate::support::Call;

pub(super) const TYPE: &str = "multipart/form-data; boundary=--a-boundary";

/// `multipart/form-data` in the making.
#[derive(Debug, Default, Clone)]
pub(super) struct Form {
    text: Vec<u8>,
}

impl Form {
    /// A part with this head, without `Content-Disposition: `, and content.
    pub(super) fn part(mut self, disposition: &str, content: &[u8]) -> Self {
        self.text.extend(b"----a-boundary\r\nContent-Disposition: ");
        self.text.extend(disposition.as_bytes());
        self.text.extend(b"\r\n\r\n");
        self.text.extend(content);
        self.text.extend(b"\r\n");
        self
    }

    /// A field of text.
    pub(super) fn field(self, name: &str, value: &str) -> Self {
        self.part(&format!("form-data; name=\"{name}\""), value.as_bytes())
    }

    /// The file, under a name without quotes in it.
    pub(super) fn named(self, name: &str, content: &[u8]) -> Self {
        self.part(&format!("form-data; name=\"file\"; filename=\"{name}\""), content)
    }

    /// The file under a name and with a type.
    pub(super) fn typed(self, name: &str, media_type: &str, content: &[u8]) -> Self {
        self.part(&format!("form-data; name=\"file\"; filename=\"{name}\"\r\nContent-Type: {media_type}"), content)
    }

    /// All of it.
    pub(super) fn body(mut self) -> Vec<u8> {
        self.text.extend(b"----a-boundary--\r\n");
        self.text
    }

    /// What there is of it, without an end.
    pub(super) fn unfinished(mut self) -> Vec<u8> {
        self.text.truncate(self.text.len() - 2);
        self.text
    }

    pub(super) fn on(self, call: Call) -> Call {
        call.header("content-type", TYPE).body(self.body())
    }
}
