use std::convert::Infallible;
use std::sync::atomic::AtomicUsize;

use http::HeaderValue;
use proptest::prelude::*;

use super::*;

const PATIENCE: Patience =
    Patience { silence: Duration::from_hours(1), deadline: Duration::from_hours(1), min_bytes_per_s: 0 };
const TYPE: &str = "multipart/form-data; boundary=XX";

fn headers(content_type: &str) -> HeaderMap {
    [(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap())].into_iter().collect()
}

fn body(pieces: Vec<Bytes>) -> Body {
    Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)))
}

fn form(text: &[u8]) -> Form {
    Form::begin(&headers(TYPE), body(vec![Bytes::copy_from_slice(text)]), PATIENCE).unwrap()
}

fn part(head: &str, content: &str) -> String {
    format!("--XX\r\n{head}\r\n\r\n{content}\r\n")
}

/// Field, file name, type and content of every part.
type Seen = (String, Option<String>, Option<String>, Vec<u8>);

async fn all(mut form: Form) -> Result<Vec<Seen>, Problem> {
    let mut seen = Vec::new();
    while let Some(mut part) = form.next().await.map_err(|refusal| refusal.problem().clone())? {
        let mut content = Vec::new();
        while let Some(piece) = part.piece().await.map_err(|refusal| refusal.problem().clone())? {
            content.extend_from_slice(&piece);
        }
        let media_type = part.media_type.as_ref().map(|value| String::from_utf8_lossy(value).into_owned());
        seen.push((part.disposition.field.clone(), part.disposition.file_name.clone(), media_type, content));
    }
    Ok(seen)
}

async fn message(form: Form) -> String {
    all(form).await.unwrap_err().message
}

fn whole() -> Vec<u8> {
    let mut text = String::from("a preamble that nobody reads\r\n").into_bytes();
    let head = "Content-Disposition: form-data; name=\"purpose\"\r\nContent-Transfer-Encoding: 8bit";
    text.extend(part(head, "user_data").bytes());
    let head = "content-disposition: form-data; name=\"file\"; filename=\"a b é.csv\"\r\nContent-Type: text/csv";
    text.extend(part(head, "1,2\r\n--X\r\n--XY\r\n\r\n").bytes());
    text.extend(part("Content-Disposition: form-data; name=\"expires_after[seconds]\"", "3600").bytes());
    text.extend(b"--XX--\r\nand an epilogue");
    text
}

fn expected() -> Vec<Seen> {
    let (name, kind) = ("a b é.csv".to_owned(), "text/csv".to_owned());
    vec![
        ("purpose".to_owned(), None, None, b"user_data".to_vec()),
        ("file".to_owned(), Some(name), Some(kind), b"1,2\r\n--X\r\n--XY\r\n\r\n".to_vec()),
        ("expires_after[seconds]".to_owned(), None, None, b"3600".to_vec()),
    ]
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

proptest! {
    #[test]
    fn a_form_is_the_same_however_it_is_cut(cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20)) {
        let whole = Bytes::from(whole());
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(whole.len())).collect();
        cuts.extend([0, whole.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| whole.slice(pair[0]..pair[1])).collect();
        let form = Form::begin(&headers(TYPE), body(pieces), PATIENCE).unwrap();
        prop_assert_eq!(run(all(form)).unwrap(), expected());
    }
}

#[tokio::test]
async fn a_form_byte_by_byte_is_the_same_and_its_last_boundary_ends_it() {
    let pieces = whole().into_iter().map(|byte| Bytes::from(vec![byte])).collect();
    assert_eq!(all(Form::begin(&headers(TYPE), body(pieces), PATIENCE).unwrap()).await.unwrap(), expected());
    let cut = whole();
    for lost in ["--\r\nand an epilogue".len(), 100, 200] {
        let text = message(form(&cut[..cut.len() - lost])).await;
        assert!(text.contains("before its closing boundary"), "{text}");
    }
}

#[test]
fn only_a_form_with_a_boundary_is_read() {
    let begin = |content_type: &str| Form::begin(&headers(content_type), Body::empty(), PATIENCE);
    for good in ["Multipart/Form-Data; Boundary=x", "multipart/form-data; charset=utf-8; boundary=\"a b/?\""] {
        begin(good).unwrap();
    }
    let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
    for bad in ["", "multipart/form-data", "multipart/form-data; boundary=", "application/json; boundary=x", &long] {
        let problem = begin(bad).unwrap_err().problem().clone();
        assert!(problem.message.contains("multipart/form-data"), "{bad}: {problem:?}");
    }
    let mut twice = headers(TYPE);
    twice.append(CONTENT_TYPE, HeaderValue::from_static(TYPE));
    Form::begin(&twice, Body::empty(), PATIENCE).unwrap_err();
    Form::begin(&HeaderMap::new(), Body::empty(), PATIENCE).unwrap_err();
    let mut encoded = headers(TYPE);
    encoded.insert(CONTENT_ENCODING, HeaderValue::from_static("identity"));
    Form::begin(&encoded, Body::empty(), PATIENCE).unwrap();
    encoded.append(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let problem = Form::begin(&encoded, Body::empty(), PATIENCE).unwrap_err().problem().clone();
    assert_eq!(problem.kind, ProblemKind::UnsupportedMediaType);
}

#[tokio::test]
async fn what_is_malformed_or_has_no_end_is_refused() {
    let closing = "--XX--\r\n";
    let many = part("Content-Disposition: form-data; name=a", "1").repeat(MAX_PARTS + 1) + closing;
    let endless = format!("--XX\r\nX-Long: {}", "a".repeat(1 << 20));
    let preamble = "a".repeat(1 << 20);
    for (text, expected) in [
        (String::new(), "malformed"),
        ("nothing like a form".to_owned(), "malformed"),
        (many, "more than 16 parts"),
        (
            part("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: base64", "MQ==") + closing,
            "as they are",
        ),
        (part("X: y", "1") + closing, "it is missing"),
        (part("Content-Disposition: form-data", "1") + closing, "no `name`"),
        (part("Content-Disposition: form-data; name=a\u{0}b", "1") + closing, "control characters"),
        ("--XX\r\n".to_owned() + &"a: b\r\n".repeat(40) + "\r\n\r\n--XX--", "headers of a part"),
    ] {
        let text = message(form(text.as_bytes())).await;
        assert!(text.contains(expected), "{expected}: {text}");
    }
    for text in [endless, preamble] {
        let pieces = text.as_bytes().chunks(4096).map(Bytes::copy_from_slice).collect();
        let text = message(Form::begin(&headers(TYPE), body(pieces), PATIENCE).unwrap()).await;
        assert!(text.contains("no part begins within"), "{text}");
    }
}

#[tokio::test]
async fn a_field_of_text_has_a_limit_and_a_charset() {
    let of = |content: &[u8]| {
        let head = b"--XX\r\nContent-Disposition: form-data; name=\"pur\tpose\"\r\n\r\n".as_slice();
        form(&[head, content, b"\r\n--XX--"].concat())
    };
    let read = async |content: &[u8]| of(content).next().await.unwrap().unwrap().text().await;
    assert_eq!(read(b"user_data").await.unwrap(), "user_data");
    assert_eq!(read(&[b'a'; TEXT_MAX_BYTES]).await.unwrap().len(), TEXT_MAX_BYTES);
    for odd in [[b'a'; TEXT_MAX_BYTES + 1].as_slice(), b"\xff"] {
        let problem = read(odd).await.unwrap_err().problem().clone();
        assert_eq!(problem.param.as_deref(), Some("purpose"), "{problem:?}");
    }
}

#[tokio::test]
async fn no_more_of_a_body_is_taken_than_somebody_asks_for() {
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let head = Bytes::from_static(b"--XX\r\nContent-Disposition: form-data; name=file\r\n\r\n");
    let pieces = stream::iter(std::iter::once(head).chain(std::iter::repeat(Bytes::from(vec![7; 4096]))));
    let pieces = pieces.inspect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let mut form = Form::begin(&headers(TYPE), Body::from_stream(pieces.map(Ok::<_, Infallible>)), PATIENCE).unwrap();
    let mut part = form.next().await.unwrap().unwrap();
    for asked in 1..100 {
        assert_eq!(part.piece().await.unwrap().unwrap().len(), 4096);
        assert!(taken.load(Ordering::Relaxed) <= asked + 1, "{taken:?} pieces for {asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_form_and_a_slow_reader_does_not() {
    let patience =
        Patience { silence: Duration::from_secs(10), deadline: Duration::from_secs(100), min_bytes_per_s: 0 };
    let head = Bytes::from_static(b"--XX\r\nContent-Disposition: form-data; name=file\r\n\r\n");
    let trickle = |every: Duration| {
        let pieces = std::iter::once(head.clone()).chain(std::iter::repeat(Bytes::from_static(b"1")));
        let pieces = stream::iter(pieces).then(move |piece| async move {
            tokio::time::sleep(every).await;
            Ok::<_, Infallible>(piece)
        });
        Form::begin(&headers(TYPE), Body::from_stream(pieces), patience).unwrap()
    };
    let mut silent = trickle(Duration::from_secs(11));
    silent.next().await.unwrap_err();
    // Within the patience, until the deadline; the reader's own pauses count for that alone.
    let mut slow = trickle(Duration::from_secs(9));
    let mut part = slow.next().await.unwrap().unwrap();
    assert!(part.piece().await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(part.piece().await.unwrap().is_some());
    let mut more = 0;
    let refusal = loop {
        match part.piece().await {
            Ok(_) => more += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!(more > 2 && refusal.problem().message.contains("took too long"), "{more} {refusal:?}");
}

#[tokio::test(start_paused = true)]
async fn a_form_that_trickles_is_ended_and_one_with_a_slow_reader_is_not() {
    let patience =
        Patience { silence: Duration::from_secs(10), deadline: Duration::from_hours(9), min_bytes_per_s: 100 };
    let read = async |bytes: usize, every: Duration, pause: Duration| {
        let head = Bytes::from_static(b"--XX\r\nContent-Disposition: form-data; name=file\r\n\r\n");
        let pieces = std::iter::once(head).chain(std::iter::repeat_n(Bytes::from(vec![b'1'; bytes]), 100));
        let pieces = pieces.chain([Bytes::from_static(b"\r\n--XX--\r\n")]);
        let pieces = stream::iter(pieces).then(move |piece| async move {
            tokio::time::sleep(every).await;
            Ok::<_, Infallible>(piece)
        });
        let mut form = Form::begin(&headers(TYPE), Body::from_stream(pieces), patience).unwrap();
        let mut part = form.next().await?.unwrap();
        let mut all = 0;
        while let Some(piece) = part.piece().await? {
            all += piece.len();
            tokio::time::sleep(pause).await;
        }
        Ok::<_, Refusal>(all)
    };
    let second = Duration::from_secs(1);
    assert_eq!(read(100, second, Duration::ZERO).await.unwrap(), 10_000, "just fast enough");
    let slow = read(80, second, Duration::ZERO).await.unwrap_err();
    assert!(slow.problem().message.contains("took too long"), "{slow:?}");
    assert_eq!(read(100, second / 2, second * 60).await.unwrap(), 10_000, "only who is waited for counts");
}
