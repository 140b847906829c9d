//! Answers on the Responses wire, kept for callers who go on from them by id (`store`, which is on unless they say no).
//!
//! INVARIANT: what a request is answered with does not depend on who kept the conversation: its history is put into the
//! request before anybody else reads it. An answer is kept before its caller hears of its end.

mod keeper;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use decision::identity::Identity;
use decision::problem::{Origin, Problem, ProblemKind};
use tokio_util::sync::CancellationToken;

use self::keeper::Keeper;
use crate::clock::Clock;
use crate::ids;
use crate::repository::{NewResponse, Repository, RepositoryError, StoredResponse, Told};
use crate::telemetry::chain;
use crate::wire::responses::retrieved::{self, Asked, Page, Pager};
use crate::wire::responses::stored::{Kept, References, entries, expand, items_by_id, references};

/// Answers that one conversation is followed back through.
const MAX_CHAIN: usize = 512;
/// Longest id of a provider's answer that is kept, in bytes.
const MAX_PREVIOUS_BYTES: usize = 512;
/// Between two looks for what has expired.
const SWEEP_EVERY: Duration = Duration::from_hours(1);

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredLimits {
    /// How long an answer can be gone on from; zero keeps none.
    pub retention: Duration,
    /// Bytes of one answer with its input; a larger one is not kept. Also those of a history that is put together.
    pub max_bytes: usize,
    /// Bytes of one workspace's answers; the oldest make room.
    pub max_workspace_bytes: u64,
}

/// Asked for so many bytes in all. A row is counted when it was read, which no more do at once than the database has
/// connections; what is made of rows, before it is made.
pub type Room<'a> = dyn FnMut(u64) -> Result<(), Problem> + Send + Sync + 'a;

/// The answers that were kept.
#[derive(Debug, Clone)]
pub struct StoredResponses {
    repository: Repository,
    keeper: Keeper,
    clock: Arc<dyn Clock>,
    limits: StoredLimits,
}

/// What a request said before the answers that it named were put into it.
#[derive(Debug, Clone, Default)]
pub struct Named {
    /// The answer of ours that it goes on from.
    pub previous: Option<String>,
    /// Its own input with every item in its place, as JSON; `None` where it named nothing of ours.
    pub input: Option<String>,
}

impl Named {
    /// It named something of ours.
    pub fn is_some(&self) -> bool {
        self.previous.is_some() || self.input.is_some()
    }
}

/// What an answer is kept with once it is complete.
#[derive(Debug)]
pub struct Keeping {
    stored: StoredResponses,
    owner: Identity,
    previous: Option<String>,
    input: String,
}

impl StoredResponses {
    /// Keeps in `repository`, within `limits`; and the task that writes, which ends when the last clone is gone.
    pub fn new(
        repository: Repository,
        clock: Arc<dyn Clock>,
        limits: StoredLimits,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let share = i64::try_from(limits.max_workspace_bytes).unwrap_or(i64::MAX);
        let (keeper, work) = Keeper::new(repository.clone(), share);
        (Self { repository, keeper, clock, limits }, work)
    }

    /// For tests of others: keeps in a database of its own.
    #[cfg(test)]
    pub(crate) async fn in_folder(folder: &std::path::Path, clock: Arc<dyn Clock>, limits: StoredLimits) -> Self {
        let database = crate::repository::Database::Sqlite(folder.join("kept.db"));
        let repository = Repository::open(&database, Arc::clone(&clock)).await.unwrap();
        let (stored, work) = Self::new(repository, clock, limits);
        tokio_util::task::TaskTracker::new().spawn(work);
        stored
    }

    /// Gets ready to keep the answer to a request with this `input`, as JSON. `None` if it is too large, if it goes on from
    /// what can be no answer's id, or if none is kept.
    pub fn keeping(&self, owner: &Identity, previous: Option<String>, input: String) -> Option<Keeping> {
        let fits = input.len() <= self.limits.max_bytes && previous.as_deref().is_none_or(is_keepable);
        (fits && !self.limits.retention.is_zero()).then(|| Keeping {
            stored: self.clone(),
            owner: owner.clone(),
            previous,
            input,
        })
    }

    /// Puts the answers that a request names into its body. `room` counts the body too.
    pub async fn resolve(&self, owner: &Identity, body: Bytes, room: &mut Room<'_>) -> Result<(Bytes, Named), Problem> {
        let References { previous, items } = references(&body)?;
        if previous.is_none() && items.is_empty() {
            return Ok((body, Named::default()));
        }
        let mut counted = Counted { room, bytes: body.len() };
        let known = self.items(owner, &items, &mut counted).await?;
        let (parts, began) = match &previous {
            Some(id) => self.history(owner, id, &mut counted).await?,
            None => (Vec::new(), None),
        };
        let mut more = |bytes| counted.add(bytes);
        let expanded = expand(&body, &said(&parts), began.as_deref(), &known, self.limits.max_bytes, &mut more)?
            .ok_or_else(|| too_long("input", self.limits.max_bytes))?;
        Ok((expanded.body.into(), Named { previous, input: Some(expanded.input) }))
    }

    /// The items of every answer that one of these is part of: those of a provider's are named by its ids, and stand
    /// there too.
    async fn items(
        &self,
        owner: &Identity,
        ids: &[String],
        counted: &mut Counted<'_>,
    ) -> Result<BTreeMap<String, String>, Problem> {
        let mut known = BTreeMap::new();
        let mut bytes: usize = 0;
        for id in ids {
            if known.contains_key(id) || !ids::is_plain(id) {
                continue;
            }
            let Some(answer) = self.repository.response_of_item(owner, id).await.map_err(unreadable)? else { continue };
            bytes = bytes.saturating_add(answer.output.len());
            // And what is taken out of it.
            counted.add(answer.output.len().saturating_mul(2))?;
            if bytes > self.limits.max_bytes {
                return Err(too_long("input", self.limits.max_bytes));
            }
            known.extend(items_by_id(&answer.output));
        }
        Ok(known)
    }

    /// Everything said up to an answer, and the provider's answer that it all began from.
    async fn history(
        &self,
        owner: &Identity,
        id: &str,
        counted: &mut Counted<'_>,
    ) -> Result<(Vec<StoredResponse>, Option<String>), Problem> {
        let Followed { parts, began } = self.follow(owner, id, "previous_response_id", counted).await?;
        match began {
            Some(id) if id.starts_with(ids::RESPONSE) => Err(lost(&id)),
            root => Ok((parts, root)),
        }
    }

    /// The answers of ours that a conversation went through, as far back as they are kept.
    async fn follow(
        &self,
        owner: &Identity,
        id: &str,
        param: &str,
        counted: &mut Counted<'_>,
    ) -> Result<Followed, Problem> {
        let mut parts: Vec<StoredResponse> = Vec::new();
        let mut next = Some(id.to_owned());
        let mut bytes: usize = 0;
        while let Some(id) = next.take() {
            let ours = id.starts_with(ids::RESPONSE) && ids::is_plain(&id);
            let kept = if ours { self.repository.response(owner, &id).await.map_err(unreadable)? } else { None };
            let Some(answer) = kept else { return Ok(Followed { parts, began: Some(id) }) };
            let length = answer.input.len().saturating_add(answer.output.len());
            bytes = bytes.saturating_add(length);
            counted.add(length)?;
            if parts.len() >= MAX_CHAIN || bytes > self.limits.max_bytes {
                return Err(too_long(param, self.limits.max_bytes));
            }
            next.clone_from(&answer.previous_id);
            parts.push(answer);
        }
        Ok(Followed { parts, began: None })
    }

    /// An answer as its caller got it; `None` if it is not kept, or not for this owner.
    pub async fn told(&self, owner: &Identity, id: &str, room: &mut Room<'_>) -> Result<Option<Vec<u8>>, Problem> {
        if !ids::is_plain(id) {
            return Ok(None);
        }
        let kept = self.repository.told_response(owner, id).await.map_err(unreadable)?;
        let Some((told, output)) = kept else { return Ok(None) };
        // Beside the row, an answer that is as long.
        let length = told.size().saturating_add(output.len());
        room(length.saturating_mul(2) as u64)?;
        let Told { envelope, shown } = told;
        Ok(Some(retrieved::response(&envelope, &output, shown.as_deref())))
    }

    /// What an answer was made from: the conversation before it as far as it is kept, and its own input. `None` as in
    /// [`Self::told`].
    pub async fn made_from(
        &self,
        owner: &Identity,
        id: &str,
        room: &mut Room<'_>,
    ) -> Result<Option<Conversation>, Problem> {
        let mut counted = Counted { room, bytes: 0 };
        let Followed { parts, .. } = self.follow(owner, id, "response_id", &mut counted).await?;
        let bytes = counted.bytes;
        Ok((!parts.is_empty()).then_some(Conversation { parts, bytes }))
    }

    /// Forgets an answer; false as in [`Self::told`].
    pub async fn forget(&self, owner: &Identity, id: &str) -> Result<bool, Problem> {
        Ok(ids::is_plain(id) && self.repository.forget_response(owner, id).await.map_err(unreadable)?)
    }

    /// Removes what has expired, until `stop`.
    pub async fn sweep(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SWEEP_EVERY) => {}
            }
            match self.repository.forget_expired_responses().await {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "expired answers were removed"),
                Err(error) => {
                    tracing::error!(error = %chain(&error), "expired answers were not removed");
                }
            }
        }
    }
}

impl Keeping {
    /// Keeps the answer. One that is too large is not kept, and that is logged, as is a database that fails: the answer
    /// is good without.
    pub async fn keep(self, answer: Kept) {
        let Self { stored: StoredResponses { keeper, clock, limits, .. }, owner, previous, input } = self;
        let Kept { id, output, item_ids, envelope, shown } = answer;
        let size = input.len().saturating_add(output.len());
        if size > limits.max_bytes {
            tracing::info!(response.id = id, size, "an answer is too large to be kept (responses.max_bytes)");
            return;
        }
        // Going on from an answer is worth more than being told it again.
        let told = Some(Told { envelope, shown }).filter(|told| size.saturating_add(told.size()) <= limits.max_bytes);
        let retention = i64::try_from(limits.retention.as_millis()).unwrap_or(i64::MAX);
        let expires_at_ms = clock.now_ms().saturating_add(retention);
        keeper
            .keep(owner, NewResponse { id, previous_id: previous, input, output, item_ids, told, expires_at_ms })
            .await;
    }
}

/// A conversation that was followed back.
struct Followed {
    /// Its answers, the newest first.
    parts: Vec<StoredResponse>,
    /// What the oldest of them went on from: a provider's answer, or one of ours that is not kept.
    began: Option<String>,
}

/// What is held so far of what `room` is asked for.
struct Counted<'a> {
    room: &'a mut Room<'a>,
    bytes: usize,
}

impl Counted<'_> {
    fn add(&mut self, more: usize) -> Result<(), Problem> {
        self.bytes = self.bytes.saturating_add(more);
        (self.room)(self.bytes as u64)
    }
}

/// What was said up to an answer, without what it says itself.
#[derive(Debug)]
pub struct Conversation {
    /// The answer and those before it, the newest first.
    parts: Vec<StoredResponse>,
    bytes: usize,
}

impl Conversation {
    /// A page of its items, and how many bytes that and the conversation take. `None` if there is no item that it is to
    /// begin behind.
    pub fn page<'a>(&'a self, asked: Asked<'a>) -> Option<(Page<'a>, u64)> {
        let mut pager = Pager::new(asked);
        for (age, part) in self.parts.iter().enumerate().rev() {
            pager.input(&part.input, &part.id);
            if age > 0 {
                pager.output(&part.output);
            }
        }
        let page = pager.page()?;
        let bytes = self.bytes.saturating_add(page.max_bytes()) as u64;
        Some((page, bytes))
    }
}

/// The newest stands first in `parts`.
fn said(parts: &[StoredResponse]) -> Vec<Cow<'_, str>> {
    let said = parts.iter().rev().flat_map(|part| [entries(&part.input), entries(&part.output)]);
    said.filter(|entries| !entries.is_empty()).collect()
}

/// No database takes every text.
fn is_keepable(previous: &str) -> bool {
    previous.len() <= MAX_PREVIOUS_BYTES && !previous.chars().any(char::is_control)
}

fn lost(id: &str) -> Problem {
    let message = format!(
        "there is no answer `{}` to go on from: it is unknown, expired, or was given with `store: false`; send the \
         history in `input`",
        ids::shown(id)
    );
    Problem::invalid(message).with_param("previous_response_id").with_code("previous_response_not_found")
}

fn too_long(param: &str, limit: usize) -> Problem {
    let message = format!(
        "the answers behind `{param}` are more than {MAX_CHAIN}, or longer than {limit} bytes (responses.max_bytes): begin \
         a new conversation, with a shorter history in `input`"
    );
    Problem::invalid(message).with_param(param)
}

fn unreadable(error: RepositoryError) -> Problem {
    tracing::error!(error = %chain(&error), "kept answers cannot be read");
    Problem::new(ProblemKind::Internal, Origin::Storage, "the gateway cannot read the answers it keeps: try again")
}
