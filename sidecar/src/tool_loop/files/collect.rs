//! Files out of a session after a call.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout_at};

use super::Shared;
use crate::files::name::Names;
use crate::files::{Files, FilesError, FilesLimits, NewFile, Purpose, Staged};
use crate::ids;
use crate::sandbox::{FileStamp, Lease, ListedFile, ProducedFile, SandboxError, WorkspacePath};
use crate::wire::event::{CodeFile, CodeFiles, NotKept, StoredFile};

/// Files of one call that are named at all; of the others only the number is told.
const MAX_NAMED: usize = 64;
/// Files of one call that are tried in vain before the rest is given up.
const MAX_FAILED: usize = 16;
/// Images that clients show. SVG is a document with scripts.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// What one session's workspace held when it was last looked at.
#[derive(Default)]
pub(super) struct Ledger {
    seen: HashMap<WorkspacePath, FileStamp>,
    /// Those that went in or came out, by their bytes.
    known: HashMap<WorkspacePath, KnownBytes>,
    /// The sandbox lists no files; then only what it names itself is found.
    unlisted: bool,
}

struct KnownBytes {
    size_bytes: u64,
    sha256: String,
}

/// What a look at the workspace found.
#[derive(Default)]
struct Look {
    /// The size of every file.
    sizes: HashMap<WorkspacePath, u64>,
    /// Those that are new or changed, what lies at the top first.
    changed: Vec<WorkspacePath>,
    unseen: u64,
}

/// A file that may have been written by the last call.
struct Candidate {
    path: WorkspacePath,
    /// What the listing says.
    size: Option<u64>,
}

impl Ledger {
    /// Notes what went in, and what is there before any code of this request has run.
    pub(super) async fn begin(seeds: &[Staged], lease: &Lease, timeout: Duration) -> Self {
        let known = |Staged { name, file }: &Staged| {
            let known = KnownBytes { size_bytes: file.size_bytes, sha256: file.sha256.clone() };
            Some((WorkspacePath::parse(name)?, known))
        };
        let mut ledger = Self { known: seeds.iter().filter_map(known).collect(), ..Self::default() };
        // Without a first look everything will seem new: what went in is still known by its bytes.
        ledger.look(lease, Instant::now() + timeout).await;
        ledger
    }

    async fn look(&mut self, lease: &Lease, deadline: Instant) -> Look {
        if self.unlisted {
            return Look::default();
        }
        let listed = timeout_at(deadline, lease.list_files()).await.unwrap_or(Err(SandboxError::TimedOut));
        let listing = match listed {
            Ok(listing) => listing,
            Err(SandboxError::NotServed) => {
                self.unlisted = true;
                return Look::default();
            }
            Err(error) => {
                log(&error, "the files of a session cannot be listed");
                return Look::default();
            }
        };
        let is_changed = |file: &&ListedFile| self.seen.get(&file.path) != Some(&file.stamp);
        let mut changed: Vec<WorkspacePath> =
            listing.files.iter().filter(is_changed).map(|file| file.path.clone()).collect();
        changed.sort_by_cached_key(|path| (path.names().count(), path.clone()));
        self.seen = listing.files.iter().map(|file| (file.path.clone(), file.stamp)).collect();
        let sizes = listing.files.into_iter().map(|file| (file.path, file.size_bytes)).collect();
        Look { sizes, changed, unseen: listing.left_out }
    }

    /// What the sandbox names, and then what is new or changed; each once. With the number of those nobody could see.
    async fn candidates(&mut self, lease: &Lease, deadline: Instant, named: &[ProducedFile]) -> (Vec<Candidate>, u64) {
        let Look { sizes, changed, unseen } = self.look(lease, deadline).await;
        let is_changed: HashSet<&WorkspacePath> = changed.iter().collect();
        let named = named.iter().filter_map(|file| WorkspacePath::parse(&file.name));
        let named: Vec<WorkspacePath> =
            named.filter(|path| is_changed.contains(path) || !sizes.contains_key(path)).collect();
        let mut taken = HashSet::new();
        let all = named.into_iter().chain(changed).filter(|path| taken.insert(path.clone()));
        (all.map(|path| Candidate { size: sizes.get(&path).copied(), path }).collect(), unseen)
    }
}

/// What is left of the limits of one collection.
struct Budget {
    deadline: Instant,
    stored: usize,
    max_files: usize,
    left_bytes: u64,
    /// What was read of files that were not kept after all.
    wasted_bytes: u64,
    max_wasted_bytes: u64,
    failed: usize,
    /// What became of the last one that failed.
    failure: NotKept,
}

impl Budget {
    fn new(limits: &FilesLimits, timeout: Duration) -> Self {
        Self {
            deadline: Instant::now() + timeout,
            stored: 0,
            max_files: limits.output_max_files,
            left_bytes: limits.output_max_bytes,
            wasted_bytes: 0,
            max_wasted_bytes: limits.output_max_bytes,
            failed: 0,
            failure: NotKept::Unreadable,
        }
    }

    /// Whether one more may be tried.
    fn check(&self) -> Result<(), NotKept> {
        if self.stored >= self.max_files {
            return Err(NotKept::TooMany { limit: self.max_files });
        }
        if Instant::now() >= self.deadline {
            return Err(NotKept::TimedOut);
        }
        // What the rest would come to is not worth finding out.
        let is_over = self.failed >= MAX_FAILED || self.wasted_bytes > self.max_wasted_bytes;
        if is_over { Err(self.failure) } else { Ok(()) }
    }

    /// What one came to of which so much was read.
    fn note(&mut self, kept: &Result<Kept, NotKept>, read_bytes: u64) {
        match kept {
            Ok(Some((file, _))) => {
                self.stored += 1;
                self.left_bytes = self.left_bytes.saturating_sub(file.size_bytes);
            }
            Ok(None) => self.wasted_bytes = self.wasted_bytes.saturating_add(read_bytes),
            Err(failure) => {
                self.wasted_bytes = self.wasted_bytes.saturating_add(read_bytes);
                self.failed += 1;
                self.failure = *failure;
            }
        }
    }
}

/// Stores what is new or changed, within the limits of one execution. Whatever the sandbox says of its files and sends, no
/// more is read of those that are not kept than of those that are, and of one file more.
pub(super) async fn collect(
    files: &Files,
    shared: &Shared,
    lease: &Lease,
    ledger: &mut Ledger,
    named: &[ProducedFile],
) -> CodeFiles {
    let limits = files.limits();
    let mut budget = Budget::new(limits, shared.timeout);
    let (candidates, unseen) = ledger.candidates(lease, budget.deadline, named).await;
    let mut found = CodeFiles { files: Vec::new(), unnamed: unseen };
    for Candidate { path, size } in candidates {
        let known = ledger.known.get(&path);
        if is_unchanged(lease, &path, size, known, budget.deadline).await {
            continue;
        }
        let room = budget.left_bytes.min(limits.max_bytes);
        let kept = match budget.check() {
            Err(reason) => Err(reason),
            Ok(()) if size.is_some_and(|size| size > room) => Err(NotKept::TooLarge { limit: room }),
            Ok(()) => {
                let mut read_bytes = 0;
                let storing = store(files, shared, lease, &path, room, known, &mut read_bytes);
                let kept = timeout_at(budget.deadline, storing).await.unwrap_or(Err(NotKept::TimedOut));
                // Of what came in one piece with the last bytes that were wanted, nobody asked for more.
                budget.note(&kept, read_bytes.min(room));
                kept
            }
        };
        let kept = match kept {
            Ok(None) => continue,
            Ok(Some((file, known))) => {
                ledger.known.insert(path.clone(), known);
                Ok(file)
            }
            Err(reason) => Err(reason),
        };
        if kept.is_ok() || found.files.len() < MAX_NAMED {
            found.files.push(CodeFile { path: path.to_string(), kept });
        } else {
            found.unnamed = found.unnamed.saturating_add(1);
        }
    }
    found
}

/// Whether a file that has the size it had holds what it held. That is no output, so it is looked at before any limit of
/// outputs; what it costs is bounded by what went in or came out before.
async fn is_unchanged(
    lease: &Lease,
    path: &WorkspacePath,
    size: Option<u64>,
    known: Option<&KnownBytes>,
    deadline: Instant,
) -> bool {
    let Some(known) = known.filter(|known| size == Some(known.size_bytes)) else { return false };
    let reading = async {
        let mut content = lease.get_file(path, known.size_bytes).await?;
        let mut hash = Sha256::new();
        while let Some(piece) = content.next().await {
            hash.update(&piece?);
        }
        Ok::<_, SandboxError>(ids::hex(&hash.finalize()) == known.sha256)
    };
    // What cannot be read now is told when it is to be stored.
    matches!(timeout_at(deadline, reading).await, Ok(Ok(true)))
}

type Kept = Option<(StoredFile, KnownBytes)>;

/// Streams one file into the store, and counts what it reads. `None` if it holds what it held before.
async fn store(
    files: &Files,
    shared: &Shared,
    lease: &Lease,
    path: &WorkspacePath,
    room: u64,
    known: Option<&KnownBytes>,
    read_bytes: &mut u64,
) -> Result<Kept, NotKept> {
    let mut content = lease.get_file(path, room).await.map_err(|error| unread(&error))?;
    let mut upload = files.begin(&shared.owner, room).await.map_err(|error| unstored(&error))?;
    let filename = Names::new().take(&String::from_utf8_lossy(path.names().next_back().unwrap_or_default()));
    let mime_type = mime_guess::from_path(&filename).first_or_octet_stream().to_string();
    let mut image = Image::new(shared, &mime_type);
    let mut hash = known.map(|_| Sha256::new());
    while let Some(piece) = content.next().await {
        let piece = piece.map_err(|error| unread(&error))?;
        *read_bytes = read_bytes.saturating_add(piece.len() as u64);
        if let Some(hash) = &mut hash {
            hash.update(&piece);
        }
        image.grow(&piece);
        upload.write(piece).await.map_err(|error| unstored(&error))?;
    }
    if let (Some(known), Some(hash)) = (known, hash)
        && known.size_bytes == upload.size_bytes()
        && known.sha256 == ids::hex(&hash.finalize())
    {
        return Ok(None);
    }
    let new = NewFile { filename, mime_type, purpose: Purpose::CodeExecutionOutput, lifetime_ms: None };
    let record = upload.finish(new).await.map_err(|error| unstored(&error))?;
    let stored = StoredFile {
        id: record.id,
        filename: record.filename,
        mime_type: record.mime_type,
        size_bytes: record.size_bytes,
        image: image.taken(),
    };
    Ok(Some((stored, KnownBytes { size_bytes: record.size_bytes, sha256: record.sha256 })))
}

/// The bytes of an image that the answer shows in itself, as long as there is room for them.
struct Image<'a> {
    shared: &'a Shared,
    bytes: Option<Vec<u8>>,
}

impl<'a> Image<'a> {
    fn new(shared: &'a Shared, mime_type: &str) -> Self {
        Self { shared, bytes: IMAGES.contains(&mime_type).then(Vec::new) }
    }

    fn grow(&mut self, piece: &Bytes) {
        let Some(bytes) = &mut self.bytes else { return };
        if self.shared.take_image_bytes(piece.len()) {
            bytes.extend_from_slice(piece);
        } else {
            self.give_back();
        }
    }

    fn taken(mut self) -> Option<Bytes> {
        self.bytes.take().filter(|bytes| !bytes.is_empty()).map(Bytes::from)
    }

    fn give_back(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.shared.give_image_bytes(bytes.len());
        }
    }
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

fn unread(error: &SandboxError) -> NotKept {
    log(error, "a file that code wrote could not be read");
    match error {
        SandboxError::FileTooLarge { limit } => NotKept::TooLarge { limit: *limit },
        SandboxError::TimedOut => NotKept::TimedOut,
        _ => NotKept::Unreadable,
    }
}

fn unstored(error: &FilesError) -> NotKept {
    log(error, "a file that code wrote could not be stored");
    match error {
        FilesError::TooLarge { limit } => NotKept::TooLarge { limit: *limit },
        // The wait for a turn to write was too long.
        FilesError::Busy => NotKept::TimedOut,
        FilesError::WorkspaceBytes { .. } | FilesError::WorkspaceFiles { .. } => NotKept::StorageFull,
        _ => NotKept::StorageFailed,
    }
}

fn log(error: &(dyn std::error::Error + 'static), what: &'static str) {
    tracing::warn!(error, "{what}");
}
