//! Files of gigabytes and lists of thousands, through Envoy: memory does not grow with them.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use harness::client::{Answer, Call};
use harness::file_rows::fill;
use harness::flood::Flood;
use harness::hex;
use harness::stack::{Setup, Stack, eventually};
use http::Method;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::support::{DATED, ask, question, seen, start, tag};

const MIB: usize = 1 << 20;
/// Of the one large file: what `make load` sends, and what is sent otherwise.
const LARGE_MIB: [usize; 2] = [2048, 256];
/// What one large upload or download may add to the memory of sidecar and of Envoy, each.
const MAX_RISE_BYTES: u64 = 32 << 20;
/// Uploads at once, what each has, and what the sidecar may take for them, all in all.
const PARALLEL: usize = 20;
const PARALLEL_MIB: [usize; 2] = [256, 32];
const MAX_PARALLEL_BYTES: u64 = 512 << 20;
/// More than one page of the longest there is.
const LISTED: u32 = 12_000;
/// Longest upload: all of them together on a slow machine.
const UPLOAD_PATIENCE: Duration = Duration::from_mins(10);
const SOON: Duration = Duration::from_secs(20);

/// The size for this run.
fn size([full, usual]: [usize; 2]) -> usize {
    if std::env::var("OTARI_LOAD").is_ok_and(|load| load == "full") { full } else { usual }
}

/// Content of so many MiB that takes one of memory: each piece begins a byte later, so none is in another's place.
fn content(mib: usize) -> impl Iterator<Item = Bytes> + Clone {
    let bytes: Vec<u8> =
        (0..MIB + mib).map(|at| u8::try_from(at % 251).unwrap() ^ u8::try_from((at >> 8) % 256).unwrap()).collect();
    let bytes = Bytes::from(bytes);
    (0..mib).map(move |number| bytes.slice(number..number + MIB))
}

fn upload(mib: usize) -> Call {
    let head = "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"large.bin\"\r\n\r\n";
    let pieces = std::iter::once(Bytes::from_static(head.as_bytes())).chain(content(mib));
    let pieces = pieces.chain([Bytes::from_static(b"\r\n--b--\r\n")]).collect();
    Call::new(Method::POST, "/v1/files")
        .header("content-type", "multipart/form-data; boundary=b")
        .chunks(pieces)
        .patient(UPLOAD_PATIENCE)
}

fn id(answer: &Answer) -> String {
    answer.json()["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned()
}

/// Does something, and says how much memory it took at its height, of the sidecar and of Envoy.
async fn rise<T>(stack: &Stack, work: impl Future<Output = T>) -> (T, [u64; 2]) {
    let parts = [stack.sidecar(), stack.envoy()];
    let before = parts.map(|part| {
        part.forget_peak().unwrap();
        part.resident_bytes().unwrap()
    });
    let done = work.await;
    let after = parts.map(|part| part.peak_bytes().unwrap());
    (done, [0, 1].map(|part| after[part].saturating_sub(before[part])))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_goes_up_and_down_in_little_memory() {
    let large = size(LARGE_MIB);
    let stack = start(Setup::default().set("files", "{max_bytes: 4294967296}")).await;
    // Whatever is made once is made by a small one.
    let small = id(&stack.send(upload(16)).await);
    let call = Call::get(format!("/v1/files/{small}/content")).bearer(stack.key());
    assert_eq!(call.open(stack.address()).await.unwrap().discard().await.unwrap(), 16 << 20);

    let (answer, rose) = rise(&stack, stack.send(upload(large))).await;
    let file = id(&answer);
    assert_eq!(answer.json()["bytes"], (large * MIB) as u64);
    assert!(rose.iter().all(|rose| *rose < MAX_RISE_BYTES), "upload: {rose:?} bytes of sidecar and Envoy");

    let mut hash = Sha256::new();
    let download = async {
        let call = Call::get(format!("/v1/files/{file}/content")).bearer(stack.key());
        let answer = call.open(stack.address()).await.unwrap();
        let headers = answer.headers.clone();
        answer.each(|piece| hash.update(piece)).await.unwrap();
        headers
    };
    let (headers, rose) = rise(&stack, download).await;
    assert!(rose.iter().all(|rose| *rose < MAX_RISE_BYTES), "download: {rose:?} bytes of sidecar and Envoy");
    let mut expected = Sha256::new();
    content(large).for_each(|piece| expected.update(piece));
    let (came, expected) = (hex(&hash.finalize()), hex(&expected.finalize()));
    assert_eq!(came, expected);
    let tag = headers.iter().find(|(name, _)| name == "etag").map(|(_, value)| value.clone());
    assert_eq!(tag, Some(format!("\"{expected}\"")));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_uploads_at_once_stay_within_the_sidecars_memory() {
    let each = size(PARALLEL_MIB);
    let stack = start(Setup::default()).await;
    let mut expected = Sha256::new();
    content(each).for_each(|piece| expected.update(piece));
    let expected = hex(&expected.finalize());
    stack.sidecar().forget_peak().unwrap();
    let files = join_all((0..PARALLEL).map(async |_| id(&stack.send(upload(each)).await))).await;
    // The peak is the kernel's own count of resident memory: nothing is between two looks.
    let peak = stack.sidecar().peak_bytes().unwrap();
    assert!(peak < MAX_PARALLEL_BYTES, "{peak} bytes");
    for file in files {
        let head = Call::new(Method::HEAD, format!("/v1/files/{file}/content"));
        assert_eq!(stack.send(head).await.header("etag"), Some(&*format!("\"{expected}\"")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_sends_without_end_is_cut_off_and_the_run_goes_on() {
    const CAP: u64 = 4 << 20;
    let flood = Flood::start(&["one.bin", "two.bin", "three.bin"], 5 << 30).await.unwrap();
    let sandbox = format!("{{backend: http, url: \"{}\"}}", flood.url());
    let files = format!("{{output_max_bytes: {CAP}}}");
    let stack = start(Setup::default().set("sandbox", &sandbox).set("files", &files)).await;
    let tag = tag();
    let (answer, rose) = rise(&stack, stack.send(ask(&question("code-once", &tag, &[DATED])))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["stop_reason"], "end_turn");
    assert!(rose[0] < MAX_RISE_BYTES, "{} bytes of the sidecar", rose[0]);
    // What the model was told, and reads out.
    let told = seen(&stack, &tag).await.pop().unwrap().body.unwrap();
    let line = format!("one.bin (not kept: it has more than the {CAP} bytes that were left for it)");
    assert!(told.contains(&line), "{told}");
    // Two such files are as much as may be kept, and one file more; sockets hold some of what nobody reads.
    let sent = flood.sent_bytes();
    assert!((CAP..2 * CAP + (16 << 20)).contains(&sent), "{sent} bytes were taken");
    let none = async || stack.send(Call::get("/v1/files")).await.json()["data"].as_array().is_some_and(Vec::is_empty);
    assert!(eventually(SOON, none).await);
}

/// How a list is asked for, and how one goes on behind a page; `None` at its end.
struct Shape {
    headers: &'static [(&'static str, &'static str)],
    first: &'static str,
    next: fn(&Value) -> Option<String>,
    pages: usize,
}

const SHAPES: [Shape; 3] = [
    Shape {
        headers: &[],
        first: "",
        next: |page| Some(format!("?after={}", page["has_more"].as_bool()?.then(|| page["last_id"].as_str())??)),
        pages: 2,
    },
    Shape {
        headers: &[("anthropic-version", "2023-06-01"), ("anthropic-beta", "files-api-2025-04-14")],
        first: "?limit=1000",
        next: |page| {
            let last = page["has_more"].as_bool()?.then(|| page["last_id"].as_str())??;
            Some(format!("?limit=1000&after_id={last}"))
        },
        pages: 12,
    },
    Shape {
        headers: &[("anthropic-version", "2026-10-21")],
        first: "?limit=1000",
        next: |page| Some(format!("?limit=1000&page={}", page["next_page"].as_str()?)),
        pages: 12,
    },
];

#[tokio::test]
async fn twelve_thousand_files_are_listed_once_each_in_every_shape() {
    let stack = start(Setup::default()).await;
    fill(&stack.data_dir(), "sqlite", LISTED).unwrap();
    for shape in SHAPES {
        let (mut query, mut ids, mut pages) = (shape.first.to_owned(), Vec::new(), 0);
        loop {
            let call = Call::get(format!("/v1/files{query}"));
            let call = shape.headers.iter().fold(call, |call, (name, value)| call.header(name, *value));
            let page = stack.send(call).await.json();
            let data = page["data"].as_array().unwrap_or_else(|| panic!("{page}"));
            assert!(!data.is_empty(), "an empty page");
            ids.extend(data.iter().map(|file| file["id"].as_str().unwrap().to_owned()));
            pages += 1;
            match (shape.next)(&page) {
                Some(next) => query = next,
                None => break,
            }
        }
        assert_eq!((ids.len(), pages), (LISTED as usize, shape.pages));
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "each once");
        assert!(ids.is_sorted_by(|one, other| one > other), "newest first");
    }
}
