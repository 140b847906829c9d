//! Content comes back as it was sent, in whole or in part, and in no browser's name.

use serde_json::Value;

use super::form::Form;
use super::{VENDORS, Vendor, blobs};
use crate::support::{Answer, Sidecar, start};

/// Every value a byte can have, and line ends in every order.
fn content() -> Vec<u8> {
    (0..=255).chain(*b"\r\n\n\r\r\n--").cycle().take(300_000).collect()
}

async fn path(sidecar: &Sidecar, form: Form) -> String {
    let file = Vendor::OpenAi.upload(sidecar, form).await.json();
    format!("/v1/files/{}/content", file["id"].as_str().unwrap())
}

async fn get(sidecar: &Sidecar, path: &str, headers: &[(&str, &str)]) -> Answer {
    let call = sidecar.call("GET", path);
    headers.iter().fold(call, |call, (name, value)| call.header(name, value)).send().await
}

#[tokio::test]
async fn a_download_is_what_was_uploaded_and_says_what_it_is() {
    let sidecar = start().await;
    let content = content();
    for (name, media_type, expected) in [
        ("a.bin", "application/x-own; v=1", "application/x-own; v=1"),
        ("a.json", "application/json", "application/json"),
        ("a.html", "text/html", "text/html"),
        ("a.csv", "application/octet-stream", "text/csv"),
    ] {
        let path = path(&sidecar, Form::default().typed(name, media_type, &content)).await;
        for vendor in VENDORS {
            let whole = vendor.get(&sidecar, &path).await;
            assert!(whole.status == 200 && whole.body == content);
            let header = |name| whole.header(name).unwrap();
            assert_eq!(header("content-type"), expected);
            assert_eq!(header("content-length"), content.len().to_string());
            assert_eq!(header("x-content-type-options"), "nosniff");
            assert_eq!(header("accept-ranges"), "bytes");
            assert!(header("cache-control").contains("private") && header("cache-control").contains("no-transform"));
            assert_eq!(
                header("content-disposition"),
                format!("attachment; filename=\"{name}\"; filename*=UTF-8''{name}")
            );
            assert_eq!(header("etag").len(), 66);
            assert_eq!(whole.headers.get("transfer-encoding"), None);
            assert_eq!(header("request-id"), header("x-request-id"));
            let head = vendor.call(&sidecar, "HEAD", &path).send().await;
            assert_eq!((head.status, head.body.len()), (200, 0));
            for name in ["content-type", "content-length", "etag", "content-disposition", "accept-ranges"] {
                assert_eq!(head.header(name), whole.header(name));
            }
        }
    }
}

#[tokio::test]
async fn a_range_is_given_exactly_and_one_beyond_the_end_refused() {
    let sidecar = start().await;
    let content = content();
    let path = path(&sidecar, Form::default().named("a.bin", &content)).await;
    let last = content.len() - 1;
    for (range, first, end) in [
        ("bytes=0-0".to_owned(), 0, 1),
        ("bytes=65535-65536".to_owned(), 65_535, 65_537),
        ("bytes=100-".to_owned(), 100, last + 1),
        ("bytes=-100".to_owned(), last - 99, last + 1),
        (format!("bytes={last}-999999999"), last, last + 1),
        ("bytes=-999999999".to_owned(), 0, last + 1),
    ] {
        let part = get(&sidecar, &path, &[("range", &range)]).await;
        assert_eq!(part.status, 206, "{range}");
        assert!(part.body == content[first..end], "{range}");
        let said = format!("bytes {first}-{}/{}", end - 1, content.len());
        assert_eq!(part.header("content-range"), Some(&*said));
        assert_eq!(part.header("content-length"), Some(&*(end - first).to_string()));
    }
    for vendor in VENDORS {
        let call = vendor.call(&sidecar, "GET", &path).header("range", &format!("bytes={}-", content.len()));
        let beyond = call.send().await;
        vendor.refused(&beyond, 416, "invalid_request_error");
        assert_eq!(beyond.header("content-range"), Some(&*format!("bytes */{}", content.len())));
    }
    for range in ["bytes=0-0", "bytes=999999999-"] {
        let head = sidecar.call("HEAD", &path).header("range", range).send().await;
        assert_eq!((head.status, head.header("content-length")), (200, Some(&*content.len().to_string())));
    }
    for odd in ["bytes=2-1", "bytes=0-1,4-5", "lines=1-2", "bytes=x"] {
        let whole = get(&sidecar, &path, &[("range", odd)]).await;
        assert!(whole.status == 200 && whole.body == content, "{odd}");
    }
}

#[tokio::test]
async fn what_a_client_has_is_not_sent_again() {
    let sidecar = start().await;
    let path = path(&sidecar, Form::default().named("a.bin", b"0123456789")).await;
    let tag = get(&sidecar, &path, &[]).await.header("etag").unwrap().to_owned();
    for known in [&*tag, "*", &format!("\"x\", W/{tag}")] {
        let none = get(&sidecar, &path, &[("if-none-match", known)]).await;
        assert_eq!((none.status, none.body.len(), none.header("etag")), (304, 0, Some(&*tag)));
    }
    assert_eq!(get(&sidecar, &path, &[("if-none-match", "\"x\"")]).await.body, "0123456789");
    let part = [("range", "bytes=2-3"), ("if-range", &*tag)];
    assert_eq!(get(&sidecar, &path, &part).await.body, "23");
    let whole = get(&sidecar, &path, &[part[0], ("if-range", "\"x\"")]).await;
    assert_eq!((whole.status, whole.body), (200, "0123456789".into()));
    // The same bytes are the same version, whoever uploaded them.
    let twin = super::download::path(&sidecar, Form::default().named("b.bin", b"0123456789")).await;
    assert_eq!(get(&sidecar, &twin, &[]).await.header("etag"), Some(&*tag));
}

#[tokio::test]
async fn no_name_of_a_file_writes_a_header_of_its_own() {
    let sidecar = start().await;
    for (disposition, expected) in [
        (r#"filename="a\"; x=\"b.txt""#, "filename=\"a_; x=_b.txt\"; filename*=UTF-8''a%22%3B%20x%3D%22b.txt"),
        (
            "filename=\"naïve %0d%0a.txt\"",
            "filename=\"na_ve _0d_0a.txt\"; filename*=UTF-8''na%C3%AFve%20%250d%250a.txt",
        ),
        ("filename=\"测试\"", "filename=\"download\"; filename*=UTF-8''%E6%B5%8B%E8%AF%95"),
    ] {
        let form = Form::default().part(&format!("form-data; name=\"file\"; {disposition}"), b"1");
        let answer = get(&sidecar, &path(&sidecar, form).await, &[]).await;
        assert_eq!(answer.header("content-disposition"), Some(&*format!("attachment; {expected}")));
    }
}

#[tokio::test]
async fn a_download_under_way_ends_whole_or_broken_when_its_file_is_deleted() {
    let sidecar = start().await;
    // More than sockets and queues hold.
    let content: Vec<u8> = content().into_iter().cycle().take(32 << 20).collect();
    let path = path(&sidecar, Form::default().named("a.bin", &content)).await;
    let mut open = sidecar.call("GET", &path).open().await;
    let mut bytes = open.piece().await.unwrap().unwrap().to_vec();
    let deleted = sidecar.call("DELETE", path.trim_end_matches("/content")).send().await;
    assert_eq!((open.status, deleted.status), (200, 200));
    assert_eq!(sidecar.call("GET", &path).send().await.status, 404);
    let ended = loop {
        match open.piece().await {
            Ok(Some(piece)) => bytes.extend_from_slice(&piece),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    assert!(bytes == content[..bytes.len()]);
    assert!(!ended || bytes.len() == content.len(), "{} bytes came as if they were all", bytes.len());
}

#[tokio::test]
async fn a_lost_blob_is_a_500_and_never_a_short_answer() {
    let sidecar = start().await;
    let path = path(&sidecar, Form::default().named("a.bin", &content())).await;
    let [blob] = &blobs(&sidecar)[..] else { panic!("one blob") };
    std::fs::remove_file(blob).unwrap();
    for vendor in VENDORS {
        let kind = if vendor == Vendor::OpenAi { "server_error" } else { "api_error" };
        let answer = vendor.get(&sidecar, &path).await;
        let (message, param) = vendor.refused(&answer, 500, kind);
        assert!(param == Value::Null && !message.contains("blob") && !message.contains('/'), "{message}");
    }
    // A blob that lost its end is told by its length, for the head has promised all of it.
    std::fs::write(blob, &content()[..200_000]).unwrap();
    let mut open = sidecar.call("GET", &path).open().await;
    let mut bytes = 0;
    let broke = loop {
        match open.piece().await {
            Ok(Some(piece)) => bytes += piece.len(),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(open.status == 500 || broke, "a short file of {bytes} bytes came as if it were whole");
}
