//! Documents read by the real child process: good ones, and those made to break it.

use std::convert::Infallible;
use std::io::{Cursor, Write as _};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use sidecar::extract::{Document, ExtractError, ExtractLimits, Extracted, Extractor};
use tokio::time::Instant;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const LIMITS: ExtractLimits = ExtractLimits {
    timeout: Duration::from_mins(1),
    max_document_bytes: 1 << 25,
    max_chars: 1000,
    max_concurrent: 2,
    max_concurrent_per_workspace: 2,
};

fn extractor(limits: ExtractLimits) -> Extractor {
    Extractor::new(env!("CARGO_BIN_EXE_otari-sidecar").into(), limits)
}

fn far() -> Instant {
    Instant::now() + Duration::from_hours(1)
}

async fn read_within(limits: ExtractLimits, kind: Document, bytes: impl Into<Bytes>) -> Extracted {
    // In many pieces, as a store gives them.
    let bytes: Bytes = bytes.into();
    let pieces: Vec<_> = bytes.chunks(10_000).map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece))).collect();
    extractor(limits).text("team", kind, stream::iter(pieces), far()).await.unwrap()
}

async fn read(kind: Document, bytes: impl Into<Bytes>) -> Extracted {
    read_within(LIMITS, kind, bytes).await
}

/// A document that ends by whichever limit comes first; none of them tells more than the others.
async fn doomed(kind: Document, bytes: impl Into<Bytes>) -> Extracted {
    read_within(ExtractLimits { timeout: Duration::from_secs(3), ..LIMITS }, kind, bytes).await
}

/// A Word file whose text part is this.
pub(crate) fn word(pieces: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    archive.start_file("word/document.xml", SimpleFileOptions::default()).unwrap();
    for piece in pieces {
        archive.write_all(&piece).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// A PDF of these objects, numbered from 1, the first of them its catalog.
pub(crate) fn pdf(objects: &[&str]) -> Vec<u8> {
    let mut file = b"%PDF-1.4\n".to_vec();
    let mut places = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        places.push(file.len());
        write!(file, "{} 0 obj\n{object}\nendobj\n", number + 1).unwrap();
    }
    let (table, size) = (file.len(), objects.len() + 1);
    write!(file, "xref\n0 {size}\n0000000000 65535 f \n").unwrap();
    for place in places {
        writeln!(file, "{place:010} 00000 n ").unwrap();
    }
    write!(file, "trailer\n<</Size {size}/Root 1 0 R>>\nstartxref\n{table}\n%%EOF\n").unwrap();
    file
}

/// A PDF of one page that shows this text.
pub(crate) fn pdf_saying(text: &str) -> Vec<u8> {
    pdf_drawing(&format!("BT /F 12 Tf 72 700 Td ({text}) Tj ET"), "")
}

/// A PDF of one page with this content and these further resources.
fn pdf_drawing(content: &str, resources: &str) -> Vec<u8> {
    let stream = format!("<</Type/XObject/Subtype/Form/Length {}>>\nstream\n{content}\nendstream", content.len());
    pdf(&[
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Count 1/Kids[3 0 R]/MediaBox[0 0 600 800]>>",
        &format!("<</Type/Page/Parent 2 0 R/Contents 5 0 R/Resources<</Font<</F 4 0 R>>{resources}>>>>"),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        &stream,
    ])
}

#[tokio::test]
async fn a_document_is_read_by_a_process_of_its_own() {
    let whole = |text: &str| Extracted { text: text.to_owned(), ..Extracted::default() };
    assert_eq!(read(Document::Pdf, pdf_saying("Quarterly report")).await, whole("Quarterly report"));
    let file = word([b"<w:p><w:t>Minutes</w:t></w:p>".to_vec()]);
    assert_eq!(read(Document::Office, file).await, whole("Minutes"));
    assert_eq!(read(Document::Html, "<p>Hello</p>").await, whole("Hello"));
    let locked = read(Document::Pdf, "%PDF-1.4 and nothing else").await;
    assert_eq!((locked.text.as_str(), locked.is_broken), ("", true));
}

#[tokio::test]
async fn a_text_without_end_is_cut_and_what_came_before_a_crash_is_kept() {
    let endless = word((0..100).map(|_| b"<w:p><w:t>ten chars.</w:t></w:p>".repeat(10_000)));
    let read_of = read(Document::Office, endless).await;
    assert_eq!((read_of.text.chars().count(), read_of.is_cut, read_of.is_broken), (1000, true, false));
    let broken = word([b"<w:p><w:t>before</w:t></w:p><w:p><w:t>after</w:q>".to_vec()]);
    let read_of = read(Document::Office, broken).await;
    assert!(read_of.text.starts_with("before") && read_of.is_broken, "{read_of:?}");
}

#[tokio::test]
async fn bombs_and_loops_end_with_their_process_and_nothing_else() {
    // Half a gigabyte of one character in one run of text, and as much between tags.
    let bomb = word(std::iter::once(b"<w:t>".to_vec()).chain((0..512).map(|_| vec![b'a'; 1 << 20])));
    assert!(bomb.len() < 1 << 21, "{} bytes packed", bomb.len());
    let bomb = doomed(Document::Office, bomb).await;
    assert!(bomb.is_broken || bomb.is_cut, "{bomb:?}");
    let blank = word((0..512).map(|_| vec![b' '; 1 << 20]));
    assert_eq!(doomed(Document::Office, blank).await.text, "");
    // Tags within tags, a hundred million deep.
    let deep = word((0..300).map(|_| b"<a>".repeat(1 << 18)));
    assert_eq!(doomed(Document::Office, deep).await.text, "");
    let deep = "<div>".repeat(1 << 20);
    doomed(Document::Html, deep).await;
    // A form that draws itself, a page tree that holds itself, and an object that is its own length.
    let itself = pdf_drawing("/X Do", "/XObject<</X 5 0 R>>");
    assert!(doomed(Document::Pdf, itself).await.is_broken);
    let tree = pdf(&["<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Count 1/Kids[2 0 R]>>"]);
    assert!(doomed(Document::Pdf, tree).await.is_broken);
    let length = pdf(&["<</Type/Catalog/Pages 2 0 R>>", "<</Length 2 0 R>>\nstream\nx\nendstream"]);
    assert!(doomed(Document::Pdf, length).await.is_broken);
    // After all that, the next one is read as ever.
    assert_eq!(read(Document::Pdf, pdf_saying("still here")).await.text, "still here");
}

#[tokio::test]
async fn a_document_that_takes_too_long_is_given_up() {
    // Each form draws the next ten times.
    let forms: Vec<String> = (0..12)
        .map(|number| {
            let content = if number < 11 { format!("/X{} Do ", number + 1).repeat(10) } else { String::new() };
            let next = format!("/X{} {} 0 R", number + 1, number + 6);
            let length = content.len();
            format!("<</Subtype/Form/Resources<</XObject<<{next}>>>>/Length {length}>>\nstream\n{content}\nendstream")
        })
        .collect();
    let mut objects = vec![
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Count 1/Kids[3 0 R]/MediaBox[0 0 9 9]>>",
        "<</Type/Page/Parent 2 0 R/Contents 5 0 R/Resources<</XObject<</X1 5 0 R>>>>>>",
        "null",
    ];
    objects.extend(forms.iter().map(String::as_str));
    let limits = ExtractLimits { timeout: Duration::from_millis(500), ..LIMITS };
    assert!(read_within(limits, Document::Pdf, pdf(&objects)).await.is_broken);
}

#[tokio::test]
async fn who_finds_no_turn_in_time_is_told_and_a_source_that_fails_is_no_broken_document() {
    let extractor = extractor(ExtractLimits { max_concurrent: 1, ..LIMITS });
    let waiting = stream::pending::<Result<Bytes, std::io::Error>>();
    let (first, reader) = (extractor.clone(), tokio_util::task::TaskTracker::new());
    let first = reader.spawn(async move { first.text("team", Document::Html, waiting, far()).await });
    let mut second;
    loop {
        // Until the first one has its turn.
        second = extractor
            .text("team", Document::Html, stream::iter([Err(std::io::Error::other("gone"))]), Instant::now())
            .await;
        if matches!(second, Err(ExtractError::Busy)) {
            break;
        }
        tokio::task::yield_now().await;
    }
    first.abort();
    let failed =
        extractor.text("team", Document::Html, stream::iter([Err(std::io::Error::other("gone"))]), far()).await;
    assert!(matches!(failed, Err(ExtractError::Source(_))), "{failed:?}");
}

#[tokio::test]
async fn one_workspace_never_has_every_turn() {
    let extractor = extractor(ExtractLimits { max_concurrent_per_workspace: 1, ..LIMITS });
    let waiting = stream::pending::<Result<Bytes, std::io::Error>>();
    let (first, tasks) = (extractor.clone(), tokio_util::task::TaskTracker::new());
    let first = tasks.spawn(async move { first.text("team", Document::Html, waiting, far()).await });
    let page = || stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"<p>Hello</p>"))]);
    while !matches!(extractor.text("team", Document::Html, page(), Instant::now()).await, Err(ExtractError::Busy)) {
        tokio::task::yield_now().await;
    }
    assert_eq!(extractor.text("other", Document::Html, page(), far()).await.unwrap().text, "Hello");
    first.abort();
    assert_eq!(extractor.text("team", Document::Html, page(), far()).await.unwrap().text, "Hello");
}
