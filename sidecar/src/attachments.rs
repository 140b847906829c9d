//! The files of ours that a request names, given to the model and to a run's workspace.
//!
//! INVARIANT: a file is looked up for the request's owner and nobody else, and whatever that owner cannot see is one and
//! the same error. No URL is fetched, and what a request brings in itself is left alone.

mod content;
mod error;
mod kind;
mod readings;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::Write as _;

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use bytes::Bytes;
use decision::config::ModelInput;
use decision::format::ApiFormat;
use decision::identity::Identity;
use decision::problem::Problem;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::extract::Extractor;
use crate::files::name::Names;
use crate::files::{FileRecord, Files, Staged};
use crate::wire::references::{self, Part, Place, References, Spelled, What, spell_new};
use crate::wire::splice::Splice;

pub use error::AttachmentError;
pub use readings::Readings;

use content::{Budget, Content, Pieces};

/// A request's documents together get so many times [`crate::extract::ExtractLimits::timeout`].
const REQUEST_TIMEOUTS: u32 = 4;

/// How much of files goes into a request. Each is a config key under `files`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttachmentLimits {
    /// Bytes of one file.
    pub inline_max_bytes: u64,
    /// Bytes of all files of a request.
    pub inline_max_request_bytes: u64,
    /// Characters of one file's text.
    pub text_max_chars: usize,
}

/// What gives files to models.
#[derive(Debug, Clone)]
pub struct Attachments {
    /// The files; without, every id is that of no file.
    pub files: Option<Files>,
    /// What reads documents as text; without, they are not read.
    pub extractor: Option<Extractor>,
    /// How much goes into a request.
    pub limits: AttachmentLimits,
    /// What documents were read as before.
    pub readings: Readings,
}

/// Who gets the files of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient {
    /// A run here and its model: every file goes into the workspace.
    Run,
    /// The model's provider alone.
    Provider,
}

/// What a workspace already has that files are to go into.
pub trait Workspace: Debug + Sync {
    /// Whether anything stands at its top under this name.
    fn has(&self, name: &str) -> bool;

    /// Whether that is a file of just this content.
    fn holds<'a>(&'a self, name: &'a str, file: &'a FileRecord) -> BoxFuture<'a, bool>;
}

/// A request that names files.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Whose request it is.
    pub owner: &'a Identity,
    /// The wire its caller speaks.
    pub wire: ApiFormat,
    /// Its body.
    pub body: Bytes,
    /// Who gets the files.
    pub recipient: Recipient,
    /// The workspace that the run goes on with; `None` if it will be a fresh one.
    pub workspace: Option<&'a dyn Workspace>,
    /// What the model takes.
    pub inputs: &'a [ModelInput],
    /// It declares a code tool, which towards [`Recipient::Provider`] runs there.
    pub declares_code: bool,
}

/// The request as it goes on.
#[derive(Debug)]
pub struct Resolved {
    /// Its body.
    pub body: Bytes,
    /// What goes into the workspace before the first call, in the order in which it was named.
    pub seeds: Vec<Staged>,
    /// What the model must be told beside its tools, because nothing in the body does.
    pub hint: Option<String>,
    /// Where files stood of which the model is told no more than that it cannot read them.
    pub dropped: Vec<String>,
}

impl Attachments {
    /// Resolves every id of ours. `room` is asked for so many bytes of bodies in all before they are held.
    pub async fn resolve(
        &self,
        asked: Asked<'_>,
        room: &mut (dyn FnMut(u64) -> Result<(), Problem> + Send + Sync),
    ) -> Result<Resolved, AttachmentError> {
        let found = References::find(asked.wire, &asked.body)?;
        if found.is_empty() {
            return Ok(Resolved { body: asked.body, seeds: Vec::new(), hint: None, dropped: Vec::new() });
        }
        let to_run = asked.recipient == Recipient::Run;
        check_containers(&found, to_run)?;
        let known = self.known(&asked, &found).await?;
        let staged = if to_run { stage(&found, &known, asked.workspace).await } else { Vec::new() };
        let hint = hint(&found, &staged);
        let names = staged.iter().map(|one| (one.staged.file.id.clone(), one.staged.name.clone())).collect();
        let seeds = staged.into_iter().filter(|one| !one.is_there).map(|one| one.staged).collect();
        let patience =
            self.extractor.as_ref().map(|extractor| extractor.limits().timeout.saturating_mul(REQUEST_TIMEOUTS));
        let mut giving = Giving {
            all: self,
            asked: &asked,
            found: &found,
            known: &known,
            names,
            dropped: Vec::new(),
            budget: Budget {
                left_bytes: self.limits.inline_max_request_bytes,
                read: BTreeMap::new(),
                deadline: Instant::now() + patience.unwrap_or_default(),
            },
            room,
        };
        let body = giving.body().await?;
        let dropped = giving.dropped;
        Ok(Resolved { body: body.unwrap_or(asked.body), seeds, hint, dropped })
    }

    /// The files by their ids; an error if one is not visible.
    async fn known(
        &self,
        asked: &Asked<'_>,
        found: &References,
    ) -> Result<BTreeMap<String, FileRecord>, AttachmentError> {
        let ids: Vec<String> = named(found).map(|(id, _)| id.to_owned()).collect();
        let records = match &self.files {
            Some(files) => files.get_many(asked.owner, &ids).await?,
            None => Vec::new(),
        };
        let known: BTreeMap<String, FileRecord> =
            records.into_iter().map(|record| (record.id.clone(), record)).collect();
        match named(found).find(|(id, _)| !known.contains_key(*id)) {
            Some((id, param)) => Err(error::not_found(asked.wire.vocabulary(), id, param).into()),
            None => Ok(known),
        }
    }
}

/// Every id and where it stands, in the order that fixes names.
fn named(found: &References) -> impl Iterator<Item = (&str, &str)> {
    let parts = found.parts.iter().map(|part| (part.id.as_str(), part.param.as_str()));
    let lists = found.containers.iter().flat_map(|list| &list.ids);
    parts.chain(lists.map(|(id, param)| (id.as_str(), param.as_str())))
}

/// A list of ids cannot be half here and half at the provider, and what stands in one must be shown somewhere.
fn check_containers(found: &References, to_run: bool) -> Result<(), Problem> {
    if to_run {
        let foreign = found.containers.iter().find_map(|list| list.foreign.as_deref());
        return foreign.map_or(Ok(()), |param| Err(references::foreign(param)));
    }
    match found.containers.iter().find_map(|list| list.ids.first()) {
        Some((_, param)) if !found.can_show_containers() => {
            let message = format!(
                "`{param}` is a file of this gateway, whose code tool runs elsewhere: name the file in a message, or \
                 have the code run here (`otari-code-execution: otari`)"
            );
            Err(Problem::invalid(message).with_param(param))
        }
        _ => Ok(()),
    }
}

/// A file that has its name in the workspace.
struct Placed {
    staged: Staged,
    /// An earlier request put it there.
    is_there: bool,
}

/// Gives each file its name in the workspace: never that of another which is there, and its own again where it is there.
async fn stage(
    found: &References,
    known: &BTreeMap<String, FileRecord>,
    workspace: Option<&dyn Workspace>,
) -> Vec<Placed> {
    let mut names = Names::new();
    let mut staged: Vec<Placed> = Vec::new();
    let mut seen = BTreeSet::new();
    for (id, _) in named(found) {
        let (true, Some(file)) = (seen.insert(id), known.get(id)) else { continue };
        let mut name = names.take(&file.filename);
        let mut is_there = false;
        // Ends, for every round takes another name, and a workspace has only so many.
        while let Some(workspace) = workspace.filter(|workspace| workspace.has(&name)) {
            is_there = workspace.holds(&name, file).await;
            if is_there {
                break;
            }
            name = names.take(&file.filename);
        }
        staged.push(Placed { staged: Staged { name, file: file.clone() }, is_there });
    }
    staged
}

/// Says which files lie there that no message names.
fn hint(found: &References, staged: &[Placed]) -> Option<String> {
    let told: BTreeSet<&str> = found.parts.iter().map(|part| part.id.as_str()).collect();
    let staged = staged.iter().map(|one| &one.staged);
    let untold: Vec<&str> =
        staged.filter(|one| !told.contains(one.file.id.as_str())).map(|one| one.name.as_str()).collect();
    (!untold.is_empty()).then(|| words::in_directory(&untold))
}

/// A request whose files are being written into it.
struct Giving<'a> {
    all: &'a Attachments,
    asked: &'a Asked<'a>,
    found: &'a References,
    known: &'a BTreeMap<String, FileRecord>,
    /// Names in the workspace, by id; none towards a provider.
    names: BTreeMap<String, String>,
    /// See [`Resolved::dropped`].
    dropped: Vec<String>,
    budget: Budget,
    room: &'a mut (dyn FnMut(u64) -> Result<(), Problem> + Send + Sync),
}

impl Giving<'_> {
    /// The body with the files in it; `None` when nothing in it changes.
    async fn body(&mut self) -> Result<Option<Bytes>, AttachmentError> {
        let to_provider = self.asked.recipient == Recipient::Provider;
        let places = self.found.places(to_provider);
        if places.is_empty() {
            return Ok(None);
        }
        let asked = self.asked;
        self.hold(asked.body.len(), 0)?;
        let mut splice = Splice::new(&asked.body, 0);
        for Place { range, what } in places {
            let so_far = splice.len_so_far().saturating_sub(range.len());
            let out = splice.replace(&range);
            match what {
                What::Part(part) => self.part(part, so_far, out).await?,
                What::Ids(kept) => out.extend_from_slice(kept.as_bytes()),
                What::Opening(before, after) => {
                    out.extend_from_slice(before.as_bytes());
                    self.of_containers(so_far, out).await?;
                    out.extend_from_slice(after.as_bytes());
                }
            }
        }
        Ok(Some(splice.finish().into()))
    }

    async fn part(&mut self, part: &Part, so_far: usize, out: &mut Vec<u8>) -> Result<(), AttachmentError> {
        let Some(file) = self.known.get(&part.id) else { return Ok(()) };
        let dropped_before = self.dropped.len();
        let name = self.names.get(&part.id);
        let said = name.map(|name| words::lies_in_directory(name));
        let content = match name {
            Some(_) if part.is_upload => Content::Nothing,
            Some(name) => self.content(file, &name.clone(), &part.param).await?,
            None => self.content(file, &file.filename, &part.param).await?,
        };
        let is_lost = part.is_upload && self.dropped.len() > dropped_before;
        if is_lost && self.asked.declares_code && self.asked.recipient == Recipient::Provider {
            return Err(error::out_of_reach(&part.param).into());
        }
        let spelled = part.spell(self.asked.wire, &self.asked.body, said.as_deref(), content.shown());
        self.write(file, content, spelled, so_far, out).await
    }

    /// The files of containers, each once, as parts beside each other.
    async fn of_containers(&mut self, so_far: usize, out: &mut Vec<u8>) -> Result<(), AttachmentError> {
        let mut seen = BTreeSet::new();
        let start = out.len();
        for (id, param) in self.found.containers.iter().flat_map(|list| &list.ids) {
            let (true, Some(file)) = (seen.insert(id), self.known.get(id)) else { continue };
            if out.len() > start {
                out.push(b',');
            }
            let content = self.as_it_is(file, param).await?;
            let spelled = spell_new(self.asked.wire, content.shown());
            let so_far = so_far.saturating_add(out.len().saturating_sub(start));
            self.write(file, content, spelled, so_far, out).await?;
        }
        Ok(())
    }

    /// Writes a part, and the bytes of its file in the middle if it shows them.
    async fn write(
        &mut self,
        file: &FileRecord,
        content: Content,
        spelled: Spelled,
        so_far: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), AttachmentError> {
        let pieces = content.into_pieces();
        let bytes = if pieces.is_some() { base64_len(file.size_bytes) } else { 0 };
        let more = spelled.before.len().saturating_add(spelled.after.len()).saturating_add(bytes);
        self.hold(so_far, more)?;
        out.reserve_exact(more);
        out.extend_from_slice(spelled.before.as_bytes());
        if let Some(pieces) = pieces {
            encode(pieces, out).await?;
        }
        out.extend_from_slice(spelled.after.as_bytes());
        Ok(())
    }

    /// The body that came and the one in the making are held at once.
    fn hold(&mut self, so_far: usize, more: usize) -> Result<(), Problem> {
        let bytes = self.asked.body.len().saturating_add(so_far).saturating_add(more);
        (self.room)(bytes as u64)
    }
}

/// Length of so many bytes in base64.
fn base64_len(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(3).saturating_mul(4)).unwrap_or(usize::MAX)
}

async fn encode(mut pieces: Pieces, out: &mut Vec<u8>) -> Result<(), AttachmentError> {
    let mut encoder = EncoderWriter::new(out, &STANDARD);
    while let Some(piece) = pieces.next().await {
        encoder.write_all(&piece?).map_err(AttachmentError::encoding)?;
    }
    encoder.finish().map(drop).map_err(AttachmentError::encoding)
}

#[cfg(test)]
mod tests;
