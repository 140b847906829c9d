//! What every store must do, on each of them: a folder and memory, and real servers.

use futures_util::{TryStreamExt as _, stream};
use services::azure::{self, Azure};
use services::s3::{self, S3};
use services::sftp::Sftp;

use super::*;
use crate::files::store::SHARDS;
use crate::files::target::StoreOptions;

/// More than one part on every store, and not a whole number of them.
const LONG: usize = (11 << 20) + 17;

fn target(url: &str, options: &[(&str, &str)]) -> StoreTarget {
    let mut target = StoreTarget::parse(url, std::path::Path::new("/nowhere")).unwrap();
    if let StoreTarget::Remote(remote) = &mut target {
        let mut set = StoreOptions::default();
        for (name, value) in options {
            assert!(remote.kind.option(name).is_some(), "{name}");
            set.set(*name, *value);
        }
        remote.options = set;
    }
    target
}

pub(super) fn on_s3() -> StoreTarget {
    on_s3_at(&format!("{}/some/prefix", S3::shared().unwrap().place().unwrap()))
}

fn on_s3_at(place: &str) -> StoreTarget {
    let (url, endpoint) = (format!("s3://{place}"), S3::shared().unwrap().endpoint());
    let keys = [("access_key_id", s3::ACCESS_KEY), ("secret_access_key", s3::SECRET_KEY)];
    target(&url, &[("endpoint", endpoint.as_str()), ("region", "us-east-1"), ("allow_http", "true"), keys[0], keys[1]])
}

fn on_google(base_url: &str, bucket: &str) -> StoreTarget {
    let url = format!("gcs://{bucket}");
    let nobody = r#"{"private_key": "x", "private_key_id": "x", "client_email": "x", "disable_oauth": true}"#;
    target(&url, &[("base_url", base_url), ("service_account_key", nobody), ("allow_http", "true")])
}

fn on_azure() -> StoreTarget {
    let server = Azure::shared().unwrap();
    let (url, endpoint) = (format!("az://{}/prefix", server.container().unwrap()), server.endpoint());
    let account = [("account_name", azure::ACCOUNT), ("account_key", azure::ACCOUNT_KEY)];
    target(&url, &[("endpoint", endpoint.as_str()), ("allow_http", "true"), account[0], account[1]])
}

fn on_sftp() -> StoreTarget {
    let server = Sftp::shared().unwrap();
    let key = server.key();
    target(&server.url(), &[("key", key.to_str().unwrap()), ("known_hosts_strategy", "accept")])
}

#[tokio::test]
async fn a_folder_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    file_store_contract(&StoreTarget::Local(folder.path().join("blobs")), true).await;
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    file_store_contract(&StoreTarget::Memory, true).await;
}

#[tokio::test]
async fn s3_keeps_the_contract() {
    file_store_contract(&on_s3(), true).await;
}

/// No emulator of Google's serves what `object_store` speaks: it wants entity tags, uploads in parts, and lists in XML.
/// But that API is the one of S3, but for how one proves who one is: so an open bucket there will do.
#[tokio::test]
async fn googles_client_keeps_the_contract() {
    let server = S3::shared().unwrap();
    file_store_contract(&on_google(&server.open_endpoint().unwrap(), &server.open_place().unwrap()), false).await;
}

#[tokio::test]
async fn azure_keeps_the_contract() {
    file_store_contract(&on_azure(), true).await;
}

#[tokio::test]
async fn sftp_keeps_the_contract() {
    file_store_contract(&on_sftp(), true).await;
}

#[tokio::test]
async fn unfinished_uploads_are_told_from_those_of_others_in_the_same_bucket() {
    let place = S3::shared().unwrap().place().unwrap();
    let bucket = place.split('/').next().unwrap();
    let open = |place: &str| FileStore::open(&on_s3_at(place), 1 << 30, TaskTracker::new()).unwrap();
    // One whose prefix begins like ours, one below one of our shards, and one that has the bucket for itself.
    let (ours, longer, below, whole) =
        (open(&place), open(&format!("{place}-staging")), open(&format!("{place}/ab")), open(bucket));
    let mut begun = Vec::new();
    for store in [&ours, &longer, &below] {
        let id = FileId::mint(&SystemIds);
        let mut writer = store.write(&id);
        writer.write(some_bytes(LONG).into()).await.unwrap();
        // As a process leaves it that is killed.
        std::mem::forget(writer);
        begun.push(id);
    }
    for (store, expected) in [(&ours, &begun[..1]), (&longer, &begun[1..2]), (&below, &begun[2..]), (&whole, &[])] {
        let found = store.unfinished_before(i64::MAX).await.unwrap();
        let found: Vec<_> = found.into_iter().map(|upload| upload.id).collect();
        assert_eq!(found, expected, "{store:?}");
    }
    for upload in ours.unfinished_before(i64::MAX).await.unwrap() {
        ours.abort_unfinished(&upload).await.unwrap();
    }
    assert_eq!(ours.unfinished_before(i64::MAX).await.unwrap(), []);
    // The same goes for what is whole.
    write(&below, &begun[0], b"1").await;
    for shard in [0xab, u32::from_str_radix(&begun[0].digits()[..2], 16).unwrap()] {
        assert_eq!(listed(&ours, shard).await, Vec::<FileId>::new());
    }
}

/// `keeps_mark`: the store can tell that an object is there already.
async fn file_store_contract(target: &StoreTarget, keeps_mark: bool) {
    let store = FileStore::open(target, 1 << 30, TaskTracker::new()).unwrap();
    assert_eq!(store.mark().await.unwrap(), None);
    for shard in [0, SHARDS - 1] {
        assert_eq!(listed(&store, shard).await, Vec::<FileId>::new(), "before there is anything");
    }
    what_was_written_is_read(&store).await;
    what_was_given_up_is_gone(&store).await;
    deletions_agree_with_what_is_there(&store).await;
    store.put_mark("mine").await.unwrap();
    assert_eq!(store.mark().await.unwrap().as_deref(), Some("mine"));
    store.put_mark("anothers").await.unwrap();
    let kept = store.mark().await.unwrap();
    assert_eq!(kept.as_deref(), Some(if keeps_mark { "mine" } else { "anothers" }), "who comes first has it");
    let everything = stream::iter(0..SHARDS).map(|shard| listed(&store, shard)).buffered(8);
    let everything: Vec<_> = everything.collect::<Vec<_>>().await.concat();
    assert_eq!(everything, Vec::<FileId>::new(), "nothing is left, and the mark is no blob");
}

async fn what_was_written_is_read(store: &FileStore) {
    for length in [0, 1, 300_000, LONG] {
        let (id, bytes) = (FileId::mint(&SystemIds), some_bytes(length));
        write(store, &id, &bytes).await;
        assert!(read(store, &id, 0..length as u64).await.unwrap() == bytes, "{length} bytes");
        for range in [0..1, 5..299_999, 7_000_000..7_000_001, 11 << 20..LONG] {
            if range.end <= length {
                let part = read(store, &id, range.start as u64..range.end as u64).await.unwrap();
                assert!(part == bytes[range.clone()], "{range:?} of {length}");
            }
        }
        if length > 0 {
            let beyond = read(store, &id, 0..length as u64 + 1).await;
            assert!(matches!(beyond, Err(StoreError::Short)), "{beyond:?}");
            let beyond = read(store, &id, length as u64..length as u64 + 1).await;
            assert!(beyond.is_err(), "{beyond:?}");
        }
        let shard = u32::from_str_radix(&id.digits()[..2], 16).unwrap();
        assert_eq!(listed(store, shard).await, std::slice::from_ref(&id));
        store.delete(&id).await.unwrap();
        let gone = read(store, &id, 0..1).await;
        assert!(matches!(gone, Err(StoreError::Missing)), "{gone:?}");
    }
}

async fn what_was_given_up_is_gone(store: &FileStore) {
    for length in [0, 1, LONG] {
        for commit in [false, true] {
            let (id, bytes) = (FileId::mint(&SystemIds), some_bytes(length));
            let mut writer = store.write(&id);
            for piece in bytes.chunks(1 << 20) {
                writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
            }
            if commit {
                writer.commit().await.unwrap();
            }
            writer.abort().await.unwrap();
            let gone = read(store, &id, 0..1).await;
            assert!(matches!(gone, Err(StoreError::Missing)), "{length} bytes: {gone:?}");
            assert_eq!(store.unfinished_before(i64::MAX).await.unwrap(), []);
        }
    }
}

async fn deletions_agree_with_what_is_there(store: &FileStore) {
    let ids: Vec<_> = (0..30).map(|_| FileId::mint(&SystemIds)).collect();
    for id in ids.iter().step_by(2) {
        write(store, id, b"1").await;
    }
    store.delete(&ids[0]).await.unwrap();
    store.delete(&ids[0]).await.unwrap();
    let failed = store.delete_many(&ids).await;
    assert!(failed.is_empty(), "what is not there is as good as removed: {failed:?}");
    for id in &ids {
        assert!(matches!(read(store, id, 0..1).await, Err(StoreError::Missing)));
    }
}

async fn write(store: &FileStore, id: &FileId, bytes: &[u8]) {
    let mut writer = store.write(id);
    for piece in bytes.chunks(333_333) {
        writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    writer.commit().await.unwrap();
}

async fn read(store: &FileStore, id: &FileId, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
    let pieces: Vec<Bytes> = store.read(id, range).await?.try_collect().await?;
    Ok(pieces.concat())
}

async fn listed(store: &FileStore, shard: u32) -> Vec<FileId> {
    let pages: Vec<_> = store.list(shard).try_collect().await.unwrap();
    pages.concat().into_iter().map(|listed| listed.id).collect()
}
