//! What a model is shown of one file: its bytes, its text, or why neither.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use decision::config::ModelInput;
use decision::problem::Problem;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::time::Instant;

use super::kind::{HEAD_BYTES, Kind, decode};
use super::readings::Reading;
use super::{AttachmentError, Giving, Recipient, error, words};
use crate::extract::{Document, ExtractError, Extracted};
use crate::files::{FileRecord, FilesError};
use crate::wire::references::Shown;

/// Longest character of UTF-8; texts of other encodings are no longer.
const CHAR_BYTES: u64 = 4;

/// A file's bytes as they come.
pub(super) type Pieces = BoxStream<'static, Result<Bytes, FilesError>>;

/// What is left of a request's limits.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes that may still be put in, see [`super::AttachmentLimits::inline_max_request_bytes`].
    pub(super) left_bytes: u64,
    /// What documents were read as, by id: each is read once.
    pub(super) read: BTreeMap<String, Reading>,
    /// When no document is read any more.
    pub(super) deadline: Instant,
}

/// What is shown.
pub(super) enum Content {
    Nothing,
    Text(String),
    Document { name: String, text: String, marked: String },
    Image { media_type: &'static str, pieces: Pieces },
    Pdf { name: String, pieces: Pieces },
    File { name: String, media_type: String, pieces: Pieces },
}

impl Content {
    pub(super) fn shown(&self) -> Shown<'_> {
        match self {
            Self::Nothing => Shown::Nothing,
            Self::Text(text) => Shown::Text(text),
            Self::Document { name, text, marked } => Shown::Document { name, text, marked },
            Self::Image { media_type, .. } => Shown::Image { media_type },
            Self::Pdf { name, .. } => Shown::Pdf { name },
            Self::File { name, media_type, .. } => Shown::File { name, media_type },
        }
    }

    pub(super) fn into_pieces(self) -> Option<Pieces> {
        match self {
            Self::Image { pieces, .. } | Self::Pdf { pieces, .. } | Self::File { pieces, .. } => Some(pieces),
            Self::Nothing | Self::Text(_) | Self::Document { .. } => None,
        }
    }
}

/// A file whose first bytes were looked at.
struct Opened {
    kind: Kind,
    pieces: Pieces,
}

impl Giving<'_> {
    fn takes(&self, input: ModelInput) -> bool {
        self.asked.inputs.contains(&input)
    }

    /// What the model is shown of a file where it is named; `name` is what it is called there.
    pub(super) async fn content(
        &mut self,
        file: &FileRecord,
        name: &str,
        param: &str,
    ) -> Result<Content, AttachmentError> {
        let Opened { kind, pieces } = self.open(file).await?;
        match kind {
            Kind::Image(media_type) if self.takes(ModelInput::Image) => {
                let fits = self.take_bytes(file, name, param)?;
                Ok(if fits { Content::Image { media_type, pieces } } else { Content::Nothing })
            }
            Kind::Document(Document::Pdf) if self.takes(ModelInput::Pdf) => {
                let fits = self.take_bytes(file, name, param)?;
                Ok(if fits { Content::Pdf { name: name.to_owned(), pieces } } else { Content::Nothing })
            }
            Kind::Image(_) => Ok(self.dropped(words::left_out(name), param)),
            Kind::Text => {
                let max_bytes = (self.all.limits.text_max_chars as u64).saturating_mul(CHAR_BYTES);
                if file.size_bytes > max_bytes {
                    return self.too_long(name, param);
                }
                let bytes = pieces.try_fold(BytesMut::new(), |mut all, piece| async move {
                    all.extend_from_slice(&piece);
                    Ok(all)
                });
                let text = decode(&bytes.await?);
                self.as_text(file, name, param, text)
            }
            Kind::Document(document) => self.extracted(file, name, param, document, pieces).await,
            Kind::Other => Ok(self.dropped(words::unreadable(name), param)),
        }
    }

    /// A file for a container that is not here: its bytes, for the provider to put them there.
    pub(super) async fn as_it_is(&mut self, file: &FileRecord, param: &str) -> Result<Content, AttachmentError> {
        let name = &file.filename;
        if !self.takes(ModelInput::Pdf) {
            return self.content(file, name, param).await;
        }
        let Opened { kind, pieces } = self.open(file).await?;
        self.take_bytes(file, name, param)?;
        Ok(match kind {
            Kind::Image(media_type) if self.takes(ModelInput::Image) => Content::Image { media_type, pieces },
            Kind::Document(Document::Pdf) => Content::Pdf { name: name.clone(), pieces },
            _ => Content::File { name: name.clone(), media_type: file.mime_type.clone(), pieces },
        })
    }

    async fn open(&self, file: &FileRecord) -> Result<Opened, AttachmentError> {
        let Some(files) = &self.all.files else { return Err(FilesError::NotFound.into()) };
        if file.size_bytes == 0 {
            return Ok(Opened { kind: Kind::of(file, b""), pieces: stream::empty().boxed() });
        }
        let mut rest = files.read(file, 0..file.size_bytes).await?;
        let mut head = BytesMut::new();
        while head.len() < HEAD_BYTES
            && let Some(piece) = rest.try_next().await?
        {
            head.extend_from_slice(&piece);
        }
        let head = head.freeze();
        let kind = Kind::of(file, head.get(..HEAD_BYTES).unwrap_or(&head));
        Ok(Opened { kind, pieces: stream::iter([Ok(head)]).chain(rest).boxed() })
    }

    /// Whether the file's bytes may go into the request, and then they are counted. Towards a provider it is an error if
    /// not.
    fn take_bytes(&mut self, file: &FileRecord, name: &str, param: &str) -> Result<bool, Problem> {
        let limits = &self.all.limits;
        let over = if file.size_bytes > limits.inline_max_bytes {
            format!("files.inline_max_bytes: {}", limits.inline_max_bytes)
        } else if file.size_bytes > self.budget.left_bytes {
            self.request_limit()
        } else {
            self.budget.left_bytes = self.budget.left_bytes.saturating_sub(file.size_bytes);
            return Ok(true);
        };
        self.over(name, &over, param).map(|_| false)
    }

    /// The model is told; and so is the caller.
    fn dropped(&mut self, said: String, param: &str) -> Content {
        self.dropped.push(param.to_owned());
        Content::Text(said)
    }

    fn request_limit(&self) -> String {
        format!("files.inline_max_request_bytes: {}", self.all.limits.inline_max_request_bytes)
    }

    fn too_long(&self, name: &str, param: &str) -> Result<Content, AttachmentError> {
        let limit = format!("files.text_max_chars: {}", self.all.limits.text_max_chars);
        Ok(self.over(name, &limit, param)?)
    }

    /// In a workspace the file lies there all the same.
    fn over(&self, name: &str, limit: &str, param: &str) -> Result<Content, Problem> {
        match self.asked.recipient {
            Recipient::Run => Ok(Content::Nothing),
            Recipient::Provider => Err(error::too_large(&words::quoted(name), limit, param)),
        }
    }

    fn as_text(
        &mut self,
        file: &FileRecord,
        name: &str,
        param: &str,
        text: String,
    ) -> Result<Content, AttachmentError> {
        if text.chars().nth(self.all.limits.text_max_chars).is_some() {
            return self.too_long(name, param);
        }
        let bytes = text.len() as u64;
        if bytes > self.budget.left_bytes {
            return Ok(self.over(name, &self.request_limit(), param)?);
        }
        self.budget.left_bytes = self.budget.left_bytes.saturating_sub(bytes);
        let marked = words::marked(file, name, &text);
        // What takes PDFs takes documents of its wire.
        Ok(if self.takes(ModelInput::Pdf) {
            Content::Document { name: name.to_owned(), text, marked }
        } else {
            Content::Text(marked)
        })
    }

    async fn extracted(
        &mut self,
        file: &FileRecord,
        name: &str,
        param: &str,
        document: Document,
        pieces: Pieces,
    ) -> Result<Content, AttachmentError> {
        let Some(extractor) = &self.all.extractor else {
            return Ok(self.dropped(words::unreadable(name), param));
        };
        let max_bytes = extractor.limits().max_document_bytes;
        if file.size_bytes > max_bytes {
            return Ok(self.over(name, &format!("files.extraction_max_bytes: {max_bytes}"), param)?);
        }
        let readings = &self.all.readings;
        let known = self.budget.read.get(&file.id).cloned().or_else(|| readings.get(&file.id));
        let reading = match known {
            Some(reading) => reading,
            None if self.budget.deadline <= Instant::now() => Reading::Nothing,
            None => {
                let workspace = &self.asked.owner.workspace;
                let read = extractor.text(workspace, document, pieces, self.budget.deadline).await.map_err(unread)?;
                let is_broken = read.is_broken;
                if is_broken {
                    tracing::warn!(file.id, kind = ?document, "a document could not be read as text to its end");
                }
                let reading = Reading::of(read);
                // Another time more of a broken one may be read: perhaps there was no time.
                if !is_broken {
                    readings.keep(&file.id, reading.clone());
                }
                reading
            }
        };
        self.budget.read.insert(file.id.clone(), reading.clone());
        match reading {
            Reading::Text(text) => self.as_text(file, name, param, text.to_string()),
            Reading::TooLong => self.too_long(name, param),
            Reading::Nothing => Ok(self.dropped(words::unreadable(name), param)),
        }
    }
}

impl Reading {
    fn of(read: Extracted) -> Self {
        if read.is_cut {
            return Self::TooLong;
        }
        match (read.text.is_empty(), read.is_broken) {
            (true, _) => Self::Nothing,
            (false, true) => Self::Text((read.text + words::BROKEN_OFF).into()),
            (false, false) => Self::Text(read.text.into()),
        }
    }
}

fn unread(error: ExtractError<FilesError>) -> AttachmentError {
    match error {
        ExtractError::Busy => {
            Problem::busy("the gateway reads as many documents as it may (files.extraction_max_concurrent): try again")
                .into()
        }
        ExtractError::Source(error) => error.into(),
    }
}
