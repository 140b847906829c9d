//! Three users in two workspaces do whatever they like, with their own ids and with everybody else's; a plain model says
//! what each of them may see.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::repository::GRACE_MS;
use crate::telemetry::Metrics;

/// Cases on each database, and steps of each case.
const CASES: u32 = 24;
const STEPS: usize = 60;
/// Small enough to be reached.
const QUOTA: FilesLimits = FilesLimits {
    max_bytes: 1000,
    output_max_files: 0,
    output_max_bytes: 0,
    retention: None,
    workspace_max_bytes: 4000,
    workspace_max_files: 12,
    max_concurrent_uploads: 8,
    max_concurrent_uploads_per_workspace: 8,
};

#[derive(Debug, Clone)]
enum Step {
    Upload { by: usize, length: usize, purpose: usize, expires_in_ms: Option<i64> },
    GiveUp { by: usize, length: usize },
    Delete { by: usize, which: usize },
    Get { by: usize, which: usize },
    Read { by: usize, which: usize, from: u64, to: u64 },
    GetMany { by: usize },
    List { by: usize, descending: bool, cursor: Option<(usize, bool)>, limit: u32, purpose: Option<usize> },
    Turn { by_ms: i64 },
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let by = 0..6usize;
    let which = 0..40usize;
    let upload = (by.clone(), 0..1200usize, 0..7usize, proptest::option::of(0..5000i64));
    let cursor = proptest::option::of((which.clone(), any::<bool>()));
    let list = (by.clone(), any::<bool>(), cursor, 1..8u32, proptest::option::of(0..7usize));
    prop_oneof![
        6 => upload.prop_map(|(by, length, purpose, expires_in_ms)| Step::Upload { by, length, purpose, expires_in_ms }),
        1 => (by.clone(), 0..1200usize).prop_map(|(by, length)| Step::GiveUp { by, length }),
        3 => (by.clone(), which.clone()).prop_map(|(by, which)| Step::Delete { by, which }),
        3 => (by.clone(), which.clone()).prop_map(|(by, which)| Step::Get { by, which }),
        3 => (by.clone(), which, 0..1000u64, 0..1500u64).prop_map(|(by, which, from, to)| Step::Read { by, which, from, to }),
        1 => by.prop_map(|by| Step::GetMany { by }),
        5 => list.prop_map(|(by, descending, cursor, limit, purpose)| Step::List { by, descending, cursor, limit, purpose }),
        2 => (0..2000i64).prop_map(|by_ms| Step::Turn { by_ms }),
        1 => Just(Step::Sweep),
    ]
}

/// A file as the model knows it.
#[derive(Debug, Clone)]
struct Known {
    record: FileRecord,
    bytes: Vec<u8>,
    deleted: bool,
}

struct World {
    fixture: Fixture,
    owners: Vec<Identity>,
    files: Vec<Known>,
    now: i64,
}

impl World {
    async fn new(kind: Kind) -> Self {
        let owners = ["ann", "bob", "eve"].map(|user| ["team", "other"].map(|workspace| owner(user, workspace)));
        Self { fixture: fixture(kind, QUOTA).await, owners: owners.concat(), files: Vec::new(), now: NOW }
    }

    fn visible(&self, file: &Known, by: usize) -> bool {
        let expired = file.record.expires_at_ms.is_some_and(|at| at <= self.now);
        file.record.owner == self.owners[by] && !file.deleted && !expired
    }

    /// What counts against the quota: what expired does until somebody needs the room, or the sweep comes.
    fn counted(&self, workspace: &str) -> (u64, u64) {
        let files = self.files.iter().filter(|file| file.record.owner.workspace == workspace && !file.deleted);
        files.fold((0, 0), |(bytes, files), file| (bytes + file.record.size_bytes, files + 1))
    }

    fn forget_expired(&mut self, workspace: Option<&str>) {
        for file in &mut self.files {
            let here = workspace.is_none_or(|workspace| file.record.owner.workspace == workspace);
            file.deleted |= here && file.record.expires_at_ms.is_some_and(|at| at <= self.now);
        }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Upload { by, length, purpose, expires_in_ms } => {
                self.upload(by, length, purpose, expires_in_ms).await;
            }
            Step::GiveUp { by, length } => {
                if let Ok(mut upload) = self.fixture.files.begin(&self.owners[by], u64::MAX).await {
                    drop(upload.write(some_bytes(length).into()).await);
                    drop(upload);
                    self.fixture.settle().await;
                } else {
                    let workspace = self.owners[by].workspace.clone();
                    self.forget_expired(Some(&workspace));
                }
            }
            Step::Delete { by, which } => {
                let Some(file) = self.files.get(which).cloned() else { return };
                let deleted = self.fixture.files.delete(&self.owners[by], &file.record.id).await;
                assert_eq!(deleted.is_ok(), self.visible(&file, by), "{deleted:?}");
                self.files[which].deleted |= deleted.is_ok();
            }
            Step::Get { by, which } => {
                let Some(file) = self.files.get(which) else { return };
                let found = self.fixture.files.get(&self.owners[by], &file.record.id).await;
                match found {
                    Ok(found) => assert!(self.visible(file, by) && found == file.record, "{found:?}"),
                    Err(error) => {
                        assert!(!self.visible(file, by) && matches!(error, FilesError::NotFound), "{error}");
                    }
                }
            }
            Step::Read { by, which, from, to } => self.read(by, which, from, to).await,
            Step::GetMany { by } => {
                let ids: Vec<_> = self.files.iter().map(|file| file.record.id.clone()).collect();
                let found = self.fixture.files.get_many(&self.owners[by], &ids).await.unwrap();
                let expected = self.files.iter().filter(|file| self.visible(file, by)).map(|file| &file.record);
                assert!(found.iter().eq(expected), "{found:?}");
            }
            Step::List { by, descending, cursor, limit, purpose } => {
                let order = if descending { Order::Descending } else { Order::Ascending };
                let purpose = purpose.map(|purpose| Purpose::ALL[purpose]);
                self.list(by, order, cursor, limit, purpose).await;
            }
            Step::Turn { by_ms } => {
                self.now += by_ms;
                self.fixture.clock.set(self.now);
            }
            Step::Sweep => {
                // Past the patience with whoever marked a file deleted.
                self.now += GRACE_MS;
                self.fixture.clock.set(self.now);
                Sweeper::new(&self.fixture.files, Metrics::new()).sweep(0).await.unwrap();
                self.forget_expired(None);
            }
        }
    }

    async fn upload(&mut self, by: usize, length: usize, purpose: usize, expires_in_ms: Option<i64>) {
        let owner = self.owners[by].clone();
        // Each has bytes of its own.
        let number = u8::try_from(self.files.len() % 251).unwrap();
        let bytes: Vec<u8> = some_bytes(length).into_iter().map(|byte| byte.wrapping_add(number)).collect();
        let uploaded = async {
            let mut upload = self.fixture.files.begin(&owner, u64::MAX).await?;
            for piece in bytes.chunks(300) {
                upload.write(Bytes::copy_from_slice(piece)).await?;
            }
            let new = NewFile { purpose: Purpose::ALL[purpose], lifetime_ms: expires_in_ms, ..new("x") };
            upload.finish(new).await
        };
        let uploaded = uploaded.await;
        self.fixture.settle().await;
        let fits = |world: &Self| {
            let (used, files) = world.counted(&owner.workspace);
            files < QUOTA.workspace_max_files && used < QUOTA.workspace_max_bytes
        };
        let holds = |world: &Self| world.counted(&owner.workspace).0 + length as u64 <= QUOTA.workspace_max_bytes;
        // Whoever finds no room makes some of what has expired: at the beginning, and at the end.
        if !fits(self) {
            self.forget_expired(Some(&owner.workspace));
        }
        let (begun, short) = (fits(self), length as u64 <= QUOTA.max_bytes);
        if begun && short && !holds(self) {
            self.forget_expired(Some(&owner.workspace));
        }
        match uploaded {
            Ok(record) => {
                assert!(begun && short && holds(self), "{record:?}");
                assert_eq!((record.size_bytes, &record.owner), (length as u64, &owner));
                self.files.push(Known { record, bytes, deleted: false });
            }
            Err(FilesError::TooLarge { .. }) => assert!(begun && !short),
            Err(FilesError::WorkspaceFiles { .. } | FilesError::WorkspaceBytes { .. }) => {
                assert!(!begun || (short && !holds(self)));
            }
            Err(error) => panic!("{error}"),
        }
    }

    async fn read(&mut self, by: usize, which: usize, from: u64, to: u64) {
        let Some(file) = self.files.get(which) else { return };
        let Ok(record) = self.fixture.files.get(&self.owners[by], &file.record.id).await else {
            assert!(!self.visible(file, by));
            return;
        };
        let read = self.fixture.bytes(&record, from..to).await.unwrap();
        let size = file.bytes.len();
        let (from, to) = (usize::try_from(from).unwrap().min(size), usize::try_from(to).unwrap().min(size));
        assert_eq!(read, file.bytes[from..to.max(from)]);
    }

    async fn list(
        &mut self,
        by: usize,
        order: Order,
        cursor: Option<(usize, bool)>,
        limit: u32,
        purpose: Option<Purpose>,
    ) {
        let unknown = "file-otr00000000000000000000000000000000".to_owned();
        let cursor = cursor.map(|(which, before)| (self.files.get(which), before));
        let id = cursor.map(|(file, _)| file.map_or(unknown, |file| file.record.id.clone()));
        let made =
            id.map(|id| if cursor.is_some_and(|(_, before)| before) { Cursor::Before(id) } else { Cursor::After(id) });
        let query = ListQuery { order, cursor: made, limit, purpose };
        let page = self.fixture.files.list(&self.owners[by], &query).await;
        // Also one that was swept: where it stood is known for a day, and no case takes that long.
        let known = cursor.is_none_or(|(file, _)| file.is_some_and(|file| file.record.owner == self.owners[by]));
        if !known {
            assert!(matches!(page, Err(FilesError::CursorNotFound)), "{page:?}");
            return;
        }
        let place = |record: &FileRecord| (record.created_at_ms, record.id.clone());
        let mut all: Vec<&FileRecord> =
            self.files.iter().filter(|file| self.visible(file, by)).map(|file| &file.record).collect();
        all.retain(|record| purpose.is_none_or(|purpose| record.purpose == purpose));
        all.sort_by_key(|record| place(record));
        if order == Order::Descending {
            all.reverse();
        }
        let limit = usize::try_from(limit).unwrap();
        let (expected, has_more) = match cursor {
            None => (all.iter().take(limit).collect::<Vec<_>>(), all.len() > limit),
            Some((file, before)) => {
                let at = place(&file.unwrap().record);
                let is_before = |record: &&&FileRecord| {
                    if order == Order::Ascending { place(record) < at } else { place(record) > at }
                };
                let (ahead, behind): (Vec<_>, Vec<_>) =
                    all.iter().filter(|record| place(record) != at).partition(is_before);
                let side = if before { &ahead } else { &behind };
                let start = if before { side.len().saturating_sub(limit) } else { 0 };
                (side[start..].iter().copied().take(limit).collect(), side.len() > limit)
            }
        };
        let page = page.unwrap();
        assert!(page.files.iter().eq(expected.into_iter().copied()), "{page:?}");
        assert_eq!(page.has_more, has_more);
    }

    /// The quota has counted what there is, by the model and by the rows.
    async fn usage_is_true(&self) {
        let rows: Vec<(String, i64, i64)> = sqlx::query_as(
            "SELECT workspace_id, CAST(SUM(size_bytes) AS BIGINT), COUNT(*) FROM files WHERE state <> 'deleted' \
             GROUP BY workspace_id",
        )
        .fetch_all(self.fixture.files.inside.repository.pool())
        .await
        .unwrap();
        let rows: BTreeMap<_, _> = rows.into_iter().map(|(id, bytes, files)| (id, (bytes, files))).collect();
        for workspace in ["team", "other"] {
            let usage = self.fixture.files.inside.repository.file_usage(workspace).await.unwrap();
            assert_eq!((usage.size_bytes, usage.files), self.counted(workspace), "{workspace}, by the model");
            let (bytes, files) = rows.get(workspace).copied().unwrap_or_default();
            assert_eq!((usage.size_bytes, usage.files), (bytes.try_into().unwrap(), files.try_into().unwrap()));
        }
    }
}

fn nobody_sees_a_byte_of_another(kind: Kind) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let steps = proptest::collection::vec(step(), 1..STEPS);
    let run = TestRunner::new(config).run(&steps, |steps| {
        runtime.block_on(async {
            let mut world = World::new(kind).await;
            for step in steps {
                world.take(step).await;
                world.usage_is_true().await;
            }
        });
        Ok(())
    });
    run.unwrap();
}

#[test]
fn nobody_sees_a_byte_of_another_on_sqlite() {
    nobody_sees_a_byte_of_another(Kind::Sqlite);
}

#[test]
fn nobody_sees_a_byte_of_another_on_postgresql() {
    nobody_sees_a_byte_of_another(Kind::Postgres);
}
